"""Small helpers of training programs, under torch_xla's names."""

from __future__ import annotations

import concurrent.futures
import contextlib
import copy
import os
import shutil
import socket
import sys
import tempfile
import time

import torch

__all__ = [
    "Cleaner", "DataWrapper", "FnDataGenerator", "LazyProperty", "SampleGenerator", "TimedScope", "TmpFolder", "as_list", "check_env_flag", "eprint",
    "flatten_nested_tuple", "for_each_instance", "for_each_instance_rewrite", "get_free_tcp_ports", "get_print_fn", "getenv_as", "list_copy_append",
    "null_print", "parallel_work", "sent", "shape", "timed",
]  # fmt: skip


class Cleaner:
    """Calls a function once, when the object is garbage-collected, or at `close()`."""

    def __init__(self, func):
        self.func = func

    def close(self) -> None:
        func, self.func = self.func, None
        if func is not None:
            func()

    def __del__(self):
        self.close()


class LazyProperty:
    """A value that is computed at the first read of `value`."""

    def __init__(self, gen_fn):
        self._gen_fn = gen_fn

    @property
    def value(self):
        if self._gen_fn is not None:
            self._value, self._gen_fn = self._gen_fn(), None
        return self._value


class TmpFolder:
    """A temporary folder, `name`, which is deleted with this object."""

    def __init__(self):
        self.name = tempfile.mkdtemp()
        self.cleaner = Cleaner(lambda name=self.name: shutil.rmtree(name, ignore_errors=True))


class SampleGenerator:
    """A loader that yields the same data `sample_count` times; may be iterated again."""

    def __init__(self, data, sample_count: int):
        self._data, self._sample_count, self._count = data, sample_count, 0

    def __iter__(self):
        return SampleGenerator(self._data, self._sample_count)

    def __len__(self) -> int:
        return self._sample_count

    def __next__(self):
        if self._count >= self._sample_count:
            raise StopIteration
        self._count += 1
        return self._data

    next = __next__


class FnDataGenerator:
    """A loader of `count` pairs of data, `gen_tensor(batch_size, *dims)`, and their targets, `func(data)`; may be
    iterated again. `dims`: (1,) by default.
    """

    def __init__(self, func, batch_size: int, gen_tensor, dims=None, count: int = 1):
        self._func, self._batch_size, self._gen_tensor = func, batch_size, gen_tensor
        self._dims, self._count, self._emitted = list(dims) if dims else [1], count, 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self):
        return FnDataGenerator(self._func, self._batch_size, self._gen_tensor, self._dims, self._count)

    def __next__(self):
        if self._emitted >= self._count:
            raise StopIteration
        self._emitted += 1
        data = self._gen_tensor(self._batch_size, *self._dims)
        return data, self._func(data)

    next = __next__


class DataWrapper:
    """Base class of loader items other than tensors. `get_tensors` returns the CPU tensors to copy to the device, and
    `from_tensors` builds an item from the copies.
    """

    def get_tensors(self) -> list[torch.Tensor]:
        raise NotImplementedError(f"{type(self).__name__}.get_tensors must return the list of CPU tensors to copy to the device")

    def from_tensors(self, tensors):
        raise NotImplementedError(f"{type(self).__name__}.from_tensors must return an instance with the tensors on the device, in the same order")


def sent(value, device):
    """Returns a tensor or DataWrapper on a device. Tensors that are on a device already are not copied."""
    if isinstance(value, DataWrapper):
        return value.from_tensors([tensor.to(device) for tensor in value.get_tensors()])
    return value.to(device) if value.device.type == "cpu" else value


def as_list(value):
    """Returns a tuple or list unchanged, and any other value in a list."""
    return value if isinstance(value, (tuple, list)) else [value]


def getenv_as(name: str, type, defval=None):
    """Returns an environment variable converted by `type`, or `defval` if it is not set."""
    value = os.environ.get(name)
    return defval if value is None else type(value)


def check_env_flag(name: str, default: str = "") -> bool:
    """Returns whether an environment variable (else `default`) is on, 1, yes, true or y, ignoring case."""
    return os.environ.get(name, default).upper() in ("ON", "1", "YES", "TRUE", "Y")


def for_each_instance(value, select_fn, fn) -> None:
    """Calls `fn` with every value that `select_fn` selects in nested lists, tuples, sets, dicts and objects'
    attributes, once for each object.
    """
    _walk(value, select_fn, fn, set())


