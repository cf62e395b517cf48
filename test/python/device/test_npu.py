"""The Level Zero plugin from torch, on the CPU driver of test/doubles behind the real loader: portable kernels that travel as SPIR-V give the
CPU's numbers, networks train, and compiled kernels are found again by the next process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
DRIVER = Path(os.environ.get("ZE_CPU_DRIVER", ROOT / "build/release/test/doubles/ze_cpu_driver/libze_cpu_driver.so"))
PROBE = "import torch, torch_backend; torch_backend.use('npu'); print(torch.ones(3, device='npu').sum().item())"


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    """Settings of processes that share compiled kernels; skips where loader, driver or compilers are missing."""
    if not DRIVER.exists():
        pytest.skip(f"{DRIVER} is not built; run `make test-c`, or name the driver in ZE_CPU_DRIVER")
    folder = tmp_path_factory.mktemp("kernels")
    settings = {"TORCH_BACKEND": "npu", "ZE_ENABLE_ALT_DRIVERS": str(DRIVER), "ZE_CPU_DEVICES": "2", "HAL_CACHE_DIR": str(folder),
                "POCL_CACHE_DIR": str(folder / "pocl")}  # fmt: skip
    done = subprocess.run([sys.executable, "-P", "-c", PROBE], env={**os.environ, **settings}, capture_output=True, text=True, timeout=120)
    if "libze_loader" in done.stderr:
        pytest.skip(f"the Level Zero loader is not installed (Debian: libze1): {done.stderr.strip()[-300:]}")
    assert done.stdout.strip() == "3.0", done.stderr
    return settings


@pytest.fixture
def run(run_python, settings):
    return lambda script, **more: run_python(script, timeout=300, **{**settings, **more})


TRAIN = """
import torch, torch_backend
from torch_backend import fallback

def train(device, steps=5):
    torch.manual_seed(3)
    net = torch.nn.Sequential(torch.nn.Linear(20, 16), torch.nn.GELU(), torch.nn.LayerNorm(16), torch.nn.Linear(16, 4)).to(device)
    x, target = torch.randn(32, 20).to(device), torch.randint(0, 4, (32,)).to(device)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(x), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses).cpu()
"""


@pytest.mark.parametrize("memory", ["device", "shared"])
@pytest.mark.parametrize("form", ["simt", "cpu"])
def test_a_network_trains_as_on_the_cpu_and_no_more_falls_back_than_is_known(run, form, memory):
    """llvm-spirv 14 cannot translate what clang 14 makes of the products' form for many threads ("freeze"): they may fall back there."""
    known = {"aten::mm", "aten::addmm"} if form == "simt" else set()
    script = f"{TRAIN}\ntorch.testing.assert_close(train('npu:1'), train('cpu'), rtol=1e-4, atol=1e-5)\nassert {{row.op for row in fallback.report()}} <= {known}, fallback.report()"
    run(script, HAL_NPU_FORM=form, HAL_NPU_MEMORY=memory)


def test_kernels_are_compiled_once_for_all_processes(run, tmp_path):
    script = f"{TRAIN}\ntrain('npu', 1)\nfrom torch_backend import _C\nstats = _C.kernel_stats(0)\nprint(stats['compiled'], stats['loaded'], stats['refused'])"
    settings = {"HAL_CACHE_DIR": str(tmp_path), "HAL_NPU_FORM": "cpu"}
    first, second = ([int(word) for word in run(script, **settings).stdout.split()] for _ in range(2))
    assert first[0] > 5 and first[2] == 0
    assert second == [0, first[0] + first[1], 0]


def test_memory_crosses_between_devices_and_streams(run):
    run("""
import torch, torch_backend
x = torch.arange(100000.0)
a = x.to("npu:0", non_blocking=True)
b = (a + 1).to("npu:1", non_blocking=True)
assert torch.equal(b.cpu(), x + 1)
assert torch.npu.device_count() == 2 and "test double" in torch.npu.get_device_name(0)
stream, event = torch.Stream("npu:1"), torch.Event("npu:1", enable_timing=True)
with stream:
    c = b * 2
    event.record(stream)
torch.accelerator.current_stream("npu:1").wait_event(event)
assert torch.equal((c + 1).cpu(), x * 2 + 3)
""")


def test_a_lost_device_is_an_error_of_python_and_not_the_processs_end(run):
    run("""
import ctypes, os, torch, torch_backend
x = torch.ones(10, device="npu") + 1
torch.accelerator.synchronize()
driver = ctypes.CDLL(os.environ["ZE_ENABLE_ALT_DRIVERS"])
driver.ze_cpu_fault_set(b"lost=0")
try:
    (x + 1).cpu()
except RuntimeError as error:
    assert "lost" in str(error).lower(), error
else:
    raise AssertionError("nothing was said")
""")
