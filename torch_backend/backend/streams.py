"""Streams and events are torch's generic ones; here is what torch.<name> adds."""

from __future__ import annotations

import torch
from torch import Event, Stream

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
