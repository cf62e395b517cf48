"""Optimizers in a graph: an optimizer that counts steps on the host is refused in a capture, because each replay would
repeat one count.

torch 2.15 checks every accelerator; torch 2.13 and 2.14 check CUDA and XPU only.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch.optim import Adagrad, Optimizer

from . import _registry


def install(is_current_stream_capturing: Callable[[], bool]) -> None:
    """Makes the capture check of torch's optimizers query the device's stream, too, and adds the check to Adagrad,
    which has none.
    """

    def _is_captured() -> bool:
        if torch.compiler.is_compiling() or not torch.accelerator.is_available():
            return False
        return torch.accelerator.current_accelerator().type == _registry.type_name() and is_current_stream_capturing()

    original = Optimizer._accelerator_graph_capture_health_check

    @functools.wraps(original)
    def _accelerator_graph_capture_health_check(self) -> None:
        if _is_captured() and not all(group["capturable"] for group in self.param_groups):
            raise RuntimeError(_refusal(self, "create the optimizer with capturable=True"))
        return original(self)

    Optimizer._accelerator_graph_capture_health_check = _accelerator_graph_capture_health_check
    prepare = Adagrad._init_group

    @functools.wraps(prepare)
    def _init_group(self, group, *args, **kwargs):
        if group["lr_decay"] and _is_captured():
            raise RuntimeError(_refusal(self, "use lr_decay=0, or set a tensor as the learning rate before each replay"))
        return prepare(self, group, *args, **kwargs)

    Adagrad._init_group = _init_group


def _refusal(optimizer: Optimizer, cure: str) -> str:
    return (
        f"{type(optimizer).__name__}.step() cannot be captured on '{_registry.type_name()}': the host counts its steps, and every replay "
        f"would repeat the count of the capture; {cure}"
    )
