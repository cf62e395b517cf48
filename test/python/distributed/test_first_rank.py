"""Rank 0 is the rank at fault, and serves the store over TCP: the others report what is missing, within the time limit."""

import contextlib
import datetime
import os
import re
import signal
import time
from pathlib import Path

import launch
import pytest
import torch.distributed as dist
from torch_backend.distributed import _incarnation

TCP = {"TORCH_BACKEND_TEST_TCP_STORE": "1"}
LATE = r"is not done within 3.000 s: waiting for rank 0\b"
NO_STORE = r"the store at 127.0.0.1:\d+ does not respond \(.*\); the process that serves it, rank 0 or torchrun, has ended or is stopped"
slow = pytest.mark.slow


def resume(process, seconds):
    """Resumes a process that stops itself, after some time. Returns whether it was stopped before it ended."""
    while process.poll() is None:
        with contextlib.suppress(OSError):  # it may end meanwhile
            if Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T":
                time.sleep(seconds)
                os.kill(process.pid, signal.SIGCONT)
                return True
        time.sleep(0.01)
    return False


def run(kind, ranks, settings):
    """Returns what the ranks other than 0 report, and after how many seconds."""
    processes = launch.start("failures.py", ranks, [kind, "0"], {**TCP, **settings})
    is_faulty = resume(processes[0], 6) if kind.startswith("stop") else True
    codes, written = launch.finish(processes, timeout=90)
    assert is_faulty and codes[0] == (-9 if kind.startswith("death") else 0), (codes, written)
    assert codes[1:] == [0] * (ranks - 1), written  # the device computes on
    found = [re.search(r"Error after (\d+\.\d) s: (.*?)^at ", text, re.DOTALL | re.MULTILINE) for text in written[1:]]
    assert all(found), written
    return [(float(one[1]), one[2], f"rank 0: {codes[0]}, {written[0]}") for one in found]


@pytest.mark.parametrize("kind, words, least, most", [
    ("death", r"rank 0 \(pid \d+\) has ended", 0, 1),
    ("stop in the first call", NO_STORE, 2.9, 3.6),
    pytest.param("death in the first call", NO_STORE, 0, 1, marks=slow),
    pytest.param("silence", LATE, 2.9, 3.6, marks=slow),
    pytest.param("silence in the first call", "rank 0 did not join within 3.000 s", 2.9, 3.6, marks=slow),
    pytest.param("stop", LATE, 2.9, 3.6, marks=slow),
])  # fmt: skip
@pytest.mark.parametrize("ranks", [2, pytest.param(3, marks=slow)])
def test_in_shared_memory(kind, words, least, most, ranks):
    for seconds, text, first in run(kind, ranks, {"TORCH_BACKEND_COLLECTIVES": "shm"}):
        assert re.search(words, text), (text, first)
        assert least <= seconds <= most, (seconds, text, first)


@slow
@pytest.mark.parametrize("kind, words, least, most", [
    ("death", "no connection to (rank 0|the other hosts); the store does not respond either: .* rank 0", 0, 2.5),
    ("stop", "(waiting for (rank 0|the other hosts); the store does not respond either: .* rank 0)|no connection to", 2.9, 4.5),
    ("silence", LATE, 2.9, 4.5),
    ("death in the first call", NO_STORE, 0, 1),
    ("stop in the first call", NO_STORE, 2.9, 4.5),
    ("silence in the first call", "rank 0 did not join within 3.000 s", 2.9, 4.5),
])  # fmt: skip
@pytest.mark.parametrize("ranks", [2, 3])
def test_over_gloo(kind, words, least, most, ranks):
    found = run(kind, ranks, {"TORCH_BACKEND_COLLECTIVES": "gloo"})
    assert any(re.search(words, text) for _, text, _ in found), found
    for seconds, text, first in found:
        assert "rank 0" in text, (text, first)
        assert least <= seconds <= most, (seconds, text, first)


@slow
@pytest.mark.parametrize("transport", ["shm", "gloo"])
def test_an_error_in_a_hook_of_rank_0_ends_the_others(transport):
    ((seconds, text, _),) = run("hook", 2, {"TORCH_BACKEND_COLLECTIVES": transport})
    assert re.search(r"rank 0 \(pid \d+\) has (ended|destroyed)|no connection to rank 0", text), text
    assert seconds < 28, "the time limit is 30 s"


def test_a_group_whose_store_has_ended_is_an_error():
    server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    client = dist.TCPStore("127.0.0.1", server.port, is_master=False, wait_for_workers=False)
    del server
    with pytest.raises(dist.DistStoreError, match="rank 1 cannot join the group: the store does not respond .*rank 0 or torchrun, has ended"):
        _incarnation.agree(client, 1, 2, datetime.timedelta(seconds=5))
