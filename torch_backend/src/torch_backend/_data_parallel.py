"""torch.nn.DataParallel and torch.nn.parallel.comm: torch implements the copies between devices for CUDA only, in C++.
These functions copy with Tensor.to, with the same arguments, checks and results.
"""

from __future__ import annotations

import functools
import itertools
import sys
import types
from collections.abc import Iterator
from contextlib import nullcontext

import torch
from torch._utils import _get_device_index, _handle_complex
from torch.nn.parallel import comm

from . import _registry


def _is_ours(tensors, devices=None) -> bool:
    """Returns whether a call is for the device: its tensors are, or tensors of the host go to devices of it."""
    types_ = {x.device.type for x in tensors if isinstance(x, torch.Tensor)}
    names = {torch.device(x).type for x in devices or () if isinstance(x, (str, torch.device))} - {"cpu"}
    if types_ - {"cpu"} or names:
        return _registry.type_name() in types_ | names
    return torch._utils._get_available_device_type() == _registry.type_name()


def _device(index: int) -> torch.device:
    return torch.device("cpu") if index == -1 else torch.device(_registry.type_name(), index)


def _check_results(out, name: str) -> None:
    if not out:
        raise RuntimeError(f"comm.{name}: expected at least one output tensor, but got none; pass one for each device")
    for i, x in enumerate(out):
        if x.device.type != _registry.type_name():
            raise RuntimeError(
                f"comm.{name}: expected output tensors on '{_registry.type_name()}', but output tensor {i} is on '{x.device}'"
            )


def _broadcast(tensor, devices=None, *, out=None):
    tensor = _handle_complex(tensor)
    if (devices is None) == (out is None):
        raise RuntimeError(f"Exactly one of 'devices' and 'out' must be specified, but got devices={devices} and out={out}")
    if out is None:
        return tuple(tensor.to(_device(_get_device_index(x)), non_blocking=True) for x in devices)
    out = tuple(out)
    _check_results(out, "broadcast")
    for i, x in enumerate(out):
        if x.size() != tensor.size():
            raise RuntimeError(f"comm.broadcast: expected output tensors of sizes {list(tensor.size())}, but output tensor {i} has {list(x.size())}")
        x.copy_(tensor, non_blocking=True)
    return out


def _broadcast_coalesced(tensors, devices, buffer_size=10485760):
    places = [_device(_get_device_index(x)) for x in devices]
    tensors = [_handle_complex(x) for x in tensors]
    if not places:
        raise RuntimeError("comm.broadcast_coalesced: expected at least one device to broadcast to, but got none")
    for i, x in enumerate(tensors):
        if x.device != places[0]:
            raise RuntimeError(f"comm.broadcast_coalesced: expected all tensors on '{places[0]}', the first of devices, but tensor {i} is on '{x.device}'")
    return [list(tensors), *([x.detach().to(place, non_blocking=True) for x in tensors] for place in places[1:])]


def _scatter(tensor, devices=None, chunk_sizes=None, dim=0, streams=None, *, out=None):
    tensor = _handle_complex(tensor)
    if out is not None:
        return _scatter_into(tensor, devices, chunk_sizes, dim, streams, tuple(out))
    places = [_device(_get_device_index(x)) for x in devices or ()]
    if not places:
        raise RuntimeError("comm.scatter: expected at least one device to scatter to, but got none")
    if chunk_sizes is None:
        chunks = tensor.chunk(len(places), dim)
    elif len(chunk_sizes) != len(places):
        raise RuntimeError(f"comm.scatter: expected devices and chunk_sizes of one length, but got {len(places)} and {len(chunk_sizes)}")
    else:
        chunks = tensor.split_with_sizes(list(chunk_sizes), dim)
    return tuple(
        _on(stream, lambda chunk=chunk, place=place: chunk.to(place, non_blocking=True))
        for chunk, place, stream in zip(chunks, places, itertools.chain(streams or (), itertools.repeat(None)))
    )


def _on(stream, call):
    with nullcontext() if stream is None else stream:
        return call()


def _scatter_into(tensor, devices, chunk_sizes, dim, streams, out):
    for name, value in (("devices", devices), ("chunk_sizes", chunk_sizes)):
        if value is not None:
            raise RuntimeError(f"'{name}' must not be specified when 'out' is specified, but got {name}={value}")
    _check_results(out, "scatter")
    chunks = _parts(tensor, out, dim, "scatter", "tensor")
    for x, chunk, stream in zip(out, chunks, itertools.chain(streams or (), itertools.repeat(None))):
        _on(stream, lambda x=x, chunk=chunk: x.copy_(chunk, non_blocking=True))
    return out


