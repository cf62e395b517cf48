"""diffusers: groups of layers that are copied to the device on a stream of their own.

Pipelines find the device by torch.accelerator. `device_map="balanced"` gets its devices from accelerate, so both are
enabled together.
"""

from __future__ import annotations

from types import ModuleType

import torch

from ._table import Patch, Table, Undo
from ._tools import replace


def _group_offloading(module: ModuleType) -> Undo:
    """A group that is copied right before it computes is used without waiting for the copy, in the first step."""
    original = module.ModuleGroup.onload_

    @torch.compiler.disable  # as the original, so that compiled models call it
    def onload(group) -> None:
        original(group)
        if group.onload_self and group.stream is not None:
            torch.accelerator.current_stream(group.onload_device).wait_stream(group.stream)

    return replace(module.ModuleGroup, "onload_", onload)


TABLES = [
    Table("diffusers", ("0.42", "0.43"), [
        Patch("diffusers.hooks.group_offloading", "group offloading with streams: the first step waits for the copies", _group_offloading),
    ])
]  # fmt: skip
