"""The Level Zero plugin from torch, on the CPU driver of test/doubles behind the real loader: portable kernels that travel as SPIR-V give the
CPU's numbers, networks train, and compiled kernels are found again by the next process."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import driver_scripts
import pytest

import torch_backend

DRIVER = driver_scripts.NPU_DRIVER
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


@pytest.mark.parametrize("memory", ["device", "shared"])
@pytest.mark.parametrize("form", ["simt", "cpu"])
def test_a_network_trains_as_on_the_cpu_without_a_fallback(run, form, memory):
    run(driver_scripts.train_as_on_the_cpu("npu"), HAL_NPU_FORM=form, HAL_NPU_MEMORY=memory)


def test_products_and_convolutions_for_many_threads_are_translated_and_give_the_cpus_numbers(run):
    """In them clang 14 writes "freeze", which llvm-spirv 14 does not know."""
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


def test_kernels_are_compiled_once_for_all_processes(run, tmp_path):
    script = driver_scripts.count_compiled("npu")
    settings = {"HAL_CACHE_DIR": str(tmp_path), "HAL_NPU_FORM": "cpu"}
    first, second = ([int(word) for word in run(script, **settings).stdout.split()] for _ in range(2))
    assert first[0] > 5 and first[2] == 0
    assert second == [0, first[0] + first[1], 0]


def test_memory_crosses_between_devices_and_streams(run):
    run(driver_scripts.cross_devices("npu"))


def test_a_lost_device_is_an_error_of_python_and_not_the_processs_end(run):
    run(driver_scripts.lose("npu", 'os.environ["ZE_ENABLE_ALT_DRIVERS"]', "ze_cpu_fault_set"))


@pytest.mark.slow
def test_the_demos_network_trains_on_it(settings, tmp_path):
    driver_scripts.run_command(settings, tmp_path, "demo", "--device", "npu")


@pytest.mark.parametrize("command", ["info", "doctor"])
def test_the_command_line_says_which_library_was_loaded_from_where(settings, tmp_path, command):
    printed = driver_scripts.run_command(settings, tmp_path, command)
    assert "libze_loader.so" in printed and f"driver {DRIVER}" in printed, printed


@pytest.mark.parametrize("other", ["fake", "opencl"])
def test_several_plugins_live_in_one_process(run, other):
    """Among them one over the driver by which the double computes."""
    run(driver_scripts.share_a_process("npu"), TORCH_BACKEND=f"npu,{other}", HAL_FAKE_DEVICES="2", POCL_DEVICES="pthread pthread")


def test_it_activates_by_itself_and_is_known_by_its_file_and_its_device_type(run):
    run(driver_scripts.activate_by_itself("npu", "npu"))


@pytest.mark.slow
def test_with_a_pack_and_without_a_compiler_a_network_trains_and_nothing_is_compiled(run, settings, tmp_path):
    """PATH has nothing but the linker of the driver's own compiler."""
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


@pytest.mark.slow
@pytest.mark.parametrize("form", ["simt", "cpu"])
def test_the_models_train_as_on_the_cpu(settings, tmp_path, form):
    driver_scripts.run_tests("npu", {**settings, "HAL_NPU_FORM": form}, tmp_path, "training/test_models.py", timeout=3600)


@pytest.mark.slow
def test_memory_streams_random_numbers_and_pinned_memory_are_as_on_every_device(settings, tmp_path):
    for name in ("accelerator", "device", "memory", "streams", "random", "pinned", "dlpack", "graphs"):
        driver_scripts.run_tests("npu", settings, tmp_path, f"device/test_{name}.py")


@pytest.mark.slow
def test_the_operator_database_gives_the_cpus_results_with_gradients(settings, tmp_path):
    """But for logcumsumexp backward: a difference of large numbers, in which float32 on the CPU is as far from float64."""
    assert driver_scripts.run_database("npu", settings, tmp_path) <= {"logcumsumexp"}
