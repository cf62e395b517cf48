"""The Vulkan device compared with CPU PyTorch on the same cores, in the same run, with PoCL, and with the driver alone:
element-wise operators and reductions of 16 Mi elements, matrix products, the other rows of opencl.py with --all, the
demo's step, and what a second process compiles.

    python test/bench/vulkan.py [--row NAME ...] [--all] [--process-time] [--raw FOLDER]

The plugin needs its pack (`make packs`): a row whose operators fall back to the CPU is marked. The targets apply to
Mesa's lavapipe on an idle machine; with --process-time all columns are the time of the processors, which depends less on
other programs. The column "pocl" is the same row on OpenCL, measured by another process. "driver" is a kernel of Vulkan
without torch_backend that adds two vectors, or adds up one, of as many elements (bench_vulkan_raw, in the folder
build/release/test or that of --raw): no kernel of this driver that loads single elements is faster.
HAL_VULKAN_FORM=cpu measures the kernels for few wide cores. The rows "demo step" and "warm start" run the demo twice
with empty caches of the plugin and of the driver; the second counts the files of compiled kernels that the second
process adds, and has no peer. Exit code 1 if a row misses its target.
"""

import argparse
import math
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent / "shared")]
import opencl  # noqa: E402  found by the line above
import sides  # noqa: E402  found by the line above

ELEMENTWISE, REDUCTION, PRODUCT = 1.5, 1.5, 3.0
DEMO_TARGETS = {"demo step": 2.0, "warm start": 0}
HEAD = f"{'':22} {'vk us':>12} {'cpu us':>12} {'ratio':>7} {'target':>7} {'pocl us':>12} {'driver us':>12}"
ROUNDS, SECONDS = 5, 1.0  # of a row, at most


def rows(torch):
    """{name: (function of a device that returns a call, target, row of the driver alone or None)}."""
    shape = (4096, 4096)

    def out(function, operands, dtype):
        def build(device):
            tensors = [torch.randn(shape).to(dtype).to(device) for _ in range(operands)]
            result = torch.empty(shape, dtype=dtype, device=device)
            return lambda: function(*tensors, out=result)

        return build

    def new(function, shape, dtype):
        def build(device):
            tensor = torch.randn(shape).to(dtype).to(device)
            return lambda: function(tensor)

        return build

    found = {}
    for dtype in (torch.float32, torch.bfloat16):
        label, alone = str(dtype).removeprefix("torch."), dtype == torch.float32
        for name, operands in (("add", 2), ("mul", 2), ("exp", 1), ("sigmoid", 1)):
            found[f"{name} {label}"] = out(getattr(torch, name), operands, dtype), ELEMENTWISE, "add" if alone and operands == 2 else None
        found[f"relu {label}"] = new(torch.relu, shape, dtype), ELEMENTWISE, None
        for name, dims in (("sum", ()), ("sum rows", (1,)), ("sum columns", (0,))):
            found[f"{name} {label}"] = new(lambda x, dims=dims: x.sum(*dims), shape, dtype), REDUCTION, "sum" if alone else None
        found[f"amax rows {label}"] = new(lambda x: x.amax(1), shape, dtype), REDUCTION, "sum" if alone else None
    for size in (512, 1024, 2048):
        found[f"mm {size}"] = new(lambda x: x @ x, (size, size), torch.float32), PRODUCT, None
    return found


def best(call, wait, clock):
    """Best seconds of a call: of some rounds, fewer if one takes long."""
    sides.time_row(call, wait, 1)  # compiles
    seconds, began = [], time.perf_counter()
    while len(seconds) < ROUNDS and (not seconds or time.perf_counter() - began < SECONDS):
        seconds.append(sides.time_row(call, wait, 1, clock))
    return min(seconds)


def chosen(torch, options):
    every = rows(torch)
    if options.all:
        every.update((name, (build, None, None)) for name, (build, *_) in opencl.rows(torch).items())
    return {name: row for name, row in every.items() if not options.row or name in options.row}


def measure(torch, device, options):
    """Yields name, target, row of the driver and seconds of each row on a device."""
    clock = time.process_time if options.process_time else time.perf_counter
    for name, (build, target, alone) in chosen(torch, options).items():
        call, wait = build(device), sides.synchronizer(torch, device)
        time.sleep(sides.PAUSE)
        yield name, target, alone, best(call, wait, clock)


