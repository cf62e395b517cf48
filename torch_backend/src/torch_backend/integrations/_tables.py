"""The patches of all libraries: each file named after a library has a list TABLES."""

from __future__ import annotations

from . import accelerate, deepspeed, diffusers, lightning, peft, ray, safetensors, torchao, transformers
from ._table import Table

_FILES = (accelerate, deepspeed, diffusers, lightning, peft, ray, safetensors, torchao, transformers)


def tables() -> list[Table]:
    """Returns the tables of all libraries."""
    return [table for file in _FILES for table in file.TABLES]
