"""Sets Triton's driver for the device when Triton is imported, and makes torch accept it. This module does not import
Triton.
"""

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


def is_installed() -> bool:
    """Returns whether Triton is installed and its driver is the device's, also one without a compiler. Imports Triton if
    it is installed; starts no device.
    """
    return _driver_of_device() is not None


def has_compiler() -> bool:
    """Returns whether an installed Triton compiles for the device; otherwise as `is_installed`."""
    found = _driver_of_device()
    return found is not None and found.compiles


def check(device: int) -> None:
    """Raises RuntimeError, with the cure, if no installed Triton compiles for a device. Starts the device."""
    from . import _driver

    _driver.target_of(device)


def _driver_of_device():
    if "triton" not in sys.modules and importlib.util.find_spec("triton") is None:
        return None
    from . import _driver

    return _driver.active()


def _accept_device() -> None:
    """torch 2.13 looks for Triton on a fixed list of device types only. The result determines whether TorchDynamo
    recognizes kernels of Triton. Packages of AOTInductor contain no kernels of Triton for the device.
    """
    from torch.utils import _triton

    original = _triton.has_triton

    @functools.wraps(original)
    def has_triton(**options) -> bool:  # torch 2.15 has the option `include_cpu`
        virtualized = sys.modules.get("torch._inductor.virtualized")
        is_package = virtualized is not None and bool(virtualized.V.aot_compilation)
        return original(**options) or (not is_package and _triton.has_triton_package() and is_installed())

    _triton.has_triton = has_triton


def architecture(device: int) -> int | str:
    """Returns the architecture of the compiler's target for a device; "" without a compiler. Starts the device."""
    if not has_compiler():
        return ""
    from . import _driver

    return _driver.target_of(device).arch
