"""Processor seconds that the compiler needs for csrc/ and the C++ that codegen writes for it.

Usage: python compile_seconds.py BUILD [BEFORE]. BUILD is a build folder of the package, with its compile_commands.json
(`make install` leaves it in build/wheel-*); BEFORE is that of another commit, for comparison. Each file is compiled
once more, without a compiler cache, into a temporary folder. Prints the seconds of each file and the sum. With BEFORE the
exit code is 1 if BUILD takes more.
"""

import argparse
import json
import os
import resource
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path


def commands(build):
    """Returns (file, command, folder) of the C++ files of csrc/."""
    for entry in json.loads((build / "compile_commands.json").read_text()):
        if entry["file"].endswith((".cpp", ".cxx")) and ("/csrc/" in entry["file"] or "/generated/aten/" in entry["file"]):
            yield entry["file"], shlex.split(entry["command"]), entry["directory"]


def seconds(command, folder, out):
    """Returns the processor seconds of one call of the compiler."""
    command = [out if before == "-o" else word for before, word in zip(["", *command], command)]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, cwd=folder, check=True, env={**os.environ, "CCACHE_DISABLE": "1"})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(build):
    """Prints the seconds of each file of a build folder; returns the sum."""
    total = 0.0
    with tempfile.TemporaryDirectory() as folder:
        for file, command, directory in commands(build):
            spent = seconds(command, directory, f"{folder}/object.o")
            total += spent
            print(f"{spent:8.1f}  {Path(file).parent.name}/{Path(file).name}", flush=True)
    print(f"{total:8.1f}  all of {build}")
    return total


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=Path, help="build folder of the package")
    parser.add_argument("before", type=Path, nargs="?", help="build folder of another commit")
    arguments = parser.parse_args()
    total = measure(arguments.build)
    return int(arguments.before is not None and total > measure(arguments.before))


if __name__ == "__main__":
    sys.exit(main())
