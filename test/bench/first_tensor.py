"""The time that a plugin needs to report whether its device exists, and to compute a first tensor, on the mock drivers,
in new processes.

Usage: python first_tensor.py [--plugin npu|cuda|PATH] [--check] [--rounds N] [--build build/release]. Rows:

  probe         `info` and `probe` of the plugin, which each `import torch` runs if plugins are searched. Target: at most 5 ms.
  count         `device_count`, if that starts a driver in a child process; printed only.
  first tensor  from `torch_backend.use(plugin)` to the numbers of `torch.ones(3, device=...) + 1` on the host, after the
                import of torch and with the kernels in the cache. Target: at most 1 s.

Prints medians, and the minimum in brackets, which is more reliable on a machine under load. With --check the exit code
is 1 if the minimum misses a target.
"""

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TARGETS = {"probe": 0.005, "first tensor": 1.0}  # seconds
DOUBLES = {
    "npu": lambda build: {"ZE_ENABLE_ALT_DRIVERS": f"{build}/test/doubles/ze_cpu_driver/libze_cpu_driver.so"},
    "cuda": lambda build: {"LD_LIBRARY_PATH": f"{build}/test/doubles/cuda_mock"},
}
SCRIPT = """
import sys, time, torch, torch_backend
begin = time.perf_counter()
torch_backend.use(sys.argv[1])
result = (torch.ones(3, device=torch_backend.device_name()) + 1).cpu()
print(time.perf_counter() - begin)
assert result.tolist() == [2, 2, 2], result
"""


def run(plugin, settings, **more):
    """Computes a first tensor in a new interpreter; returns its time and the HAL's log."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("TORCH_", "HAL_"))}
    environment |= {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0", **settings, **more}
    done = subprocess.run([sys.executable, "-P", "-c", SCRIPT, plugin], env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"first_tensor.py: {done.stderr[-2000:]}")
    return float(done.stdout), done.stderr


def of_calls(log, *functions):
    """Returns the seconds of these functions of the plugin, by the trace layer."""
    times = re.findall(rf"trace: \w+\.({'|'.join(functions)}) -> OK, (\d+) ns", log)
    if {function for function, _ in times} != set(functions):
        sys.exit(f"first_tensor.py: the trace lacks {functions}")
    return sum(int(time) for _, time in times) * 1e-9


def measure(plugin, settings, rounds):
    rows = {"probe": [], "count": [], "first tensor": []}
    run(plugin, settings)  # fills the caches
    for _ in range(rounds):
        rows["first tensor"].append(run(plugin, settings)[0])
        log = run(plugin, settings, HAL_LAYERS="trace", HAL_LOG="info")[1]
        rows["probe"].append(of_calls(log, "info", "probe"))
        rows["count"].append(of_calls(log, "device_count"))
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plugin", default="npu")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--build", type=Path, default=ROOT / "build/release")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        settings = {"HAL_CACHE_DIR": folder, "POCL_CACHE_DIR": f"{folder}/pocl"}
        settings |= DOUBLES.get(options.plugin, lambda build: {})(options.build.resolve())
        rows = measure(options.plugin, settings, options.rounds)
    missed = False
    print(f"{options.plugin}: medians (least) of {options.rounds} fresh processes, in ms")
    for name, times in rows.items():
        target = TARGETS.get(name)
        missed |= target is not None and min(times) > target
        note = f"   target {1e3 * target:.0f}" if target else ""
        print(f"{name:<14} {1e3 * statistics.median(times):8.2f} ({1e3 * min(times):.2f}){note}")
    return int(options.check and missed)


if __name__ == "__main__":
    sys.exit(main())
