"""The CUDA plugin from torch, on the libraries of test/doubles that stand in for NVIDIA's driver and compiler: portable kernels as CUDA C give
the CPU's numbers, networks train without a fallback, and compiled kernels are found again by the next process."""

import json
import os
import subprocess
import sys
from pathlib import Path

import driver_scripts
import pytest

ROOT = Path(__file__).resolve().parents[3]
LIBRARIES = driver_scripts.CUDA_LIBRARIES
OPINFO = ROOT / "test/opinfo/run.py"


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    """Settings of processes that share compiled kernels; skips where the libraries are not built."""
    return driver_scripts.cuda_settings(tmp_path_factory.mktemp("kernels"))


@pytest.fixture
def run(run_python, settings):
    return lambda script, **more: run_python(script, timeout=300, **{**settings, **more})


def test_a_network_trains_as_on_the_cpu_without_a_fallback(run):
    run(driver_scripts.train_as_on_the_cpu("nvgpu"))


def test_kernels_are_compiled_once_for_all_processes(run, tmp_path):
    script = driver_scripts.count_compiled("nvgpu")
    first, second = ([int(word) for word in run(script, HAL_CACHE_DIR=str(tmp_path)).stdout.split()] for _ in range(2))
    assert first[0] > 5 and first[1:] == [0, 0]
    assert second == [0, first[0], 0]


def test_memory_crosses_between_devices_and_streams(run):
    run(driver_scripts.cross_devices("nvgpu"))


def test_a_lost_device_is_an_error_of_python_and_not_the_processs_end(run):
    run(driver_scripts.lose("nvgpu", '"libcuda.so.1"', "cuda_stand_in_fault_set"))


def test_the_demos_network_trains_on_it(settings, tmp_path):
    command = [sys.executable, "-P", "-m", "torch_backend.demo", "--device", "nvgpu"]
    done = subprocess.run(command, env={**os.environ, **settings}, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", ["info", "doctor"])
def test_the_command_line_says_which_library_was_loaded_from_where(settings, tmp_path, command):
    words = [sys.executable, "-P", "-m", "torch_backend", command]
    done = subprocess.run(words, env={**os.environ, **settings}, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert f"driver {LIBRARIES}/libcuda.so.1 of CUDA 13.0" in done.stdout, done.stdout


def test_several_plugins_live_in_one_process(run):
    run("""
import torch, torch_backend
x = torch.arange(1000.0)
a = x.to("nvgpu:0") * 2
b = a.to("nvgpu:2")  # the first device of fake
assert torch.equal((b + 1).to("nvgpu:1").cpu(), x * 2 + 1)
assert torch.nvgpu.device_count() == 4
""", TORCH_BACKEND="cuda,fake", HAL_FAKE_DEVICES="2")


def test_it_activates_by_itself_and_is_known_by_its_file_and_its_device_type(run):
    run("""
import os
os.environ.pop("TORCH_BACKEND")
import torch, torch_backend
assert torch.accelerator.current_accelerator().type == "nvgpu"
for name in ("cuda", "nvgpu", torch_backend.plugins()[0].path):
    torch_backend.use(name)
for name in ("fake", "cuda,fake"):
    try:
        torch_backend.use(name)
    except RuntimeError as error:
        assert "already active" in str(error)
    else:
        raise AssertionError(name)
""")


@pytest.mark.slow
def test_the_models_train_as_on_the_cpu(settings, tmp_path):
    driver_scripts.run_tests("cuda", settings, tmp_path, "training/test_models.py")


@pytest.mark.slow
def test_memory_streams_random_numbers_and_pinned_memory_are_as_on_every_device(settings, tmp_path):
    for name in ("accelerator", "device", "memory", "streams", "random", "pinned", "dlpack", "graphs"):
        driver_scripts.run_tests("cuda", settings, tmp_path, f"device/test_{name}.py")


@pytest.mark.slow
def test_the_operator_database_gives_the_cpus_results_with_gradients(settings, tmp_path):
    """But for logcumsumexp backward: a difference of large numbers, in which float32 on the CPU is as far from float64."""
    command = [sys.executable, "-P", str(OPINFO), "--plugin", "cuda", "--full", "--dtype", "float32", "--mode", "async", "--timeout", "400",
               "--json", str(tmp_path / "o.json")]  # fmt: skip
    subprocess.run(command, env={**os.environ, **settings}, capture_output=True, text=True, timeout=3000, cwd=tmp_path)
    outcomes = json.loads((tmp_path / "o.json").read_text())
    failed = {outcome["entry"] for outcome in outcomes if outcome["kind"] not in ("pass", "unsampled")}
    assert len(outcomes) > 600 and failed <= {"logcumsumexp"}, failed
