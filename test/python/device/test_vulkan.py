"""The Vulkan plugin in PyTorch, on any device with a driver: the facts that the command line shows, the demo with and
without a pack of kernels, a pack inside the installed package, and what a second process compiles."""

import json
import os
import subprocess
import sys
from pathlib import Path

import driver_scripts
import pytest

pytestmark = pytest.mark.fresh_interpreter("PYTHONPATH names another copy of the package")


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    return driver_scripts.vulkan_settings(driver_scripts.kernels(tmp_path_factory, "vulkan"))


# The kernels that the demo runs.
KERNELS = """add_f32_contig argmax_f32_cols clamp_min_f32_contig convolution_f32_slope convolution_f32_tiles convolution_f32_turn eq_i64_contig
gemm_f32_tiles log_softmax_backward_f32_cols log_softmax_f32_cols max_pool_backward_f32_rows max_pool_f32_rows mul_f32_contig_s nll_f32_backward
nll_f32_finish nll_f32_sums sum_f32_cols sum_f32_cols_more sum_f32_rows sum_f32_strided take_i64_rows threshold_backward_f32_contig""".split()


@pytest.fixture(scope="module")
def with_pack(settings, tmp_path_factory):
    """Settings of processes that import a package with a pack."""
    return {**settings, **driver_scripts.package_with_pack(tmp_path_factory.mktemp("site"), KERNELS)}


# The devices' names and heaps, by the loader's own functions.
DRIVER = """
import ctypes, json
vulkan = ctypes.CDLL("libvulkan.so.1")
instance, count = ctypes.c_void_p(), ctypes.c_uint32(8)
devices = (ctypes.c_void_p * 8)()
create = (ctypes.c_uint64 * 8)(1)  # VkInstanceCreateInfo: its sType is 1, all else is 0
assert vulkan.vkCreateInstance(create, None, ctypes.byref(instance)) == 0
assert vulkan.vkEnumeratePhysicalDevices(instance, ctypes.byref(count), devices) == 0
facts, memory, found = ctypes.create_string_buffer(4096), (ctypes.c_uint64 * 256)(), {}
for device in devices[: count.value]:
    vulkan.vkGetPhysicalDeviceProperties(ctypes.c_void_p(device), facts)
    vulkan.vkGetPhysicalDeviceMemoryProperties(ctypes.c_void_p(device), memory)
    heaps = memory[32] >> 32  # after the number of types and 32 types of 8 bytes
    found[ctypes.string_at(ctypes.addressof(facts) + 20).decode()] = [memory[33 + 2 * heap] for heap in range(heaps)]
print(json.dumps(found))
"""


