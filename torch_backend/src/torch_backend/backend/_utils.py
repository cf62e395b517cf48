"""The device type's name, and conversion of device arguments to devices."""

from __future__ import annotations

from typing import Optional, Union

import torch

from torch_backend import _C
from torch_backend._registry import type_name as name

Device = Optional[Union[torch.device, str, int]]  # a device argument; None is the current device

__all__ = ["Device", "current_device", "device_count", "existing_device", "existing_index", "name"]


def device_count() -> int:
    """Returns the number of devices; starts none."""
    return _C.device_count()


device_count._dynamo_marked_constant = True  # a constant to TorchDynamo: the device count never changes in a process


def current_device() -> int:
    """Returns the index of the calling thread's current device; starts none."""
    if torch.compiler.is_dynamo_compiling():
        # TorchDynamo guards on it; in eager mode it would start the device
        return torch.accelerator.current_device_index()
    return _C.current_device()


def _get_device_index(device, optional: bool = False, allow_cpu: bool = False) -> int:
    """Returns the index of `device` (an int, a string, a torch.device or None).

    None, and a device without an index, mean the current device if `optional`; the CPU is -1 if `allow_cpu`. The
    caller checks the range: torch.load calls this first and has its own error message for an index out of range.
    """
    if isinstance(device, bool):
        raise TypeError(f"expected an index, a string or a torch.device, got {device!r}")
    if isinstance(device, int):
        return device
    if isinstance(device, str):
        device = torch.device(device)
    if isinstance(device, torch.device):
        if allow_cpu and device.type == "cpu":
            return -1
        if device.type != name():
            raise ValueError(f"Expected a {name()} device, but got: {device}")
        if device.index is not None:
            return device.index
    elif device is not None:
        raise TypeError(f"expected an index, a string or a torch.device, got {device!r}")
    if not optional:
        raise ValueError(f"Expected a torch.device with a specified index or an integer, but got: {device}")
    return current_device()


def existing_index(device: Device) -> int:
    """Returns the index of `device`, the current device's for None. Raises RuntimeError for an index out of range."""
    index, count = _get_device_index(device, optional=True), device_count()
    if not 0 <= index < count:
        there = f"it has {count} ('{name()}:0' to '{name()}:{count - 1}')" if count else "it has none"
        raise RuntimeError(f"device index {index} is out of range: there is no '{name()}:{index}' in this process, {there}")
    return index


def existing_device(device: Device) -> torch.device:
    """Returns `device` as a torch.device with an index. Raises RuntimeError for an index out of range."""
    return torch.device(name(), existing_index(device))
