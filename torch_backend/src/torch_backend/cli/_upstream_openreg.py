"""Tests of openreg, PyTorch's example of an out-of-tree device, as tests of a plugin's device.

They name the device "openreg", its module torch.openreg, and its compiler "openreg". The copies that run name the
plugin's device.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path


def renamed(files, device: str, folder: Path) -> list:
    """Copies the files, and those next to them, with the name of `device`. Returns the paths of the copies, in
    subfolders of `folder`.

    ValueError: a file cannot be read.
    """
    copies, parents = [], {}
    for file in files:
        parent = file.resolve().parent
        if parent not in parents:
            parents[parent] = folder / str(len(parents))
            _copy(parent, device, parents[parent])
        copies.append(parents[parent] / file.name)
    return copies


def _copy(parent: Path, device: str, target: Path) -> None:
    target.mkdir()
    for source in parent.glob("*.py"):
        try:
            text = source.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"{source} cannot be read: {error}") from None
        (target / source.name).write_text(re.sub(r"\bopenreg\b", device, text), encoding="utf-8")


def install() -> None:
    """Makes `import torch_openreg` import this package: importing either registers a device."""
    import torch_backend

    sys.modules["torch_openreg"] = torch_backend
