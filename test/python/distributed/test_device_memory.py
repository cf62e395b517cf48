"""Collectives and messages of device memory that the host cannot access. If the plugin shares memory between processes, no byte of it passes through the
host: `fake` on protected memory, `cuda` without NCCL and `npu`, the last two on drivers that stand in for those of the vendors."""

import json
import re
import sys
from pathlib import Path

import launch
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import driver_scripts

slow = pytest.mark.slow
PROTECTED = {"HAL_FAKE_PROTECT": "1", "HAL_FAKE_ASYNC": "1"}


def settings_of(plugin, tmp_path_factory):
    if plugin == "fake":
        return PROTECTED
    kernels = driver_scripts.kernels(tmp_path_factory, plugin)
    return driver_scripts.npu_settings(kernels) if plugin == "npu" else driver_scripts.cuda_settings(kernels)


def copies(ranks, settings):
    """Runs the program. Returns the numbers of copies of rank 0, by their kind."""
    written = launch.run("device_memory.py", ranks, environment=settings)
    return json.loads(re.findall("^{.*}$", written, re.MULTILINE)[-1])


@pytest.mark.parametrize("plugin, ranks", [
    ("fake", 2), pytest.param("fake", 4, marks=slow), pytest.param("cuda", 2, marks=slow), pytest.param("cuda", 4, marks=slow),
    pytest.param("npu", 2, marks=slow), pytest.param("npu", 4, marks=slow),
])  # fmt: skip
def test_device_memory_does_not_pass_through_the_host(plugin, ranks, tmp_path_factory):
    counts = copies(ranks, settings_of(plugin, tmp_path_factory))
    assert counts["HtoD"] == counts["DtoH"] == 0 and counts["DtoD"] > 0, counts


@slow
@pytest.mark.parametrize("plugin, more", [("fake", {"HAL_LAYERS": "fault", "HAL_FAULT": "ipc_open:1"}), ("npu", {"ZE_CPU_WITHOUT": "ipc,virtual"})])
def test_ranks_that_cannot_share_it_copy_through_the_host(plugin, more, tmp_path_factory):
    """Also shows that the copies are counted."""
    counts = copies(2, {**settings_of(plugin, tmp_path_factory), **more})
    assert counts["HtoD"] > 0 and counts["DtoH"] > 0, counts


@slow
@pytest.mark.parametrize("plugin, ranks", [("cuda", 4), ("npu", 2), ("npu", 4)])
def test_each_collective(plugin, ranks, tmp_path_factory):
    launch.run("collectives.py", ranks, environment=settings_of(plugin, tmp_path_factory))
