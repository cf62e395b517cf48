"""Collectives of replicas: threads of one process exchange values at a meeting point, processes use torch.distributed. A group that has a backend for the
device, as that of xla_multiprocessing.spawn, moves the device's tensors; another one, such as Gloo's, moves copies in host memory."""

from __future__ import annotations

import functools
import pickle
import threading

import torch

from torch_backend._registry import device_name

from . import _devices

REDUCE_SUM, REDUCE_MUL, REDUCE_AND, REDUCE_OR, REDUCE_MIN, REDUCE_MAX = "sum", "mul", "and", "or", "min", "max"
_COMBINE = {
    REDUCE_SUM: torch.add, REDUCE_MUL: torch.mul, REDUCE_AND: torch.logical_and, REDUCE_OR: torch.logical_or, REDUCE_MIN: torch.minimum,
    REDUCE_MAX: torch.maximum,
}  # fmt: skip


class Replicas:
    """Threads that train together, each with its device: where they meet. Whoever has left, by an exception or at its end, is waited for by nobody."""

    def __init__(self, devices):
        self.devices = [str(device) for device in devices]
        self._values = [None] * len(self.devices)
        self._changed = threading.Condition()
        self._joined, self._arrived, self._meetings, self._left = set(), 0, 0, False

    def gather(self, value, take=None):
        """Everybody's value, in the order of the replicas, each by way of `take`. Raises RuntimeError when a replica has left."""
        try:
            self._values[_devices.context.index] = value
            self._meet()
            values = [take(one) if take else one for one in self._values]
            self._meet()  # nobody writes into its value, or gives the next one, before all have taken theirs
            return values
        except Exception:
            self.leave()
            raise

    def _meet(self) -> None:
        with self._changed:
            meeting = self._meetings
            self._arrived += 1
            if self._arrived == len(self.devices):
                self._arrived, self._meetings = 0, meeting + 1
                self._changed.notify_all()
            self._changed.wait_for(lambda: self._meetings != meeting or self._left)
            if self._meetings == meeting:
                raise RuntimeError(f"replica {_devices.context.index} of {len(self.devices)} waits for one that has failed or ended")

    def join(self, index: int) -> _Membership:
        """A replica begins; it leaves when the result is gone."""
        with self._changed:
            self._joined.add(index)
        return _Membership(self)

    def takes(self, index: int) -> bool:
        """Whether a replica may begin here: not again once one has left, but late, to learn of that."""
        with self._changed:
            return not self._left or index not in self._joined

    def leave(self) -> None:
        """Lets those who wait for this replica, now and later, go with an error."""
        with self._changed:
            self._left = True
            self._changed.notify_all()


class _Membership:
    """Held by a thread, whose values of its own go with it."""

    def __init__(self, replicas: Replicas):
        self.replicas = replicas

    def __del__(self):
        self.replicas.leave()


def set_replication(device, devices) -> None:
    """Makes the calling thread the replica on `device` of those on `devices`, which all threads of the group name in one order; the device becomes the thread's current one.
    An empty list ends that, as does the end of the thread: those who wait for it raise RuntimeError."""
    if not devices:
        _devices.context.replication = _devices.context.membership = None
        return
    names = devices.devices if isinstance(devices, Replicas) else [str(one) for one in devices]
    if str(device) not in names:
        raise ValueError(f"set_replication: device {device} is none of {names}")
    index = names.index(str(device))
    shared = devices if isinstance(devices, Replicas) else _replicas_of(names, index)
    if _devices.replication() is not shared:
        _devices.context.membership = shared.join(index)
    _devices.context.replication, _devices.context.index = shared, index
    _devices.xla_device()


_known: dict[tuple, Replicas] = {}
_lock = threading.Lock()


def _replicas_of(names, index: int) -> Replicas:
    """The same meeting point for all threads that name the same devices; a new one for a replica that begins anew."""
    names = tuple(names)
    with _lock:
        if names not in _known or not _known[names].takes(index):
            _known[names] = Replicas(names)
        return _known[names]


_groups: dict[tuple, torch.distributed.ProcessGroup] = {}
_world = None  # the default group that those of `_groups` belong to


def _process_group(members: tuple | None):
    """Returns torch.distributed's group of some processes, which only they create; None for all."""
    global _world
    if members is None:
        return None
    if _world is not torch.distributed.group.WORLD:  # the program has ended the default group and has another one
        _groups.clear()
        _world = torch.distributed.group.WORLD
    if members not in _groups:
        _groups[members] = torch.distributed.new_group(list(members), use_local_synchronization=True)
    return _groups[members]


