"""Streams and events are torch's generic ones; here is what torch.<name> adds, events between processes among it."""

from __future__ import annotations

import torch
from torch import Stream

from torch_backend import _C

from ._utils import Device, existing_index, name

__all__ = ["Event", "Stream", "StreamContext", "current_stream", "default_stream", "set_stream", "stream"]


def _device(device) -> torch.device:
    return torch.device(name(), existing_index(device))


def current_stream(device: Device = None) -> Stream:
    """Gives the calling thread's current stream of a device."""
    return torch.accelerator.current_stream(_device(device))


def default_stream(device: Device = None) -> Stream:
    """Gives the default stream of a device, whose id is 0."""
    kind = int(torch._C._autograd.DeviceType.PrivateUse1)
    return Stream(stream_id=0, device_index=existing_index(device), device_type=kind)


def set_stream(stream: Stream | None) -> None:
    """Makes a stream current, and its device too; None changes nothing. Prefer the context manager `stream`."""
    if stream is not None:
        torch.accelerator.set_stream(stream)


class _AnyEvent(type(torch.Event)):
    def __instancecheck__(cls, instance) -> bool:
        return isinstance(instance, torch.Event)


class Event(torch.Event, metaclass=_AnyEvent):
    """Makes a torch.Event; with `interprocess=True`, where the device's plugin shares events, one that other processes may wait for.

    Such an event belongs to `device`, or to the current device, from the beginning, and has no times.
    """

    def __new__(cls, device=None, *, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False):
        if not interprocess:  # torch takes the times of its own class alone
            return torch.Event(name() if device is None else device, enable_timing=enable_timing, blocking=blocking)
        if enable_timing:
            raise ValueError("an event that processes share has no times: make it with enable_timing=False, or without interprocess")
        index = existing_index(device)
        event = torch.Event.__new__(cls, torch.device(name(), index))
        _C.share_event(event, index, blocking)
        return event

    def ipc_handle(self) -> bytes:
        """Gives what `from_ipc_handle` opens in another process; good as long as this event lives."""
        return _C.event_handle(self)

    @classmethod
    def from_ipc_handle(cls, device: Device, handle: bytes) -> Event:
        """Opens an event of another process on the same device."""
        index = existing_index(device)
        event = torch.Event.__new__(cls, torch.device(name(), index))
        _C.open_event(event, index, bytes(handle))
        return event


class StreamContext:
    """Context manager that makes a stream current, with its device, and restores both; None changes nothing."""

    def __init__(self, stream: Stream | None):
        self.stream = stream

    def __enter__(self) -> None:
        if self.stream is not None:
            self._device_before = torch.accelerator.current_device_index()
            self._stream_before = torch.accelerator.current_stream(self.stream.device)
            torch.accelerator.set_stream(self.stream)

    def __exit__(self, *_) -> None:
        if self.stream is not None:
            torch.accelerator.set_stream(self._stream_before)
            torch.accelerator.set_device_index(self._device_before)


def stream(stream: Stream | None) -> StreamContext:
    """Gives a context manager that makes a stream current."""
    return StreamContext(stream)
