"""Recordings of lazy mode: beginning, ending and flushing them, and what they count; `torch_backend.lazy` has the names."""

from __future__ import annotations

import collections
import contextlib
import os
import threading
from collections.abc import Iterator
from typing import NamedTuple

import torch

from .._extension import extension as _c
from .._registry import device_name


class Compilation(NamedTuple):
    """A group of operators that was compiled: the step (the `mark_step` that queued it, from 1; else those before), the Python line of its first operator ("" without
    `record(lines=True)`), and what it is and what distinguishes it from the nearest group before."""

    step: int
    line: str
    cause: str

    def __str__(self) -> str:
        return f"step {self.step}{' at ' + self.line if self.line else ''}: {self.cause}"


class Measurement(NamedTuple):
    """Samples of a number: how many, their sum, the least and the most of all, and the 1, 5, 10, 20, 50, 80, 90, 95 and 99 % percentiles of the last
    1024 of a device. Times are in seconds, sizes in bytes."""

    count: int
    total: float
    least: float
    most: float
    percentiles: list[float]


_MEASURED = {  # by the numbers of hal/lazy.h, in their order: how many of the unit
    "queue_time": 1e-9, "compile_time": 1e-9, "lock_time": 1e-9, "upload_time": 1e-9, "download_time": 1e-9, "commands": 1, "upload_bytes": 1,
    "download_bytes": 1,
}  # fmt: skip
PERCENTS = (1, 5, 10, 20, 50, 80, 90, 95, 99)

_lock = threading.Lock()
_active: collections.defaultdict[int, list] = collections.defaultdict(list)  # the recordings of each device, of as many streams
_ended: collections.Counter = collections.Counter()  # the counts of recordings that have ended
_forgotten: collections.Counter = collections.Counter()  # the counts at the last reset
_forgotten_operators: collections.Counter = collections.Counter()
_steps = 0
_compilations: list[Compilation] = []
_executions: collections.deque[tuple[int, str]] = collections.deque(maxlen=10_000)  # by PT_XLA_DEBUG_LEVEL=2: the step and why something was queued


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


def wants_lines() -> bool:
    """Whether the environment asks for Python lines."""
    return os.environ.get("LTC_IR_DEBUG", "0") not in ("", "0") or debug_level() > 0


def debug_level() -> int:
    """What the environment wants told of each step: 0 nothing, 1 why groups were compiled, 2 also why something was queued."""
    level = os.environ.get("PT_XLA_DEBUG_LEVEL") or "0"
    if not level.isdecimal():
        raise ValueError(f"PT_XLA_DEBUG_LEVEL={level}: expected 0, 1 or 2")
    return int(level)


def wants_groups() -> bool:
    """Whether the environment lets groups of operators run as one kernel, not one by one."""
    return os.environ.get("SYNC_TENSORS_OPBYOP", "0") in ("", "0")


def text_file() -> tuple[str, bool]:
    """The file that the environment wants what is queued in, "" = none, and whether as a graph."""
    form = os.environ.get("LTC_SAVE_TENSORS_FMT", "text")
    if form not in ("text", "backend", "dot"):
        raise ValueError(f"LTC_SAVE_TENSORS_FMT={form}: expected text, dot or backend (which is text)")
    return os.environ.get("LTC_SAVE_TENSORS_FILE", ""), form == "dot"


@contextlib.contextmanager
def record(device=None, *, lines: bool | None = None, fuse: bool | None = None, limit: int = 0, piece: int = 0) -> Iterator[None]:
    """Puts off what is queued on the current stream of a device (default: the current one), by any thread, until the block ends.

    `piece`: operators behind which the next one that is not element-wise queues what was recorded, so that the device works while the rest is
    recorded; 0 = 128. `limit`: operators that are put off before they are queued without being asked for, whatever they are, with one warning, which names
    the line; 0 = 16384. `lines`: notes the Python line of each operator, for errors (None: if LTC_IR_DEBUG=1). `fuse`: False queues everything as it was recorded
    (None: if SYNC_TENSORS_OPBYOP=1).
    Raises RuntimeError when the stream is lazy or captured already, and, where something could not be queued, what the device said, with
    the operator and its line; what stood behind it is dropped. With LTC_SAVE_TENSORS_FILE=FILE in the environment what is queued is
    appended there as text, and why it is queued; with LTC_SAVE_TENSORS_FMT=dot in the language of Graphviz.
    """
    index = _index(device)
    if _c().is_kept_lazy(index):  # by the device type "lazy", for the rest of the process
        yield
        _c().flush_kept_lazy(index)
        return
    lazy = _c().begin_lazy(
        index, wants_lines() if lines is None else lines, debug_level() > 1, wants_groups() if fuse is None else fuse, limit, piece, *text_file(),
    )  # fmt: skip
    with _lock:
        _active[index].append(lazy)
    try:
        yield
    finally:
        if not _c().in_bad_fork():  # in a forked child what was put off is the parent's
            _end(index, lazy)


def _end(index: int, lazy) -> None:
    with _lock:
        _active[index].remove(lazy)
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
        return bool(_active[_index(device)]) or _c().is_kept_lazy(_index(device))


