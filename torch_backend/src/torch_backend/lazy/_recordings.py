"""Recordings of lazy mode: begins, ends and flushes them, and counts their work; `torch_backend.lazy` exports the names."""

from __future__ import annotations

import atexit
import collections
import contextlib
import os
import threading
from collections.abc import Iterator
from typing import NamedTuple

import torch

from .._extension import extension as _c
from .._first_use import at_first_use
from .._first_use import run as run_first_use
from .._registry import device_name
from ._settings import debug_level, text_file, wants_groups, wants_lines


class Compilation(NamedTuple):
    """A group of operators that was compiled.

    `step` is the step of the `mark_step` that queued it, from 1; otherwise the number of steps before. `line` is the
    Python line of its first operator, "" without `record(lines=True)`. `cause` describes the group and how it
    differs from the most similar group before.
    """

    step: int
    line: str
    cause: str

    def __str__(self) -> str:
        return f"step {self.step}{' at ' + self.line if self.line else ''}: {self.cause}"


class Measurement(NamedTuple):
    """Samples of a quantity: their number, sum, minimum and maximum, and the 1, 5, 10, 20, 50, 80, 90, 95 and 99 %
    percentiles of the last 1024 samples of a device. Times are in seconds, sizes in bytes.
    """

    count: int
    total: float
    least: float
    most: float
    percentiles: list[float]


_MEASURED = {  # in the order of hal/lazy.h: the unit of each sample
    "queue_time": 1e-9, "compile_time": 1e-9, "lock_time": 1e-9, "upload_time": 1e-9, "download_time": 1e-9, "commands": 1, "upload_bytes": 1,
    "download_bytes": 1,
}  # fmt: skip
_DEFERRED = 1 << 8  # HAL_DEVICE_DEFERRED
PERCENTS = (1, 5, 10, 20, 50, 80, 90, 95, 99)

_lock = threading.Lock()
_named: dict[str, int] = {}  # the indices of names such as "fake:0", which programs use in each step
_kept = False  # the device type "lazy" is enabled
_explains = False  # a recording collects the causes of flushes
# The recordings of each device, one for each stream
_active: collections.defaultdict[int, list] = collections.defaultdict(list)
# Of each device: the stream that `start` defers, and its block
_started: dict[int, tuple[int, contextlib.AbstractContextManager]] = {}
_automatic: set[int] = set()  # devices of `_started` whose work is deferred without a call of `start`
# Of each device: the stream on which `fuse` defers groups, its recording (None while `record` has the stream), and its
# options
_fusing: dict[int, tuple[torch.Stream, object, tuple]] = {}
_ended: collections.Counter = collections.Counter()  # the counters of recordings that have ended
_forgotten: collections.Counter = collections.Counter()  # the counters at the last reset
_forgotten_operators: collections.Counter = collections.Counter()
_steps = 0
_compilations: list[Compilation] = []
# with PT_XLA_DEBUG_LEVEL=2: the step and the cause of each flush
_executions: collections.deque[tuple[int, str]] = collections.deque(maxlen=10_000)


def _index(device) -> int:
    """Returns the index of a device: an int, a torch.device, a name, or None for the current device."""
    if device is None:
        return _c().current_device()
    if isinstance(device, int):
        return device
    if isinstance(device, str) and device in _named:
        return _named[device]
    text, device = device, torch.device(device)
    name = device_name()
    if device.type not in (name, "lazy"):
        raise ValueError(f"lazy mode supports devices of type '{name}', got '{device}'")
    if device.index is None:
        return _c().current_device()
    if isinstance(text, str):
        _named[text] = device.index
    return device.index


@contextlib.contextmanager
def record(device=None, *, lines: bool | None = None, fuse: bool | None = None, limit: int = 0, piece: int = 0) -> Iterator[None]:
    """Defers work on the current stream of a device (default: the current device), in every thread, until the block
    ends.

    With LTC_SAVE_TENSORS_FILE=FILE in the environment, the work of each flush and its cause are appended to the file
    as text; with LTC_SAVE_TENSORS_FMT=dot, in the language of Graphviz.

    Args:
        lines: records the Python line of each operator, for errors (None: if LTC_IR_DEBUG=1).
        fuse: False queues all operators as they were recorded (None: if SYNC_TENSORS_OPBYOP=1).
        limit: number of operators of any kind that are deferred without a synchronization point before they are
        queued, with one warning that names the line; 0 = 16384.
        piece: number of operators after which the next operator that is not element-wise queues the recorded ones,
        so that the device computes while recording continues; 0 = 128.

    Raises:
        RuntimeError: the stream is lazy or captured already; or deferred work failed to launch: the message has the
        device's error, the operator and its line, and later work is discarded.
    """
    index = _index(device)
    run_first_use()  # otherwise the first tensor inside begins what is requested for the whole program
    with _record(index, lines, fuse, limit, piece):
        yield


