"""Sends tensors of the device to other processes with torch.multiprocessing.

The sender pickles a handle of the storage's memory. It keeps the storage until the receiver has released it
(`hal_memory_share`). If the plugin does not share memory between processes, a copy of the storage goes through host
memory.

torch's reducers of tensors do the rest, as for CPU tensors: they send the storage and the tensor's sizes, strides
and offset. The names `_share_device_`, `_new_shared_device` and `_release_ipc_counter_device` are those that torch
plans for all devices (pytorch/pytorch#192099). If torch defines them, they are not replaced.

A queue pickles in its own thread, which prints an exception and continues, so that the receiver would wait forever.
Therefore an object is searched for tensors that cannot be sent before it is put into a queue. The search is a
pickler that writes nothing.
"""

from __future__ import annotations

import functools
import multiprocessing.queues
import pickle
import threading
import warnings
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler

import torch
from torch.multiprocessing import reductions
from torch.utils.data import get_worker_info
from torch.utils.data._utils import fetch

from . import _C, _receiving, _registry, lazy


def _device_of(value) -> torch.device:
    return getattr(value, "_untyped_storage", value).device  # for a TypedStorage, whose own attribute would warn


def _is_ours(value) -> bool:
    """Returns whether a tensor or storage is on the device, or of the type "lazy", which is also stored on a device."""
    return _device_of(value).type in (_registry.type_name(), "lazy")


# ---- storages ----

_lock = threading.Lock()
_noted = False
_default_stream: Callable[[torch.device], torch.Stream]  # set by `install`


def _note_copies(device: torch.device) -> None:
    global _noted
    with _lock:
        first, _noted = not _noted, True
    if first:
        warnings.warn(
            f"the plugin of '{device}' does not share memory between processes, or not that of expandable segments "
            "(PYTORCH_ALLOC_CONF=expandable_segments:False shares it): tensors that are sent to other processes are copied through host "
            "memory, and a change of a copy is not visible to the other processes. This is reported once per process",
            RuntimeWarning, stacklevel=2,
        )  # fmt: skip


def _share_device_(self: torch.UntypedStorage) -> tuple[int, bytes | torch.UntypedStorage, int]:
    """Returns the arguments of `_new_shared_device` for one other process: the device's index, a handle or a copy on
    the CPU, and the size in bytes.
    """
    device = self.device
    if device.type == "lazy":
        raise _refusal(device)
    lazy.mark_step(device)
    handle = _C.share_storage(self) if self.nbytes() else b""
    if handle is None:
        _note_copies(device)
        handle = self.cpu()
    return device.index, handle, self.nbytes()


def _new_shared_device(device: int, handle: bytes | torch.UntypedStorage, nbytes: int) -> torch.UntypedStorage:
    """Returns a storage over the memory that `_share_device_` has shared; handles of the same memory return the same
    storage while it exists.
    """
    where = torch.device(_registry.type_name(), device)
    if isinstance(handle, torch.UntypedStorage):
        return torch.UntypedStorage(nbytes, device=where).copy_(handle)
    if not nbytes:
        return torch.UntypedStorage(0, device=where)
    key = handle[: _C.SHARE_KEY_BYTES]
    known = reductions.storage_from_cache(torch.UntypedStorage, key)
    if known is not None and known.nbytes() == nbytes:
        _release_ipc_counter_device(handle)
        return known
    storage = _C.open_storage(device, handle, nbytes)
    reductions.shared_cache[key] = reductions.StorageWeakRef(storage)
    return storage


def _release_ipc_counter_device(handle: bytes) -> None:
    """Releases a handle whose memory this process has already mapped."""
    _C.decline_storage(handle)


def _reduce_storage(storage: torch.UntypedStorage):
    device, handle, nbytes = storage._share_device_()
    if nbytes and isinstance(handle, bytes):  # this process may receive the handle, too
        reductions.shared_cache[handle[: _C.SHARE_KEY_BYTES]] = reductions.StorageWeakRef(storage)
    return _receiving.rebuild_storage, (_registry.requested(), device, handle, nbytes)


# ---- events ----


def _reduce_event(event: torch.Event):
    return _receiving.rebuild_event, (_registry.requested(), event.device.index, event.ipc_handle())


# ---- objects that cannot be sent ----


def _refusal(device: torch.device) -> RuntimeError:
    return RuntimeError(
        f"a tensor on '{device}' cannot be sent to another process. Send a copy on the CPU, tensor.cpu(), and move it to the device in the "
        "process that receives it."
    )


