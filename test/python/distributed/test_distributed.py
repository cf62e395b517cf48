"""torch.distributed on the device. Each program of this folder runs as several processes, one rank each."""

import os
import re
import sys
from pathlib import Path

import launch
import pytest
import warm_interpreter

ROOT = Path(__file__).resolve().parents[3]
INLINE = {"HAL_FAKE_ASYNC": "0"}


@pytest.mark.parametrize("transport", ["shm", "gloo"])
def test_collectives(transport):
    launch.run("collectives.py", 2, environment={"TORCH_BACKEND_COLLECTIVES": transport})


@pytest.mark.parametrize("settings", [{"TORCH_BACKEND_COLLECTIVES": "shm"}, pytest.param({"TORCH_BACKEND_COLLECTIVES": "gloo"}, marks=pytest.mark.slow),
                                      pytest.param(INLINE, marks=pytest.mark.slow)], ids=str)  # fmt: skip
def test_unusual_arguments(settings):
    """They are computed right, or refused before anything is sent."""
    launch.run("unusual.py", 2, environment=settings)


@pytest.mark.slow
@pytest.mark.parametrize("ranks, settings", [(3, {}), (4, INLINE), (2, {"HAL_FAKE_PROTECT": "1"})], ids=str)
def test_collectives_of_more_ranks_and_other_modes(ranks, settings):
    launch.run("collectives.py", ranks, environment=settings)


def test_parallel_training_compared_with_the_cpu():
    launch.run("training.py", 2)


@pytest.mark.slow
def test_crossed_messages_take_at_most_twice_the_time_of_one_direction():
    """64 MiB between two pairs of ranks. Other programs on the machine disturb the comparison, so it has three attempts."""
    ratios = [float(launch.run("pairs.py", 4).split()[-1]) for _ in range(3)]
    assert min(ratios) <= 2, ratios


def test_graphs_hold_collectives():
    launch.run("captured.py", 2)


@pytest.mark.slow
@pytest.mark.parametrize("ranks, settings", [(3, {"TORCH_BACKEND_COLLECTIVES": "gloo"}), (2, INLINE), (2, {"HAL_FAKE_PROTECT": "1"})], ids=str)
def test_graphs_of_more_ranks_and_other_modes(ranks, settings):
    launch.run("captured.py", ranks, ["100"], settings)


@pytest.mark.parametrize("transport", ["shm", "gloo"])
@pytest.mark.parametrize(
    "kind, words",
    [
        ("shapes", r"10 elements.*11 elements|10.*11"),
        ("types", "float32.*int32"),
        ("operators", "broadcast.*all_reduce"),
        ("brackets", "bracket of 3.*(bracket|one) of 2"),
        ("messages", r"rank 0 sends \(float32, 10 elements, tag 0\) to rank 1, which receives \(int32, 11 elements\)"),
    ],
)
def test_calls_that_do_not_match_are_errors_on_every_rank(kind, words, transport):
    codes, written = launch.finish(launch.start("failures.py", 2, [kind], {"TORCH_BACKEND_COLLECTIVES": transport}))
    for text in written:
        assert re.search(words, text, re.DOTALL), text
        assert kind != "brackets" or error_of(text)[0] <= 1, text  # not the timeout of 3 s
    assert codes == [0, 0], written  # the device computes on


def test_a_message_that_does_not_match_leaves_an_asynchronous_device_usable():
    codes, written = launch.finish(launch.start("failures.py", 2, ["messages"], {"HAL_FAKE_ASYNC": "1"}))
    assert codes == [0, 0] and all("rank 0 sends" in text for text in written), written


@pytest.mark.parametrize("blocks", ["0", "1"])
def test_a_wait_that_blocks_raises_the_failure(blocks):
    """Without the setting wait() makes the stream wait, and the failure comes with the next synchronization or collective."""
    codes, written = launch.finish(launch.start("failures.py", 2, ["late"], {"HAL_FAKE_ASYNC": "1", "TORCH_BACKEND_COLLECTIVES_BLOCKING_WAIT": blocks}))
    assert codes == [0, 0], written
    for text in written:
        assert ("wait() has raised" in text) or blocks == "0", text
        assert re.search(r"(Error) after .*8 elements.*9 elements", text, re.DOTALL), text


@pytest.mark.parametrize("transport, text", [("auto", "by shared memory"), ("shm", "by shared memory, as TORCH_BACKEND_COLLECTIVES is set"),
                                             ("gloo", "by Gloo, as TORCH_BACKEND_COLLECTIVES is set")])  # fmt: skip
def test_the_log_names_the_group_and_what_runs_its_collectives(transport, text):
    _, written = launch.finish(launch.start("failures.py", 2, ["messages"], {"TORCH_BACKEND_COLLECTIVES": transport, "HAL_LOG": "info"}))
    for one in written:
        (line,) = [line for line in one.splitlines() if "collectives run" in line]
        assert re.search(rf"group 'default_pg': collectives run {text}(; no library: .*)?$", line), line


def error_of(text):
    """Returns the seconds after which a rank of failures.py had its error, and the time of the error."""
    found = re.search(r"Error after (\d+\.\d) s: .*^at ([\d.]+)$", text, re.DOTALL | re.MULTILINE)
    assert found, text
    return float(found[1]), float(found[2])


def test_a_rank_that_does_not_come_is_named():
    _, written = launch.finish(launch.start("failures.py", 2, ["silence"]))
    assert "rank 1" in written[0] and "within 3" in written[0], written[0]
    assert 2.9 < error_of(written[0])[0] <= 1.2 * 3, written[0]


def test_a_rank_that_ends_is_named_at_once():
    codes, written = launch.finish(launch.start("failures.py", 2, ["death"]))
    assert codes == [0, -9], written
    assert error_of(written[0])[0] <= 1 and re.search("rank 1.*has ended", written[0], re.DOTALL), written[0]