@contextlib.contextmanager
def _record(index: int, lines: bool | None = None, fuse: bool | None = None, limit: int = 0, piece: int = 0) -> Iterator[None]:
    global _explains
    if _c().is_kept_lazy(index):  # recorded by the device type "lazy" until the process ends
        yield
        _c().flush_kept_lazy(index)
        return
    if _is_started(index) and index not in _automatic:
        yield
        mark_step(index)
        return
    automatic = _is_started(index)
    if automatic:
        stop(index)
    fused, lazy = False, None
    try:
        fused = _suspend_fusing(index)
        lazy = _c().begin_lazy(
            index, wants_lines() if lines is None else lines, debug_level() > 1, wants_groups() if fuse is None else fuse, limit, piece, *text_file(),
        )  # fmt: skip
        with _lock:
            _explains |= debug_level() > 1
            _active[index].append(lazy)
        yield
    finally:
        if not _c().in_bad_fork():  # in a forked child, deferred work belongs to the parent
            try:
                if lazy is not None:
                    _end(index, lazy)
            finally:  # deferred work that fails does not end what the program has requested before
                if automatic:
                    _start_automatically(index)
                if fused:
                    _resume_fusing(index)


def _is_started(index: int) -> bool:
    return index in _started and _started[index][0] == torch.accelerator.current_stream(index).stream_id


def start(device=None, **options) -> None:
    """Defers work on the current stream of a device (default: the current device) from now on, as a block of `record`
    that ends with `stop` or with the process. `options` are those of `record`, which only flushes then.

    A device that computes only by programs, and any device with TORCH_BACKEND_DEFER=1, begins so; `start` changes the options.

    Raises:
        RuntimeError: the stream is lazy or captured already.
    """
    index = _index(device)
    run_first_use()
    if index in _automatic:
        stop(index)
    block = record(index, **options)
    block.__enter__()
    with _lock:
        _started[index] = torch.accelerator.current_stream(index).stream_id, block


def stop(device=None) -> None:
    """Launches the deferred work of a device (default: all devices) and ends `start` and `fuse`. Does nothing without
    them.
    """
    with _lock:
        indices = {*_started, *_fusing} if device is None else {_index(device)}
        blocks = [_started.pop(index)[1] for index in indices if index in _started]
        groups = [_fusing.pop(index)[1] for index in indices if index in _fusing]  # of any stream
        _automatic.difference_update(indices)
    with contextlib.ExitStack() as all_end:  # also if one fails
        for lazy in groups:
            if lazy is not None and not _c().in_bad_fork():
                all_end.callback(_close, lazy)
        for block in blocks:
            all_end.callback(block.__exit__, None, None, None)


def fuse(device=None, *, lines: bool | None = None, least: int = 0, busy: bool = True) -> None:
    """Runs adjacent element-wise operators on large tensors as one kernel from now on, for ordinary programs: on the current
    stream of a device (default: the current device), in every thread, until `stop` or the end of the process.

    Only such groups are deferred. A group ends before an operator that cannot be part of it, when a value is needed, after
    64 operators, and when the program pauses. All other operators run as without `fuse`. Results have equal bits, with the
    exception of lazy mode (docs/lazy.md). Calling it again changes the options.

    Args:
        lines: records the Python line of each operator, for errors (None: if LTC_IR_DEBUG=1).
        least: number of elements of an operator that begins a group; 0 = 32768.
        busy: groups begin only while an asynchronous device is busy, so that an idle one starts at once. False: the groups
        of a program do not depend on the time.

    Raises:
        RuntimeError: the stream is lazy or captured already.
    """
    index = _index(device)
    run_first_use()
    stop(index)
    options = (wants_lines() if lines is None else lines, debug_level() > 1, least, busy, *text_file())
    lazy = _c().begin_groups(index, *options)
    with _lock:
        _fusing[index] = torch.accelerator.current_stream(index), lazy, options


