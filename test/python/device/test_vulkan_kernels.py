"""Kernels that clspv compiles and a driver of Vulkan runs: the loops that read indices, which Mesa's llvmpipe 22.3.6 ends
too early if they report invalid ones by atomic operations (plugins/vulkan/clspv_compiler.py)."""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import driver_scripts
import pytest

import torch_backend

ROOT = Path(__file__).resolve().parents[3]
KERNELS = ",".join(f"{family}_{dtype}*" for family in ("scatter_reduce", "fill") for dtype in ("f32", "f64", "i64"))

SCATTER = """
import torch, torch_backend
from torch_backend import fallback

SHAPES = [((5,), 0), ((100,), 0), ((1000,), 0), ((7, 33), 0), ((33, 7), 1), ((64, 64), 1), ((3, 5, 50), 2)]
fallback.reset()
for dtype in (torch.float32, torch.float64, torch.int64):
    for shape, dim in SHAPES:
        for places in (1, 3, 40):
            size = [*shape[:dim], places, *shape[dim + 1 :]]
            to, source = torch.randn(size).mul(3).to(dtype), torch.randn(shape).mul(3).to(dtype)
            index = torch.randint(places, shape)
            for reduce in ("sum", "prod", "amax", "amin"):
                expected = to.scatter_reduce(dim, index, source, reduce)
                for _ in range(2):
                    got = to.to("vk").scatter_reduce(dim, index.to("vk"), source.to("vk"), reduce).cpu()
                    torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-3, msg=lambda m: f"{dtype} {shape} {places} {reduce}: {m}")
assert not [row for row in fallback.report() if "scatter_reduce" in str(row)], fallback.report()
try:
    torch.zeros(4, device="vk").scatter_reduce(0, torch.tensor([1, 9, 2], device="vk"), torch.ones(3, device="vk"), "sum").cpu()
except IndexError as error:
    assert "index 9 is out of bounds" in str(error), error
else:
    raise AssertionError("an index out of range was not reported")
print("done")
"""


@pytest.mark.slow
def test_loops_that_report_invalid_indices_compute_the_cpus_numbers(tmp_path):
    settings = driver_scripts.vulkan_settings(tmp_path)
    if importlib.util.find_spec("pyclspv") is None:
        pytest.skip("no pyclspv here (requirements/packs.txt)")
    package = Path(torch_backend.__file__).parent
    plugin = shutil.copy(package / "plugins/libhal_vulkan.so", tmp_path)
    compiler = f"{sys.executable} -P {ROOT / 'plugins/vulkan/clspv_compiler.py'}"
    pack = [package / "bin/hal-pack", "--dialect", "spirv-vulkan", "--fp64", "yes", "--quiet", "--compiler", compiler, "--kernels", KERNELS]
    subprocess.run([*pack, "--output", tmp_path / "libhal_vulkan.pack"], capture_output=True, timeout=600)  # 1: without those of clspv's failures
    environment = {**os.environ, **settings, "TORCH_BACKEND": plugin}
    done = subprocess.run([sys.executable, "-P", "-c", SCATTER], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert done.stdout.strip() == "done", done.stdout + done.stderr


# ---- the compiler of the pack ----
# A module of SPIR-V with one string, which the compiler's first runs do not write.
CRASHES = """
import os, signal, struct
def compile(text):
    with open("runs", "a+") as file:
        file.write("x")
        file.flush()
        file.seek(0)
        if len(file.read()) <= int(os.environ["CRASHES"]):
            os.kill(os.getpid(), signal.SIGSEGV)
    return struct.pack("<8I", 0x07230203, 0x10000, 0, 2, 0, 3 << 16 | 7, 1, 0)
"""


@pytest.mark.parametrize(("crashes", "runs"), [(0, 1), (3, 4), (100, 8)])
def test_a_compiler_that_ends_by_a_signal_runs_again(tmp_path, crashes, runs):
    (tmp_path / "pyclspv.py").write_text(CRASHES)
    (tmp_path / "kernel.cl").write_text("")
    command = [sys.executable, "-P", ROOT / "plugins/vulkan/clspv_compiler.py", "kernel.cl", "kernel.spv"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "CRASHES": str(crashes), "HAL_PACK_KERNEL": "add_f32_contig"}
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert len((tmp_path / "runs").read_text()) == runs
    if crashes < 8:
        assert done.returncode == 0 and b"torch_backend.fold=" in (tmp_path / "kernel.spv").read_bytes(), done.stderr
    else:
        assert done.returncode == 1 and "ended by signal 11 in each of 8 runs" in done.stderr, done.stderr