def _walk(value, select_fn, fn, seen: set) -> None:
    if id(value) in seen:
        return
    seen.add(id(value))
    if select_fn(value):
        fn(value)
    elif isinstance(value, dict):
        for key, one in value.items():
            _walk(key, select_fn, fn, seen)
            _walk(one, select_fn, fn, seen)
    elif isinstance(value, (list, tuple, set, frozenset)):
        for one in value:
            _walk(one, select_fn, fn, seen)
    elif hasattr(value, "__dict__") and not isinstance(value, type):
        for one in list(value.__dict__.values()):
            _walk(one, select_fn, fn, seen)


def for_each_instance_rewrite(value, select_fn, fn):
    """Returns a copy of nested lists, tuples, sets, dicts and objects, in which every value that `select_fn` selects is
    replaced by `fn` of it. Tuples become lists, except named ones.
    """
    return _rewritten(value, select_fn, fn, {})


def _rewritten(value, select_fn, fn, done: dict):
    found = done.get(id(value))
    if found is not None:
        return found[1]

    def keep(result):  # also keeps the original, so that its id is not reused
        done[id(value)] = (value, result)
        return result

    def inner(one):
        return _rewritten(one, select_fn, fn, done)

    if select_fn(value):
        return keep(fn(value))
    if isinstance(value, dict):
        result = keep(copy.copy(value))
        result.clear()
        result.update({inner(key): inner(one) for key, one in value.items()})
        return result
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return keep(type(value)(*map(inner, value)))
    if isinstance(value, (list, tuple)):
        result = keep([])
        result.extend(map(inner, value))
        return result
    if isinstance(value, (set, frozenset)):
        return keep(type(value)(map(inner, value)))
    if isinstance(value, torch.Tensor) or not hasattr(value, "__dict__") or isinstance(value, type) or callable(value):
        return value
    result = keep(copy.copy(value))
    for name, one in value.__dict__.items():
        result.__dict__[name] = inner(one)
    return result


def shape(inputs) -> list[int]:
    """Returns the lengths of nested lists or tuples, by their first elements."""
    lengths = []
    while isinstance(inputs, (list, tuple)):
        lengths.append(len(inputs))
        if not inputs:
            break
        inputs = inputs[0]
    return lengths


def flatten_nested_tuple(inputs) -> tuple:
    """Returns all values in nested tuples and lists as one tuple."""
    flat = []
    for one in inputs:
        flat.extend(flatten_nested_tuple(one) if isinstance(one, (tuple, list)) else (one,))
    return tuple(flat)


def list_copy_append(ilist, item) -> list:
    """Returns a copy of a list with one more item."""
    return [*ilist, item]


def null_print(*args, **kwargs) -> None:
    """Prints nothing."""


def eprint(*args, **kwargs) -> None:
    """Prints to standard error."""
    print(*args, file=sys.stderr, **kwargs)


def get_print_fn(debug: int | None = None):
    """Returns `eprint` if `debug` (default: the environment's DEBUG) is not 0, else `null_print`."""
    debug = getenv_as("DEBUG", int, 0) if debug is None else debug
    return eprint if debug else null_print


def timed(fn, msg: str = "", printfn=eprint):
    """Calls a function, prints `msg` and its milliseconds, and returns its value."""
    with TimedScope(msg, printfn):
        return fn()


class TimedScope(contextlib.AbstractContextManager):
    """Prints `msg` and the milliseconds of a block at its end."""

    def __init__(self, msg: str = "", printfn=eprint):
        self._msg, self._printfn = msg, printfn

    def __enter__(self):
        self._start = time.perf_counter()
        return self

    def __exit__(self, *failure) -> None:
        self._printfn(f"{self._msg}{1000.0 * (time.perf_counter() - self._start):.3f}ms")


def get_free_tcp_ports(n: int = 1) -> list[int]:
    """Returns different ports of this host that were free a moment ago."""
    with contextlib.ExitStack() as opened:
        sockets = [opened.enter_context(socket.socket()) for _ in range(n)]
        for one in sockets:
            one.bind(("", 0))
        return [one.getsockname()[1] for one in sockets]


def parallel_work(num_workers: int, fn, *args) -> list:
    """Returns `fn` of corresponding elements of the sequences `args`, computed by threads, in order. Raises the
    exception of a call.
    """
    with concurrent.futures.ThreadPoolExecutor(max_workers=num_workers) as executor:
        return list(executor.map(fn, *args))
