"""The extension, for functions that may be called before a plugin is active."""

from __future__ import annotations

from . import _registry


def extension():
    """Returns `torch_backend._C`. Raises RuntimeError when no plugin is active: importing it would register a device."""
    _registry.device_name()
    from . import _C

    return _C
