"""Typed sparse tensors, torch.<name>.sparse.FloatTensor and the like."""

from __future__ import annotations

from . import tensors
from ._utils import name

_types = tensors.sparse_types(f"torch.{name()}.sparse")
globals().update(_types)

__all__ = list(_types)  # noqa: PLE0604  strings
