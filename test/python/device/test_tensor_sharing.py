"""Tensors of the device that processes share, in both modes of the fake device, with protected memory, and on a driver
of Vulkan. sharing.py contains the scenarios."""

import os
import subprocess
import sys
from pathlib import Path

import driver_scripts
import pytest

PROGRAM = Path(__file__).with_name("sharing.py")
MODES = {"inline": {"HAL_FAKE_ASYNC": "0"}, "async": {"HAL_FAKE_ASYNC": "1"}, "protected": {"HAL_FAKE_ASYNC": "1", "HAL_FAKE_PROTECT": "1"}}


def run(scenarios, method="spawn", plugin="fake", timeout=200, **settings):
    done = subprocess.run(
        [sys.executable, "-P", PROGRAM, scenarios, method],
        env={**os.environ, "TORCH_BACKEND": plugin, "HAL_FAKE_THREADS": "2", **settings}, capture_output=True, text=True, timeout=timeout,
    )  # fmt: skip
    ended = [line.removeprefix("done ") for line in done.stdout.splitlines() if line.startswith("done ")]
    assert done.returncode == 0 and ended == scenarios.split(","), done.stdout + done.stderr


def test_round_trips_rules_and_order():
    run("trip,rules,order", **MODES["async"])


def test_processes_that_end():
    run("exits", **MODES["protected"])


def test_a_plugin_without_ipc(build_plugin):
    run("copies", plugin=str(build_plugin("five")), SHARING_KIND="five")


@pytest.mark.parametrize("memory", ["visible", pytest.param("device", marks=pytest.mark.slow)])
@pytest.mark.parametrize("scenarios", ["trip", pytest.param("order,exits,loaders", marks=pytest.mark.slow)])
def test_memory_of_a_driver_of_vulkan(memory, scenarios, tmp_path):
    run(scenarios, **driver_scripts.vulkan_settings(tmp_path), plugin="vulkan", SHARING_KIND="vk", HAL_VULKAN_MEMORY=memory)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_all_scenarios_in_all_modes(mode, method):
    run("trip,rules,order,exits,loaders", method, timeout=400, **MODES[mode])


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_ten_thousand_sends_leak_nothing(mode):
    run("many", timeout=600, **MODES[mode])