def test_smi_and_info_show_the_facts_of_the_driver(settings, tmp_path):
    done = subprocess.run([sys.executable, "-P", "-c", DRIVER], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    driver = json.loads(done.stdout)
    settings = {**settings, "HAL_VULKAN_REPEAT": "2"}
    rows = json.loads(driver_scripts.run_command(settings, tmp_path, "smi", "--json"))
    assert [row["device"] for row in rows[:2]] == ["vk:0", "vk:1"] and len(rows) % 2 == 0
    for row in rows:
        assert row["total_memory"] in driver[row["name"]] and row["problems"] == [], (row, driver)
    heading, *lines = driver_scripts.run_command(settings, tmp_path, "smi").splitlines()
    assert heading.split()[:3] == ["device", "name", "memory"]
    for row, line in zip(rows, lines, strict=True):
        assert line.startswith(row["device"]) and row["name"] in line and f"of {row['total_memory'] >> 20} MiB" in line
    devices = json.loads(driver_scripts.run_command(settings, tmp_path, "info", "--json"))["devices"]
    assert [(device["device"], device["name"], device["total_memory"]) for device in devices] == [
        (row["device"], row["name"], row["total_memory"]) for row in rows
    ]
    assert all(device["driver_version"] and 0 < device["free_memory"] <= device["total_memory"] for device in devices)


def test_info_names_what_is_missing_for_kernels(settings, tmp_path):
    kernels = json.loads(driver_scripts.run_command(settings, tmp_path, "info", "--json"))["devices"][0]["kernels"]
    if kernels["pack"]:
        pytest.skip("the installed package has a pack")
    told = driver_scripts.run_command(settings, tmp_path, "info")
    assert "portable kernels: none, no pack next to the plugin has modules in spirv-vulkan; create one with torch-backend pack\n" in told


def run_module(settings, folder, module, *arguments):
    """Runs a module of the package that the settings name; returns its JSON."""
    known = {name: value for name, value in os.environ.items() if not name.startswith("TORCH_BACKEND_TEST_")}
    command = [sys.executable, "-P", "-m", module, *arguments]
    done = subprocess.run(command, env={**known, **settings}, capture_output=True, text=True, timeout=1200, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "computed by the fallback" not in done.stderr
    return json.loads(done.stdout[done.stdout.index("{") :])


def run_demo(settings, folder, *arguments):
    """Returns the summary of the demo, which has succeeded."""
    summary = run_module(settings, folder, "torch_backend.demo", "--quiet", "--json", "--picture", str(folder / "loss.png"), *arguments)
    assert summary["parameter_device"] == "vk:0" and summary["loss_difference"] <= 1e-4
    return summary


def test_the_demo_trains_as_on_the_cpu(settings, tmp_path):
    """Without a pack, all operators run on the CPU."""
    run_demo(settings, tmp_path, "--epochs", "1")


@pytest.mark.slow
@pytest.mark.parametrize("memory", ["visible", "device"])
def test_the_demo_trains_with_kernels_of_a_pack(with_pack, tmp_path, memory):
    summary = run_demo({**with_pack, "HAL_VULKAN_MEMORY": memory}, tmp_path)
    assert summary["has_kernels"] and summary["native_share"] >= 0.95 and summary["accuracy"] >= 0.93


COMPUTE = """
import json, torch
from torch_backend import _C, fallback
a = torch.arange(-500.0, 500.0)
x = a.to("vk:0")
assert torch.equal((torch.relu(x * 2) + x).cpu(), torch.relu(a * 2) + a)
print(json.dumps({**_C.kernel_stats(0), "fallbacks": [row.op for row in fallback.report()]}))
"""


@pytest.mark.slow
def test_the_pack_of_the_installed_package_is_the_one_that_is_used(with_pack, run_python, tmp_path):
    pack = f"{with_pack['PYTHONPATH']}/torch_backend/plugins/libhal_vulkan.pack"
    stats = json.loads(run_python(COMPUTE, timeout=600, **with_pack).stdout)
    assert stats["pack"] == pack and stats["packed"] >= 3 and stats["compiled"] == stats["refused"] == 0 and stats["fallbacks"] == [], stats
    info = run_module(with_pack, tmp_path, "torch_backend", "info", "--json")
    assert [device["kernels"]["pack"] for device in info["devices"]] == [pack] * len(info["devices"])


@pytest.mark.slow
def test_a_second_process_compiles_nothing(with_pack, tmp_path):
    """Neither kernels, nor pipelines: the driver adds no file to its cache. Mesa's drivers for CPUs return no content of
    pipelines to the plugin, and keep the machine code of each in their own folder; others return it."""
    caches = {name: str(tmp_path / name.lower()) for name in ("HAL_CACHE_DIR", "MESA_SHADER_CACHE_DIR", "XDG_CACHE_HOME")}

    def files():
        return {path: path.stat().st_size for name in caches.values() for path in Path(name).rglob("*") if path.is_file()}

    run_demo({**with_pack, **caches}, tmp_path, "--epochs", "1")
    first = files()
    run_demo({**with_pack, **caches}, tmp_path, "--epochs", "1")
    assert first and files() == first
