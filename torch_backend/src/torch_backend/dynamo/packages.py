"""Packages of AOTInductor in Python: one for another device type or version is refused with one error.

After a RuntimeError torch warns about an outdated file and loads it once more, so the errors are ValueErrors.
"""

from __future__ import annotations

import functools

import torch

from .._registry import type_name

_OTHER_VERSIONS = "the package was compiled for "  # the runner's error (csrc/core/package/runner.cpp)


def install() -> None:
    """Called when torch imports its module for packages."""
    from torch.export.pt2_archive import _package as module

    original = getattr(module, "_load_aoti", None)
    if original is None:
        return

    @functools.wraps(original)
    def load(file, model_name, *args, **kwargs):
        _check(file, model_name)
        try:
            return original(file, model_name, *args, **kwargs)
        except RuntimeError as error:
            if not str(error).startswith(_OTHER_VERSIONS):
                raise
            raise ValueError(str(error)) from None

    module._load_aoti = load


def _check(file: str, model_name: str) -> None:
    compiled = torch._C._aoti.AOTIModelPackageLoader.load_metadata_from_package(file, model_name).get("AOTI_DEVICE_KEY", "")
    if compiled == type_name() or _is_of_torch(compiled):
        return
    raise ValueError(
        f"the package '{file}' was compiled for '{compiled}', and this process uses '{type_name()}'. Compile it again for "
        f"'{type_name()}', or activate the plugin of '{compiled}' by torch_backend.use."
    )


def _is_of_torch(name: str) -> bool:
    try:
        return torch.device(name).type == name
    except RuntimeError:
        return False
