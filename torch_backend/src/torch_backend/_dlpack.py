"""DLPack for the renamed device type: torch 2.13 knows the type only by the name "privateuseone" (pytorch#195815), and a tensor that
somebody else is going to read must not be put off (lazy mode)."""

from __future__ import annotations

import functools

import torch
from torch.utils.dlpack import DLDeviceType

from . import _registry, lazy


def install() -> None:
    """Teaches `Tensor.__dlpack_device__` the device type; tensors of other types go torch's own way."""
    original = torch.Tensor.__dlpack_device__

    @functools.wraps(original)
    def __dlpack_device__(self):
        if type(self) is torch.Tensor and self.device.type == _registry.type_name():
            return (DLDeviceType.kDLExtDev, self.device.index)
        return original(self)

    export = torch.Tensor.__dlpack__

    @functools.wraps(export)
    def __dlpack__(self, *args, **options):
        if self.device.type == _registry.type_name():
            lazy.mark_step(self.device)  # the receiver may read the memory in its own way
        return export(self, *args, **options)

    torch.Tensor.__dlpack_device__ = __dlpack_device__
    torch.Tensor.__dlpack__ = __dlpack__
