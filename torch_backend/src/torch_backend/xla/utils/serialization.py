"""Saving with only one tensor at a time in host memory: a file with references, and a folder with a file for each
tensor.
"""

from __future__ import annotations

import os
import shutil

import torch

from ..core import xla_model as xm
from ..core._saving import mapped


class TensorReference:
    """A reference to tensor number `tid` in the folder."""

    def __init__(self, tid: int):
        self.tid = tid


def _folder(path) -> str:
    return f"{os.fspath(path)}.tensors"


def _file(path, tid: int) -> str:
    return os.path.join(_folder(path), f"tensor_{tid}.pt")


def save(data, path, master_only: bool = True, global_master: bool = False) -> None:
    """Saves nested data: copies tensors to the CPU and writes them to their files, one after the other.

    Only replica 0 saves, and the others wait for it; with `master_only=False` all save. A folder of an earlier save
    is replaced.
    """
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
    """Loads the data of `save`, with tensors on the CPU. Raises FileNotFoundError if a file is missing."""
    with torch.serialization.safe_globals([TensorReference]):
        data = torch.load(path, map_location="cpu")
    return mapped(data, TensorReference, lambda value: torch.load(_file(path, value.tid)))
