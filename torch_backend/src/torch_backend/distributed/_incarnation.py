"""Agrees on a prefix for the keys of a new group, different from that of all earlier attempts of the same program.

`torchrun --max-restarts` restarts the ranks with the store of the attempt that failed, which still has the addresses
of processes that have ended. Rank 0 makes a random prefix. Every rank writes a random number to the store, and rank
0 repeats these numbers in its reply. A rank accepts a reply only if it has the rank's own number, so the reply
belongs to the same attempt, and confirms it. Rank 0 writes replies until all ranks of this attempt have confirmed,
and then its verdict, for which they wait: all ranks have the same result. Rank 0 may serve the store and end soon, so
it waits until they have read the verdict.

What belongs to this attempt and does not match is an error at once: other world sizes, other versions. Keys that may be
those of an earlier attempt are used only for the text of an error. A long join is reported in the log while it lasts.
"""

from __future__ import annotations

import datetime
import secrets
import time

from .._extension import extension

FORMAT = "2"  # of the replies; a number, changed with their meaning
PAUSE = 0.001  # seconds between two reads of the store, doubled up to LONGEST
LONGEST = 0.05
READ = 5.0  # seconds in which a rank that has confirmed reads the verdict
REPORT = 10.0  # seconds until a join that lasts is logged, at most half of its time; doubled with each line


class _Deadline:
    def __init__(self, timeout: datetime.timedelta):
        self._end, self._pause, self.seconds = time.monotonic() + timeout.total_seconds(), PAUSE, timeout.total_seconds()
        self._report = min(REPORT, self.seconds / 2)

    def wait(self) -> bool:
        """Sleeps for the next interval. Returns whether there is time left."""
        time.sleep(self._pause)
        self._pause = min(2 * self._pause, LONGEST)
        return time.monotonic() < self._end

    def report(self, describe) -> None:
        """Logs what `describe` returns if the join lasts long."""
        waited = self.seconds - (self._end - time.monotonic())
        if not self._report <= waited < self.seconds:
            return
        self._report = 2 * waited
        extension().log_warning(f"{describe()}; waiting for {waited:.3g} s of {self.seconds:g} s")

    def expect(self) -> None:
        """The next key is expected soon: the next intervals are short."""
        self._pause = PAUSE


def _read(store, key: str) -> str:
    return store.get(key).decode() if store.check([key]) else ""


def agree(store, rank: int, size: int, timeout: datetime.timedelta) -> str:
    """Returns the prefix, the same on all ranks.

    Raises torch.distributed.DistStoreError if a rank does not join within the timeout, if the ranks have different
    world sizes or versions of this package, or if the store's server has ended.
    """
    from torch.distributed import DistNetworkError, DistStoreError

    if not 0 <= rank < size:
        raise ValueError(f"rank {rank} is outside 0..{size - 1}: a process group of {size} ranks needs RANK from 0 to WORLD_SIZE - 1")
    mine = secrets.token_hex(8)
    if size == 1:
        return mine
    try:
        return _lead(store, mine, size, _Deadline(timeout)) if rank == 0 else _follow(store, mine, rank, size, _Deadline(timeout))
    except DistNetworkError as error:
        cause = str(error).partition("\n")[0]
        raise DistStoreError(f"rank {rank} cannot join the group: the store does not respond ({cause}); the process that serves it, rank 0 or torchrun, has ended") from error


def _lead(store, mine: str, size: int, deadline: _Deadline) -> str:
    replied, others = None, range(1, size)
    store.set("hello/0", mine)
    while True:
        hellos = [mine] + [_read(store, f"hello/{rank}") for rank in others]
        if hellos != replied:
            store.set("reply", f"{FORMAT}:{size}:{','.join(hellos)}")
            replied = hellos
        confirmed = [_read(store, f"confirmed/{rank}") for rank in others]
        for rank, text in zip(others, confirmed):
            if mine in text and text != f"{mine}:{size}":
                raise _refuse(store, mine, confirmed, _difference(rank, text.partition(":"), mine, size))
        missing = [rank for rank, text in zip(others, confirmed) if mine not in text]
        if not missing:
            _announce(store, mine, confirmed, "")
            return mine
        _note_twin(store, 0, mine)
        deadline.report(lambda: f"rank {_list(missing)} of {size} did not join the group yet")
        if not deadline.wait():
            late = f"rank {_list(missing)} of {size} did not join the group within {deadline.seconds:g} s"
            raise _refuse(store, mine, confirmed, late + (_twins(store, hellos) or HINT))


