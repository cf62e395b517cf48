"""Automatic mixed precision: torch.amp with this device as the default."""

from __future__ import annotations

import torch

from ._utils import name


def get_amp_supported_dtype() -> list:
    """Gives the dtypes that torch.autocast may use."""
    return [torch.float16, torch.bfloat16]


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Tells whether tensors may be bfloat16."""
    return True


class autocast(torch.autocast):
    """torch.autocast for this device."""

    def __init__(self, dtype=None, enabled: bool = True, cache_enabled=None):
        super().__init__(name(), dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)


class GradScaler(torch.amp.GradScaler):
    """torch.amp.GradScaler for this device."""

    def __init__(self, *args, **kwargs):
        super().__init__(name(), *args, **kwargs)
