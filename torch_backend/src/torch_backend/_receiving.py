"""Functions that run in a process that receives a tensor, storage or event of the device from another process
(`_multiprocessing` sends them).

The receiver may not have chosen a plugin yet; it then activates the sender's. So this module imports nothing that
needs a plugin.
"""

from __future__ import annotations

import torch

from . import _registry


def rebuild_storage(plugins: str, device: int, handle: bytes | torch.UntypedStorage, nbytes: int) -> torch.UntypedStorage:
    _registry.ensure_active(plugins)
    return torch.UntypedStorage._new_shared_device(device, handle, nbytes)


def rebuild_event(plugins: str, device: int, handle: bytes) -> torch.Event:
    _registry.ensure_active(plugins)
    return torch.get_device_module(_registry.device_name()).Event.from_ipc_handle(device, handle)
