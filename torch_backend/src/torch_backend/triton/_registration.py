"""Gives Triton a driver for the device when Triton is imported. This module does not import Triton."""

from __future__ import annotations

from .._imports import after_import


def install() -> None:
    """Chooses Triton's driver once Triton's own choice of drivers has been imported: now or later."""
    after_import("triton.runtime.driver", _choose)


def _choose() -> None:
    from . import _driver

    _driver.choose()
