"""Collectives of replicas that are processes, by torch.distributed.

If the group has a backend for the device, its collectives run on the device's tensors. Other groups, such as a group
with only Gloo, run them on copies in host memory.
"""

from __future__ import annotations

import contextlib

import torch
import torch.distributed as dist

from torch_backend._registry import device_name

from . import _devices

_groups: dict[tuple, object] = {}
_world = None  # the default group to which the groups of `_groups` belong


def group_of(members: tuple | None):
    """Returns the process group of some processes, which only they create. For None returns None, torch's value for the
    default group.
    """
    global _world
    _check_initialized()
    if members is None:
        return None
    if _world is not dist.group.WORLD:  # the program destroyed the default group and created another one
        _groups.clear()
        _world = dist.group.WORLD
    if members not in _groups:
        _groups[members] = dist.new_group(list(members), use_local_synchronization=True)
    return _groups[members]


def _check_initialized() -> None:
    if not (dist.is_available() and dist.is_initialized()):
        raise RuntimeError(
            f"a collective of {_devices.xrt_world_size()} processes needs torch.distributed, which is not initialized: start them with "
            "xla_multiprocessing.spawn, or call torch.distributed.init_process_group()"
        )


def runs_on_device(tensor: torch.Tensor, group) -> bool:
    """Returns whether the group has a backend for the tensor's device, which is not the CPU."""
    types = (dist.group.WORLD if group is None else group)._device_types
    return tensor.device.type != "cpu" and torch.device(device_name()) in types


def _operand(tensor: torch.Tensor, group) -> torch.Tensor:
    """Returns the tensor in the form that a collective of the group reads, or a copy of it: contiguous, and not bool,
    which Gloo does not support.
    """
    sent = (tensor if runs_on_device(tensor, group) else tensor.cpu()).contiguous()
    return sent.view(torch.uint8) if sent.dtype == torch.bool else sent


def _result(received: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Converts the result of a collective to the dtype and the device of its input."""
    return received.view(like.dtype).to(like.device)


def gather_objects(value, group) -> list:
    values: list = [None] * dist.get_world_size(group)
    dist.all_gather_object(values, value, group=group)
    return values


def gather(tensor: torch.Tensor, group) -> list[torch.Tensor]:
    """Returns the tensors of all ranks."""
    count = dist.get_world_size(group)
    if tensor.numel() == 0:  # Gloo rejects empty tensors
        return [tensor.clone() for _ in range(count)]
    sent = _operand(tensor, group)
    received = sent.new_empty((count * sent.numel(),))
    dist.all_gather_single(received, sent.view(-1), group=group)
    return [_result(one.view(sent.shape), tensor) for one in received.chunk(count)]


def exchange(parts: torch.Tensor, group) -> torch.Tensor:
    """Sends part i of the first dimension to rank i. Returns the received parts, in the order of the ranks."""
    if parts.numel() == 0:
        return parts.clone()
    sent = _operand(parts, group)
    received = torch.empty_like(sent)
    dist.all_to_all_single(received, sent, group=group)
    return _result(received, parts)


def _bracket(tensor: torch.Tensor):
    """Returns a context in which messages of the default group are one call of the device's backend.

    torch.distributed.batch_isend_irecv does the same, but does not accept tensors of the type "lazy".
    """
    if not runs_on_device(tensor, None):
        return contextlib.nullcontext()
    return dist._coalescing_manager(device=torch.device(device_name()), async_ops=True)


def permute(tensor: torch.Tensor, source: int | None, targets: list[int]) -> torch.Tensor | None:
    """Sends the tensor to the ranks `targets`. Returns the tensor of rank `source`, or None if there is no source."""
    mine = _devices.get_ordinal()
    if tensor.numel() == 0:
        return None if source is None else tensor.clone()
    sent = _operand(tensor, group_of(None))
    received = None if source in (None, mine) else torch.empty_like(sent)
    others = [target for target in targets if target != mine]
    if others or received is not None:
        with _bracket(tensor) as bracket:
            works = [dist.isend(sent, target) for target in others]
            works += [] if received is None else [dist.irecv(received, source)]
        for work in [bracket] if bracket else works:
            work.wait()
    if source == mine:
        return tensor.clone()
    return None if received is None else _result(received, tensor)


def broadcast(tensors, root: int, group) -> None:
    """Copies the tensors of rank `root` of the default group into those of the group's other ranks."""
    pending = []
    for tensor in tensors:
        if tensor.numel():
            moved = _operand(tensor, group)
            pending.append((tensor, moved, dist.broadcast(moved, root, group=group, async_op=True)))
    for tensor, moved, work in pending:
        work.wait()
        if moved.data_ptr() != tensor.data_ptr() and dist.get_rank() != root:
            tensor.copy_(_result(moved, tensor))


_REDUCTIONS = {"sum": "SUM", "mul": "PRODUCT", "min": "MIN", "max": "MAX", "and": "BAND", "or": "BOR"}
# For bytes that are 0 or 1
_REDUCTIONS_OF_BOOL = {"sum": "MAX", "or": "MAX", "max": "MAX", "mul": "MIN", "and": "MIN", "min": "MIN"}


def _reduction(reduce_type: str, dtype: torch.dtype):
    names = _REDUCTIONS_OF_BOOL if dtype == torch.bool else _REDUCTIONS
    return getattr(dist.ReduceOp, names[reduce_type])


def all_reduce(reduce_type: str, tensor: torch.Tensor, group) -> torch.Tensor:
    result = tensor.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(_operand(result, group), _reduction(reduce_type, tensor.dtype), group=group)
    return result


def reduce_scatter(reduce_type: str, parts: torch.Tensor, group) -> torch.Tensor:
    """Returns this rank's part of the reduction of `parts`, whose first dimension is the rank."""
    sent = _operand(parts, group)
    received = sent.new_empty(sent.shape[1:])
    if sent.numel():
        dist.reduce_scatter_single(received, sent, _reduction(reduce_type, parts.dtype), group=group)
    return received.view(parts.dtype)