def pocl_seconds(arguments):
    """The rows on OpenCL, by a separate process; {} without a device."""
    try:
        return sides.run_json(str(Path(__file__)), "--child", *arguments, TORCH_BACKEND="opencl")
    except (SystemExit, subprocess.CalledProcessError, ValueError):
        return {}


def child(options):
    import json

    torch = sides.torch_with_device("opencl")
    print(json.dumps({name: seconds for name, *_, seconds in measure(torch, "ocl", options)} if torch.ocl.device_count() else {}))


def driver_us(options):
    """The microseconds of the driver alone, by name; {} if the program is not built."""
    command = [options.raw / "bench_vulkan_raw", "--bound", options.raw / "vulkan_add.spv", options.raw / "vulkan_sum.spv"]
    try:
        lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        return {}
    return {line.split()[0]: float(line.split()[2 if options.process_time else 1]) for line in lines if len(line.split()) == 3}


def print_row(name, ours, cpus, value, target, mark="", pocl=math.nan, driver=math.nan):
    """Prints one row; returns whether it misses its target."""
    missed = target is not None and value > target
    marks = ("  missed" if missed else "") + mark
    print(f"{name:22} {ours * 1e6:12.1f} {cpus * 1e6:12.1f} {value:7.2f} {target or 0:7.2f} {pocl * 1e6:12.1f} {driver:12.1f}{marks}", flush=True)
    return missed


def operator_rows(options, arguments):
    """Measures the rows; returns how many miss their targets."""
    torch = sides.torch_with_device("vulkan")
    from torch_backend import fallback

    if torch.vk.device_count() == 0:
        sys.exit("no Vulkan device here")
    pocl, driver = pocl_seconds(arguments), driver_us(options)
    print(f"{torch.vk.get_device_properties(0).name}, CPU torch {torch.__version__} with {torch.get_num_threads()} threads")
    print(HEAD)
    missed = 0
    peer = measure(torch, "cpu", options)
    before = fallback.report()
    for name, target, alone, ours in measure(torch, "vk", options):
        cpus = next(peer)[-1]
        after = fallback.report()
        mark = "  fallback" if after != before else ""
        before = after
        missed += print_row(name, ours, cpus, ours / cpus, target, mark, pocl.get(name, math.nan), driver.get(alone, math.nan))
    return missed


def run_demo(folder):
    """Runs the demo in a separate process whose caches are in the folder; returns its summary and the cached files."""
    caches = {name: str(folder / name.lower()) for name in ("HAL_CACHE_DIR", "MESA_SHADER_CACHE_DIR", "XDG_CACHE_HOME")}
    summary = sides.run_json("-m", "torch_backend.demo", "--json", "--quiet", "--picture", str(folder / "loss.png"), TORCH_BACKEND="vulkan", **caches)
    return summary, {path for name in caches.values() for path in Path(name).rglob("*") if path.is_file()}


def demo_rows(wanted):
    """Measures the rows of the demo; returns how many miss their targets."""
    if wanted and not set(wanted) & set(DEMO_TARGETS):
        return 0
    with tempfile.TemporaryDirectory() as name:
        _, cold = run_demo(Path(name))
        summary, warm = run_demo(Path(name))
    ours, cpus = summary["step_ms"] / 1e3, summary["cpu_step_ms"] / 1e3
    mark = f"  {100 * summary['native_share']:.1f} % native"
    missed = print_row("demo step", ours, cpus, ours / cpus, DEMO_TARGETS["demo step"], mark)
    return missed + print_row("warm start", 0, 0, len(warm - cold), DEMO_TARGETS["warm start"], f"  files, after {len(cold)} of the first")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--row", action="append", help="only this row (may be repeated)")
    parser.add_argument("--all", action="store_true", help="also the rows of opencl.py, which have no targets here")
    parser.add_argument("--process-time", action="store_true", help="the time of the processors")
    parser.add_argument("--raw", type=Path, default=Path(__file__).resolve().parents[2] / "build/release/test", help="the folder of bench_vulkan_raw")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        return child(options)
    missed = operator_rows(options, sys.argv[1:]) if not options.row or set(options.row) - set(DEMO_TARGETS) else 0
    return missed + demo_rows(options.row) > 0


if __name__ == "__main__":
    sys.exit(main())
