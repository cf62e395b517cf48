"""Saving with one tensor at a time in the host's memory: a file with references, and beside it a folder with a file for each tensor."""

from __future__ import annotations

import os
import shutil

import torch

from ..core import xla_model as xm
from ..core._saving import mapped


class TensorReference:
    """Stands for tensor number `tid` of the folder."""

    def __init__(self, tid: int):
        self.tid = tid


def _folder(path) -> str:
    return f"{os.fspath(path)}.tensors"


def _file(path, tid: int) -> str:
    return os.path.join(_folder(path), f"tensor_{tid}.pt")


def save(data, path, master_only: bool = True, global_master: bool = False) -> None:
    """Saves nested data: tensors go to the CPU, and to their files, one after the other; in replica 0 alone, for which the others wait, or in all (`master_only=False`).
    A folder of an earlier save is replaced."""
    xm.mark_step()
    if not master_only or xm.is_master_ordinal(local=not global_master):
        _write(data, path)
    xm.rendezvous("torch_backend.xla.utils.serialization.save")


def _write(data, path) -> None:
    shutil.rmtree(_folder(path), ignore_errors=True)
    os.makedirs(_folder(path))
    count = 0

    def write(value):
        nonlocal count
        torch.save(value.detach().cpu(), _file(path, count))
        count += 1
        return TensorReference(count - 1)

    torch.save(mapped(data, torch.Tensor, write), path)


def load(path):
    """Loads what `save` wrote, with tensors on the CPU. Raises FileNotFoundError for a file that is missing."""
    with torch.serialization.safe_globals([TensorReference]):
        data = torch.load(path, map_location="cpu")
    return mapped(data, TensorReference, lambda value: torch.load(_file(path, value.tid)))
