"""Devices of the type "lazy", and the number of this process, or of this thread if threads are replicas."""

from __future__ import annotations

import os
import re
import threading

import torch

from torch_backend import lazy
from torch_backend._registry import device_name

# State of a thread that is a replica. replication: its group (_replicas.Replicas); index: its number in the group;
# membership: an object whose destruction at the end of the thread ends the membership.
context = threading.local()


def replication():
    """Returns the group of replicas of this thread, or None if the thread is not a replica."""
    return getattr(context, "replication", None)


def _of_group(function: str):
    """Returns the result of a function of torch.distributed, or None if it is not initialized."""
    group = torch.distributed
    return getattr(group, function)() if group.is_available() and group.is_initialized() else None


def _first(*values):
    return next(int(value) for value in values if value is not None)


def xrt_world_size(defval: int = 1) -> int:
    """Returns the number of replicas that train together: the number of threads of a replication, else of processes of
    torch.distributed, else XRT_SHARD_WORLD_SIZE or WORLD_SIZE of the environment, else `defval`.
    """
    if replication() is not None:
        return len(replication().devices)
    return _first(_of_group("get_world_size"), os.environ.get("XRT_SHARD_WORLD_SIZE"), os.environ.get("WORLD_SIZE"), defval)


def get_ordinal(defval: int = 0) -> int:
    """Returns this replica's number among all replicas: that of the thread or of torch.distributed, else
    XRT_SHARD_ORDINAL or RANK, else `defval`.
    """
    if replication() is not None:
        return context.index
    return _first(_of_group("get_rank"), os.environ.get("XRT_SHARD_ORDINAL"), os.environ.get("RANK"), defval)


def get_local_ordinal(defval: int = 0) -> int:
    """Returns this replica's number among those of its host: that of the thread, else XRT_SHARD_LOCAL_ORDINAL or
    LOCAL_RANK, else `get_ordinal`.
    """
    if replication() is not None:
        return context.index
    local = os.environ.get("XRT_SHARD_LOCAL_ORDINAL", os.environ.get("LOCAL_RANK"))
    return get_ordinal(defval) if local is None else int(local)


def is_master_ordinal(local: bool = True) -> bool:
    """Returns whether this replica writes files and messages: number 0 of its host (`local`), or of all hosts."""
    return (get_local_ordinal() if local else get_ordinal()) == 0


def is_xla_tensor(tensor: torch.Tensor) -> bool:
    """Returns whether a tensor is on a device of the type "lazy"."""
    return tensor.device.type == "lazy"


def check_view_sharing(*_) -> None:
    """Does nothing: views share memory, as on every other device."""


def get_xla_supported_devices(devkind: str | None = None, max_devices: int | None = None) -> list[str]:
    """Returns the names of the devices of the loaded plugins, "lazy:0", "lazy:1" and so on, at most `max_devices`. With
    `devkind`, returns an empty list unless the device type has that name, ignoring case.
    """
    lazy.device.enable()
    if devkind is not None and devkind.lower() != device_name().lower():
        return []
    return [f"lazy:{index}" for index in range(torch.accelerator.device_count())][:max_devices]


def xla_device(n: int | None = None, devkind: str | None = None) -> torch.device:
    """Returns "lazy:n", and makes it the thread's current device. n None: this replica's own device, or the one with
    this process's number among those of its host.

    Raises RuntimeError ("Lazy tensor backend not registered.") without a plugin, AssertionError if there is no
    device of that kind, and IndexError if n is out of range.
    """
    devices = get_xla_supported_devices(devkind)
    assert devices, f"No devices of {devkind or device_name()} kind"
    if n is None and replication() is not None:
        index = torch.device(replication().devices[context.index]).index
    else:
        index = get_local_ordinal() % len(devices) if n is None else n
    if not 0 <= index < len(devices):
        raise IndexError(f"lazy:{n}: there are {len(devices)} devices, numbered from 0")
    torch.accelerator.set_device_index(index)
    return torch.device("lazy", index)


def _number(device) -> int:
    """Returns the N of "lazy:N"."""
    found = re.fullmatch(r"(lazy|xla)(?::(\d+))?", str(device))
    if not found:
        raise RuntimeError(f"Invalid device format: {device}")
    return int(found[2]) if found[2] else torch.accelerator.current_device_index()


def _ordinal(real: str) -> int:
    return int(real.split(":")[1])


def xla_device_hw(device: torch.device | str) -> str:
    """Returns the kind of hardware of a device: the name of the device type, in capitals."""
    return xla_real_devices([device])[0].split(":")[0]


def xla_real_devices(devices=None) -> list[str]:
    """Returns the hardware names of devices, such as "FAKE:1" for "lazy:1"; default: all devices. A hardware name is
    returned unchanged. Raises RuntimeError ("Invalid device format: ...") for any other text.
    """
    kind = device_name().upper()
    devices = get_xla_supported_devices() if devices is None else devices
    return [str(device) if re.fullmatch(r"[A-Z][A-Z0-9_]*:\d+", str(device)) else f"{kind}:{_number(device)}" for device in devices]


def xla_replication_devices(local_devices) -> list[str]:
    """Returns the hardware names of the devices of all replicas, sorted, if the replicas of this process run on
    `local_devices`: all devices of the kind, or one in each process. Raises RuntimeError for devices of several
    kinds, or for fewer devices than this process has.
    """
    real = xla_real_devices(local_devices)
    kinds = {device.split(":")[0] for device in real}
    if len(kinds) != 1:
        raise RuntimeError(f"Cannot replicate across different device types: devices={local_devices}/{real}")
    kind = kinds.pop()
    processes = _of_group("get_world_size") or 1
    if processes > 1 and len(real) == 1:
        return [f"{kind}:{rank}" for rank in range(processes)]
    present = [device for device in xla_real_devices() if device.split(":")[0] == kind]
    if len(present) != len(real):
        raise RuntimeError(f"Cannot replicate if number of devices ({len(real)}) is different from {len(present)}")
    return sorted(present, key=_ordinal)
