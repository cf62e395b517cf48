"""Streams and events. They are torch's generic ones; this module adds the features that only torch.cuda has, such as
interprocess events.
"""

from __future__ import annotations

import contextlib

import torch
from torch import Stream

from torch_backend import _C

from ._utils import Device, existing_device, existing_index, name

__all__ = [
    "Event", "ExternalStream", "Stream", "StreamContext", "current_stream", "default_stream", "get_stream_from_external", "set_stream", "stream",
]  # fmt: skip

_TYPE = int(torch._C._autograd.DeviceType.PrivateUse1)


def current_stream(device: Device = None) -> Stream:
    """Returns the calling thread's current stream of a device."""
    return torch.accelerator.current_stream(existing_device(device))


def default_stream(device: Device = None) -> Stream:
    """Returns the default stream of a device, whose id is 0."""
    return Stream(stream_id=0, device_index=existing_index(device), device_type=_TYPE)


def set_stream(stream: Stream | None) -> None:
    """Makes a stream and its device current; None changes nothing. Prefer the context manager `stream`."""
    if stream is not None:
        torch.accelerator.set_stream(stream)


def get_stream_from_external(data_ptr: int, device: Device = None) -> Stream:
    """Returns the stream of a device whose `native_handle` is `data_ptr`, as passed to another library; 0 is the
    default stream.

    Raises:
        NotImplementedError: no stream of this process has the handle. Plugins cannot wrap a stream that another
        library created.
    """
    index = existing_index(device)
    number = _C.stream_of_native(index, data_ptr)
    if number is None:
        raise NotImplementedError(
            f"'{name()}:{index}' has no stream with the native handle {data_ptr:#x}: a plugin cannot wrap a stream that another library "
            f"created. Create the stream with torch.{name()}.Stream() and pass its native_handle to the library."
        )
    return Stream(stream_id=number, device_index=index, device_type=_TYPE)


class ExternalStream:
    """Returns the stream with a native handle: `get_stream_from_external`, with the name and parameters of torch.cuda."""

    def __new__(cls, stream_ptr: int, device: Device = None, **kwargs) -> Stream:
        return get_stream_from_external(stream_ptr, device)


def _sleep(cycles: int) -> None:
    """Queues a delay of `cycles` nanoseconds (cycles of a clock of 1 GHz) on the current stream; for tests."""
    if cycles < 0:
        raise ValueError(f"_sleep: expected a number of cycles of 0 or more, got {cycles}")
    _C.sleep_on_stream(existing_index(None), cycles)


@contextlib.contextmanager
def owned_stream():
    """Context manager that returns a stream of the current device. No other caller gets it until the end of the context."""
    index = existing_index(None)
    number = _C.take_stream(index)
    try:
        yield Stream(stream_id=number, device_index=index, device_type=_TYPE)
    finally:
        _C.give_back_stream(index, number)


class _AnyEvent(type(torch.Event)):
    def __instancecheck__(cls, instance) -> bool:
        return isinstance(instance, torch.Event)


class Event(torch.Event, metaclass=_AnyEvent):
    """Creates a torch.Event with the parameters of torch.cuda.Event.

    Args:
        device: the event's device, which may also be the first argument, as of torch.Event; by default that of the
        stream that records it first.
        interprocess: other processes may wait for the event, if the device's plugin shares events; it does not
        support timing.
        external: in a captured graph, each replay records the event or waits for it, to synchronize with streams
        outside of the graph. The wait comes before all work of the graph, the record after all of it, without
        timing.

    Interprocess and external events belong to their device, by default the current one, from the beginning.
    """

    def __new__(
        cls,
        enable_timing: bool | Device = False,
        blocking: bool = False,
        interprocess: bool = False,
        external: bool = False,
        *,
        device: Device = None,
    ):
        if not isinstance(enable_timing, (bool, int)):
            enable_timing, device = False, enable_timing
        if not interprocess:  # torch measures times of its own class only
            where = existing_device(device) if external else name() if device is None else device
            event = torch.Event(where, enable_timing=bool(enable_timing), blocking=blocking)
            if external:
                _C.make_external_event(event, where.index, bool(enable_timing), blocking)
            return event
        if external:
            raise ValueError("an event is either external or interprocess; leave out one of them")
        if enable_timing:
            raise ValueError("interprocess events do not support timing; pass enable_timing=False, or leave out interprocess=True")
        index = existing_index(device)
        event = torch.Event.__new__(cls, torch.device(name(), index))
        _C.share_event(event, index, blocking)
        return event

    def ipc_handle(self) -> bytes:
        """Returns the handle that `from_ipc_handle` opens in another process; valid as long as this event exists."""
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
    """Returns a context manager that makes a stream current."""
    if torch.compiler.is_dynamo_compiling():
        # TorchDynamo recognizes streams as context managers
        return contextlib.nullcontext() if stream is None else stream
    return StreamContext(stream)
