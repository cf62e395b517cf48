"""Automatic mixed precision on devices of the type "lazy", under torch_xla's names."""

from __future__ import annotations

import torch

from . import syncfree


class autocast(torch.amp.autocast_mode.autocast):
    """`torch.autocast` for a device of the type "lazy": `with autocast(device):`. The dtype is bfloat16 by default."""

    def __init__(self, device: torch.device | str = "lazy", enabled: bool = True, dtype: torch.dtype | None = None, cache_enabled: bool | None = None):
        kind = torch.device(device).type
        if kind != "lazy":
            raise ValueError(f"autocast({str(device)!r}): expected a device of the type 'lazy'; use torch.autocast({kind!r})")
        super().__init__("lazy", enabled=enabled, dtype=dtype, cache_enabled=cache_enabled)


class GradScaler(torch.amp.GradScaler):
    """`torch.amp.GradScaler` for the type "lazy". With an optimizer of `syncfree` a step reads no value on the host."""

    def __init__(self, init_scale: float = 2.0**16, growth_factor: float = 2.0, backoff_factor: float = 0.5, growth_interval: int = 2000, enabled: bool = True,
                 use_zero_grad: bool = False):  # fmt: skip
        super().__init__("lazy", init_scale, growth_factor, backoff_factor, growth_interval, enabled)
        self.use_zero_grad = use_zero_grad  # of torch_xla: gradients remain None


__all__ = ["GradScaler", "autocast", "syncfree"]
