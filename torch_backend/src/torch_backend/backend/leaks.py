"""The end of a process whose device reports leaks (HAL_FAKE_SANITIZE=leak)."""

from __future__ import annotations

import gc
import os

import torch


def wanted() -> bool:
    """Returns whether the device reports memory that is not released."""
    return "leak" in os.environ.get("HAL_FAKE_SANITIZE", "").split(",")


def release_reachable(name: str) -> None:
    """Frees the memory of all tensors that Python still references, such as global variables, and that of their
    gradients and graphs. CPython does not destroy all objects at its end, so they would be reported as leaks. Memory
    that only C or C++ references stays.
    """
    gc.collect()
    tensors = [found for found in gc.get_objects() if issubclass(type(found), torch.Tensor)]
    with torch.no_grad():
        for tensor in tensors:
            try:
                if tensor.device.type != name:
                    continue
                tensor.grad = None
                tensor.detach_()
                tensor.untyped_storage().resize_(0)
            except (RuntimeError, NotImplementedError):  # views, wrappers, memory of other owners
                continue
