"""Copies the headers and the SDK of the present plugin ABI to test/abi/<version>, where they stay as they are.

    freeze.py [--again]

To be run when a minor version is complete, before it is released. With --again while it is not: the copy is replaced. The plugin
of that version, plugin.c, is written by hand and never replaced.
"""
import argparse
import hashlib
import re
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
HAL = HERE.parent.parent / "hal"
SDK = ("base.c", "defaults.h", "entry.c", "build_flags.h", "philox.h", "random.h", "semaphore.h", "shared_memory.c", "plugin.map")


def version():
    base = (HAL / "include/hal/plugin_base.h").read_text()
    return ".".join(re.search(rf"#define HAL_ABI_{part} (\d+)", base).group(1) for part in ("MAJOR", "MINOR"))


def files():
    """Yields (from, to below the folder of the version)."""
    for path in sorted((HAL / "include/hal").glob("plugin*")):
        yield path, Path("include/hal") / path.name
    for name in SDK:
        yield HAL / "sdk" / name, Path("sdk") / name


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--again", action="store_true")
    arguments = parser.parse_args()
    folder = HERE / version()
    sums = folder / "SHA256SUMS"
    if sums.exists() and not arguments.again:
        sys.exit(f"{folder} exists; a version that was released is never edited. While it is not: --again")
    for name in ("include", "sdk"):
        shutil.rmtree(folder / name, ignore_errors=True)
    lines = []
    for source, to in files():
        (folder / to).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, folder / to)
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and path != sums):
        lines.append(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(folder)}\n")
    sums.write_text("".join(lines))
    print(f"{folder}: {len(lines)} files")


if __name__ == "__main__":
    main()
