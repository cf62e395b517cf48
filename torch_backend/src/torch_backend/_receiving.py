"""What a process runs that receives a tensor, storage or event of the device from another one (`_multiprocessing` sends them).

It may not have chosen a plugin yet: then it takes the sender's. So this module imports nothing that needs one.
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
