"""Collectives of replicas under torch_xla's names.

Processes use the collectives of torch.distributed (_processes.py). Threads of one process exchange objects, and tensors
of the CPU, in shared lists (_replicas.py), and use the same collectives for tensors of the device.
"""

from __future__ import annotations

import functools
import pickle

import torch

from . import _devices, _processes

REDUCE_SUM, REDUCE_MUL, REDUCE_AND, REDUCE_OR, REDUCE_MIN, REDUCE_MAX = "sum", "mul", "and", "or", "min", "max"
_COMBINE = {
    REDUCE_SUM: torch.add, REDUCE_MUL: torch.mul, REDUCE_AND: torch.bitwise_and, REDUCE_OR: torch.bitwise_or, REDUCE_MIN: torch.minimum,
    REDUCE_MAX: torch.maximum,
}  # fmt: skip


def _members(groups) -> tuple | None:
    """Returns the ordinals of this replica's group, or None for all replicas."""
    if not groups:
        return None
    mine = _devices.get_ordinal()
    for group in groups:
        if mine in group:
            return tuple(group)
    raise ValueError(f"replica {mine} is not in any of the groups {groups}")


def _ordinals(groups) -> tuple:
    members = _members(groups)
    return tuple(range(_devices.xrt_world_size())) if members is None else members


def _uses_processes(groups) -> bool:
    """Returns whether torch.distributed runs a collective, which is not the case for threads or a single replica."""
    return _devices.replication() is None and len(_ordinals(groups)) > 1


def _group_of_threads(tensor: torch.Tensor, groups):
    """Returns the process group of this thread, or None if a collective of the device cannot exchange the tensors of all
    replicas: they are on the CPU, empty, or differ in their shape or dtype.
    """
    kinds = _devices.replication().gather((tensor.device.type, tensor.dtype, tuple(tensor.shape)))
    exchanged = all(kind == kinds[0] for kind in kinds) and tensor.device.type != "cpu" and tensor.numel() > 0
    return _devices.replication().group(_ordinals(groups)) if exchanged and len(_ordinals(groups)) > 1 else None


def gather(value, groups=None) -> list:
    """Returns the values of all replicas, objects or tensors, in the order of the group. The tensors are on this
    replica's device.
    """
    if _uses_processes(groups):
        group = _processes.group_of(_members(groups))
        return _processes.gather(value.detach(), group) if isinstance(value, torch.Tensor) else _processes.gather_objects(value, group)
    if _devices.replication() is None:
        return [value]
    if isinstance(value, torch.Tensor):
        group = _group_of_threads(value, groups)
        if group is not None:
            return _processes.gather(value.detach(), group)
    take = (lambda one: one.to(value.device, copy=True)) if isinstance(value, torch.Tensor) else None
    values = _devices.replication().gather(value, take)
    return [values[member] for member in _ordinals(groups)]


def _check_reduction(reduce_type: str, tensor: torch.Tensor) -> None:
    if reduce_type not in _COMBINE:
        raise ValueError(f"reduce_type: expected one of {', '.join(_COMBINE)}, got {reduce_type!r}")
    if reduce_type in (REDUCE_AND, REDUCE_OR) and (tensor.is_floating_point() or tensor.is_complex()):
        raise ValueError(f"reduction '{reduce_type}': expected a tensor of bool or integers, got {tensor.dtype}; compare it first, as in x != 0")


def _device_group(tensor: torch.Tensor, groups):
    """Returns (whether the reduction is one collective of the device, the process group).

    Otherwise the tensors are gathered and combined in the order of the replicas, so that all replicas get identical
    bits. Gloo's reductions do not guarantee this.
    """
    if _devices.replication() is not None:
        group = _group_of_threads(tensor, groups)
        return group is not None, group
    if not _uses_processes(groups):
        return False, None
    group = _processes.group_of(_members(groups))
    return _processes.runs_on_device(tensor, group), group


def _combined(reduce_type: str, tensor: torch.Tensor, groups) -> torch.Tensor:
    return functools.reduce(_COMBINE[reduce_type], gather(tensor, groups))


def _scaled(tensor: torch.Tensor, scale: float) -> torch.Tensor:
    return tensor if scale == 1.0 else tensor * scale


def _reduced(reduce_type: str, tensor: torch.Tensor, scale: float, groups) -> torch.Tensor:
    _check_reduction(reduce_type, tensor)
    tensor = tensor.detach()
    on_device, group = _device_group(tensor, groups)
    return _scaled(_processes.all_reduce(reduce_type, tensor, group) if on_device else _combined(reduce_type, tensor, groups), scale)


def all_reduce(reduce_type: str, inputs, scale: float = 1.0, groups=None, cctx=None, pin_layout: bool = True):
    """Reduces a tensor over the replicas and returns the result. A list of tensors is reduced in place and returned.

    The result is multiplied by `scale`. `groups`: lists of ordinals; each replica reduces within its list. A
    single replica gets a copy of its tensor, or its list. "and" and "or" are bitwise, for bool and integers.
    """
    alone = len(_ordinals(groups)) == 1
    if isinstance(inputs, torch.Tensor):
        return inputs.clone() if alone and scale == 1.0 else _reduced(reduce_type, inputs, scale, groups)
    if not alone or scale != 1.0:
        with torch.no_grad():
            for tensor, result in [(tensor, _reduced(reduce_type, tensor, scale, groups)) for tensor in inputs]:
                tensor.copy_(result)
    return inputs


