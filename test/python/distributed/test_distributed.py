"""torch.distributed on the device. Each program of this folder runs as several processes, one rank each."""

import re

import launch
import pytest

INLINE = {"HAL_FAKE_ASYNC": "0"}


@pytest.mark.parametrize("transport", ["shm", "gloo"])
def test_collectives(transport):
    launch.run("collectives.py", 2, environment={"TORCH_BACKEND_COLLECTIVES": transport})


@pytest.mark.slow
@pytest.mark.parametrize("ranks, settings", [(3, {}), (4, INLINE), (2, {"HAL_FAKE_PROTECT": "1"})], ids=str)
def test_collectives_of_more_ranks_and_other_modes(ranks, settings):
    launch.run("collectives.py", ranks, environment=settings)


def test_parallel_training_beside_the_cpu():
    launch.run("training.py", 2)


@pytest.mark.parametrize("transport", ["shm", "gloo"])
@pytest.mark.parametrize(
    "kind, words",
    [("shapes", r"10 elements.*11 elements|10.*11"), ("types", "float32.*int32"), ("operators", "broadcast.*all_reduce")],
)
def test_calls_that_do_not_match_are_errors_on_every_rank(kind, words, transport):
    _, written = launch.finish(launch.start("failures.py", 2, [kind], {"TORCH_BACKEND_COLLECTIVES": transport}))
    for text in written:
        assert re.search(words, text, re.DOTALL), text


def test_a_rank_that_does_not_come_is_named():
    _, written = launch.finish(launch.start("failures.py", 2, ["silence"]))
    assert "rank 1" in written[0] and "within 3" in written[0], written[0]


def test_a_rank_that_ends_is_named_at_once():
    _, written = launch.finish(launch.start("failures.py", 2, ["death"]))
    found = re.search(r"after (\d+\.\d) s: .*rank 1.*has ended", written[0], re.DOTALL)
    assert found and float(found[1]) < 1.5, written[0]


def test_abort_ends_all_ranks():
    _, written = launch.finish(launch.start("failures.py", 2, ["abort"]))
    assert all("abort" in text and "no error" not in text for text in written), written
