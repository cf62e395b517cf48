"""Lazy mode: what is queued inside `record()` is put off, improved, and queued together.

::

    with torch_backend.lazy.record():
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = criterion(model(inputs), targets)
            loss.backward()
            optimizer.step()
            torch_backend.lazy.mark_step()

Tensors are the device's ordinary ones: shapes, addresses, in-place writes, views and random numbers are real, and every operator takes part. Neighbouring
element-wise operators run as one kernel; results that nothing reads are not written. Reading values, synchronising, an event or another
stream's wait queue what they need, so a program is right without `mark_step`, which only says where to queue without waiting.
"""

from __future__ import annotations

import collections
import contextlib
import threading
from collections.abc import Iterator
from typing import NamedTuple

import torch

from torch_backend._activation import device_name

from . import device  # noqa: F401  torch_backend.lazy.device

__all__ = ["Compilation", "compilations", "is_recording", "mark_step", "metrics", "record", "reset_metrics"]

class Compilation(NamedTuple):
    """A group of operators that was compiled: the step (the `mark_step` that queued it, from 1; else those before), the Python line of its first operator ("" without
    `record(lines=True)`), and what it is and what distinguishes it from the nearest group before."""

    step: int
    line: str
    cause: str


_lock = threading.Lock()
_active: dict = {}  # the recording of each device
_ended: collections.Counter = collections.Counter()  # the counts of recordings that have ended
_steps = 0
_compilations: list[Compilation] = []


def _c():
    device_name()  # a clear error when nothing is active
    from torch_backend import _C

    return _C


def _index(device) -> int:
    """The index of a device of ours: an int, a torch.device, a name or None for the current one."""
    if device is None:
        return _c().current_device()
    if isinstance(device, int):
        return device
    device = torch.device(device)
    name = device_name()
    if device.type not in (name, "lazy"):
        raise ValueError(f"lazy mode is for devices of type '{name}', not for '{device}'")
    return _c().current_device() if device.index is None else device.index


@contextlib.contextmanager
def record(device=None, *, lines: bool = False, fuse: bool = True, limit: int = 0, piece: int = 0) -> Iterator[None]:
    """Puts off what is queued on the current stream of a device (default: the current one), by any thread, until the block ends.

    `piece`: operators behind which the next one that is not element-wise queues what was recorded, so that the device works while the rest is
    recorded; 0 = 128. `limit`: operators that are put off before they are queued without being asked for, whatever they are, with one warning;
    0 = 16384. `lines`: notes the Python line of each operator, for errors. `fuse`: False queues everything as it was recorded.
    Raises RuntimeError when the stream is lazy or captured already, and, where something could not be queued, what the device said, with
    the operator and its line; what stood behind it is dropped.
    """
    index = _index(device)
    if _c().is_kept_lazy(index):  # by the device type "lazy", for the rest of the process
        yield
        _c().flush_kept_lazy(index)
        return
    lazy = _c().begin_lazy(index, lines, fuse, limit, piece)
    with _lock:
        outer = _active.get(index)
        _active[index] = lazy
    try:
        yield
    finally:
        with _lock:
            if outer is None:
                del _active[index]
            else:
                _active[index] = outer
        try:
            lazy.flush()
        finally:
            _note_compilations(lazy)
            with _lock:
                _ended.update(lazy.info())
            lazy.end()


def is_recording(device=None) -> bool:
    """Tells whether work of a device (default: the current one) is put off somewhere."""
    with _lock:
        return _index(device) in _active or _c().is_kept_lazy(_index(device))


def mark_step(device=None, wait: bool = False) -> None:
    """Queues what was put off on a device (default: all devices). `wait`: until it is done. Without a recording there is nothing to queue."""
    global _steps
    with _lock:
        indices = range(_c().device_count()) if device is None else [_index(device)]
        lazies = [_active[index] for index in indices if index in _active]
        _steps += 1
    for lazy in lazies:
        try:
            lazy.flush()
        finally:
            _note_compilations(lazy)
    for index in indices:
        _c().flush_kept_lazy(index)
        if wait and _c().is_initialized(index):
            _c().synchronize(index)


def _note_compilations(lazy) -> None:
    with _lock:
        _compilations.extend(Compilation(_steps, *one) for one in lazy.take_compilations())


def compilations() -> list[Compilation]:
    """Gives the groups that were compiled since the start or `reset_metrics`, with the cause of each. In a steady loop the list does not grow: what it
    tells of later steps is what varies there."""
    with _lock:
        lazies = list(_active.values())
    for lazy in lazies:
        _note_compilations(lazy)
    with _lock:
        return list(_compilations)


def metrics() -> dict[str, int]:
    """Counts over all recordings of the process: `recorded` operators, `flushes`, of these `limits` that nothing asked for, `queued` calls of
    the plugin, operators `fused` into `groups` of one kernel, operators `dropped` since nothing read their results, groups `compiled` and
    `cached`, operators `pending` now, and `steps` marked."""
    with _lock:
        total = collections.Counter(_ended)
        for counts in (*(lazy.info() for lazy in _active.values()), *_c().kept_lazy_infos()):
            total.update(counts)
        counts = dict.fromkeys(("recorded", "flushes", "limits", "queued", "fused", "groups", "dropped", "compiled", "cached", "pending"), 0)
        return counts | total | {"steps": _steps}


def reset_metrics() -> None:
    """Sets the counts of recordings that have ended, and of steps, to zero, and forgets compilations."""
    global _steps
    with _lock:
        _ended.clear()
        _compilations.clear()
        _steps = 0