def _parts(whole, tensors, dim: int, name: str, what: str):
    """Returns the views of a tensor that correspond to others, which together have its sizes."""
    dim = dim + whole.dim() if dim < 0 else dim
    expected = list(whole.size())
    for i, x in enumerate(tensors):
        sizes = list(x.size())
        if x.dim() != whole.dim() or sizes[:dim] + sizes[dim + 1 :] != expected[:dim] + expected[dim + 1 :]:
            raise RuntimeError(f"comm.{name}: tensor {i} of sizes {sizes} does not match {what} of sizes {expected} outside of dimension {dim}")
    lengths = [x.size(dim) for x in tensors]
    if sum(lengths) != expected[dim]:
        raise RuntimeError(f"comm.{name}: expected lengths in dimension {dim} whose sum is {expected[dim]}, but got {lengths}")
    return whole.split_with_sizes(lengths, dim)


def _gather(tensors, dim=0, destination=None, *, out=None):
    tensors = [_handle_complex(x) for x in tensors]
    if not tensors:
        raise RuntimeError("comm.gather: expected at least one tensor to gather from, but got none")
    for i, x in enumerate(tensors):
        if x.device.type != _registry.type_name():
            raise RuntimeError(f"comm.gather: expected all tensors on '{_registry.type_name()}', but tensor {i} is on '{x.device}'")
    if out is not None:
        if destination is not None:
            raise RuntimeError(f"'destination' must not be specified when 'out' is specified, but got destination={destination}")
        for part, x in zip(_parts(out, tensors, dim, "gather", "out"), tensors):
            part.copy_(x, non_blocking=out.device.type != "cpu")
        return out
    place = _device(_get_device_index(destination, allow_cpu=True, optional=True))
    return torch.cat([x.to(place, non_blocking=place.type != "cpu") for x in tensors], dim)


class _Nccl(types.ModuleType):
    """torch.cuda.nccl as comm.reduce_add calls it: without a warning for tensors of the device."""

    def __init__(self, original):
        super().__init__(original.__name__)
        self._original = original

    def is_available(self, tensors) -> bool:
        return not _is_ours(tensors) and self._original.is_available(tensors)

    def __getattr__(self, name: str):
        return getattr(self._original, name)


def _replace(name: str, ours, operands) -> None:
    original = getattr(comm, name)

    @functools.wraps(original)
    def function(*arguments, **options):
        arguments = [list(x) if isinstance(x, Iterator) else x for x in arguments]
        options = {key: list(x) if isinstance(x, Iterator) else x for key, x in options.items()}
        tensors, devices = operands(*arguments, **options)
        return (ours if _is_ours(tensors, devices) else original)(*arguments, **options)

    setattr(comm, name, function)


def _autocast_in_threads() -> None:
    """parallel_apply passes only CUDA's autocast state to its threads."""
    module = sys.modules["torch.nn.parallel.parallel_apply"]
    original = module.parallel_apply

    @functools.wraps(original)
    def parallel_apply(modules, *arguments, **options):
        name = _registry.type_name()
        if torch.is_autocast_enabled(name):
            modules = [functools.partial(_under_autocast, x, torch.get_autocast_dtype(name), torch.is_autocast_cache_enabled()) for x in modules]
        return original(modules, *arguments, **options)

    for user in (module, torch.nn.parallel, sys.modules["torch.nn.parallel.data_parallel"]):
        user.parallel_apply = parallel_apply


def _under_autocast(module, dtype: torch.dtype, cache: bool, *arguments, **options):
    with torch.autocast(_registry.type_name(), dtype=dtype, cache_enabled=cache):
        return module(*arguments, **options)


def install() -> None:
    """Replaces the functions of torch.nn.parallel.comm, for tensors of the device."""
    _replace("broadcast", _broadcast, lambda tensor, devices=None, *, out=None: ((tensor, *(out or ())), devices))
    _replace("broadcast_coalesced", _broadcast_coalesced, lambda tensors, devices, *rest, **options: (tensors, devices))
    _replace("scatter", _scatter, lambda tensor, devices=None, *rest, out=None, **options: ((tensor, *(out or ())), devices))
    _replace("gather", _gather, lambda tensors, *rest, **options: (tensors, None))
    comm.nccl = _Nccl(comm.nccl)
    _autocast_in_threads()
