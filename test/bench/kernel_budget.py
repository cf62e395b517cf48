"""Counts the host's portable kernels, and the size and compile time of their library, and compares them with the
budget.

Usage: kernel_budget.py [--table PK_TABLE] [--library LIBRARY] [--time BUILD_FOLDER], by default the output of `make
test-c`. The exit code is 1 if the budget is exceeded.

  kernels  rows of the generated table: at most 2,500
  size     code and data of the archive, by `size`: at most 12 MB
  time     CPU seconds of one compilation of all kernels, one after the other: at most 90. Only with --time, which takes
           that long; the commands come from BUILD_FOLDER's compile_commands.json, without the compiler cache.
"""

import argparse
import json
import resource
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

BUILD = Path(__file__).parents[2] / "build" / "release"
MOST_KERNELS, MOST_BYTES, MOST_SECONDS = 2500, 12_000_000, 90


def kernels(table):
    """Returns the names in the generated table."""
    rows = [line for line in table.read_text(encoding="utf-8").splitlines() if line.startswith("X(")]
    return [row[2:].split(",")[0] for row in rows]


def by_family(names):
    """Counts by the kernel's dtype, which is the part of a name before its variant."""
    variants = {"contig", "s", "rows", "cols", "strided", "more", "merge", "tiles", "blocks"}
    counts = {}
    for name in names:
        token = [part for part in name.split("_") if part not in variants][-1]
        counts[token] = counts.get(token, 0) + 1
    return sorted(counts.items(), key=lambda item: -item[1])


def size_of(library):
    """Returns the bytes of code and data in an archive."""
    lines = subprocess.run(["size", library], capture_output=True, text=True, check=True).stdout.splitlines()[1:]
    return sum(int(line.split()[0]) + int(line.split()[1]) for line in lines)


def compile_seconds(build):
    """Compiles each generated kernel file once and returns the CPU seconds."""
    commands = json.loads((build / "compile_commands.json").read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        for entry in commands:
            if "/generated/kernels/pk_" not in entry["file"]:
                continue
            words = shlex.split(entry["command"])
            words = words[1:] if Path(words[0]).name == "ccache" else words
            words[words.index("-o") + 1] = str(Path(folder) / "kernel.o")
            subprocess.run(words, cwd=entry["directory"], check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--table", type=Path, default=BUILD / "generated/kernels/pk_table.inc", help="the generated pk_table.inc")
    parser.add_argument("--library", type=Path, default=BUILD / "hal/kernels/libhal_kernels.a", help="the archive of the kernels")
    parser.add_argument("--time", type=Path, metavar="BUILD_FOLDER", help="also compile all kernels once")
    options = parser.parse_args()
    names = kernels(options.table)
    figures = [("kernels", len(names), MOST_KERNELS), ("bytes", size_of(options.library), MOST_BYTES)]
    if options.time:
        figures.append(("CPU seconds", round(compile_seconds(options.time), 1), MOST_SECONDS))
    for what, figure, most in figures:
        print(f"{figure:>12,} {what} of {most:,}{'' if figure <= most else ': TOO MANY'}")
    print("             by dtype:", ", ".join(f"{count} {token}" for token, count in by_family(names)))
    return 1 if not names or any(figure > most for _, figure, most in figures) else 0


if __name__ == "__main__":
    sys.exit(main())
