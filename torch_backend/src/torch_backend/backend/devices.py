"""Functions that count, select and synchronize devices."""

from __future__ import annotations

import torch

from torch_backend import _C, _first_use

from ._utils import Device, _get_device_index, current_device, device_count, existing_device, existing_index, name

__all__ = [
    "can_device_access_peer", "current_device", "device", "device_count", "device_of", "enable_peer_access", "get_sync_debug_mode", "init", "ipc_collect", "is_available",
    "is_initialized", "set_device", "set_sync_debug_mode", "synchronize",
]  # fmt: skip

_fork_handler = False


def is_available() -> bool:
    """Returns whether there is a device; starts none."""
    return _C.device_count() > 0


is_available._dynamo_marked_constant = True  # a constant to TorchDynamo: the device count never changes in a process


def is_initialized() -> bool:
    """Returns whether a device has been used in this process."""
    return not _C.in_bad_fork() and any(_C.is_initialized(index) for index in range(_C.device_count()))


def _is_in_bad_fork() -> bool:
    return _C.in_bad_fork()


def init() -> None:
    """Initializes the current device. Functions that need a device call it automatically."""
    _lazy_init()


def _lazy_init() -> None:
    """Called by torch when a tensor is first created on the device."""
    global _fork_handler
    if _C.in_bad_fork():
        kind = name().upper()
        raise RuntimeError(
            f"Cannot re-initialize {kind} in forked subprocess. To use {kind} with multiprocessing, you must use the 'spawn' "
            "start method"
        )
    _C.initialize(_C.current_device())
    _first_use.run()
    if not _fork_handler:
        _C.register_fork_handler()
        _fork_handler = True


def set_device(device: Device) -> None:
    """Sets the calling thread's current device: an index, a string or a torch.device. A device without an index changes
    nothing.
    """
    index = _get_device_index(device, optional=True)
    if index >= 0:
        torch._C._accelerator_setDeviceIndex(index)


class device:
    """Context manager that changes the current device; None or a negative index changes nothing."""

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
    """Context manager that changes the current device to that of a tensor or storage. Objects on other device types
    change nothing.
    """

    def __init__(self, obj):
        super().__init__(obj.device.index if obj.device.type == name() else -1)


def synchronize(device: Device = None) -> None:
    """Waits for all work of a device; raises the error of work that failed."""
    if torch.compiler.is_dynamo_compiling():
        # In eager mode, torch skips a device that only C++ code has used
        torch.accelerator.synchronize(existing_device(device))
    else:
        _C.synchronize(existing_index(device))


def can_device_access_peer(device: Device, peer_device: Device) -> bool:
    """Returns whether a device accesses the memory of another one directly. False for a device and itself, as in
    torch.cuda.
    """
    index, peer = _get_device_index(device, optional=True), _get_device_index(peer_device)
    if not 0 <= index < _C.device_count():
        raise AssertionError("Invalid device id")
    if not 0 <= peer < _C.device_count():
        raise AssertionError("Invalid peer device id")
    return index != peer and _C.can_access_peer(index, peer)


def enable_peer_access(device: Device, peer_device: Device) -> None:
    """Lets kernels of a device access memory of another one. Copies between devices need no such call.

    Raises:
        NotImplementedError: the devices cannot access each other (`can_device_access_peer`).
    """
    _C.enable_peer(_get_device_index(device, optional=True), _get_device_index(peer_device))


_SYNC_DEBUG_MODES = ("default", "warn", "error")


def set_sync_debug_mode(debug_mode: int | str) -> None:
    """Sets the action for operators that make the host wait for a device, such as item() and copies to pageable memory.

    `debug_mode` is 0 or "default" (no action), 1 or "warn" (a warning), 2 or "error" (RuntimeError instead of the
    wait). Explicit waits such as `synchronize` are not reported.
    """
    known = debug_mode in _SYNC_DEBUG_MODES or (isinstance(debug_mode, int) and not isinstance(debug_mode, bool) and 0 <= debug_mode <= 2)
    if not known:
        raise ValueError(f"invalid value of debug_mode: {debug_mode!r}, expected one of `default`, `warn`, `error`, or 0, 1, 2")
    _C.set_sync_debug_mode(_SYNC_DEBUG_MODES.index(debug_mode) if isinstance(debug_mode, str) else debug_mode)


def get_sync_debug_mode() -> int:
    """Returns the mode that `set_sync_debug_mode` set, as a number."""
    return _C.sync_debug_mode()


def ipc_collect() -> None:
    """Releases the memory of tensors that were sent to other processes, if those have released it or have ended."""
    _C.collect_shared()
