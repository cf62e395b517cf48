"""What the ranks report while a group begins. joins.py is the program."""

import re

import launch
import pytest


def written_by(*arguments, **settings):
    codes, written = launch.finish(launch.start("joins.py", 2, arguments, settings))
    assert codes == [0, 0], written
    return written


@pytest.fixture(scope="module")
def late():
    """What both ranks write while rank 0 or 1 is late, by that rank. Both programs run at the same time, because they mostly wait."""
    started = {rank: launch.start("joins.py", 2, ["late", rank]) for rank in ("0", "1")}
    finished = {rank: launch.finish(processes) for rank, processes in started.items()}
    assert all(codes == [0, 0] for codes, _ in finished.values()), finished
    return {rank: written for rank, (_, written) in finished.items()}


def test_a_join_that_lasts_is_reported_with_the_missing_rank(late):
    """Of the group, and of the memory that its first collective shares; by the rank that waits, once in the second half of the time."""
    written = late["1"]
    assert re.search(r"rank 1 of 2 did not join the group yet; waiting for 3\S* s of 6 s", written[0]), written[0]
    assert re.search(r"communicator 'group': rank 1 did not join yet; rank 0 waits for 3\S* s of 6 s", written[0]), written[0]
    assert written[0].count("did not join") == 2 and "join" not in written[1], written


def test_a_join_that_waits_for_rank_0_is_reported_too(late):
    written = late["0"]
    assert re.search(r"rank 1 of 2 has no reply from rank 0 yet; waiting for 3\S* s of 6 s", written[1]), written[1]
    assert re.search(r"communicator 'group': rank 0 did not join yet; rank 1 waits for 3\S* s of 6 s", written[1]), written[1]


@pytest.mark.parametrize("device, is_reported", [("first", True), ("set", False), ("bound", False)])
def test_a_process_with_the_device_of_another_rank_is_warned(device, is_reported):
    """Unless the program has named the device."""
    written = written_by("local_rank", device, HAL_FAKE_DEVICES="2")
    assert "LOCAL_RANK" not in written[0], written[0]
    words = 'rank 1 uses fake:0, and LOCAL_RANK is 1; call torch.accelerator.set_device_index(int(os.environ["LOCAL_RANK"]))'
    assert (words in written[1]) == is_reported and written[1].count("LOCAL_RANK is") == is_reported, written[1]


def test_more_processes_than_devices_are_not_warned():
    assert not any("LOCAL_RANK" in text for text in written_by("local_rank", "first", HAL_FAKE_DEVICES="1"))