def _announce(store, mine: str, confirmed: list, text: str) -> None:
    """Writes the verdict, an error or "", and waits until the ranks that have confirmed have read it."""
    store.set("verdict", f"{mine}:{text}")
    deadline = _Deadline(datetime.timedelta(seconds=READ))
    readers = [rank for rank, confirmation in enumerate(confirmed, 1) if mine in confirmation]
    while any(_read(store, f"read/{rank}") != mine for rank in readers) and deadline.wait():
        pass


def _follow(store, mine: str, rank: int, size: int, deadline: _Deadline) -> str:
    leader = ""
    store.set(f"hello/{rank}", mine)
    while True:
        reply = _read(store, "reply")
        form, _, rest = reply.partition(":")
        theirs, _, hellos = rest.partition(":")
        if mine in reply and form != FORMAT:
            raise _error(_difference(rank, ("", "", ""), "", size))
        if mine in hellos and hellos.split(",")[0] != leader:
            leader = hellos.split(",")[0]
            store.set(f"confirmed/{rank}", f"{leader}:{size}")
            deadline.expect()
        verdict, _, text = _read(store, "verdict").partition(":") if leader else ("", "", "")
        if leader and verdict == leader:
            store.set(f"read/{rank}", leader)
            if text:
                raise _error(text)
            return leader
        if _note_twin(store, rank, mine):
            raise _error(f"another process has joined the group as rank {rank}{UNIQUE}")
        if not leader:  # else rank 0 reports which ranks are missing
            deadline.report(lambda: f"rank {rank} of {size} has no reply from rank 0 yet")
        if not deadline.wait():
            raise _error(_late_confirmed(store, size, leader, deadline.seconds) if leader else _late(rank, size, theirs, hellos, deadline.seconds))


def _note_twin(store, rank: int, mine: str) -> bool:
    """Returns whether another process has joined as this rank, and notes for rank 0 which one."""
    other = _read(store, f"hello/{rank}")
    if other == mine:
        return False
    store.set(f"twin/{rank}", other)
    return True


# ---- texts ----
HINT = ": check that it runs, and that all ranks create the same groups in the same order"
UNIQUE = ": start each process with its own rank (RANK, or the argument `rank`)"


def _twins(store, hellos: list) -> str:
    """Returns the ranks that two processes of this attempt have; empty if there are none."""
    twins = [rank for rank, hello in enumerate(hellos) if hello and (_read(store, f"twin/{rank}") == hello or (rank == 0 and _read(store, "hello/0") != hello))]
    return f"; two processes have joined as rank {_list(twins)}{UNIQUE}" if twins else ""


def _difference(rank: int, confirmed: tuple, mine: str, size: int) -> str:
    if confirmed[0] == mine and confirmed[2].isdigit():
        return f"rank 0 has a world size of {size}, rank {rank} has one of {confirmed[2]}: pass the same number (WORLD_SIZE, or the argument `world_size`) to all processes"
    return f"rank 0 and rank {rank} have different versions of torch_backend: install one version for all processes"


def _list(ranks) -> str:
    return ", ".join(map(str, ranks))


def _late_confirmed(store, size: int, leader: str, seconds: float) -> str:
    missing = [rank for rank in range(1, size) if leader not in _read(store, f"confirmed/{rank}")]
    return f"rank {_list(missing or [0])} of {size} did not join the group within {seconds:g} s{HINT}"


def _late(rank: int, size: int, theirs: str, hellos: str, seconds: float) -> str:
    text = f"rank 0 did not reply to rank {rank} within {seconds:g} s of joining the group"
    if theirs.isdigit() and theirs != str(size):
        return f"{text}; its last reply is for {theirs} ranks, and the world size of this process is {size}{HINT}"
    tokens = hellos.split(",")
    if rank < len(tokens) and tokens[rank]:
        return f"{text}; its last reply is to another process that joined as rank {rank}{UNIQUE}"
    return text + HINT


def _error(text: str) -> Exception:
    from torch.distributed import DistStoreError

    return DistStoreError(text)


def _refuse(store, mine: str, confirmed: list, text: str) -> Exception:
    """Returns the error of the group, which the other ranks of this attempt get, too."""
    _announce(store, mine, confirmed, text)
    return _error(text)
