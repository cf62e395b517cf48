"""The Vulkan device compared with CPU PyTorch on the same cores, with the rows of opencl.py.

    python test/bench/vulkan.py [--row NAME ...]

The plugin needs its pack (`make packs`): a row whose operators fall back to the CPU is marked. The targets apply to
Mesa's lavapipe on an idle machine. HAL_VULKAN_FORM=cpu measures the kernels for few wide cores. Exit code 1 if a row
misses its target.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import opencl  # noqa: E402  found by the line above

TARGETS = {"add 16M out=": 1.5, "sum 16M": 1.5, "sum 16M rows": 1.5, "sum 16M columns": 1.5, "mm 512": 3.0, "mm 1024": 3.0}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--row", action="append", help="only this row (may be repeated)")
    options = parser.parse_args()
    import torch

    import torch_backend
    from torch_backend import fallback

    torch_backend.use("vulkan")
    if torch.vk.device_count() == 0:
        sys.exit("no Vulkan device here")
    print(f"{torch.vk.get_device_properties(0).name}, CPU torch {torch.__version__} with {torch.get_num_threads()} threads")
    print(f"{'':26} {'vk us':>12} {'cpu us':>12} {'ratio':>7} {'target':>7}")
    missed = 0
    for name, (build, calls, _) in opencl.rows(torch).items():
        if options.row and name not in options.row:
            continue
        before, target = len(fallback.report()), TARGETS.get(name)
        ours, cpus = opencl.measure(torch, "vk", build, calls)
        ratio = ours / cpus
        is_missed = target is not None and ratio > target
        missed += is_missed
        marks = ("  missed" if is_missed else "") + ("  fallback" if len(fallback.report()) > before else "")
        print(f"{name:26} {ours * 1e6:12.1f} {cpus * 1e6:12.1f} {ratio:7.2f} {target or 0:7.2f}{marks}", flush=True)
    return missed > 0


if __name__ == "__main__":
    sys.exit(main())