def all_gather(value: torch.Tensor, dim: int = 0, groups=None, output: torch.Tensor | None = None, pin_layout: bool = True) -> torch.Tensor:
    """Returns the tensors of all replicas, concatenated along `dim`."""
    result = torch.cat(gather(value, groups), dim)
    return result if output is None else output.copy_(result)


def _parts(function: str, tensor: torch.Tensor, dim: int, count: int, groups) -> torch.Tensor:
    """Returns `count` equal parts of a tensor, stacked in a new first dimension. Raises ValueError unless there is one
    part for each replica.
    """
    replicas = len(_ordinals(groups))
    if count != replicas or tensor.size(dim) % count:
        raise ValueError(f"{function}: {count} equal parts of size {tensor.size(dim)} (dimension {dim}) for {replicas} replicas")
    return torch.stack(tensor.chunk(count, dim))


def _place(groups) -> int:
    return _ordinals(groups).index(_devices.get_ordinal())


def all_to_all(value: torch.Tensor, split_dimension: int, concat_dimension: int, split_count: int, groups=None, pin_layout: bool = True):
    """Splits a tensor in `split_count` equal parts, sends part i to replica i, and concatenates the received parts along `concat_dimension`."""
    parts = _parts("all_to_all", value.detach(), split_dimension, split_count, groups)
    on_device, group = _device_group(parts, groups)
    if on_device or _uses_processes(groups):
        received = _processes.exchange(parts, group)
    else:
        received = [one[_place(groups)] for one in gather(parts, groups)]
    return torch.cat(tuple(received), concat_dimension)


def reduce_scatter(
    reduce_type: str, input: torch.Tensor, scale: float, scatter_dim: int, shard_count: int, groups=None, output=None, pin_layout: bool = True
) -> torch.Tensor:
    """Reduces a tensor over the replicas, multiplies it by `scale`, and returns this replica's part of the
    `shard_count` equal parts along `scatter_dim`.
    """
    _check_reduction(reduce_type, input)
    parts = _parts("reduce_scatter", input.detach(), scatter_dim, shard_count, groups)
    on_device, group = _device_group(parts, groups)
    part = _processes.reduce_scatter(reduce_type, parts, group) if on_device else _combined(reduce_type, parts, groups)[_place(groups)]
    result = _scaled(part, scale)
    return result if output is None else output.copy_(result)


def collective_permute(value: torch.Tensor, pairs) -> torch.Tensor:
    """Returns the tensor of this replica's source in `pairs` of (source, target), or zeros if this replica is not a
    target.
    """
    count, mine = _devices.xrt_world_size(), _devices.get_ordinal()
    sources: dict[int, int] = {}
    for source, target in pairs:
        if not (0 <= source < count and 0 <= target < count):
            raise ValueError(f"collective_permute: pair ({source}, {target}) is out of range: there are {count} replicas")
        if target in sources:
            raise ValueError(f"collective_permute: replica {target} is the target of several sources, {sources[target]} and {source}")
        sources[target] = source
    source, value = sources.get(mine), value.detach()
    if _uses_processes(None):
        received = _processes.permute(value, source, [target for one, target in pairs if one == mine])
    else:
        tensors = gather(value)
        received = None if source is None else tensors[source].clone()
    return torch.zeros_like(value) if received is None else received


def collective_broadcast(tensors, root_ordinal: int = 0, groups=None, pin_layout: bool = True) -> None:
    """Copies the tensors of replica `root_ordinal` into those of all replicas."""
    ordinals = _ordinals(groups)
    if root_ordinal not in ordinals:
        raise ValueError(f"collective_broadcast: root_ordinal {root_ordinal} is not among the replicas {list(ordinals)} of this replica's group")
    with torch.no_grad():
        if _uses_processes(groups):
            _processes.broadcast([tensor.detach() for tensor in tensors], root_ordinal, _processes.group_of(_members(groups)))
        else:
            for tensor, source in [(tensor, gather(tensor.detach(), groups)[ordinals.index(root_ordinal)]) for tensor in tensors]:
                tensor.copy_(source)


def broadcast_master_param(model: torch.nn.Module) -> None:
    """Copies the parameters and buffers of replica 0 to all replicas."""
    collective_broadcast([*model.parameters(), *model.buffers()])


def rendezvous(tag: str, payload: bytes = b"", replicas=()) -> list[bytes]:
    """Waits until all replicas, or those in `replicas`, arrive at `tag`, and returns their payloads. Raises
    RuntimeError if a replica is at another tag.
    """
    if replicas and _devices.replication() is not None and len(replicas) != _devices.xrt_world_size():
        raise ValueError(f"rendezvous: expected all replicas, as they are threads; got {list(replicas)}")
    arrived = gather((tag, payload), [list(replicas)] if replicas else None)
    others = sorted({other for other, _ in arrived if other != tag})
    if others:
        raise RuntimeError(f"rendezvous: this replica is at '{tag}', others at {', '.join(repr(other) for other in others)}")
    return [one for _, one in arrived]


def mesh_reduce(tag: str, data, reduce_fn):
    """Returns `reduce_fn` of the list of the data of all replicas. The data is pickled."""
    return reduce_fn([pickle.loads(one) for one in rendezvous(tag, pickle.dumps(data))])
