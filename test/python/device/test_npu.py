"""Features of the Level Zero plugin in PyTorch, on the CPU driver of test/doubles with the system's loader: kernels
compiled to SPIR-V, packs of kernels, and the sensors of the system (test_drivers.py tests the rest)."""

import shutil
from pathlib import Path

import driver_scripts
import pytest

import torch_backend


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    return driver_scripts.npu_settings(driver_scripts.kernels(tmp_path_factory, "npu"))


def test_products_and_convolutions_for_many_threads_are_translated_and_produce_the_cpus_numbers(run):
    """clang 14 emits "freeze" for them, which llvm-spirv 14 does not support."""
    done = run("""
import torch, torch_backend
from torch_backend import fallback
torch.manual_seed(0)
for dtype, tolerance in ((torch.float32, 1e-5), (torch.float16, 4e-3), (torch.bfloat16, 3e-2)):
    for sizes in ((37, 29, 41), (64, 64, 64), (1, 100, 3), (130, 5, 70)):
        a, b = torch.randn(sizes[0], sizes[1], dtype=dtype), torch.randn(sizes[1], sizes[2], dtype=dtype)
        for x, y in ((a, b), (a.t().contiguous().t(), b), (a, b.t().contiguous().t())):
            torch.testing.assert_close((x.to("npu") @ y.to("npu")).cpu(), x @ y, rtol=tolerance, atol=10 * tolerance)
x, w = torch.randn(2, 3, 17, 19), torch.randn(4, 3, 3, 3)
results = []
for device in ("cpu", "npu"):
    xs, ws = (t.detach().to(device).requires_grad_() for t in (x.clone(), w.clone()))
    y = torch.conv2d(xs, ws, stride=2, padding=1)
    (y * y).sum().backward()
    results.append([t.cpu() for t in (y.detach(), xs.grad, ws.grad)])
torch.testing.assert_close(*results, rtol=1e-4, atol=1e-4)
assert not fallback.report(), fallback.report()
""", HAL_NPU_FORM="simt")
    assert "cannot build" not in done.stderr, done.stderr


@pytest.mark.slow
def test_with_a_pack_and_without_a_compiler_a_network_trains_and_nothing_is_compiled(run, settings, tmp_path):
    """PATH contains only the linker that the driver's own compiler needs."""
    plugin, tools = tmp_path / "libhal_npu.so", tmp_path / "bin"
    shutil.copy(Path(torch_backend.__file__).parent / "plugins/libhal_npu.so", plugin)
    tools.mkdir()
    (tools / "ld").symlink_to("/usr/bin/ld")
    driver_scripts.run_command(settings, tmp_path, "pack", "--output", "libhal_npu.pack", "--kernels", "*_f32_*,*_i64_*,*_bool_*,*_u8_*", "--quiet")
    script = driver_scripts.train_as_on_the_cpu("npu") + """
from torch_backend import _C
stats = _C.kernel_stats(1)
assert stats["packed"] > 10 and stats["compiled"] == stats["loaded"] == stats["refused"] == 0, stats
"""
    run(script, TORCH_BACKEND=plugin, HAL_CACHE_DIR="", PATH=tools)