def test_an_interface_that_one_rank_does_not_have_is_an_error_of_all_with_the_setting():
    codes, written = launch.finish(launch.start("failures.py", 2, ["interface in the first call"], {"TORCH_BACKEND_COLLECTIVES": "gloo"}))
    assert codes == [0, 0], written
    for text in written:
        assert "rank 1" in text and "GLOO_SOCKET_IFNAME is 'missing0': set it to the network interface" in text, text
        assert error_of(text)[0] < 2, text  # the timeout is 3 s


def test_abort_ends_all_ranks():
    _, written = launch.finish(launch.start("failures.py", 2, ["abort"]))
    assert all("abort" in text and "no error" not in text for text in written), written


@pytest.mark.slow
def test_an_error_in_a_hook_of_one_rank_ends_the_others():
    _, written = launch.finish(launch.start("failures.py", 2, ["hook"]))
    assert "out of memory in the hook" in written[1], written[1]
    assert re.search(r"rank 1 \(pid \d+\) has (ended|destroyed)", written[0]), written[0]
    assert error_of(written[0])[1] - float(re.search(r"^ends at ([\d.]+)", written[1], re.MULTILINE)[1]) < 2.5, written  # the time limit is 30 s


@pytest.mark.parametrize("bound", ["bound", "unbound"])
def test_groups_of_some_ranks(bound):
    """Splits, subsets, 64 groups, and the ranks that are left after one was killed."""
    codes, written = launch.finish(launch.start("groups.py", 3, [bound]))
    assert codes == [0, 0, -9] and all("passed check_shrink" in text for text in written[:2]), written


@pytest.mark.slow
def test_a_split_has_its_own_timeout():
    launch.run("groups.py", 3, ["timeout"])


def test_sequence_numbers_timeouts_hooks_and_refusals():
    """The checks of timeouts mostly wait: they run at the same time as the other ones."""
    started = [launch.start("order.py", 2, [part]) for part in ("timeouts", "others")]
    for codes, written in [launch.finish(processes) for processes in started]:
        assert codes == [0, 0], "\n".join(written)


@pytest.mark.slow
def test_enqueue_abort_and_creation():
    launch.run("order.py", 2, ["all"])


@pytest.mark.parametrize("kind, words", [("operators", "COLLECTIVE_TYPE_MISMATCH"), ("shapes", "SIZE_OR_SYNTAX_MISMATCH")])
def test_the_log_names_the_collectives_that_differ(kind, words, tmp_path):
    """torch's own analyzer reads the log, and so does ours."""
    folder = tmp_path / "log"
    launch.run("desync.py", 2, [str(folder), kind], {"TORCH_BACKEND_COLLECTIVES_LOG": str(folder), "TORCH_BACKEND_COLLECTIVES_LOG_SIGNAL": "usr2"})
    analyzer = [sys.executable, "-P", "-m", "torch.distributed.flight_recorder.fr_trace", str(folder), "--prefix", "rank_"]
    program = tmp_path / "program.py"
    program.write_text(f"import torch, torch_backend.distributed as d; print(d.first_difference({str(folder)!r})); d.plot({str(folder)!r}, {str(tmp_path / 'log.svg')!r})")
    environment = {**os.environ, "TORCH_BACKEND": "fake"}
    found = warm_interpreter.run(analyzer, env=environment, timeout=120)
    assert "Collective sequence number: 4 has errors" in found.stderr + found.stdout and words in found.stderr + found.stdout, found
    ours = warm_interpreter.run([sys.executable, "-P", program], env=environment, timeout=120).stdout
    assert "collective #4 of group '0'" in ours and "float32[11]" in ours and "desync.py" in ours, ours
    picture = (tmp_path / "log.svg").read_text()
    assert "rank 1" in picture and "number 4; not completed" in picture and "number 3; " in picture


def test_every_public_function_works_or_is_refused_by_name():
    """The table is in public_functions.py."""
    launch.run("public_functions.py", 2)


@pytest.mark.parametrize("schedules", [50, pytest.param(1000, marks=pytest.mark.slow)])
def test_no_collective_reads_memory_before_it_is_ready(schedules):
    launch.run("races.py", 2, [str(schedules)], {"HAL_FAKE_DELAY": "300"})


@pytest.mark.slow
@pytest.mark.parametrize(
    "broken, more",
    [
        ("wait_semaphore_ignored", {}),  # a stream does not wait for a result
        ("event_done_early", {}),  # the host does not wait for operands
        ("wait_ignored", {"HAL_FAKE_PROTECT": "1", "TORCH_BACKEND_COLLECTIVES": "gloo"}),  # a copy to the host does not wait for operands
    ],
)
def test_waits_that_a_plugin_ignores_are_found(broken, more):
    """As a build of this package without the wait: the schedules above have wrong sums."""
    plugins = ROOT / "build/release/test/plugins/libhal_broken.so", ROOT / "build/release/plugins/libhal_fake.so"
    if not all(plugin.exists() for plugin in plugins):
        pytest.skip(f"{plugins[0]} is not built; run `make test-c`")
    settings = {"TORCH_BACKEND": str(plugins[0]), "HAL_BROKEN": broken, "HAL_BROKEN_OF": str(plugins[1]), "HAL_ALLOW_UNSAFE_PLUGINS": "1", "HAL_FAKE_DELAY": "300", **more}
    _, written = launch.finish(launch.start("races.py", 2, ["50"], settings))
    assert any("wrong sums" in text for text in written), written


def test_spellings_of_the_backend():
    """init_process_group() with each name that users write, with and without a device."""
    launch.run("spellings.py", 2)
