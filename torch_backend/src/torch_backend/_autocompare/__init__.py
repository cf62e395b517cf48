"""Compares every operator of a device with CPU torch: see `mode.autocompare`, which is torch_backend.autocompare."""

from .mode import autocompare
from .reproduce import reproduce

__all__ = ["autocompare", "reproduce"]
