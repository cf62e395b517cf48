"""Packages of AOTInductor in Python: one for another device type is refused before torch loads it.

torch would report only the name in the package, after a warning about an outdated file.
"""

from __future__ import annotations

import functools

import torch

from .._registry import type_name


def install() -> None:
    """Called when torch imports its module for packages."""
    from torch.export.pt2_archive import _package as module

    original = getattr(module, "_load_aoti", None)
    if original is None:
        return

    @functools.wraps(original)
    def load(file, model_name, *args, **kwargs):
        _check(file, model_name)
        return original(file, model_name, *args, **kwargs)

    module._load_aoti = load


def _check(file: str, model_name: str) -> None:
    compiled = torch._C._aoti.AOTIModelPackageLoader.load_metadata_from_package(file, model_name).get("AOTI_DEVICE_KEY", "")
    if compiled == type_name() or _is_of_torch(compiled):
        return
    # torch's loader tries again after a RuntimeError.
    raise ValueError(
        f"the package '{file}' was compiled for '{compiled}', and this process uses '{type_name()}'. Compile it again for "
        f"'{type_name()}', or activate the plugin of '{compiled}' by torch_backend.use."
    )


def _is_of_torch(name: str) -> bool:
    try:
        return torch.device(name).type == name
    except RuntimeError:
        return False
