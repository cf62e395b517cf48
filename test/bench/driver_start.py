"""How long a plugin over a vendor's driver takes to start, on the drivers of test/doubles.

Usage: python driver_start.py [--plugin cuda|npu] [--check] [--rounds N] [--build build/release]. Rows:

  probe         the plugin's function `probe` alone, in a fresh process: whether the machine seems to have the hardware. Target: at most 5 ms.
  first tensor  `(torch.ones(3, device=...) + 1).cpu()`, in a process that has imported torch and activated the plugin, with the kernels that
                it needs on disk. Target: at most 1 s.

Medians and worst of the rounds; --check exits with 1 when a median misses its target.
"""

import argparse
import ctypes
import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TARGETS = {"probe": 0.005, "first tensor": 1.0}
DEVICES = {"cuda": "nvgpu", "npu": "npu"}
TENSOR = """
import sys, time, torch, torch_backend
assert torch_backend.is_active(), torch_backend.errors()
begin = time.perf_counter()
assert (torch.ones(3, device=sys.argv[1]) + 1).cpu().sum().item() == 6
print(time.perf_counter() - begin)
"""


def settings(plugin, build, folder):
    doubles = build / "test/doubles"
    own = {"cuda": {"LD_LIBRARY_PATH": str(doubles / "cuda_stand_in")},
           "npu": {"ZE_ENABLE_ALT_DRIVERS": str(doubles / "ze_cpu_driver/libze_cpu_driver.so"), "POCL_CACHE_DIR": f"{folder}/pocl"}}  # fmt: skip
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("TORCH_", "HAL_"))}
    return {**kept, **own[plugin], "TORCH_BACKEND": plugin, "HAL_CACHE_DIR": str(folder)}


def probe(path):
    """Calls the plugin's entry as the host does, then its `probe`; gives the seconds of that. In a process of its own."""
    import time

    offsets = {}
    for line in (ROOT / "hal/abi/v0.txt").read_text().splitlines():
        offset, _, name = line.split(" ", 3)[:3]
        offsets[name] = int(offset)
    error_set = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int32, ctypes.c_int64, ctypes.c_char_p)(lambda code, native, message: code)
    log = ctypes.CFUNCTYPE(None, ctypes.c_int32, ctypes.c_char_p)(lambda level, message: None)
    major, minor = (int(number) for number in re.search(r"HAL_ABI_MAJOR (\d+)[\s\S]*HAL_ABI_MINOR (\d+)", (ROOT / "hal/include/hal/plugin_base.h").read_text()).groups())
    libc = ctypes.CDLL(None)
    allocate = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)(lambda size, alignment: libc.malloc(size))

    class Host(ctypes.Structure):
        _fields_ = [("struct_size", ctypes.c_size_t), ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32),
                    *((name, ctypes.c_void_p) for name in ("error_set", "log", "mem_alloc", "mem_free", "correlation", "scratch"))]  # fmt: skip

    host = Host(ctypes.sizeof(Host), major, minor, *(ctypes.cast(function, ctypes.c_void_p) for function in (error_set, log, allocate, libc.free)),
                ctypes.cast(libc.rand, ctypes.c_void_p), ctypes.cast(libc.rand, ctypes.c_void_p))  # fmt: skip
    size = max(offsets.values()) + 8
    api = ctypes.create_string_buffer(size)
    ctypes.c_size_t.from_buffer(api).value = size
    entry = ctypes.CDLL(str(path)).hal_plugin_entry
    assert entry(ctypes.byref(host), api) == 0
    function = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_uint32)(ctypes.c_void_p.from_buffer(api, offsets["probe"]).value)
    begin = time.perf_counter()
    status = function(0)
    seconds = time.perf_counter() - begin
    assert status == 0, f"{path} finds no hardware: status {status}"
    return seconds


def run(command, environment):
    done = subprocess.run([sys.executable, "-P", *command], env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stderr}")
    return float(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plugin", choices=tuple(DEVICES), default="cuda")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--build", type=Path, default=ROOT / "build/release")
    parser.add_argument("--probe", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.probe:
        print(probe(options.probe))
        return 0
    build, missed = options.build.resolve(), False
    with tempfile.TemporaryDirectory() as folder:
        environment = settings(options.plugin, build, folder)
        commands = {"probe": [__file__, "--probe", build / f"plugins/libhal_{options.plugin}.so"], "first tensor": ["-c", TENSOR, DEVICES[options.plugin]]}
        for name, command in commands.items():
            cold, times = run(command, environment), [run(command, environment) for _ in range(options.rounds)]
            middle = statistics.median(times)
            missed |= middle > TARGETS[name]
            print(f"{options.plugin}, {name}: {middle * 1e3:.2f} ms, worst {max(times) * 1e3:.2f}, the first time {cold * 1e3:.2f} "
                  f"(target {TARGETS[name] * 1e3:.0f})")  # fmt: skip
    return int(options.check and missed)


if __name__ == "__main__":
    sys.exit(main())
