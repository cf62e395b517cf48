"""The cost of one operator: x + y on the fake device compared with CPU PyTorch in the same run, in both modes of the
fake device.

Usage: python op_overhead.py [--check] [--quick] [--only small,instructions,large]. Rows:

  small         x + y on 16 floats from Python. Inline (HAL_FAKE_ASYNC=0): at most 0.8 times the CPU. Asynchronous with the
                worker awake (1,000 calls in a row and a synchronization, all timed): at most 1.2 times. Asleep: one call
                after 2 ms of idleness; printed only.
  instructions  per at::add from C++, by callgrind; at most 3,000 on the fast path; at most 17,000 for a binary operator without
                a kernel, which the CPU computes in place.
  large         x + y on 16 M floats: at most 0.4 times the CPU with a new result, 1.2 times with out=; three calls in a
                row, after a pause and one call that is not timed. The CPU's other setting, THP_MEM_ALLOC_ENABLE=1, is
                printed as well.

Times are medians; both sides run alternately in the same process. With --check the exit code is 1 if a target is
missed.
"""

import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "shared"))
import sides  # noqa: E402  found by the line above

SMALL, LARGE = 16, 16 * 1024 * 1024
TARGETS = {"inline": 0.8, "awake": 1.2, "instructions": 3000, "fallback": 17000, "allocated": 0.4, "out": 1.2}


# ---- the measuring process: one mode of the fake device ----
def measure_small(torch, quick):
    """x + y on 16 floats: consecutive calls with a synchronization, and single calls after idleness."""
    synchronize = torch.get_device_module("fake").synchronize
    calls = 1000
    pairs = {where: [torch.ones(SMALL, device=where) for _ in range(2)] for where in ("fake", "cpu")}

    def row(where):
        x, y = pairs[where]

        def run():
            begin = time.perf_counter()
            for _ in range(calls):
                x + y
            if where == "fake":
                synchronize()
            return (time.perf_counter() - begin) / calls

        return run

    def asleep(where):
        x, y = pairs[where]

        def run():
            begin = time.perf_counter()
            x + y
            return time.perf_counter() - begin

        return run

    row("fake")(), row("cpu")()
    rounds = 20 if quick else 100
    return {"row": sides.alternate(row("fake"), row("cpu"), rounds, pause=0),
            "asleep": sides.alternate(asleep("fake"), asleep("cpu"), rounds, pause=0.002)}  # fmt: skip


def measure_large(torch, quick):
    """x + y on 16 M floats, with a new result and with out=."""
    pairs = {where: [torch.ones(LARGE, device=where) for _ in range(3)] for where in ("fake", "cpu")}

    def timed(where, with_out):
        x, y, out = pairs[where]
        synchronize = sides.synchronizer(torch, where)
        call = (lambda: torch.add(x, y, out=out)) if with_out else lambda: x + y

        def run():
            sides.time_row(call, synchronize, 1)  # wakes the threads
            return statistics.median(sides.time_row(call, synchronize, 1) for _ in range(3))

        return run

    result = {}
    for name, with_out in (("allocated", False), ("out", True)):
        ours, peer = timed("fake", with_out), timed("cpu", with_out)
        ours(), peer()
        result[name] = sides.alternate(ours, peer, 5 if quick else 15)
    return result


def child(part, quick):
    """Measures one part in this process's mode and prints it as JSON."""
    print(json.dumps({"small": measure_small, "large": measure_large}[part](sides.torch_with_device(), quick)))


def run_child(part, quick, **settings):
    return sides.run_child(__file__, "--only", part, *(["--quick"] if quick else []), **settings)


