"""Instructions of a launch through the HAL and the OpenCL plugin, counted by callgrind on a minimal OpenCL library.

Usage: python opencl_launch.py [--check] [--build build/release] [--where KIND].

The library is test/hal/opencl/stub, the program opencl_raw.c. A row is the cost of 2,000 further launches of 256
elements, on a stream that is never idle, including the stub's own functions. It is compared with the same launch by
direct calls: setting its arguments and queueing it. Target of an operator, from its call to the enqueue: 1,500. --where
prints the functions with the instructions of an operator. With --check the exit code is 1 if the target is missed.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TARGET = 1500
FEW, MANY = 200, 2200
KINDS = ("svm-coarse", "svm-fine", "buffer")


def environment(build, arguments, kind):
    """The stub in place of the system's library; `arguments` is the number of arguments that its kernels report."""
    return dict(os.environ, LD_LIBRARY_PATH=str(build / "test/opencl_stub"), CL_STUB=f"args={arguments}", HAL_OPENCL_MEMORY=kind,
                HAL_PLUGIN_PATH=str(build / "plugins"), HAL_PLUGIN_TRIAL="0", HAL_CACHE_DIR="")  # fmt: skip


def arguments_of(program, build, side, kind):
    """The number of arguments of the launch: the stub compiles nothing, so it is read from the plugin's error message.
    """
    if side == "raw":
        return 4
    done = subprocess.run([program, side, "1"], env=environment(build, 0, kind), stderr=subprocess.PIPE, text=True)
    found = re.search(r"with (\d+) arguments; it takes 0", done.stderr)
    if not found:
        raise RuntimeError(f"{program} {side}: no complaint about arguments, but {done.stderr!r}")
    pointers = 3 if side == "op" and kind == "buffer" else 0  # portable kernels have an offset after each
    return int(found.group(1)) + pointers


def callgrind(program, build, side, kind, calls, arguments, out="/dev/null"):
    """Returns the instructions of the whole program."""
    command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", program, side, str(calls)]
    done = subprocess.run(command, env=environment(build, arguments, kind), check=True, stderr=subprocess.PIPE, text=True)
    return int(re.findall(r"Collected : (\d+)", done.stderr)[-1])  # the last one: devices are counted in a child


def instructions(program, build, side, kind):
    """Returns the instructions of one launch."""
    arguments = arguments_of(program, build, side, kind)
    few, many = (callgrind(program, build, side, kind, calls, arguments) for calls in (FEW, MANY))
    if many <= few:
        raise RuntimeError(f"{program} {side}: {MANY - FEW} more launches took no more instructions")
    return (many - few) / (MANY - FEW)


def print_where(program, build, kind):
    """Prints the functions of one operator's launch, most instructions first."""
    arguments = arguments_of(program, build, "op", kind)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        callgrind(program, build, "op", kind, 20 * MANY, arguments, f"{out}.%p")
        largest = max(Path(folder).iterdir(), key=lambda path: path.stat().st_size)  # the parent's
        shown = subprocess.run(["callgrind_annotate", largest], check=True, stdout=subprocess.PIPE, text=True).stdout
    for line in shown.splitlines():
        found = re.match(r"\s*([\d,]+) \(\s*[\d.]+%\)\s+\S*?([^/\s]+:\S+)", line)
        each = int(found.group(1).replace(",", "")) / (20 * MANY) if found else 0
        if each >= 1:
            print(f"  {each:7.1f}  {found.group(2)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="exit code 1 when the target is missed")
    parser.add_argument("--build", type=Path, default=ROOT / "build/release", help="the build of `make test-c`")
    parser.add_argument("--where", choices=KINDS, help="print the functions of an operator's launch in that kind of memory")
    options = parser.parse_args()
    build = options.build.resolve()
    program = build / "test/bench_opencl_raw"
    if not shutil.which("valgrind") or not program.exists():
        print("not measured: this needs valgrind (Debian: valgrind), opencl-headers, and `make test-c`")
        return 0
    by_hand = instructions(program, build, "raw", "svm-coarse")
    print(f"{'launch of 256 elements':<34}{'instructions':>13}{'by hand':>9}{'target':>8}")
    missed = False
    for kind in KINDS:
        for side, name, target in (("kernel", "own kernel", None), ("op", "operator add", TARGET)):
            count = instructions(program, build, side, kind)
            missed |= target is not None and count > target
            print(f"{f'{name}, {kind}':<34}{count:>13,.0f}{by_hand:>9,.0f}{f'{target:,}' if target else '-':>8}", flush=True)
    if options.where:
        print_where(program, build, options.where)
    return int(options.check and missed)


if __name__ == "__main__":
    sys.exit(main())
