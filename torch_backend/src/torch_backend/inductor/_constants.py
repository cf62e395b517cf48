"""Constants on devices without kernels are tensors. Inductor writes those of few elements into loops, and passes those
without dimensions as numbers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch._inductor import config
from torch._inductor.graph import GraphLowering, getattr_recursive

from torch_backend.backend import _utils


def install(calls_operators: Callable[[], bool]) -> None:
    """Called once, when inductor first uses the device. The function returns whether the device has no kernels."""
    original = GraphLowering.get_attr

    @functools.wraps(original)
    def get_attr(self, target, *args, **kwargs):
        value = getattr_recursive(self.module, target)
        if not isinstance(value, torch.Tensor) or value.device.type != _utils.name() or not calls_operators():
            return original(self, target, *args, **kwargs)
        with config.patch(always_keep_tensor_constants=True):
            return original(self, target, *args, **kwargs)

    GraphLowering.get_attr = get_attr
