"""assemble_wheel.py OUT WHEEL...: assembles one wheel from several that were built from the same sources for different
versions of torch.

Each wheel contributes its files in torch_backend/builds/. All other files serve every version of torch and must be
equal, byte for byte, in every wheel.
"""

from __future__ import annotations

import base64
import hashlib
import sys
import zipfile
from pathlib import Path

BUILDS = "torch_backend/builds/"


class Mismatch(Exception):
    """The wheels cannot be assembled; the message names the file that prevents it."""


def read(path: Path) -> dict:
    """Returns the files of a wheel without its list of hashes: {name: (ZipInfo, bytes)}."""
    with zipfile.ZipFile(path) as wheel:
        return {info.filename: (info, wheel.read(info)) for info in wheel.infolist() if not _is_record(info.filename)}


def _is_record(name: str) -> bool:
    return name.endswith(".dist-info/RECORD")


def minors(files: dict) -> set:
    """Returns the versions of torch that a wheel is built for."""
    return {name[len(BUILDS):].partition("/")[0] for name in files if name.startswith(BUILDS)}


def merge(wheels: dict) -> dict:
    """Returns the files of all wheels, {name: files}. Raises Mismatch if files that they must share differ."""
    first_name, first = next(iter(wheels.items()))
    merged = dict(first)
    for name, files in list(wheels.items())[1:]:
        twice = minors(merged) & minors(files)
        if twice:
            raise Mismatch(f"{name} is built for torch {', '.join(sorted(twice))}, as an earlier wheel; pass one wheel for each version")
        for file in sorted({file for file in first.keys() | files.keys() if not file.startswith(BUILDS)}):
            if file not in first or file not in files:
                raise Mismatch(f"{file} is missing in {first_name} or in {name}; build both from the same sources")
            if first[file][1] != files[file][1]:
                raise Mismatch(f"{file} differs between {first_name} and {name}; build both from the same sources, with the same compiler")
        merged.update({file: content for file, content in files.items() if file.startswith(BUILDS)})
    return merged


def record_line(name: str, content: bytes) -> str:
    """Returns a file's line of RECORD (Core metadata: recording installed projects)."""
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(content)}"


def write(path: Path, files: dict) -> None:
    """Writes a wheel with its own list of hashes. An incomplete file never has the final name."""
    record = next(name.rpartition("/")[0] for name in files if name.endswith(".dist-info/WHEEL")) + "/RECORD"
    lines = [record_line(name, content) for name, (_, content) in files.items()] + [f"{record},,"]
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".part")
    with zipfile.ZipFile(unfinished, "w", zipfile.ZIP_DEFLATED) as wheel:
        for info, content in files.values():
            wheel.writestr(info, content, zipfile.ZIP_DEFLATED)
        wheel.writestr(record, "\n".join(lines) + "\n")
    unfinished.replace(path)


def main(arguments: list) -> int:
    if len(arguments) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    folder, paths = Path(arguments[0]), [Path(argument) for argument in arguments[1:]]
    if len({path.name for path in paths}) != 1:
        print(f"assemble_wheel.py: the wheels must have one name, for one Python and platform: {', '.join(map(str, paths))}", file=sys.stderr)
        return 1
    try:
        files = merge({str(path): read(path) for path in paths})
    except Mismatch as error:
        print(f"assemble_wheel.py: {error}", file=sys.stderr)
        return 1
    write(folder / paths[0].name, files)
    print(f"{folder / paths[0].name}: for torch {', '.join(sorted(minors(files), key=lambda name: [int(n) for n in name.split('.')]))}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
