"""Patches libraries that choose a device by its name so that they use the device: accelerate, transformers,
diffusers, safetensors, Lightning, peft, Ray Train, torchao.

Most libraries have a list of known devices ("cuda", "npu", "musa", ...) and silently use the CPU for any other one.
They have no public interface to extend that list, so this package changes the libraries in memory, on request only::

    import torch, torch_backend
    torch_backend.use("fake")
    torch_backend.integrations.enable()  # or TORCH_BACKEND_INTEGRATIONS=1 in the environment

Libraries may be imported before or after. Each patch checks the library's version. An unsupported version is not
patched, and `torch-backend doctor` reports it. `disable` removes all patches.
"""

from __future__ import annotations

import threading
import warnings

from .. import _registry
from . import _hook
from ._table import State
from ._tables import tables

__all__ = ["State", "disable", "enable", "is_enabled", "status"]

_lock = threading.RLock()
_hooks = _hook.enabled


def enable(*libraries: str) -> None:
    """Patches the named libraries, or all that `status` lists: now if they are imported, else when they are imported.

    Imports none of them. A library that is not installed, or whose version is unsupported, is not patched; `status`
    reports it.

    Raises:
        RuntimeError: no plugin is active, since patches use the name of its device.
        ValueError: there are no patches for a library.
    """
    _registry.device_name()
    known = {table.library: table for table in tables()}
    for library in libraries:
        if library not in known:
            raise ValueError(f"torch_backend.integrations.enable: no patches for {library!r}; supported libraries are {', '.join(known)}")
    with _lock:
        for library in libraries or known:
            if library not in _hooks:
                _hooks[library] = _hook.Hook(known[library], _failed)
                _hooks[library].start()


def disable(*libraries: str) -> None:
    """Removes the patches of the named libraries, or all. Decisions that the libraries have made meanwhile do not
    change.
    """
    with _lock:
        for library in libraries or list(_hooks):
            if library in _hooks:
                _hooks.pop(library).stop()


def is_enabled() -> bool:
    """Returns whether any library is patched, or will be when it is imported."""
    return bool(_hooks)


def status() -> list[State]:
    """Returns for each library its installed version, whether the patches support it, and which patches are applied."""
    return [table.state(_hooks.get(table.library)) for table in tables()]


def _failed(library: str, what: str, error: Exception) -> None:
    """Reports a patch that cannot be applied. The library works as before."""
    warnings.warn(
        f"torch_backend.integrations: the patch of {library} '{what}' cannot be applied ({error}); that part of {library} is not changed",
        RuntimeWarning,
        stacklevel=2,
    )
