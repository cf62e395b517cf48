"""Groups whose ranks are threads of one process: their collectives and DistributedDataParallel have the CPU's numbers, in
shared memory on `fake`, and in the platform's programs on `pjrt`."""

import os
import sys
from pathlib import Path

import driver_scripts
import pytest
import warm_interpreter

SCRIPT = Path(__file__).with_name("threads.py")


def run(size, settings):
    environment = {**os.environ, "HAL_LOG": "info", **settings}
    done = warm_interpreter.run([sys.executable, "-P", SCRIPT, size], env=environment, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.split() == [str(size * (6 * (5 + size) + 2)), "checks"], done.stdout
    return done.stderr


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("memory", ["addressed", pytest.param("opaque", marks=pytest.mark.slow)])
def test_collectives_are_programs_over_the_devices_of_pjrt(size, memory, tmp_path):
    log = run(size, driver_scripts.pjrt_settings(tmp_path, HAL_PJRT_DEVICES=str(size), HAL_PJRT_MEMORY=memory))
    for name in ("threads", "training"):
        assert log.count(f"group '{name}': collectives run in library pjrt") == size, log


@pytest.mark.parametrize("size", [2, 4])
def test_collectives_of_threads_use_shared_memory(size):
    log = run(size, {"TORCH_BACKEND": "fake", "HAL_FAKE_DEVICES": str(size)})
    assert log.count("group 'threads': collectives run by shared memory") == size, log


def test_a_rank_outside_of_the_group_is_refused(run_python):
    done = run_python(
        """
        import torch, torch_backend
        from torch_backend.distributed import thread_group
        thread_group(torch.distributed.HashStore(), 2, 2)
        """,
        check=False, TORCH_BACKEND="fake",
    )  # fmt: skip
    assert done.returncode and "ValueError: rank 2 of 2 threads: expected 0 to 1" in done.stderr


@pytest.mark.slow
def test_a_second_process_loads_the_programs_of_collectives(tmp_path):
    def written():
        run(2, driver_scripts.pjrt_settings(tmp_path, HAL_PJRT_DEVICES="2"))
        return {file.name: file.stat().st_mtime_ns for file in tmp_path.glob("pjrt/*.program")}

    first = written()
    assert len(first) > 5 and written() == first
