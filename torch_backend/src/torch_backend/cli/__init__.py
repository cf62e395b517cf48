"""The command line: ``python -m torch_backend COMMAND`` or ``torch-backend COMMAND``.

Exit codes: 0 success, 1 a problem was found and printed, 2 wrong usage.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from . import autocompare, comm, coverage, doctor, info, memory, new_plugin, pack, plot, smi, upstream, verify

_COMMANDS = {
    "info": (info, "versions, plugins, devices and which plugin functions are defaults"),
    "doctor": (doctor, "checks the installation and each device, with a cure for each problem"),
    "smi": (smi, "memory use, load, temperature, power, clocks and processes of each device, as far as the device measures them"),
    "coverage": (coverage, "which kernel each ATen operator runs on the active device"),
    "comm": (comm, "measures collectives, computes how they scale, and runs a program as one rank of many"),
    "plot": (plot, "writes a picture of a graph that was written for Graphviz, or of the logs of collectives"),
    "memory": (memory, "shows a snapshot of the allocator (memory over time, segments, blocks, stacks), and replays its allocations"),
    "upstream": (upstream, "runs PyTorch's own device-generic tests on the plugin's device, and compares with the CPU"),
    "new-plugin": (new_plugin, "writes the project of a plugin: C source, CMake, wheel and tests, which build and pass without changes"),
}
# Commands that work if torch is missing or broken.
_WITHOUT_TORCH = ("new-plugin", "verify", "pack", "memory")


class _Print(argparse.Action):
    """Prints a constant and exits. argparse's `version` would break it into lines as wide as the terminal."""

    def __call__(self, parser, namespace, values, option_string=None):
        print(self.const)
        parser.exit()


def _lacks_torch(command: str) -> bool:
    """Returns whether torch cannot be imported, and prints the error if so."""
    import torch_backend

    error = torch_backend._torch_error
    if error is not None:
        print(f"torch-backend {command}: torch cannot be imported: {error}. Install it again; {', '.join(_WITHOUT_TORCH)} do not need torch.",
              file=sys.stderr)  # fmt: skip
    return error is not None


def main(argv=None) -> int:
    """Runs a command and returns the exit code."""
    argv = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser(prog="torch-backend", description="torch_backend: a PyTorch device implemented by a plugin, a shared library with a small C interface")
    cmake = Path(__file__).resolve().parents[1] / "cmake"
    parser.add_argument("--cmake-dir", action=_Print, nargs=0, const=str(cmake), help="print the folder for cmake's -Dtorch_backend_hal_DIR=")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, (module, about) in _COMMANDS.items():
        module.add_arguments(commands.add_parser(name, help=about, description=about))
    commands.add_parser("demo", help="trains a small network on the device and, for comparison, on the CPU", add_help=False)
    if argv[:1] == ["demo"]:  # a separate program with its own options
        if _lacks_torch("demo"):
            return 1
        from torch_backend import demo

        return demo.main(argv[1:])
    commands.add_parser("autocompare", help="runs a program and compares each operator of the device with CPU torch", add_help=False)
    if argv[:1] == ["autocompare"]:
        return 1 if _lacks_torch("autocompare") else autocompare.main(argv[1:])
    commands.add_parser("verify", help="checks that a plugin's file conforms to the plugin ABI, with the conformance suite hal-cts", add_help=False)
    if argv[:1] == ["verify"]:  # another one, with the options of hal-cts
        return verify.main(argv[1:])
    commands.add_parser("pack", help="compiles the portable kernels ahead of time, into a file next to the plugin", add_help=False)
    if argv[:1] == ["pack"]:
        return pack.main(argv[1:])
    arguments = parser.parse_args(argv)
    if arguments.command not in _WITHOUT_TORCH and _lacks_torch(arguments.command):
        return 1
    return _COMMANDS[arguments.command][0].run(arguments)