def _moves_device_memory(value: torch.Tensor, group) -> bool:
    """Returns whether a collective of the group takes this tensor as it is."""
    if value.device.type == "cpu":
        return True
    types = (torch.distributed.group.WORLD if group is None else group)._device_types
    return torch.device(device_name()) in types


def _check_initialized() -> None:
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        raise RuntimeError(
            f"{_devices.xrt_world_size()} processes exchange values, but torch.distributed is not initialised: start them with "
            "xla_multiprocessing.spawn, or call torch.distributed.init_process_group()"
        )


def _members(groups) -> tuple | None:
    """The group of this replica, as numbers; None: all replicas."""
    if not groups:
        return None
    mine = _devices.get_ordinal()
    for group in groups:
        if mine in group:
            return tuple(group)
    raise ValueError(f"replica {mine} is in none of the groups {groups}")


def gather(value, groups=None) -> list:
    """Everybody's value, an object or a tensor, in the order of the group. Tensors arrive on this replica's device."""
    members = _members(groups)
    if _devices.replication() is not None:
        take = (lambda one: one.to(value.device, copy=True)) if isinstance(value, torch.Tensor) else None
        values = _devices.replication().gather(value, take)
        return values if members is None else [values[member] for member in members]
    if _devices.xrt_world_size() == 1:
        return [value]
    _check_initialized()
    group = _process_group(members)
    if isinstance(value, torch.Tensor):
        return _gather_tensors(value.detach(), group)
    values: list = [None] * torch.distributed.get_world_size(group)
    torch.distributed.all_gather_object(values, value, group=group)
    return values


def _gather_tensors(value: torch.Tensor, group) -> list:
    sent = (value if _moves_device_memory(value, group) else value.cpu()).contiguous()
    if sent.dtype == torch.bool:  # which Gloo does not move
        sent = sent.view(torch.uint8)
    count = torch.distributed.get_world_size(group)
    if sent.numel() == 0:  # Gloo refuses it too
        return [value.clone() for _ in range(count)]
    received = sent.new_empty((count * sent.numel(),))
    all_gather = getattr(torch.distributed, "all_gather_single", None) or torch.distributed.all_gather_into_tensor  # deprecated by torch 2.13
    all_gather(received, sent.view(-1), group=group)
    return [one.view(sent.shape).view(value.dtype).to(value.device) for one in received.chunk(count)]


def _alone(groups) -> bool:
    members = _members(groups)
    return (_devices.xrt_world_size() if members is None else len(members)) == 1


def _reduced(reduce_type: str, tensor: torch.Tensor, scale: float, groups) -> torch.Tensor:
    if reduce_type not in _COMBINE:
        raise ValueError(f"reduce_type: expected one of {', '.join(_COMBINE)}, got {reduce_type!r}")
    result = _combined(reduce_type, tensor.detach(), groups)
    return result if scale == 1.0 else result * scale


_REDUCTIONS = {
    REDUCE_SUM: torch.distributed.ReduceOp.SUM, REDUCE_MUL: torch.distributed.ReduceOp.PRODUCT, REDUCE_MIN: torch.distributed.ReduceOp.MIN,
    REDUCE_MAX: torch.distributed.ReduceOp.MAX,
} if torch.distributed.is_available() else {}  # fmt: skip


def _combined(reduce_type: str, tensor: torch.Tensor, groups) -> torch.Tensor:
    """Returns the combination in the order of the replicas: all have the same bits."""
    if _devices.replication() is None and reduce_type in _REDUCTIONS and tensor.dtype != torch.bool and not _alone(groups):
        _check_initialized()
        group = _process_group(_members(groups))
        if tensor.device.type != "cpu" and _moves_device_memory(tensor, group):
            result = tensor.clone(memory_format=torch.contiguous_format)
            torch.distributed.all_reduce(result, _REDUCTIONS[reduce_type], group=group)
            return result
    return functools.reduce(_COMBINE[reduce_type], gather(tensor, groups)).to(tensor.dtype)


