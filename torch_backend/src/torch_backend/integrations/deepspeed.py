"""DeepSpeed: an accelerator of its public interface, DeepSpeedAccelerator, which `set_accelerator` activates for the
process.

DeepSpeed looks for the packages of known devices, and uses the CPU if it finds none.
"""

from __future__ import annotations

import os
from types import ModuleType

from ._table import Patch, Table, Undo
from ._tools import replace


def _accelerator(module: ModuleType) -> Undo:
    """Does not replace the user's choice in DS_ACCELERATOR, or by an earlier set_accelerator."""
    if module.ds_accelerator is not None or os.environ.get("DS_ACCELERATOR"):
        return lambda: None
    from deepspeed.accelerator import abstract_accelerator

    from ._deepspeed_accelerator import accelerator

    return replace(module, "ds_accelerator", accelerator(abstract_accelerator.DeepSpeedAccelerator))


TABLES = [
    Table("deepspeed", ("0.19", "0.20"), [
        Patch("deepspeed.accelerator.real_accelerator", "the accelerator", _accelerator),
    ])
]  # fmt: skip
