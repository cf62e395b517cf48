"""Tensors of the device cannot be sent to another process: the process that sends one gets the error, at once.

A queue pickles in a thread of its own, which prints an exception and goes on, so that the process that receives would wait for ever.
Hence what is put into a queue is searched before, by a pickler that writes nothing.
"""

from __future__ import annotations

import functools
import multiprocessing.queues
import pickle
from multiprocessing.reduction import ForkingPickler

import torch
from torch.multiprocessing import reductions
from torch.utils.data import get_worker_info
from torch.utils.data._utils import fetch

from . import _C, _registry


def _is_ours(value) -> bool:
    """Returns whether a tensor or storage is on the device, or of the type "lazy", which is a device's, too."""
    return value.device.type in (_registry.type_name(), "lazy")


def _refusal(value) -> RuntimeError:
    return RuntimeError(
        f"a tensor on '{value.device}' cannot be sent to another process. Send a copy on the CPU, tensor.cpu(), and move it to the device in the "
        "process that receives it."
    )


class _Sink:
    def write(self, data) -> None:
        """Drops what is written."""


class _Search(pickle.Pickler):
    """Raises for the first tensor or storage of the device in an object. What multiprocessing sends in a way of its own is not looked into."""

    def reducer_override(self, value):
        if isinstance(value, (torch.Tensor, torch.UntypedStorage, torch.TypedStorage)):
            if _is_ours(value):
                raise _Found(_refusal(value))
            return tuple, ()
        if type(value) in ForkingPickler._extra_reducers:
            return tuple, ()
        return NotImplemented


class _Found(BaseException):
    """Not an Exception: the `__reduce__` of an object may catch those."""


def refuse_device_tensors(value) -> None:
    """Raises RuntimeError when an object holds a tensor of the device, wherever pickle would find it."""
    if not any(_C.is_initialized(index) for index in range(_C.device_count())):
        return  # then there are no tensors of the device in this process
    try:
        _Search(_Sink(), protocol=pickle.HIGHEST_PROTOCOL).dump(value)
    except _Found as found:
        raise found.args[0] from None
    except Exception:  # what cannot be pickled is reported by what pickles it
        return


def _checked_put(put):
    @functools.wraps(put)
    def checked(self, obj, *arguments, **options):
        refuse_device_tensors(obj)
        return put(self, obj, *arguments, **options)

    return checked


def _checked_fetch(original):
    """In a DataLoader's worker: torch sends the exception of a fetch to the process that iterates."""

    @functools.wraps(original)
    def checked(self, possibly_batched_index):
        data = original(self, possibly_batched_index)
        if get_worker_info() is not None:
            refuse_device_tensors(data)
        return data

    return checked


def _checked_reduce(reduce):
    """For what pickles in the thread that sends, such as pipes and the arguments of a process."""

    @functools.wraps(reduce)
    def checked(value):
        if _is_ours(value):
            raise _refusal(value)
        return reduce(value)

    return checked


def install() -> None:
    """Guards the queues of multiprocessing, the workers of DataLoader, and the picklers of processes."""
    for queue in (multiprocessing.queues.Queue, multiprocessing.queues.JoinableQueue):
        queue.put = _checked_put(queue.put)
    for fetcher in (fetch._IterableDatasetFetcher, fetch._MapDatasetFetcher):
        fetcher.fetch = _checked_fetch(fetcher.fetch)
    for kind in (torch.Tensor, torch.nn.Parameter):
        ForkingPickler.register(kind, _checked_reduce(reductions.reduce_tensor))
    ForkingPickler.register(torch.UntypedStorage, _checked_reduce(reductions.reduce_storage))
    ForkingPickler.register(torch.storage.TypedStorage, _checked_reduce(reductions.reduce_typed_storage))
