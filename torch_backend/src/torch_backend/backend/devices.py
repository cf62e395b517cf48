"""Devices: counting, choosing, describing, waiting for them."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from torch_backend import _C

from ._utils import Device, _get_device_index, existing_index, name

_fork_handler = False


def is_available() -> bool:
    """Tells whether there is a device; starts none."""
    return _C.device_count() > 0


def device_count() -> int:
    """Counts the devices; starts none."""
    return _C.device_count()


# TorchDynamo puts them into the graph as constants: device ranges never change in a process.
is_available._dynamo_marked_constant = device_count._dynamo_marked_constant = True


def is_initialized() -> bool:
    """Tells whether a device has been used in this process."""
    return not _C.in_bad_fork() and any(_C.is_initialized(index) for index in range(_C.device_count()))


def _is_in_bad_fork() -> bool:
    return _C.in_bad_fork()


def init() -> None:
    """Initialises the current device; every function that needs a device does so by itself."""
    _lazy_init()


def _lazy_init() -> None:
    """torch calls this when a tensor is first made on the device."""
    global _fork_handler
    if _C.in_bad_fork():
        kind = name().upper()
        raise RuntimeError(
            f"Cannot re-initialize {kind} in forked subprocess. To use {kind} with multiprocessing, you must use the 'spawn' "
            "start method"
        )
    _C.initialize(_C.current_device())
    if not _fork_handler:
        _C.register_fork_handler()
        _fork_handler = True


def current_device() -> int:
    """Gives the index of the calling thread's current device."""
    return _C.current_device()


def set_device(device: Device) -> None:
    """Sets the calling thread's current device: an index, a string or a torch.device; without an index nothing changes."""
    index = _get_device_index(device, optional=True)
    if index >= 0:
        torch._C._accelerator_setDeviceIndex(index)


class device:
    """Context manager that changes the current device; None or a negative index change nothing."""

    def __init__(self, device: Device):
        self.idx = _get_device_index(device, optional=True)
        self.prev_idx = -1

    def __enter__(self) -> None:
        if self.idx >= 0:
            self.prev_idx = torch._C._accelerator_exchangeDevice(self.idx)

    def __exit__(self, *_) -> bool:
        if self.prev_idx >= 0:
            _C.exchange_device(self.prev_idx)
        return False


class device_of(device):
    """Context manager that changes the current device to that of a tensor or storage; of other devices, changes nothing."""

    def __init__(self, obj):
        super().__init__(obj.device.index if obj.device.type == name() else -1)


def synchronize(device: Device = None) -> None:
    """Waits for all work of a device; raises what failed on it."""
    _C.synchronize(existing_index(device))


@dataclass(frozen=True)
class DeviceProperties:
    """What a device says about itself. Sizes are in bytes, 0 where unknown."""

    name: str
    total_memory: int
    multi_processor_count: int
    warp_size: int
    max_threads_per_block: int
    shared_memory_per_block: int
    dialects: str = field(default="")
    uuid: bytes = field(default=b"", repr=False)
    flags: int = field(default=0, repr=False)


def get_device_properties(device: Device = None) -> DeviceProperties:
    """Describes a device."""
    return DeviceProperties(**_C.device_properties(existing_index(device)))


def get_device_name(device: Device = None) -> str:
    """Gives a device's name."""
    return get_device_properties(device).name


def get_device_capability(device: Device = None) -> dict:
    """Gives what tensors of a device may be, as torch.accelerator.get_device_capability."""
    return torch.accelerator.get_device_capability(torch.device(name(), existing_index(device)))


def can_device_access_peer(device: Device, peer_device: Device) -> bool:
    """Tells whether a device reads and writes the memory of another one directly; False of a device and itself, as of torch.cuda."""
    index, peer = _get_device_index(device, optional=True), _get_device_index(peer_device)
    if not 0 <= index < _C.device_count():
        raise AssertionError("Invalid device id")
    if not 0 <= peer < _C.device_count():
        raise AssertionError("Invalid peer device id")
    return index != peer and _C.can_access_peer(index, peer)
