"""Processes of a group end in every way with the exit code of a program without a group, in time, and leave no shared memory."""

import os

import launch
import pytest

CODES = {"destroyed": 0, "left": 0, "in flight": 0, "host work": 0, "fork": 0, "raised": 1, "sys.exit": 5, "hook": 5}


def check(way):
    before = set(os.listdir("/dev/shm"))
    codes, written = launch.finish(launch.start("endings.py", 2, [way]), timeout=120)
    assert codes == [CODES[way]] * 2, (way, codes, written[0][-2000:], written[1][-2000:])
    left = {name for name in set(os.listdir("/dev/shm")) - before if "torch_backend" in name or "hal" in name}
    assert not left, left


def test_a_group_ends_while_gloo_works():
    """Gloo's thread needs the interpreter's lock meanwhile."""
    check("host work")


@pytest.mark.slow
@pytest.mark.parametrize("way", CODES)
def test_processes_end(way):
    for _ in range(15):  # 240 processes in all
        check(way)
