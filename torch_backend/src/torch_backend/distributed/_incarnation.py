"""A prefix for the keys of a new group that no earlier attempt of the same program has used.

`torchrun --max-restarts` restarts the ranks on the store of the attempt that failed, which still has the addresses of processes that have ended. Rank 0
makes a random prefix. A rank takes it from an answer that has the rank's own random number, so the answer is of the same attempt, and confirms it; rank 0
answers until all ranks of this attempt have confirmed.
"""

from __future__ import annotations

import datetime
import secrets
import time

PAUSE = 0.001  # seconds between two looks at the store, which grow to LONGEST
LONGEST = 0.05


class _Deadline:
    def __init__(self, timeout: datetime.timedelta):
        self._end, self._pause, self.seconds = time.monotonic() + timeout.total_seconds(), PAUSE, timeout.total_seconds()

    def wait(self) -> bool:
        """Waits a little. Returns whether there is time left."""
        time.sleep(self._pause)
        self._pause = min(2 * self._pause, LONGEST)
        return time.monotonic() < self._end


def _read(store, key: str) -> str:
    return store.get(key).decode() if store.check([key]) else ""


def agree(store, rank: int, size: int, timeout: datetime.timedelta) -> str:
    """Returns the prefix, the same one on all ranks. Raises torch.distributed.DistStoreError when a rank does not come within the timeout."""
    mine = secrets.token_hex(8)
    if size == 1:
        return mine
    return _lead(store, mine, size, _Deadline(timeout)) if rank == 0 else _follow(store, mine, rank, _Deadline(timeout))


def _lead(store, mine: str, size: int, deadline: _Deadline) -> str:
    answered = None
    while True:
        hellos = [mine] + [_read(store, f"hello/{rank}") for rank in range(1, size)]
        if hellos != answered:
            store.set("answer", ",".join(hellos))
            answered = hellos
        missing = [rank for rank in range(1, size) if _read(store, f"confirmed/{rank}") != mine]
        if not missing:
            return mine
        if not deadline.wait():
            raise _late(f"rank {', '.join(map(str, missing))} of {size} did not join the group within {deadline.seconds:g} s")


def _follow(store, mine: str, rank: int, deadline: _Deadline) -> str:
    store.set(f"hello/{rank}", mine)
    while True:
        answer = _read(store, "answer").split(",")
        if rank < len(answer) and answer[rank] == mine:
            store.set(f"confirmed/{rank}", answer[0])
            return answer[0]
        if not deadline.wait():
            raise _late(f"rank 0 did not answer rank {rank} within {deadline.seconds:g} s of joining the group")


def _late(text: str) -> Exception:
    from torch.distributed import DistStoreError

    return DistStoreError(f"{text}: check that it runs, and that all ranks create the same groups in the same order")
