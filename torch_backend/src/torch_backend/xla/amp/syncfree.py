"""Optimizers whose step needs no value on the host when a GradScaler scales the gradients: torch's fused ones. A step
with infinite gradients changes nothing on the device.
"""

from __future__ import annotations

import torch
from torch.optim import optimizer as _torch_optimizer

_of_torch = getattr(_torch_optimizer, "_get_fused_kernels_supported_devices", None)


def _supported_devices() -> list[str]:
    """Returns the device types of torch's fused optimizers, and "lazy", whose fused operators are those of its device."""
    return [*_of_torch(), "lazy"]


if _of_torch is not None:
    _torch_optimizer._get_fused_kernels_supported_devices = _supported_devices


class SGD(torch.optim.SGD):
    """`torch.optim.SGD(fused=True)`."""

    def __init__(self, params, *args, **kwargs):
        super().__init__(params, *args, **{**kwargs, "fused": True})


class Adam(torch.optim.Adam):
    """`torch.optim.Adam(fused=True)`."""

    def __init__(self, params, *args, **kwargs):
        super().__init__(params, *args, **{**kwargs, "fused": True})


class AdamW(torch.optim.AdamW):
    """`torch.optim.AdamW(fused=True)`."""

    def __init__(self, params, *args, **kwargs):
        super().__init__(params, *args, **{**kwargs, "fused": True})


__all__ = ["SGD", "Adam", "AdamW"]
