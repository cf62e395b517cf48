"""The command `memory`: writes a page that shows a snapshot of the caching allocator."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

from . import _memory_summary, _snapshot

_TEMPLATE = Path(__file__).with_name("memory_view.html")


def add_arguments(parser) -> None:
    """Declares the command's options."""
    commands = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    about = "writes an HTML page with allocated memory over time, segments, and the largest blocks with their stacks"
    view = commands.add_parser("view", help=about, description=about)
    view.add_argument("file", help="a snapshot: torch.<name>.memory._dump_snapshot wrote it")
    view.add_argument("--output", metavar="PAGE.html", help="the page; default: FILE with the suffix .html")


def page(summary: dict) -> str:
    """Returns the page, which needs no other file. No character of the data ends the element that contains it."""
    data = json.dumps(summary, separators=(",", ":")).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return _TEMPLATE.read_text(encoding="utf-8").replace("@DATA@", data, 1)


def _write(path: Path, text: str) -> None:
    """Writes a file that is complete or not there."""
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


def run(arguments) -> int:
    """Writes the page and prints its name. Returns 1 and prints an error message if it fails."""
    source = Path(arguments.file)
    output = Path(arguments.output) if arguments.output else source.with_suffix(".html")
    try:
        if output.exists() and source.exists() and output.samefile(source):
            raise ValueError(f"{output}: the page would replace the snapshot; choose another --output")
        summary = _memory_summary.summary(_snapshot.read(source))
        _write(output, page({"file": source.name, **summary}))
    except (OSError, ValueError) as error:
        print(f"torch-backend memory view: {error}", file=sys.stderr)
        return 1
    print(output)
    return 0
