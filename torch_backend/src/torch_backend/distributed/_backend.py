"""Registers the backend of process groups for the device.

Source: torch.distributed.Backend.register_backend.
"""

from __future__ import annotations

import functools
import os

import torch

from .. import _registry
from .._extension import extension

NAME = "torch_backend"
# Backends of torch's own that have the name of a plugin: torch.testing's process group without communication is "fake".
_OF_TORCH = {"fake", "gloo", "mpi", "nccl", "ucc", "xccl"}


def _create(name: str, options, process_group_options=None):
    """Returns the backend of a new group. `options`: torch's DistributedBackendOptions."""
    from torch.distributed import PrefixStore, ProcessGroupGloo

    def host_backend(use: str):
        """Returns a Gloo group of the same ranks. `use` separates the addresses in the store."""
        store = PrefixStore(f"{name}/{use}", options.store)
        return ProcessGroupGloo(store, options.group_rank, options.group_size, options.timeout)

    store = PrefixStore(f"{name}/device", options.store)
    transport = os.environ.get("TORCH_BACKEND_COLLECTIVES", "auto")
    return extension().create_process_group_backend(
        name, options.group_rank, options.group_size, options.timeout, store, transport, host_backend
    )


def _with_a_name(function):
    """Wraps init_process_group: a group of the device has a name. Without one torch 2.13 and 2.14 take Gloo for the group's default backend,
    which it does not have, so that DistributedDataParallel fails."""

    @functools.wraps(function)
    def init_process_group(backend=None, *args, **kwargs):
        if backend is None and kwargs.get("device_id") is None:
            backend = NAME
        return function(backend, *args, **kwargs)

    return init_process_group


def install() -> None:
    """Makes the backend known to torch.distributed, under the name "torch_backend" and that of the device type."""
    if not torch.distributed.is_available():
        return
    from torch.distributed import Backend, device_mesh, distributed_c10d

    device = _registry.type_name()
    for name in (NAME, device):
        if name not in _OF_TORCH or name.upper() not in Backend._plugins:
            Backend.register_backend(name, functools.partial(_create, name), extended_api=True, devices=["cpu", device])
    named = _with_a_name(distributed_c10d.init_process_group)
    for module in (torch.distributed, distributed_c10d, device_mesh):
        module.init_process_group = named