def _start_automatically(index: int) -> None:
    block = _record(index)
    block.__enter__()
    with _lock:
        if _active[index]:  # otherwise the device type "lazy" defers the stream
            _started[index] = _active[index][-1].stream_id, block
            _automatic.add(index)


def _defer_if_requested() -> None:
    """Defers work from now on, the first use of a device, if the environment requests it or the device wants it."""
    value = os.environ.get("TORCH_BACKEND_DEFER", "")
    if value not in ("", "0", "1"):
        raise ValueError(f"TORCH_BACKEND_DEFER is {value!r}; use 0 or 1")
    wants = lambda index: value == "1" or not value and _c().device_properties(index)["flags"] & _DEFERRED  # noqa: E731
    if wants(_c().current_device()):
        for index in filter(wants, range(_c().device_count())):
            _start_automatically(index)


at_first_use(_defer_if_requested)


def _fuse_if_requested() -> None:
    value = os.environ.get("TORCH_BACKEND_FUSE", "0")
    if value not in ("0", "1"):
        raise ValueError(f"TORCH_BACKEND_FUSE is {value!r}; use 0 or 1")
    if value == "1" and not is_fusing() and not _automatic:
        fuse()


at_first_use(_fuse_if_requested)


def is_fusing(device=None) -> bool:
    """Returns whether `fuse` is in use on a device (default: the current one)."""
    with _lock:
        return _index(device) in _fusing


def _suspend_fusing(index: int) -> bool:
    """Ends the recording of `fuse` on the current stream of a device. Returns whether there was one."""
    with _lock:
        stream, lazy, options = _fusing.get(index, (None, None, ()))
        if lazy is None or stream != torch.accelerator.current_stream(index):
            return False
        _fusing[index] = stream, None, options
    if not _c().in_bad_fork():
        try:
            _close(lazy)
        except BaseException:
            _resume_fusing(index)
            raise
    return True


def _resume_fusing(index: int) -> None:
    """Begins the recording again that _suspend_fusing has ended, unless `stop` was called meanwhile."""
    with _lock:
        if index in _fusing:
            stream, _, options = _fusing[index]
            with stream:  # the block of `record` may have left another one current
                _fusing[index] = stream, _c().begin_groups(index, *options), options


atexit.register(stop)


def _end(index: int, lazy) -> None:
    with _lock:
        _active[index].remove(lazy)
    _close(lazy)


def _close(lazy) -> None:
    """Flushes and ends a recording, and keeps its counters."""
    try:
        lazy.flush()
    finally:
        _note_compilations(lazy)
        with _lock:
            _ended.update(lazy.info())
        lazy.end()


def _recordings(indices=None) -> list:
    """Returns the recordings of `record`, `start` and `fuse` on devices (default: all); the caller holds the lock."""
    indices = list(_active.keys() | _fusing.keys()) if indices is None else indices
    fused = [_fusing[index][1] for index in indices if index in _fusing and _fusing[index][1] is not None]
    return [lazy for index in indices for lazy in _active[index]] + fused


def is_recording(device=None) -> bool:
    """Returns whether work of a device (default: the current one) is deferred on any stream."""
    with _lock:
        return bool(_active[_index(device)]) or _c().is_kept_lazy(_index(device))


def mark_step(device=None, wait: bool = False) -> None:
    """Queues the deferred work of a device (default: all devices), and counts a step. With `wait`, waits until all work
    of the device is done.
    """
    global _steps
    with _lock:
        indices = range(_c().device_count()) if device is None else [_index(device)]
        lazies = _recordings(indices)
        _steps += 1
    for lazy in lazies:
        try:
            lazy.flush()
        finally:
            _note_compilations(lazy)
    for index in indices if _kept or wait else ():
        try:
            _c().flush_kept_lazy(index)
        finally:
            _note_compilations(None)
        if wait and _c().is_initialized(index):
            _c().synchronize(index)


def note_kept() -> None:
    """Called before the device type "lazy" is enabled, which has recordings of its own."""
    global _kept, _explains
    with _lock:
        _kept, _explains = True, _explains or debug_level() > 1


