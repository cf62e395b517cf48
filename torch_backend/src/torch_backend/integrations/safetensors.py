"""safetensors: its extension has a fixed list of device names. An index selects torch's accelerator, so device names
are replaced by indices.
"""

from __future__ import annotations

import functools
from types import ModuleType

from .. import _registry
from ._table import Patch, Table, Undo
from ._tools import exchange


def _index(device):
    """Returns the index of a device of torch_backend, 1 for "fake:1" or torch.device("fake:1"); returns any other value
    unchanged.
    """
    import torch

    if not _registry.is_active() or not isinstance(device, (str, torch.device)):
        return device
    if str(device).partition(":")[0] != _registry.device_name():
        return device
    from torch_backend.backend import _utils

    return _utils.existing_index(device)


def _open_by_name(module: ModuleType) -> Undo:
    original = module.safe_open

    @functools.wraps(original, updated=())
    def safe_open(filename, framework="pt", device="cpu", **options):
        return original(filename, framework=framework, device=_index(device), **options)

    return exchange(original, safe_open)


TABLES = [Table("safetensors", ("0.8", "0.9"), [Patch("safetensors", "load_file and safe_open by the device's name", _open_by_name)])]
