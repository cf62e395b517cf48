"""Saving with one tensor at a time in the host's memory: torch_backend.xla.utils.serialization."""

from torch_backend.xla.utils.serialization import TensorReference, load, save

__all__ = ["TensorReference", "load", "save"]
