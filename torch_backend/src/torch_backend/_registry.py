"""The state of torch_backend in this process: the active device type, why it was chosen, and what failed.

This module imports no other module of the package, so every module may import it. Only `_activation` changes the state.
"""

from __future__ import annotations

import threading
from typing import Callable

HOW = "Set TORCH_BACKEND=fake, or call torch_backend.use('fake'), before the device is used."

lock = threading.RLock()  # acquired again when importing torch autoloads the package
_type_name = "privateuseone"  # torch's name of the type until it is renamed
_active: str | None = None
_requested: str | None = None
_errors: list[str] = []
_choice = ""
_waiting: list[Callable[[], None]] = []
_use: Callable[[str], None] | None = None


def is_active() -> bool:
    """Returns whether a plugin's device is registered with torch."""
    return _active is not None


def device_name() -> str:
    """Returns the device type's name in torch, such as "fake". Raises RuntimeError when no plugin is active."""
    if _active is None:
        raise RuntimeError(" ".join(["No plugin of torch_backend is active.", *_errors, HOW]))
    return _active


def type_name() -> str:
    """Returns torch's name of the device type, also while the device is being registered."""
    return _type_name


def requested() -> str | None:
    """Returns the active list of plugins as it was requested; None when no plugin is active."""
    return _requested


def errors() -> list[str]:
    """Returns the errors of automatic loading, and why requested plugins were left out.

    These errors are not raised: `import torch` and the other plugins of a list keep working.
    """
    return list(_errors)


def choice() -> str:
    """Returns why the active plugins were chosen, or why no plugin was looked for."""
    return _choice or f"torch has not loaded the package automatically, and torch_backend.use was not called. {HOW}"


def when_active(function: Callable[[], None]) -> None:
    """Calls a function at the end of the next activation."""
    with lock:
        _waiting.append(function)


def set_use(function: Callable[[str], None]) -> None:
    """Sets what `ensure_active` calls: `torch_backend.use`."""
    global _use
    _use = function


def ensure_active(plugins: str) -> None:
    """Activates a list of plugins unless one is active. Called by a process that receives an object of those plugins.
    """
    if _active is None and _use is not None:
        _use(plugins)


def rename(name: str) -> None:
    """Sets the name of the device type, before the device is registered under it."""
    global _type_name
    _type_name = name


def activate(requested: str) -> None:
    """Marks the device as registered under the name that `rename` set."""
    global _active, _requested
    _active, _requested = _type_name, requested


def set_errors(errors: list[str]) -> None:
    """Replaces the list of errors."""
    _errors[:] = errors


def set_choice(why: str) -> None:
    """Sets the reason that `choice` returns."""
    global _choice
    _choice = why


def take_waiting() -> list[Callable[[], None]]:
    """Removes and returns the functions passed to `when_active`."""
    with lock:
        taken = list(_waiting)
        _waiting.clear()
    return taken
