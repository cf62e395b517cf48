"""The Level Zero plugin from torch, on the CPU driver of test/doubles behind the real loader: portable kernels that travel as SPIR-V give the
CPU's numbers, networks train, and compiled kernels are found again by the next process."""

import os
import subprocess
import sys
from pathlib import Path

import driver_scripts
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


@pytest.mark.parametrize("memory", ["device", "shared"])
@pytest.mark.parametrize("form", ["simt", "cpu"])
def test_a_network_trains_as_on_the_cpu_and_no_more_falls_back_than_is_known(run, form, memory):
    """llvm-spirv 14 cannot translate what clang 14 makes of the products' form for many threads ("freeze"): they may fall back there."""
    known = {"aten::mm", "aten::addmm"} if form == "simt" else set()
    script = driver_scripts.train_as_on_the_cpu("npu", known)
    run(script, HAL_NPU_FORM=form, HAL_NPU_MEMORY=memory)


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
