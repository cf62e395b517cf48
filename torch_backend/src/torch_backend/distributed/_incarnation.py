"""Agrees on a prefix for the keys of a new group, different from that of all earlier attempts of the same program.

`torchrun --max-restarts` restarts the ranks with the store of the attempt that failed, which still has the addresses
of processes that have ended. Rank 0 makes a random prefix. Every rank writes a random number to the store, and rank
0 repeats these numbers in its reply. A rank accepts a reply only if it has the rank's own number, so the reply
belongs to the same attempt, and confirms it. Rank 0 writes replies until all ranks of this attempt have confirmed.
"""

from __future__ import annotations

import datetime
import secrets
import time

PAUSE = 0.001  # seconds between two reads of the store, doubled up to LONGEST
LONGEST = 0.05


class _Deadline:
    def __init__(self, timeout: datetime.timedelta):
        self._end, self._pause, self.seconds = time.monotonic() + timeout.total_seconds(), PAUSE, timeout.total_seconds()

    def wait(self) -> bool:
        """Sleeps for the next interval. Returns whether there is time left."""
        time.sleep(self._pause)
        self._pause = min(2 * self._pause, LONGEST)
        return time.monotonic() < self._end


def _read(store, key: str) -> str:
    return store.get(key).decode() if store.check([key]) else ""


def agree(store, rank: int, size: int, timeout: datetime.timedelta) -> str:
    """Returns the prefix, the same on all ranks.

    Raises torch.distributed.DistStoreError if a rank does not join within the timeout, or the store's server has ended.
    """
    from torch.distributed import DistNetworkError, DistStoreError

    mine = secrets.token_hex(8)
    if size == 1:
        return mine
    try:
        return _lead(store, mine, size, _Deadline(timeout)) if rank == 0 else _follow(store, mine, rank, _Deadline(timeout))
    except DistNetworkError as error:
        cause = str(error).partition("\n")[0]
        raise DistStoreError(f"rank {rank} cannot join the group: the store does not respond ({cause}); the process that serves it, rank 0 or torchrun, has ended") from error


def _lead(store, mine: str, size: int, deadline: _Deadline) -> str:
    replied = None
    while True:
        hellos = [mine] + [_read(store, f"hello/{rank}") for rank in range(1, size)]
        if hellos != replied:
            store.set("reply", ",".join(hellos))
            replied = hellos
        missing = [rank for rank in range(1, size) if _read(store, f"confirmed/{rank}") != mine]
        if not missing:
            return mine
        if not deadline.wait():
            raise _late(f"rank {', '.join(map(str, missing))} of {size} did not join the group within {deadline.seconds:g} s")


def _follow(store, mine: str, rank: int, deadline: _Deadline) -> str:
    store.set(f"hello/{rank}", mine)
    while True:
        reply = _read(store, "reply").split(",")
        if rank < len(reply) and reply[rank] == mine:
            store.set(f"confirmed/{rank}", reply[0])
            return reply[0]
        if not deadline.wait():
            raise _late(f"rank 0 did not reply to rank {rank} within {deadline.seconds:g} s of joining the group")


def _late(text: str) -> Exception:
    from torch.distributed import DistStoreError

    return DistStoreError(f"{text}: check that it runs, and that all ranks create the same groups in the same order")
