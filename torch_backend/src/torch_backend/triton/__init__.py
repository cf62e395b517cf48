"""Triton on the devices of torch_backend (docs/triton.md).

`@triton.jit` kernels run on a device whose plugin takes the binaries of a Triton compiler: the plugin cuda those of
stock Triton, another vendor's plugin those of the vendor's Triton backend, whose driver is a subclass of `Driver`.

Nothing here is imported without Triton: importing this package does not import Triton, its names do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._driver import Driver, activate
    from ._launcher import Plan

__all__ = ["Driver", "Plan", "activate"]


def __getattr__(name: str):
    if name not in __all__:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    from . import _driver, _launcher

    return getattr(_launcher if name == "Plan" else _driver, name)
