"""Devices of the type "lazy", steps, and saving from them."""

from __future__ import annotations

import sys

import torch
from torch.utils import _pytree

from torch_backend import lazy
from torch_backend._activation import device_name

_closures: list = []


def _world(function, defval):
    group = torch.distributed
    return getattr(group, function)() if group.is_available() and group.is_initialized() else defval


def lrt_world_size(defval: int = 1) -> int:
    """The number of processes that train together: torch.distributed's where it is initialised, else `defval`."""
    return _world("get_world_size", defval)


def get_ordinal(defval: int = 0) -> int:
    """This process's number among them."""
    return _world("get_rank", defval)


def get_local_ordinal(defval: int = 0) -> int:
    """This process's number; all processes are taken to be of one host."""
    return get_ordinal(defval)


def is_master_ordinal(local: bool = True) -> bool:
    """Tells whether this process is the one that writes files and messages."""
    return (get_local_ordinal() if local else get_ordinal()) == 0


def master_print(*args, fd=None, local: bool = False, flush: bool = False) -> None:
    """Prints in the master process alone; `fd`: sys.stdout by default."""
    if is_master_ordinal(local=local):
        print(*args, file=fd or sys.stdout, flush=flush)


def is_lazy_tensor(tensor: torch.Tensor) -> bool:
    """Tells whether a tensor is on a device of the type "lazy"."""
    return tensor.device.type == "lazy"


def get_lazy_supported_devices(devkind: str | None = None, max_devices: int | None = None) -> list[str]:
    """The devices "lazy:0", "lazy:1" ... of the loaded plugins; `devkind`: only when their device type has that name, in any case."""
    lazy.device.enable()
    if devkind is not None and devkind.lower() != device_name().lower():
        return []
    return [f"lazy:{index}" for index in range(torch.accelerator.device_count())][:max_devices]


def lazy_device(n: int | None = None, devkind: str | None = None) -> torch.device:
    """Gives "lazy:n" and makes it the current device; n None: the first one of `devkind`.
    Raises RuntimeError ("Lazy tensor backend not registered.") without a plugin, AssertionError when there is no device of that kind, IndexError
    for a number beyond the last."""
    devices = get_lazy_supported_devices(devkind)
    assert devices, f"No devices of {devkind or device_name()} kind"
    index = 0 if n is None else n
    if not 0 <= index < len(devices):
        raise IndexError(f"lazy:{n}: there are {len(devices)} devices, numbered from 0")
    torch.accelerator.set_device_index(index)
    return torch.device("lazy", index)


def lazy_device_hw(device: torch.device | str) -> str:
    """The kind of hardware of a lazy device: the name of our device type, in capitals."""
    return device_name().upper()


def mark_step(wait: bool = False) -> None:
    """Queues what was put off on all devices, then runs the closures of the step. `wait`: until it is done."""
    lazy.mark_step(wait=wait)
    while _closures:
        closure, args = _closures.pop(0)
        closure(*args)


def wait_device_ops(devices=()) -> None:
    """Queues what was put off on devices ("lazy:0" ...; none: all) and waits for it."""
    for device in devices or [None]:
        lazy.mark_step(device, wait=True)


def add_step_closure(closure, args=()) -> None:
    """Has `closure(*args)` called by the next mark_step: to print values without a step of their own."""
    _closures.append((closure, tuple(args)))


def optimizer_step(optimizer, barrier: bool = False, optimizer_args=None):
    """Runs `optimizer.step(**optimizer_args)` and gives its value; `barrier`: marks a step behind it. Processes that train together are refused:
    gradients of the type are not reduced yet."""
    if lrt_world_size() > 1:
        raise NotImplementedError("optimizer_step over several processes: distributed training of lazy tensors is not there yet")
    loss = optimizer.step(**(optimizer_args or {}))
    if barrier:
        mark_step()
    return loss


def _to_cpu(data):
    """The same structure with its lazy tensors on the CPU, queued together."""
    mark_step()
    return _pytree.tree_map(lambda value: value.cpu() if isinstance(value, torch.Tensor) and is_lazy_tensor(value) else value, data)


def save(data, file_or_path, master_only: bool = True, global_master: bool = False) -> None:
    """Saves nested data with its lazy tensors as CPU tensors, by torch.save: in the master process alone, or in all (`master_only=False`)."""
    if not master_only or is_master_ordinal(local=not global_master):
        torch.save(_to_cpu(data), file_or_path)


def get_memory_info(device: torch.device | str | None = None) -> dict[str, int]:
    """`kb_total` and `kb_free` of a device's memory, in KiB."""
    index = torch.device(device).index if device is not None else None
    free, total = torch.get_device_module(device_name()).mem_get_info(index)
    return {"kb_total": total // 1024, "kb_free": free // 1024}


def set_rng_state(seed: int, device=None) -> None:
    """Seeds the generator of a device."""
    torch.get_device_module(device_name()).manual_seed(seed)


def get_rng_state(device=None) -> int:
    """The seed of the current device's generator."""
    return torch.get_device_module(device_name()).initial_seed()
