"""Optimizers whose step needs no value on the host when a GradScaler scales the gradients: torch's fused ones. A step
with infinite gradients changes nothing on the device.
"""

from __future__ import annotations

import torch


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