def _check_tensor(tensor: torch.Tensor) -> None:
    """Raises RuntimeError for a tensor of the device that the reducers would refuse."""
    if tensor.device.type == "lazy":
        raise _refusal(tensor.device)
    if tensor.requires_grad and not tensor.is_leaf:
        reductions.reduce_tensor(tensor)  # raises an error with the reason
    if tensor.layout == torch.strided and not tensor.is_nested and type(tensor) in ForkingPickler._extra_reducers:
        _C.can_share(tensor.untyped_storage())


class _Sink:
    def write(self, data) -> None:
        """Discards the data."""


class _Search(pickle.Pickler):
    """Finds the devices of the tensors and storages in an object, and raises _Found for the first that cannot be sent.

    Objects that multiprocessing sends by its own means are not searched.
    """

    def __init__(self):
        super().__init__(_Sink(), protocol=pickle.HIGHEST_PROTOCOL)
        self.devices: set[torch.device] = set()

    def reducer_override(self, value):
        if isinstance(value, (torch.Tensor, torch.UntypedStorage, torch.TypedStorage)):
            if _is_ours(value):
                self._visit(value)
            return tuple, ()
        if type(value) in ForkingPickler._extra_reducers:
            return tuple, ()
        return NotImplemented

    def _visit(self, value) -> None:
        try:
            if isinstance(value, torch.Tensor):
                _check_tensor(value)
            elif _device_of(value).type == "lazy":
                raise _refusal(_device_of(value))
            else:
                _C.can_share(getattr(value, "_untyped_storage", value))
        except Exception as error:
            raise _Found(error) from None
        self.devices.add(_device_of(value))


class _Found(BaseException):
    """Not an Exception, because the `__reduce__` of an object may catch those."""


def _prepare(value) -> None:
    """Checks an object before another thread pickles it: raises for a tensor of the device that cannot be sent,
    wherever pickle would find it.

    Also orders the default streams after the current ones, since the default streams are current in that thread.
    """
    if not any(_C.is_initialized(index) for index in range(_C.device_count())):
        return  # then this process has no tensors of the device
    search, failure = _Search(), None
    try:
        search.dump(value)
    except _Found as found:
        failure = found.args[0]
    except Exception:  # pickle itself reports what it cannot pickle
        return
    if failure is not None:
        try:
            raise failure
        finally:
            del failure  # a cycle would keep the tensors in the traceback's frames alive until a garbage collection
    for device in search.devices:
        current, default = torch.accelerator.current_stream(device), _default_stream(device)
        if current != default:
            default.wait_stream(current)


def _checked_put(put):
    @functools.wraps(put)
    def checked(self, obj, *arguments, **options):
        _prepare(obj)
        return put(self, obj, *arguments, **options)

    return checked


def _checked_fetch(original):
    """For the worker of a DataLoader: torch sends the exception of a fetch to the process that iterates."""

    @functools.wraps(original)
    def checked(self, possibly_batched_index):
        data = original(self, possibly_batched_index)
        if get_worker_info() is not None:
            _prepare(data)
        return data

    return checked


def _own_reducer(reduce, own):
    """Returns a reducer that calls `own` for storages of the device, and torch's reducer for all others."""

    @functools.wraps(reduce)
    def choose(value, /):
        return own(value) if _is_ours(value) else reduce(value)

    return choose


def _checked_reduce(reduce):
    """Returns a reducer for objects that are pickled in the sending thread, such as those in pipes and the arguments of
    a process.
    """

    @functools.wraps(reduce)
    def checked(value, /):
        if value.device.type == "lazy":
            raise _refusal(value.device)
        return reduce(value)

    return checked


def install(event: type, default_stream: Callable[[torch.device], torch.Stream]) -> None:
    """Registers the reducers of torch.multiprocessing, and adds the check to the queues of multiprocessing and the
    workers of DataLoader.

    `event` is the class of interprocess events; `default_stream` returns the default stream of a device.
    """
    global _default_stream
    _default_stream = default_stream
    for queue in (multiprocessing.queues.Queue, multiprocessing.queues.JoinableQueue):
        queue.put = _checked_put(queue.put)
    for fetcher in (fetch._IterableDatasetFetcher, fetch._MapDatasetFetcher):
        fetcher.fetch = _checked_fetch(fetcher.fetch)
    for name, function in (
        ("_share_device_", _share_device_),
        ("_new_shared_device", staticmethod(_new_shared_device)),
        ("_release_ipc_counter_device", staticmethod(_release_ipc_counter_device)),
    ):
        if not hasattr(torch.UntypedStorage, name):
            setattr(torch.UntypedStorage, name, function)
    for kind in (torch.Tensor, torch.nn.Parameter):
        ForkingPickler.register(kind, _checked_reduce(reductions.reduce_tensor))
    ForkingPickler.register(torch.UntypedStorage, _own_reducer(reductions.reduce_storage, _reduce_storage))
    ForkingPickler.register(event, _reduce_event)
