"""The Vulkan device compared with CPU PyTorch on the same cores, in the same run: the rows of opencl.py, the demo's step, and
what a second process compiles.

    python test/bench/vulkan.py [--row NAME ...]

The plugin needs its pack (`make packs`): a row whose operators fall back to the CPU is marked. The targets apply to
Mesa's lavapipe on an idle machine. HAL_VULKAN_FORM=cpu measures the kernels for few wide cores. The rows "demo step" and
"warm start" run the demo twice with empty caches of the plugin and of the driver; the second counts the files of compiled
kernels that the second process adds, and has no peer. Exit code 1 if a row misses its target.
"""

import argparse
import sys
import tempfile
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent / "shared")]
import opencl  # noqa: E402  found by the line above
import sides  # noqa: E402  found by the line above

TARGETS = {"add 16M out=": 1.5, "sum 16M": 1.5, "sum 16M rows": 1.5, "sum 16M columns": 1.5, "mm 512": 3.0, "mm 1024": 3.0}


DEMO_TARGETS = {"demo step": 2.0, "warm start": 0}
HEAD = f"{'':26} {'vk us':>12} {'cpu us':>12} {'ratio':>7} {'target':>7}"


def print_row(name, ours, cpus, value, target, mark=""):
    """Prints one row; returns whether it misses its target."""
    missed = target is not None and value > target
    marks = ("  missed" if missed else "") + mark
    print(f"{name:26} {ours * 1e6:12.1f} {cpus * 1e6:12.1f} {value:7.2f} {target or 0:7.2f}{marks}", flush=True)
    return missed


def operator_rows(wanted):
    """Measures the rows of opencl.py; returns how many miss their targets."""
    import torch

    import torch_backend
    from torch_backend import fallback

    torch_backend.use("vulkan")
    if torch.vk.device_count() == 0:
        sys.exit("no Vulkan device here")
    print(f"{torch.vk.get_device_properties(0).name}, CPU torch {torch.__version__} with {torch.get_num_threads()} threads")
    print(HEAD)
    missed = 0
    for name, (build, calls, _) in opencl.rows(torch).items():
        if wanted and name not in wanted:
            continue
        before = len(fallback.report())
        ours, cpus = opencl.measure(torch, "vk", build, calls)
        mark = "  fallback" if len(fallback.report()) > before else ""
        missed += print_row(name, ours, cpus, ours / cpus, TARGETS.get(name), mark)
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
    options = parser.parse_args()
    return operator_rows(options.row) + demo_rows(options.row) > 0


if __name__ == "__main__":
    sys.exit(main())
