"""Ranges and marks with the interface of torch.cuda.nvtx. They are ranges of torch.profiler, on the host."""

from __future__ import annotations

import contextlib
import itertools
import threading

import torch

__all__ = ["mark", "range", "range_end", "range_pop", "range_push", "range_start"]

_open = threading.local()  # the stack of each thread
_started: dict[int, torch.autograd.profiler.record_function] = {}  # ranges that another thread may end
_numbers = itertools.count(1)


def _enter(message: str) -> torch.autograd.profiler.record_function:
    entered = torch.autograd.profiler.record_function(message)
    entered.__enter__()
    return entered


def range_push(msg: str) -> int:
    """Begins a range nested in those of this thread, and returns its depth, from 0."""
    stack = _open.__dict__.setdefault("stack", [])
    stack.append(_enter(msg))
    return len(stack) - 1


def range_pop() -> int:
    """Ends the innermost range of this thread, and returns its depth; -1 when there is none."""
    stack = getattr(_open, "stack", [])
    if not stack:
        return -1
    stack.pop().__exit__(None, None, None)
    return len(stack)


def range_start(msg: str) -> int:
    """Begins a range that is not nested, and returns the number to pass to `range_end`."""
    number = next(_numbers)
    _started[number] = _enter(msg)
    return number


def range_end(range_id: int) -> None:
    """Ends a range of `range_start`. Raises ValueError if no open range has this number."""
    entered = _started.pop(range_id, None)
    if entered is None:
        raise ValueError(f"range_end: {range_id} is not the number of an open range; pass the value that range_start returned, once")
    entered.__exit__(None, None, None)


def mark(msg: str) -> None:
    """Records an event without duration."""
    _enter(msg).__exit__(None, None, None)


@contextlib.contextmanager
def range(msg: str, *args, **kwargs):  # noqa: A001  torch.cuda's name
    """Context manager and decorator for a range; the message may be a format string for the arguments."""
    range_push(msg.format(*args, **kwargs))
    try:
        yield
    finally:
        range_pop()
