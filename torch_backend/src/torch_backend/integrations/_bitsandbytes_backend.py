"""The entry point `bitsandbytes.backends`, which bitsandbytes calls when it is imported.

Its operators run on the device as they are: each has an implementation in operators of torch.
"""

from __future__ import annotations

from .. import _registry


def register() -> None:
    """Adds the device to `bitsandbytes.supported_torch_devices`, at once or when a plugin becomes active."""
    import bitsandbytes

    def add() -> None:
        bitsandbytes.supported_torch_devices.add(_registry.device_name())

    if _registry.is_active():
        add()
    else:
        _registry.when_active(add)
