"""Makes libraries that choose a device by its name know ours: accelerate, transformers, safetensors, Lightning, peft.

Most libraries list the devices that they know ("cuda", "npu", "musa", ...) and take the CPU for every other one, without a word. There is
no public place to add a name to such a list, so this changes the libraries in memory, on request only::

    import torch, torch_backend
    torch_backend.use("fake")
    torch_backend.integrations.enable()  # or TORCH_BACKEND_INTEGRATIONS=1 in the environment

Libraries may be imported before or after. What a patch does is held against the library's version: one that it does not know is left as
it is, and `torch-backend doctor` says so. `disable` takes everything back.
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
    """Patches the named libraries, or all that `status` lists, now where they are imported and else when they will be.

    Imports none of them. A library that is not installed, or of a version that no patch knows, is left alone; `status` tells.
    Raises RuntimeError when no plugin is active, since patches name its device, and ValueError for a library without patches.
    """
    _registry.device_name()
    known = {table.library: table for table in tables()}
    for library in libraries:
        if library not in known:
            raise ValueError(f"torch_backend.integrations.enable: no patches for {library!r}; there are some for {', '.join(known)}")
    with _lock:
        for library in libraries or known:
            if library not in _hooks:
                _hooks[library] = _hook.Hook(known[library], _failed)
                _hooks[library].start()


def disable(*libraries: str) -> None:
    """Takes the patches of the named libraries back, or all; what the libraries have decided meanwhile stays decided."""
    with _lock:
        for library in libraries or list(_hooks):
            if library in _hooks:
                _hooks.pop(library).stop()


def is_enabled() -> bool:
    """Tells whether any library is patched, or will be when it is imported."""
    return bool(_hooks)


def status() -> list[State]:
    """Tells for each library its installed version, whether the patches know it, and which are in force."""
    return [table.state(_hooks.get(table.library)) for table in tables()]


def _failed(library: str, what: str, error: Exception) -> None:
    """A patch that does not fit is left out; the library works as it did, and the user learns of it."""
    warnings.warn(
        f"torch_backend.integrations: the patch of {library} '{what}' does not fit ({error}); {library} is left as it is there",
        RuntimeWarning,
        stacklevel=2,
    )