def mark_step(device=None, wait: bool = False) -> None:
    """Queues what was put off on a device (default: all devices). `wait`: until it is done. Without a recording there is nothing to queue."""
    global _steps
    with _lock:
        indices = range(_c().device_count()) if device is None else [_index(device)]
        lazies = [lazy for index in indices for lazy in _active[index]]
        _steps += 1
    for lazy in lazies:
        try:
            lazy.flush()
        finally:
            _note_compilations(lazy)
    for index in indices:
        try:
            _c().flush_kept_lazy(index)
        finally:
            _note_compilations(None)
        if wait and _c().is_initialized(index):
            _c().synchronize(index)


def _note_compilations(lazy) -> None:
    """Of a recording; None: of the device type "lazy"."""
    with _lock:
        _compilations.extend(Compilation(_steps, *one) for one in (lazy.take_compilations() if lazy else _c().take_kept_compilations()))
        _executions.extend((_steps, cause) for cause in (lazy.take_causes() if lazy else _c().take_kept_causes()))


def compilations() -> list[Compilation]:
    """Gives the groups that were compiled since the start or `reset_metrics`, with the cause of each. In a steady loop the list does not grow: what it
    tells of later steps is what varies there."""
    with _lock:
        lazies = [lazy for recordings in _active.values() for lazy in recordings]
    for lazy in (*lazies, None):
        _note_compilations(lazy)
    with _lock:
        return list(_compilations)


def take_executions() -> list[tuple[int, str]]:
    """Gives the step of each time that something was queued since the last call, and why, with the line that asked for it; nothing without PT_XLA_DEBUG_LEVEL=2."""
    compilations()  # takes what is waiting to be told
    with _lock:
        taken = [(step, "mark_step" if cause == "hal_lazy_flush" else cause) for step, cause in _executions]
        _executions.clear()
    return taken


def text(device=None, *, dot: bool = False) -> str:
    """What is put off on a device (default: the current one) now: a line for each operator and what it queues, with its Python line where these are noted; or, with `dot`, a graph in the language of Graphviz.
    "" when nothing is recorded there."""
    index = _index(device)
    with _lock:
        lazies = list(_active[index])
    return "".join(lazy.text(dot) for lazy in lazies) or _c().kept_lazy_text(index, dot)


def measurements() -> dict[str, Measurement]:
    """What was measured since the start or `reset_metrics`, over all devices: `queue_time` of what was queued together (where streams are not asynchronous: run), and how
    many `commands` it had; `compile_time` of groups; `lock_time` of waiting for another thread that queues; `upload_time` and `upload_bytes` of copies from the host;
    `download_time` of copies to the host, until their source was computed, and `download_bytes`. Percentiles are those of the device with most samples."""
    opened = [index for index in range(_c().device_count()) if _c().is_initialized(index)]
    result = {}
    for number, (name, unit) in enumerate(_MEASURED.items()):
        found = [one for one in (_c().lazy_metric(index, number) for index in opened) if one["count"]]
        if not found:
            continue
        percentiles = max(found, key=lambda one: one["count"])["percentiles"]
        result[name] = Measurement(
            sum(one["count"] for one in found), unit * sum(one["total"] for one in found), unit * min(one["least"] for one in found),
            unit * max(one["most"] for one in found), [unit * one for one in percentiles],
        )  # fmt: skip
    return result


_COUNTS = (
    "recorded", "flushes", "limits", "needed", "queued", "fused", "groups", "dropped", "common", "held", "compiled", "cached", "programs", "pending",
    "created", "destroyed",
)  # fmt: skip


def _totals() -> collections.Counter:
    """The counts since the start, under the lock."""
    total = collections.Counter(_ended)
    lazies = [lazy for recordings in _active.values() for lazy in recordings]
    for counts in (*(lazy.info() for lazy in lazies), *_c().kept_lazy_infos(), _c().lazy_tensor_counts()):
        total.update(counts)
    return total


def end_kept() -> None:
    """Queues what the device type "lazy" has put off, and keeps its counts, for its recordings end."""
    for index in range(_c().device_count()):
        _c().flush_kept_lazy(index)
    with _lock:
        for counts in _c().kept_lazy_infos():
            _ended.update(counts)


def metrics() -> dict[str, int]:
    """Counts over all recordings of the process since its start or `reset_metrics`: `recorded` operators, `flushes`, of these `limits` that nothing asked for and `needed` for their results,
    `queued` calls of the plugin, operators `fused` into `groups` of one kernel, operators `dropped` since nothing read their results, operators in `common` with one whose result they have,
    results `held` by the program when they were queued, groups `compiled` and `cached`, `programs` that the device's compiler ran, operators `pending` now, tensors of the
    device type "lazy" `created` and `destroyed`, and `steps` marked."""
    with _lock:
        total = _totals()
        return {name: total[name] - _forgotten[name] for name in _COUNTS} | {"steps": _steps}


def operators() -> dict[str, int]:
    """How often each operator was put off since the start or `reset_metrics`, by its name in the HAL ("add.Tensor"): together as many as `recorded`."""
    with _lock:
        return dict(collections.Counter(_c().lazy_op_counts()) - _forgotten_operators)


def reset_metrics() -> None:
    """Sets all counts but that of `pending` operators to zero, and forgets compilations and measurements."""
    global _steps
    compilations()  # takes those that are waiting to be told
    with _lock:
        _forgotten.clear()
        _forgotten.update({name: count for name, count in _totals().items() if name != "pending"})
        _forgotten_operators.clear()
        _forgotten_operators.update(_c().lazy_op_counts())
        _compilations.clear()
        _steps = 0
    for index in range(_c().device_count()):
        if _c().is_initialized(index):
            _c().reset_lazy_metrics(index)
