"""The CUDA plugin from torch, on the libraries of test/doubles that stand in for NVIDIA's driver and compiler: portable kernels as CUDA C give
the CPU's numbers, networks train without a fallback, and compiled kernels are found again by the next process."""

import driver_scripts
import pytest

LIBRARIES = driver_scripts.CUDA_LIBRARIES


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


@pytest.mark.slow
def test_the_demos_network_trains_on_it(settings, tmp_path):
    driver_scripts.run_command(settings, tmp_path, "demo", "--device", "nvgpu")


@pytest.mark.parametrize("command", ["info", "doctor"])
def test_the_command_line_says_which_library_was_loaded_from_where(settings, tmp_path, command):
    assert f"driver {LIBRARIES}/libcuda.so.1 of CUDA 13.0" in driver_scripts.run_command(settings, tmp_path, command)


def test_several_plugins_live_in_one_process(run):
    run(driver_scripts.share_a_process("nvgpu"), TORCH_BACKEND="cuda,fake", HAL_FAKE_DEVICES="2")


def test_it_activates_by_itself_and_is_known_by_its_file_and_its_device_type(run):
    run(driver_scripts.activate_by_itself("nvgpu", "cuda"))


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
    assert driver_scripts.run_database("cuda", settings, tmp_path) <= {"logcumsumexp"}
