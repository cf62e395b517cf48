"""Every call of the plugin that a parallel training makes fails once, on one rank: each rank ends with an error or the right weights, none hangs.
fault_sweep.py has the cases. TORCH_BACKEND_TEST_SWEEP names a file that stores their ends, so that a run that was ended goes on."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("fault_sweep.py")
RESULTS = os.environ.get("TORCH_BACKEND_TEST_SWEEP")
PROTECTED = "HAL_FAKE_PROTECT=1"  # the ranks share device memory through the plugin
FUNCTIONS = (
    "memory_alloc", "memory_copy", "memory_fill", "memory_pointer_info", "event_create", "event_record", "event_query", "event_synchronize", "event_elapsed",
    "stream_create", "stream_query", "stream_synchronize", "stream_wait_event", "stream_wait_semaphore", "semaphore_create", "semaphore_set", "kernel_launch",
    "kernel_get", "module_load", "op_find", "device_info", "device_synchronize", "device_watch", "event_destroy", "semaphore_destroy",
)  # fmt: skip
SHARED = ("ipc_export", "ipc_open", "ipc_close", "memory_alloc", "memory_copy", "stream_signal_semaphore", "stream_wait_semaphore", "semaphore_create", "stream_create",
          "stream_synchronize", "kernel_launch")  # fmt: skip
SOME = "1,2,3,4,5,6,8,10,13,17,22,28,35,43,52,62,73,85"  # of the numbers of calls


def sweep(*arguments, settings=""):
    """Runs the cases of functions. Returns the lines with their counts."""
    rank = "-rank0" if "--rank" in arguments else ""
    results = ["--results", f"{RESULTS}{settings}{rank}"] if RESULTS else []
    command = [sys.executable, PROGRAM, *arguments, *results, *(["--settings", settings] if settings else [])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3600)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    return done.stdout


def test_each_event_that_cannot_be_created_is_an_error_or_does_no_harm():
    """Also on the threads that complete futures, which have no caller to report to."""
    assert ", 0 wrong" in sweep("event_create", "--shard", "1/5")


@pytest.mark.slow
@pytest.mark.parametrize("function", FUNCTIONS)
def test_each_call_that_fails_is_an_error_or_does_no_harm(function):
    assert f"{function}: " in sweep(function)


@pytest.mark.slow
@pytest.mark.parametrize("function", ("event_record", "event_create", "stream_wait_semaphore", "semaphore_create", "kernel_launch", "memory_copy", "device_info"))
def test_each_call_of_rank_0_that_fails(function):
    """It serves the store, so the other rank loses it, too."""
    assert f"{function}: " in sweep(function, "--rank", "0", "--cases", SOME)


@pytest.mark.slow
@pytest.mark.parametrize("function", SHARED)
def test_each_call_that_fails_with_shared_device_memory(function):
    assert " 0 cases" not in sweep(function, settings=PROTECTED)
