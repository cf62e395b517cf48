"""The command `memory`: shows a snapshot of the caching allocator, and replays its trace with other settings."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

from . import _memory_summary, _replay, _snapshot

_TEMPLATE = Path(__file__).with_name("memory_view.html")


def add_arguments(parser) -> None:
    """Declares the command's options."""
    commands = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    about = "writes an HTML page with allocated memory over time, segments, and the largest blocks with their stacks"
    view = commands.add_parser("view", help=about, description=about)
    view.add_argument("file", help="a snapshot: torch.<name>.memory._dump_snapshot wrote it")
    view.add_argument("--output", metavar="PAGE.html", help="the page; default: FILE with the suffix .html")
    about = "repeats the recorded allocations with ordinary and with expandable segments, and with a simulation of PyTorch's allocator"
    replay = commands.add_parser("replay", help=about, description=about)
    replay.add_argument("file", help="a snapshot with a history: torch.<name>.memory._dump_snapshot wrote it")
    replay.add_argument("--json", action="store_true", help="print the results as JSON")


def page(summary: dict) -> str:
    """Returns the page, which needs no other file. No character of the data ends the element that contains it."""
    data = json.dumps(summary, separators=(",", ":")).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return _TEMPLATE.read_text(encoding="utf-8").replace("@DATA@", data, 1)


def _write(path: Path, text: str) -> None:
    """Writes a file that is complete or not there.

    Raises ValueError with the path and the cure.
    """
    try:
        _write_whole(path, text)
    except OSError as error:
        cure = f"create the folder {path.parent} or choose" if isinstance(error, FileNotFoundError) else "choose"
        raise ValueError(f"{path} cannot be written: {error.strerror or error}; {cure} another --output") from None


def _write_whole(path: Path, text: str) -> None:
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with open(handle, "w", encoding="utf-8") as file:
            file.write(text)
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _is_same(first: Path, second: Path) -> bool:
    try:
        return first.samefile(second)
    except OSError:
        return False


def _replay_file(source: Path) -> dict[int, tuple[list, dict]]:
    """Returns the steps and the results of each device with a trace."""
    snapshot = _snapshot.read(source)
    found = {}
    for device, trace in enumerate(snapshot["device_traces"]):
        segments = [segment for segment in snapshot["segments"] if segment["device"] == device]
        try:
            steps = _replay.operations(trace, segments) if trace else []
        except ValueError as error:
            raise ValueError(f"{source}: not a trace of the allocator: {error} of device {device}; {_snapshot.CURE}") from None
        if steps:
            found[device] = (steps, _replay.replay(steps))
    if not found:
        raise ValueError(f"{source}: no allocations were recorded; start the history before them, with torch.<name>.memory._record_memory_history()")
    return found


def _run_replay(arguments) -> int:
    try:
        found = _replay_file(Path(arguments.file))
    except ValueError as error:
        print(f"torch-backend memory replay: {error}", file=sys.stderr)
        return 1
    if arguments.json:
        print(json.dumps({device: {"steps": len(steps), "requested": _replay.requested(steps),
                                   "results": {policy: result._asdict() for policy, result in results.items()}}
                          for device, (steps, results) in found.items()}))  # fmt: skip
        return 0
    for device, (steps, results) in found.items():
        print(f"device {device}: " + "\n".join(_replay.table(steps, results)))
    return 0


def run(arguments) -> int:
    """Runs the action. Returns 1 and prints an error message if it fails."""
    return _run_replay(arguments) if arguments.action == "replay" else _run_view(arguments)


def _run_view(arguments) -> int:
    source = Path(arguments.file)
    try:
        summary = _memory_summary.summary(_snapshot.read(source))
        output = Path(arguments.output) if arguments.output else source.with_suffix(".html")
        if _is_same(output, source):
            raise ValueError(f"{output}: the page would replace the snapshot; choose another --output")
        _write(output, page({"file": source.name, **summary}))
    except ValueError as error:
        print(f"torch-backend memory view: {error}", file=sys.stderr)
        return 1
    print(output)
    return 0
