"""The command `autocompare`: runs a Python program and compares each operator of the device with CPU torch."""

from __future__ import annotations

import argparse
import runpy
import sys
from pathlib import Path


def _parser():
    parser = argparse.ArgumentParser(
        prog="torch-backend autocompare", usage="%(prog)s [options] (SCRIPT.py | -m MODULE) [arguments of the program]",
        description="Runs a program and stops at the first operator whose result on the device differs from CPU torch's. Exit codes: 1 a result "
                    "differs, 2 wrong usage, else the program's.")  # fmt: skip
    parser.add_argument("--every", type=int, default=1, metavar="N", help="compare the first call of each operator and then one of N (1)")
    parser.add_argument("--rtol", type=float, help="relative tolerance of all dtypes, instead of one for each")
    parser.add_argument("--atol", type=float, default=0.0, help="absolute tolerance, added (0)")
    parser.add_argument("--go-on", action="store_true", help="warn at a difference and continue")
    parser.add_argument("--directory", default=".", metavar="DIR", help="folder for the reproducer (the current folder)")
    parser.add_argument("-m", dest="module", action="store_true", help="the program is a module, as for python -m")
    parser.add_argument("program")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    return parser


def main(argv) -> int:
    """Runs the program in this process. Returns its exit code, or 1 if the device differs."""
    import torch_backend

    options = _parser().parse_args(argv)
    try:
        compare = torch_backend.autocompare(every=options.every, rtol=options.rtol, atol=options.atol, stop=not options.go_on, directory=options.directory)
    except ValueError as error:
        print(f"torch-backend {error}", file=sys.stderr)
        return 2
    if not options.module and not Path(options.program).is_file():
        print(f"torch-backend autocompare: there is no file {options.program}", file=sys.stderr)
        return 2
    sys.argv = [options.program, *options.arguments]
    sys.path.insert(0, str(Path.cwd()) if options.module else str(Path(options.program).resolve().parent))
    code = 0
    try:
        with compare:
            if options.module:
                runpy.run_module(options.program, run_name="__main__", alter_sys=True)
            else:
                runpy.run_path(options.program, run_name="__main__")
    except compare.Divergence as error:
        print(error, file=sys.stderr)
    except SystemExit as end:
        code = _exit_code(end)
    print(compare.summary(), file=sys.stderr)
    if not compare.report():
        print("autocompare: no operator ran on a device; is TORCH_BACKEND set, and did the program move anything there?", file=sys.stderr)
    return 1 if compare.divergences else code


def _exit_code(end: SystemExit) -> int:
    """Returns the exit code that Python would use."""
    if end.code is None or isinstance(end.code, int):
        return end.code or 0
    print(end.code, file=sys.stderr)
    return 1