def _note_compilations(lazy) -> None:
    """Collects the compilations of a recording; None: of the device type "lazy"."""
    with _lock:
        taken = lazy.take_compilations() if lazy else _c().take_kept_compilations()
        if taken:
            _compilations.extend(Compilation(_steps, *one) for one in taken)
        if _explains:
            _executions.extend((_steps, cause) for cause in (lazy.take_causes() if lazy else _c().take_kept_causes()))


def compilations() -> list[Compilation]:
    """Returns the groups that were compiled since the start or `reset_metrics`, with the cause of each.

    In a steady loop the list does not grow. Entries of later steps show what varies there.
    """
    with _lock:
        lazies = _recordings()
    for lazy in (*lazies, None):
        _note_compilations(lazy)
    with _lock:
        return list(_compilations)


def take_executions() -> list[tuple[int, str]]:
    """Returns the step and the cause of each flush since the last call, with the line that triggered it. Requires
    PT_XLA_DEBUG_LEVEL=2, otherwise the list is empty.
    """
    compilations()  # collects those that are pending
    with _lock:
        taken = [(step, "mark_step" if cause == "hal_lazy_flush" else cause) for step, cause in _executions]
        _executions.clear()
    return taken


def text(device=None, *, dot: bool = False) -> str:
    """Returns the work that is deferred on a device (default: the current one) now; "" if nothing is recorded there.

    The text has a line for each operator, with its Python line if lines are recorded, and the work it queues. With
    `dot`, it is a graph in the language of Graphviz.
    """
    index = _index(device)
    with _lock:
        lazies = _recordings([index])
    return "".join(lazy.text(dot) for lazy in lazies) or _c().kept_lazy_text(index, dot)


def measurements() -> dict[str, Measurement]:
    """Returns the measurements since the start or `reset_metrics`, over all devices.

    `queue_time` is the time to queue the work of a flush (to run it, if streams are not asynchronous), and
    `commands` its number of commands. `compile_time` is that of groups. `lock_time` is the wait for another thread
    that queues. `upload_time` and `upload_bytes` are of copies from the host. `download_time` of copies to the host
    lasts until their source is computed; `download_bytes` is their size. Percentiles are those of the device with
    most samples.
    """
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
    "recorded", "flushes", "limits", "needed", "queued", "fused", "groups", "dropped", "common", "held", "compiled", "again", "cached", "programs",
    "pending", "created", "destroyed",
)  # fmt: skip


def _totals() -> collections.Counter:
    """Returns the counters since the start; the caller holds the lock."""
    total = collections.Counter(_ended)
    for counts in (*(lazy.info() for lazy in _recordings()), *_c().kept_lazy_infos(), _c().lazy_tensor_counts()):
        total.update(counts)
    total["again"] = sum(_c().compiled_again(index) for index in range(_c().device_count()) if _c().is_initialized(index))
    return total


def end_kept() -> None:
    """Queues the deferred work of the device type "lazy", and stores its counters, because its recordings end."""
    for index in range(_c().device_count()):
        _c().flush_kept_lazy(index)
    with _lock:
        for counts in _c().kept_lazy_infos():
            _ended.update(counts)


def metrics() -> dict[str, int]:
    """Returns counters over all recordings of the process since its start or `reset_metrics`.

    `recorded`: operators. `flushes`: all of them; `limits`: flushes at the limit, without a synchronization point;
    `needed`: flushes because results were needed. `queued`: calls of the plugin. `fused`: operators that were
    combined into `groups` of one kernel. `dropped`: operators whose results were unused. `common`: operators that
    share the result of an equal one. `held`: results that the program referenced when they were queued. `compiled`
    and `cached`: groups. `programs`: programs that the device's compiler ran; `again`: those that it compiled a second
    time. `pending`: operators that are deferred
    now. `created` and `destroyed`: tensors of the device type "lazy". `steps`: steps marked.
    """
    with _lock:
        total = _totals()
        return {name: total[name] - _forgotten[name] for name in _COUNTS} | {"steps": _steps}


def operators() -> dict[str, int]:
    """Returns how often each operator was deferred since the start or `reset_metrics`, by its name in the HAL
    ("add.Tensor"). The sum is `recorded`.
    """
    with _lock:
        return dict(collections.Counter(_c().lazy_op_counts()) - _forgotten_operators)


def reset_metrics() -> None:
    """Sets all counters except `pending` to zero, and discards compilations and measurements."""
    global _steps
    compilations()  # collects those that are pending
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
