"""peft: where adapters are loaded when the user names no device."""

from __future__ import annotations

from types import ModuleType

from ._table import Patch, Table, Undo
from ._tools import answer


def _device():  # the code of infer_device, so it uses nothing from here
    from torch_backend import _registry

    return _registry.device_name()


def _infer(module: ModuleType) -> Undo:
    return answer(module.infer_device, _device)


TABLES = [Table("peft", ("0.21", "0.22"), [Patch("peft.utils.other", "infer_device", _infer)])]