# ---- instructions ----
def build_driver(folder):
    """Compiles op_overhead.cpp against the installed torch and torch_backend; returns the program and its environment.
    """
    import torch

    import torch_backend
    from torch_backend import _builds

    package = Path(torch_backend.__file__).parent
    base = Path(torch.__file__).parent
    program = Path(folder) / "op_overhead"
    build = _builds.folder(torch.__version__)
    libraries = [base / "lib", package / "lib", build / "lib"]
    command = [os.environ.get("CXX", "g++"), "-std=c++20", "-O2", str(Path(__file__).with_suffix(".cpp")), "-o", str(program)]
    command += [f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"]
    command += [f"-I{base}/include", f"-I{base}/include/torch/csrc/api/include", f"-I{package}/include", f"-I{build}/include"]
    command += [flag for path in libraries for flag in (f"-L{path}", f"-Wl,-rpath,{path}")]
    command += ["-Wl,--no-as-needed", "-ltorch_backend", "-ltorch_backend_hal", "-ltorch_cpu", "-lc10"]
    subprocess.run(command, check=True)
    return program, package / "plugins"


def count_instructions(program, plugins, device, form):
    """Returns the instructions of one call: the difference of 2,000 further calls."""
    collected = []
    environment = dict(os.environ, HAL_FAKE_ASYNC="0", OMP_NUM_THREADS="1", MKL_NUM_THREADS="1",
                       HAL_PLUGIN_TRIAL="0")  # the trial is a separate process with a separate count  # fmt: skip
    for count in (200, 2200):
        command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", str(program), device, form, str(count), str(plugins)]
        done = subprocess.run(command, env=environment, check=True, stderr=subprocess.PIPE, text=True)
        collected.append(int(re.search(r"Collected : (\d+)", done.stderr).group(1)))
    if collected[1] <= collected[0]:
        raise RuntimeError(f"{program} {device} {form}: 2,000 more calls took no more instructions ({collected}): it did not run them")
    return (collected[1] - collected[0]) / 2000


# ---- the table ----
class Table(sides.Table):
    """A row is evaluated by its ratio, or by another measured value."""

    def __init__(self):
        super().__init__(44, 12, 12, 8, 9)
        self.head("what", "ours", "CPU torch", "ratio", "target")

    def judge(self, what, ours, peer, unit, target=None, measured=None):
        scale = {"ns": 1e9, "ms": 1e3, "": 1}[unit]
        ratio = ours / peer
        met = None if target is None else (ratio if measured is None else measured) <= target
        numbers = (f"{value * scale:,.{2 if unit == 'ms' else 0}f} {unit}".strip() for value in (ours, peer))
        self.row(what, *numbers, f"{ratio:.2f}", "-" if target is None else f"{target:g}", met=met)


def small_rows(table, quick):
    inline = run_child("small", quick, HAL_FAKE_ASYNC="0")
    table.judge("16 floats, inline", *inline["row"], "ns", TARGETS["inline"])
    behind = run_child("small", quick, HAL_FAKE_ASYNC="1")
    table.judge("16 floats, asynchronous, worker awake", *behind["row"], "ns", TARGETS["awake"])
    table.judge("16 floats, asynchronous, worker asleep", *behind["asleep"], "ns")
    table.judge("16 floats, inline, after idleness", *inline["asleep"], "ns")


def instruction_rows(table, quick):
    if not shutil.which("valgrind"):
        print("instructions: not measured, valgrind is not installed (Debian: valgrind)")
        return
    with tempfile.TemporaryDirectory() as folder:
        program, plugins = build_driver(folder)
        forms = {"functional": "instructions", "out": None, "scalar": None, "broadcast": None, "fallback": "fallback",
                 "fallback_out": "fallback"}  # fmt: skip
        for form, target in forms.items():
            if quick and target is None:
                continue
            ours, peer = (count_instructions(program, plugins, device, form) for device in ("fake", "cpu"))
            name = form if "fallback" in form else f"at::add, {form}"
            table.judge(f"instructions of {name}", ours, peer, "", TARGETS.get(target), ours)


def large_rows(table, quick):
    for mode, asynchronous in (("inline", "0"), ("asynchronous", "1")):
        rows = run_child("large", quick, HAL_FAKE_ASYNC=asynchronous)
        table.judge(f"16 M floats, new result, {mode}", *rows["allocated"], "ms", TARGETS["allocated"])
        table.judge(f"16 M floats, out=, {mode}", *rows["out"], "ms", TARGETS["out"])
    rows = run_child("large", quick, HAL_FAKE_ASYNC="1", THP_MEM_ALLOC_ENABLE="1")
    table.judge("16 M floats, new result, CPU with huge pages", *rows["allocated"], "ms")


def main():
    parser = sides.parser(__doc__)
    parser.add_argument("--only", default="small,instructions,large", help="comma list of the parts to run")
    options = parser.parse_args()
    if options.child:
        child(options.only, options.quick)
        return 0
    table = Table()
    for part in options.only.split(","):
        {"small": small_rows, "instructions": instruction_rows, "large": large_rows}[part](table, options.quick)
    return table.exit_code(options)


if __name__ == "__main__":
    sys.exit(main())
