"""System features of the CUDA plugin on the mock driver: stream-ordered memory, and the sensors of NVML."""

import json
import os
import subprocess
import sys

import driver_scripts
import pytest

SMI = [sys.executable, "-P", "-m", "torch_backend", "smi"]
settings = driver_scripts.cuda_fixture()


# ---- stream-ordered memory ----

POOLED = """
import gc
gc.collect()
torch.nvgpu.synchronize(0)
before = torch.nvgpu.memory_allocated(0)
x = torch.ones(1 << 20, device="nvgpu:0")
y = x * 2
assert torch.nvgpu.memory_allocated(0) - before == 8 << 20 == torch.nvgpu.memory_reserved(0) - before
side = torch.Stream(device="nvgpu:0")
with torch.nvgpu.stream(side):
    z = torch.full((1 << 20,), 3.0, device="nvgpu:0")
    z.record_stream(torch.nvgpu.default_stream(0))
side.synchronize()
assert (y + z).sum().item() == 5 * (1 << 20)
del x, y, z
torch.nvgpu.synchronize(0)
torch.nvgpu.empty_cache()
assert torch.nvgpu.memory_allocated(0) == before, torch.nvgpu.memory_summary()
try:
    torch.empty(64 << 30, dtype=torch.uint8, device="nvgpu:0")
except torch.OutOfMemoryError as error:
    assert "out of memory" in str(error)
else:
    raise AssertionError("64 GiB of 8")
graph, static = torch.nvgpu.Graph(), torch.zeros(1000, device="nvgpu:0")
with torch.nvgpu.graph(graph):
    out = (static + 1) * 2
for value in (1.0, 2.0, 3.0, 4.0):
    static.fill_(value)
    graph.replay()
    assert out.sum().item() == 2000 * (value + 1)
"""


def test_a_network_trains_on_memory_in_the_order_of_streams_and_its_statistics_are_right(run):
    run(driver_scripts.train_as_on_the_cpu("nvgpu") + POOLED, HAL_CUDA_POOLED="1")


# ---- sensors of NVML ----


def test_smi_reports_the_sensors_of_nvml_and_creates_no_context(settings, tmp_path):
    environment = {**os.environ, **settings, "NVML_MOCK": "temperature=41,power=87250,utilization=37,memory_utilization=21,others=1"}
    done = subprocess.run([*SMI, "--json"], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    first, second = json.loads(done.stdout)
    assert first["device"] == "nvgpu:0" and second["device"] == "nvgpu:1" and first["total_memory"] == 8 << 30
    assert first["sensors"] == {"memory_used": {"value": 0, "unit": "bytes"}, "utilization": {"value": 37, "unit": "percent"},
                                "memory_utilization": {"value": 21, "unit": "percent"}, "power": {"value": 87250, "unit": "milliwatts"},
                                "temperature": {"value": 41000, "unit": "millidegrees Celsius"}}  # fmt: skip
    assert [process["memory_used"] for process in first["processes"]] == [None] and first["problems"] == []
    done = subprocess.run(SMI, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    heading, row, _, process, _ = done.stdout.splitlines()
    assert "temperature" in heading and "fan" not in heading and "41 C" in row and "87 W" in row and "0 MiB of 8192 MiB" in row
    assert "process 100000 has an unknown amount of its memory" in process


def test_the_module_reports_the_sensors_of_nvml_in_torch_cudas_units(run):
    run("""
import os, torch, torch_backend
module = torch.nvgpu
assert (module.utilization(1), module.memory_usage(), module.temperature("nvgpu:1"), module.power_draw(), module.clock_rate()) == (37, 21, 41, 87250, 1410)
assert module.device_memory_used(0) == 0 and not module.is_initialized()
assert module.list_gpu_processes(0) == "GPU:0\\nno processes are running"
x = torch.ones(1 << 20, device="nvgpu:0")
assert module.device_memory_used(0) >= 4 << 20
assert f"process {os.getpid():>10d} uses" in module.list_gpu_processes() and "MB GPU memory" in module.list_gpu_processes()
""")


@pytest.mark.slow
def test_without_nvml_the_message_names_what_to_install(settings, tmp_path):
    libraries = tmp_path / "driver"
    libraries.mkdir()
    for name in ("libcuda.so.1", "libnvrtc.so.13"):
        (libraries / name).symlink_to(driver_scripts.CUDA_LIBRARIES / name)
    environment = {**os.environ, **settings, "LD_LIBRARY_PATH": str(libraries)}
    done = subprocess.run(SMI, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1 and "libnvidia-ml.so.1 cannot be loaded" in done.stdout and "libnvidia-ml1" in done.stdout, done.stdout
