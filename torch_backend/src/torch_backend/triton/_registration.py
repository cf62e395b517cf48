"""Gives Triton a driver for the device when Triton is imported, and tells torch that there is one. This module does not
import Triton."""

from __future__ import annotations

import functools
import importlib.util
import sys

from .._imports import after_import


def install() -> None:
    """Chooses Triton's driver once Triton's own choice of drivers has been imported: now or later."""
    after_import("triton.runtime.driver", _choose)
    after_import("torch.utils._triton", _accept_device)


def _choose() -> None:
    from . import _driver

    _driver.choose()


def has_compiler() -> bool:
    """Returns whether an installed Triton compiles for the device. Imports Triton if it is installed; starts no device.
    """
    if "triton" not in sys.modules and importlib.util.find_spec("triton") is None:
        return False
    from . import _driver

    return _driver.active() is not None


def _accept_device() -> None:
    """torch looks for Triton on a fixed list of device types only. The answer decides whether TorchDynamo recognizes
    kernels of Triton. Packages of AOTInductor contain no kernels of Triton for the device.
    """
    from torch.utils import _triton

    original = _triton.has_triton

    @functools.wraps(original)
    def has_triton() -> bool:
        virtualized = sys.modules.get("torch._inductor.virtualized")
        is_package = virtualized is not None and bool(virtualized.V.aot_compilation)
        return original() or (not is_package and _triton.has_triton_package() and has_compiler())

    _triton.has_triton = has_triton


def architecture(device: int) -> int | str:
    """Returns the architecture of the compiler's target for a device; "" without a compiler. Starts the device."""
    if not has_compiler():
        return ""
    from . import _driver

    return _driver.target_of(device).arch
