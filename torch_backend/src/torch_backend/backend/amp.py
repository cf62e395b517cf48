"""Automatic mixed precision: torch.amp with this device as the default."""

from __future__ import annotations

import torch

from ._utils import name
from .devices import is_available

__all__ = ["GradScaler", "amp_definitely_not_available", "autocast", "custom_bwd", "custom_fwd", "get_amp_supported_dtype", "is_bf16_supported"]


def amp_definitely_not_available() -> bool:
    """Returns whether there is no device."""
    return not is_available()


def get_amp_supported_dtype() -> list:
    """Returns the dtypes that torch.autocast may use."""
    return [torch.float16, torch.bfloat16]


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Returns whether tensors may be bfloat16."""
    return True


class autocast(torch.autocast):
    """torch.autocast for this device, with the parameters of torch.cuda.amp.autocast; dtype None: torch.get_autocast_dtype."""

    def __init__(self, enabled: bool = True, dtype: torch.dtype | None = None, cache_enabled: bool | None = None):
        super().__init__(name(), dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)


class GradScaler(torch.amp.GradScaler):
    """torch.amp.GradScaler for this device."""

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ):
        super().__init__(name(), init_scale, growth_factor, backoff_factor, growth_interval, enabled)


def custom_fwd(fwd=None, *, cast_inputs: torch.dtype | None = None):
    """torch.amp.custom_fwd for this device: decorates the `forward` of a torch.autograd.Function."""
    return torch.amp.custom_fwd(fwd, device_type=name(), cast_inputs=cast_inputs)


def custom_bwd(bwd=None):
    """torch.amp.custom_bwd for this device: decorates the `backward` of a torch.autograd.Function."""
    return torch.amp.custom_bwd(bwd, device_type=name())
