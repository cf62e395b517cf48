"""torchrun restarts the ranks after one of them was killed, and the training ends with the weights of an undisturbed run."""

import datetime
import os
import random
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from torch_backend.distributed import _incarnation

PROGRAM = Path(__file__).parent / "elastic.py"
SHARED, OWN = {}, {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}  # whose store has the keys of the attempt that failed, or a new one


def train(folder, victim=-1, step=-1, environment=None):
    """Returns the weights at the end."""
    folder.mkdir(exist_ok=True)
    settings = {"TORCH_BACKEND": "fake", **os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", **(environment or {})}
    done = subprocess.run(
        [sys.executable, "-P", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--max-restarts", "3", PROGRAM, folder,
         str(victim), str(step)],
        env=settings, cwd=folder, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    assert (folder / "killed").exists() == (victim >= 0)
    return torch.load(folder / "weights")


def check_restarts(tmp_path, cases):
    expected = train(tmp_path / "undisturbed")
    for number, (victim, step, settings) in enumerate(cases):
        found = train(tmp_path / str(number), victim, step, settings)
        for name, one in expected.items():
            assert torch.equal(found[name], one), (victim, step, settings, name)


@pytest.mark.slow
def test_a_killed_rank_is_restarted(tmp_path):
    check_restarts(tmp_path, [(1, 3, SHARED)])


@pytest.mark.slow
@pytest.mark.parametrize("settings", [SHARED, OWN], ids=["shared", "own"])
def test_twenty_killed_ranks_are_restarted(settings, tmp_path):
    source = random.Random(11)
    check_restarts(tmp_path, [(source.randrange(2), source.randrange(8), settings) for _ in range(20)])


@pytest.mark.parametrize("size", [2, 5])
def test_ranks_agree_on_a_prefix_in_a_store_with_the_keys_of_other_attempts(size):
    """Also when all keys of the last attempt are there before the first rank of this one comes."""
    store, seen, limit = torch.distributed.HashStore(), set(), datetime.timedelta(seconds=20)
    for _ in range(50):
        order = random.sample(range(size), size)
        with ThreadPoolExecutor(size) as ranks:
            found = {one.result() for one in [ranks.submit(_incarnation.agree, store, rank, size, limit) for rank in order]}
        assert len(found) == 1 and not found & seen
        seen |= found


def test_a_rank_that_does_not_join_is_named():
    store, limit = torch.distributed.HashStore(), datetime.timedelta(seconds=0.2)
    with pytest.raises(torch.distributed.DistStoreError, match="rank 1, 2 of 3 did not join the group within 0.2 s"):
        _incarnation.agree(store, 0, 3, limit)
    with pytest.raises(torch.distributed.DistStoreError, match="rank 0 did not reply to rank 2"):
        _incarnation.agree(torch.distributed.HashStore(), 2, 3, limit)


def join(*ranks, seconds=1.0):
    """Joins processes, each with a rank and a world size. Returns the text of each one's error, and the longest time in seconds."""
    store, limit = torch.distributed.HashStore(), datetime.timedelta(seconds=seconds)

    def text_of(rank, size):
        try:
            return _incarnation.agree(store, rank, size, limit)
        except (torch.distributed.DistStoreError, ValueError) as error:
            return str(error)

    begun = time.monotonic()
    with ThreadPoolExecutor(len(ranks)) as processes:
        found = [one.result() for one in [processes.submit(text_of, *one) for one in ranks]]
    return found, time.monotonic() - begun


def test_different_world_sizes_are_an_error_of_every_rank_at_once():
    found, seconds = join((0, 2), (1, 3), seconds=20)
    assert found == [found[0]] * 2 and "rank 0 has a world size of 2, rank 1 has one of 3" in found[0], found
    assert seconds < 10
    found, _ = join((0, 3), (1, 3), (2, 4), seconds=20)
    assert found == [found[0]] * 3 and "rank 0 has a world size of 3, rank 2 has one of 4" in found[0], found
    found, _ = join((0, 2), (1, 2), (2, 3))
    assert found[0] == found[1] and "its last reply is for 2 ranks, and the world size of this process is 3" in found[2], found


@pytest.fixture
def short_reads(monkeypatch):
    """A rank that has ended does not read the verdict, for which rank 0 waits."""
    monkeypatch.setattr(_incarnation, "READ", 1.0)


def test_a_rank_that_two_processes_have_is_named_by_all(short_reads):
    found, _ = join((0, 3), (1, 3), (1, 3))
    assert all("joined as rank 1: start each process with its own rank" in text for text in found[1:]) or "as rank 1" in found[0], found
    assert "rank 2 of 3 did not join" in found[0] and "two processes have joined as rank 1" in found[0], found
    found, _ = join((0, 2), (0, 2))
    assert all("two processes have joined as rank 0" in text for text in found), found


def test_a_rank_outside_of_the_world_size_is_an_error_at_once():
    found, _ = join((2, 2))
    assert "rank 2 is outside 0..1" in found[0], found


@pytest.mark.parametrize("key, value", [("confirmed/1", "2:2:{0}"), ("confirmed/1", "{0}")])
def test_another_version_on_another_rank_is_named(key, value, short_reads):
    """Rank 1 replies as versions before did."""
    store, limit = torch.distributed.HashStore(), datetime.timedelta(seconds=20)
    with ThreadPoolExecutor(1) as ranks:
        first = ranks.submit(_incarnation.agree, store, 0, 2, limit)
        store.set(key, value.format(store.get("hello/0").decode()))
        with pytest.raises(torch.distributed.DistStoreError, match="rank 0 and rank 1 have different versions of torch_backend"):
            first.result()


def test_a_rank_that_has_confirmed_names_the_missing_one():
    """Also if rank 0 does not end the join."""
    store = torch.distributed.HashStore()
    with ThreadPoolExecutor(1) as ranks:
        other = ranks.submit(_incarnation.agree, store, 1, 3, datetime.timedelta(seconds=1))
        store.set("reply", f"{_incarnation.FORMAT}:3:leader,{store.get('hello/1').decode()},")
        with pytest.raises(torch.distributed.DistStoreError, match="rank 2 of 3 did not join the group within 1 s"):
            other.result()
