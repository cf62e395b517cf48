"""Collectives of torch.distributed in the library of the device's plugin: `cuda` with NCCL, on the libraries that stand in for NVIDIA's."""

import os
import re
import subprocess
import sys
from pathlib import Path

import launch
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import driver_scripts


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    library = driver_scripts.CUDA_LIBRARIES / "nccl/libnccl.so.2"
    if not library.exists():
        pytest.skip(f"{library} is not built; run `make test-c`, or name the folder of libcuda.so.1 in CUDA_MOCK")
    found = driver_scripts.cuda_settings(driver_scripts.kernels(tmp_path_factory, "cuda"))
    return {**found, "CUDA_MOCK_DEVICES": "3", "HAL_CUDA_NCCL": str(library), "TORCH_BACKEND_TEST_DEVICES": "1", "TORCH_BACKEND_COLLECTIVES": "plugin"}


def test_steps_and_waits(settings):
    """A step of DistributedDataParallel, each kind of collective, and a wait that does not block the host."""
    launch.run("plugin_library.py", 2, environment=settings)


@pytest.mark.slow
@pytest.mark.parametrize("program, more", [("collectives.py", {}), ("collectives.py", {"TORCH_BACKEND_COLLECTIVES_COMPARE": "1"}), ("training.py", {}), ("captured.py", {})], ids=str)
def test_programs(settings, program, more):
    launch.run(program, 2, environment={**settings, **more})


@pytest.mark.slow
def test_three_ranks(settings):
    launch.run("collectives.py", 3, environment=settings)


def test_the_library_splits_groups(settings):
    """Also for ranks in no part; after a rank was killed the others connect anew. The log names what each group has."""
    processes = launch.start("groups.py", 3, ["bound"], {**settings, "HAL_LOG": "info"})
    codes, written = launch.finish(processes)
    assert codes == [0, 0, -9], written
    parts = [len(re.findall("collectives run in library nccl .*, split from group 'default_pg'", text)) for text in written]
    assert parts == [4, 4, 2], written  # [[0], [1, 2]], twice [[0, 1]], [[0, 1, 2]]
    assert re.search("group '.*' has failed, which ended its library; the ranks connect anew", written[0]), written[0]
    assert all("passed check_shrink" in text for text in written[:2]), written


@pytest.mark.parametrize("kind, words", [("shapes", "10 elements.*11 elements"), ("operators", "broadcast.*all_reduce")])
def test_calls_are_compared_on_request(settings, kind, words):
    _, written = launch.finish(launch.start("failures.py", 2, [kind], {**settings, "TORCH_BACKEND_COLLECTIVES_COMPARE": "1"}))
    for text in written:
        assert re.search(words, text, re.DOTALL), text


def test_a_rank_that_does_not_come_ends_the_wait_at_the_timeout(settings):
    _, written = launch.finish(launch.start("failures.py", 2, ["silence"], settings))
    assert re.search(r"all_reduce #2 of group .*library nccl has not done it within 3.000 s", written[0], re.DOTALL), written[0]


def test_a_rank_that_ends_is_named_at_once(settings):
    _, written = launch.finish(launch.start("failures.py", 2, ["death"], settings))
    found = re.search(r"after (\d+\.\d) s: .*rank 1.*has ended", written[0], re.DOTALL)
    assert found and float(found[1]) < 2, written[0]


@pytest.mark.slow
def test_one_device_for_two_ranks_is_refused_or_served_by_the_host(settings):
    """By name it is an error; `auto` uses shared memory instead."""
    shared = {name: value for name, value in settings.items() if name != "TORCH_BACKEND_TEST_DEVICES"}
    _, written = launch.finish(launch.start("failures.py", 2, ["shapes"], shared))
    assert all("cannot use the collectives library" in text and "ranks 0 and 1 use one device" in text for text in written), written
    _, written = launch.finish(launch.start("failures.py", 2, ["shapes"], {**shared, "TORCH_BACKEND_COLLECTIVES": "auto"}))
    assert all(re.search("10 elements.*11 elements", text, re.DOTALL) for text in written), written


@pytest.mark.slow
def test_order_and_hooks(settings):
    """Also that a failure after the submission reaches those who wait for the group."""
    launch.run("order.py", 2, ["all"], settings)


def sweep(settings, *arguments):
    """Makes calls of the library fail in a training of two ranks."""
    ours = {**os.environ, **{name: value for name, value in settings.items() if name != "TORCH_BACKEND_TEST_DEVICES"}}
    command = [sys.executable, Path(__file__).with_name("fault_sweep.py"), *arguments, "--settings", "TORCH_BACKEND=cuda"]
    done = subprocess.run(command, env=ours, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0 and ", 0 wrong" in done.stdout and " 0 cases" not in done.stdout, done.stdout[-6000:] + done.stderr[-3000:]


def test_the_last_collective_of_a_program_fails(settings):
    """Only the weights are read after it, on the streams that wait for it by events of futures."""
    sweep(settings, "comm_submit", "--cases", "8")


@pytest.mark.slow
@pytest.mark.parametrize("function", ["comm_submit", "comm_create", "comm_info", "comm_query", "comm_destroy"])
def test_each_call_of_the_library_that_fails_is_an_error_or_does_no_harm(settings, function):
    sweep(settings, function)


def test_an_unknown_provider_is_an_error(settings):
    codes, written = launch.finish(launch.start("failures.py", 1, ["silence"], {**settings, "TORCH_BACKEND_COLLECTIVES": "nccl"}))
    assert codes[0] and "use auto, plugin, shm, hierarchical or gloo" in written[0], written