def all_reduce(reduce_type: str, inputs, scale: float = 1.0, groups=None, cctx=None, pin_layout: bool = True):
    """Combines a tensor over replicas and gives the result; or a list of tensors, in place, and gives the list. `scale`: what the result is multiplied by.
    `groups`: lists of replicas that stay among themselves. One replica alone gets a copy of its tensor, or its list."""
    if isinstance(inputs, torch.Tensor):
        return inputs.clone() if _alone(groups) and scale == 1.0 else _reduced(reduce_type, inputs, scale, groups)
    if not _alone(groups) or scale != 1.0:
        with torch.no_grad():
            for tensor, result in [(tensor, _reduced(reduce_type, tensor, scale, groups)) for tensor in inputs]:
                tensor.copy_(result)
    return inputs


def all_gather(value: torch.Tensor, dim: int = 0, groups=None, output: torch.Tensor | None = None, pin_layout: bool = True) -> torch.Tensor:
    """Everybody's tensor, one behind the other along `dim`."""
    result = torch.cat(gather(value, groups), dim)
    return result if output is None else output.copy_(result)


def all_to_all(value: torch.Tensor, split_dimension: int, concat_dimension: int, split_count: int, groups=None, pin_layout: bool = True):
    """Splits a tensor in `split_count` equal parts, gives part i to replica i, and joins what arrives along `concat_dimension`."""
    tensors = gather(value, groups)
    if split_count != len(tensors) or value.size(split_dimension) % split_count:
        raise ValueError(
            f"all_to_all: {split_count} equal parts of size {value.size(split_dimension)} (dimension {split_dimension}) for {len(tensors)} replicas"
        )
    mine = _place(groups)
    return torch.cat([tensor.chunk(split_count, split_dimension)[mine] for tensor in tensors], concat_dimension)


def _place(groups) -> int:
    members = _members(groups)
    ordinal = _devices.get_ordinal()
    return ordinal if members is None else members.index(ordinal)


def reduce_scatter(
    reduce_type: str, input: torch.Tensor, scale: float, scatter_dim: int, shard_count: int, groups=None, output=None, pin_layout: bool = True
) -> torch.Tensor:
    """Combines a tensor over replicas and gives each its part of `shard_count` equal ones along `scatter_dim`."""
    members = _members(groups)
    count = _devices.xrt_world_size() if members is None else len(members)
    if shard_count != count or input.size(scatter_dim) % shard_count:
        raise ValueError(
            f"reduce_scatter: {shard_count} equal parts of size {input.size(scatter_dim)} (dimension {scatter_dim}) for {count} replicas"
        )
    result = _reduced(reduce_type, input, scale, groups).chunk(shard_count, scatter_dim)[_place(groups)].contiguous()
    return result if output is None else output.copy_(result)


def collective_permute(value: torch.Tensor, pairs) -> torch.Tensor:
    """The tensor of the replica that `pairs` of (source, target) name for this one; zeros when they name none."""
    tensors = gather(value)
    sources = [source for source, target in pairs if target == _devices.get_ordinal()]
    if len(sources) > 1:
        raise ValueError(f"collective_permute: replica {_devices.get_ordinal()} is the target of several sources, {sources}")
    return tensors[sources[0]].clone() if sources else torch.zeros_like(value)


def collective_broadcast(tensors, root_ordinal: int = 0, groups=None, pin_layout: bool = True) -> None:
    """Copies the tensors of a replica into everybody's."""
    members = _members(groups)
    root = root_ordinal if members is None else members.index(root_ordinal)
    with torch.no_grad():
        for tensor, source in [(tensor, gather(tensor.detach(), groups)[root]) for tensor in tensors]:
            tensor.copy_(source)


def broadcast_master_param(model: torch.nn.Module) -> None:
    """Gives all replicas the parameters and buffers of replica 0."""
    collective_broadcast([*model.parameters(), *model.buffers()])


def rendezvous(tag: str, payload: bytes = b"", replicas=()) -> list[bytes]:
    """Waits for all replicas (or those of `replicas`) to arrive at `tag`, and gives everybody's payload. Raises RuntimeError when one is at another tag."""
    if replicas and _devices.replication() is not None and len(replicas) != _devices.xrt_world_size():
        raise ValueError(f"rendezvous: threads meet all of them, or none, not {list(replicas)}")
    arrived = gather((tag, payload), [list(replicas)] if replicas else None)
    others = sorted({other for other, _ in arrived if other != tag})
    if others:
        raise RuntimeError(f"rendezvous: this replica is at '{tag}', others at {', '.join(repr(other) for other in others)}")
    return [one for _, one in arrived]


def mesh_reduce(tag: str, data, reduce_fn):
    """`reduce_fn` of the list of everybody's data, which is pickled."""
    return reduce_fn([pickle.loads(one) for one in rendezvous(tag, pickle.dumps(data))])
