"""DLPack for the renamed device type.

torch 2.13 knows the type only by the name "privateuseone" (pytorch#195815). In lazy mode, deferred work that writes
a tensor must be queued before another library reads it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch.overrides import has_torch_function_unary
from torch.utils.dlpack import DLDeviceType

from . import _registry, lazy


def install(stream_of_handle: Callable[[int, torch.device], torch.Stream]) -> None:
    """Adds the device type to `Tensor.__dlpack_device__` and `Tensor.__dlpack__`. Tensors of other types use torch's
    methods.

    `stream_of_handle` returns the stream of a device with a native handle, 0 for the default one, or raises
    NotImplementedError.
    """
    original = torch.Tensor.__dlpack_device__

    @functools.wraps(original)
    def __dlpack_device__(self):
        if _is_ours(self):
            return (DLDeviceType.kDLExtDev, self.device.index)
        return original(self)

    export = torch.Tensor.__dlpack__

    @functools.wraps(export)
    def __dlpack__(self, *args, stream=None, **options):
        if _is_ours(self):
            lazy.mark_step(self.device)
            _order(self.device, stream, stream_of_handle)
        return export(self, *args, stream=stream, **options)

    torch.Tensor.__dlpack_device__ = __dlpack_device__
    torch.Tensor.__dlpack__ = __dlpack__


def _is_ours(tensor: torch.Tensor) -> bool:
    # A subclass with its own __torch_function__ takes precedence, in torch's method.
    return not has_torch_function_unary(tensor) and tensor.device.type == _registry.type_name()


def _order(device: torch.device, stream: int | None, stream_of_handle: Callable) -> None:
    """Makes the receiver's stream, a native handle, wait for the work of the current stream.

    None is the default stream, as in the Python array API; -1 requests no ordering.
    """
    if stream == -1:
        return
    if stream is not None and type(stream) is not int:
        raise TypeError(f"__dlpack__: expected a stream as an int or None, got {type(stream).__name__}")
    current = torch.accelerator.current_stream(device)
    receiver = stream_of_handle(stream or 0, device)
    if receiver != current:
        receiver.wait_event(current.record_event())
