"""The host's time of a launch of a Triton kernel on the plugin cuda, with the mock CUDA driver: by Triton's jit function, by
torch_backend's launcher, by the launcher that Triton compiles for CUDA, and hal_kernel_launch alone with the same
arguments.

Usage: python triton_launch.py [--quick]. Needs Triton (TRITON_PACKAGES names the folder with it; build/triton by default)
and the mock driver of `make test-c` (CUDA_MOCK names its folder). The mock driver records launches in place of running
them. Rows: a kernel with 3 tensors and a size, and one with a tensor and 20 numbers. Each side's time is the least mean
of 20 blocks of calls; the sides alternate.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(os.environ.get("TRITON_PACKAGES", ROOT / "build/triton"))
MOCK = Path(os.environ.get("CUDA_MOCK", ROOT / "build/release/test/doubles/cuda_mock"))


def start(arguments) -> int:
    """Runs this file again in a process with the mock driver; returns its exit code."""
    if not (MOCK / "libcuda.so.1").exists() or not (FOLDER / "triton").is_dir():
        print(f"needs {MOCK}/libcuda.so.1 and {FOLDER}/triton")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        path = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), str(FOLDER), str(ROOT / "test/python/compile"))))
        settings = {"TORCH_BACKEND": "cuda", "LD_LIBRARY_PATH": str(MOCK), "CUDA_MOCK_CUBINS": f"{folder}/record", "PYTHONPATH": path,
                    "HAL_CACHE_DIR": folder, "TRITON_CACHE_DIR": f"{folder}/triton", "TRITON_LAUNCH_BENCH": "1"}  # fmt: skip
        return subprocess.run([sys.executable, __file__, *arguments], env={**os.environ, **settings}).returncode


def theirs(compiled):
    """Returns a function that launches by Triton's own driver for CUDA, with its default stream."""
    from triton.backends.nvidia.driver import CudaDriver
    from triton.runtime import driver

    ours, own = driver.active, CudaDriver()
    driver.set_active(own)
    run, function = own.launcher_cls(compiled.src, compiled.metadata), own.utils.load_binary(compiled.name, compiled.kernel, 0, 0)[1]
    driver.set_active(ours)
    return lambda *args: run(1, 1, 1, 0, function, compiled.packed_metadata, None, None, None, *args)


def alone(compiled, args):
    """Returns a function that calls hal_kernel_launch with arguments that are written already."""
    from torch_backend.triton import _launcher, _modules

    types = [kind for kind in compiled.src.signature.values() if kind != "constexpr"] + ["*scratch"] * 2
    call = _launcher._Call(types, _launcher.Plan((compiled.metadata.num_warps * 32, 1, 1)))
    values = [value.data_ptr() if hasattr(value, "data_ptr") else value for value in args[: len(types) - 2]]
    _launcher._Arguments("bench", 0, types, types).pack(call.memory, [*values, 0, 0])
    _launcher.struct.pack_into("<3I", call.memory, 8 * len(types) + 8, 1, 1, 1)
    launch, stream = _modules.library().hal_kernel_launch, _modules.streams(0)[0]
    return lambda: launch(compiled.function, stream, call.address)


def measure(name: str, kernel, args: tuple, calls: int) -> None:
    import torch

    compiled = kernel[(1,)](*args)
    run, own, bare = compiled.run, theirs(compiled), alone(compiled, args)
    sides = {
        "hal_kernel_launch": bare,
        "torch_backend's launcher": lambda: run(1, 1, 1, 0, compiled.function, compiled.packed_metadata, None, None, None, *args),
        "Triton's launcher": lambda: own(*args),
        "kernel[grid](...)": lambda: kernel[(1,)](*args),
    }
    best = dict.fromkeys(sides, float("inf"))
    for _ in range(20):
        for side, call in sides.items():
            torch.accelerator.synchronize()
            begin = time.perf_counter()
            for _ in range(calls):
                call()
            best[side] = min(best[side], (time.perf_counter() - begin) / calls)
    torch.accelerator.synchronize()
    for side, seconds in best.items():
        print(f"{name:>12} {side:>26} {seconds * 1e6:8.2f} us")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer calls")
    quick = parser.parse_args().quick
    if "TRITON_LAUNCH_BENCH" not in os.environ:
        return start(sys.argv[1:])
    import triton_kernels as kernels

    calls = 20 if quick else 200
    x = kernels.tensor(64)
    measure("3 tensors", kernels.add_kernel, (x, x, x, 64, 64), calls)
    measure("20 numbers", kernels.many_kernel, (x, *[index + 0.5 for index in range(20)]), calls)
    return 0


if __name__ == "__main__":
    sys.exit(main())
