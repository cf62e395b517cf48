"""Registers the backend of process groups for the device.

Source: torch.distributed.Backend.register_backend.
"""

from __future__ import annotations

import atexit
import functools
import importlib
import os
import time

import torch

from .. import _registry
from .._extension import extension
from . import _incarnation, _log

NAME = "torch_backend"
# Backends of torch with the name of a plugin: torch.testing's process group without communication is "fake".
_OF_TORCH = {"fake", "gloo", "mpi", "nccl", "ucc", "xccl"}


def _host_backend(use: str, store, rank: int, size: int, timeout):
    """Returns a Gloo group of the same ranks. `use` separates the addresses in the store."""
    from torch.distributed import DistBackendError, PrefixStore, ProcessGroupGloo

    try:
        return ProcessGroupGloo(PrefixStore(use, store), rank, size, timeout)
    except RuntimeError as error:
        if use != "cpu":
            interface = os.environ.get("GLOO_SOCKET_IFNAME")
            cause, _, rest = str(error).partition("\n")
            setting = f"GLOO_SOCKET_IFNAME is {interface!r}" if interface else "GLOO_SOCKET_IFNAME is not set"
            raise DistBackendError(f"{cause}; {setting}: set it to the network interface that connects the hosts\n{rest}") from error
        raise DistBackendError(
            f"rank {rank} of {size} cannot connect to the other ranks for a collective of CPU tensors (timeout {timeout.total_seconds():g} s): {error}; "
            "check that all ranks call it with CPU tensors, and GLOO_SOCKET_IFNAME"
        ) from error


def _recorder_is_on() -> bool:
    """Returns whether torch attaches its flight recorder to groups of the device: torch 2.15 and later, unless a setting
    turns it off."""
    from torch._C._distributed_c10d import Backend

    sizes = (os.environ.get(name) for name in ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"))
    return hasattr(Backend, "supports_completion_hooks") and next((size for size in sizes if size), "2000") != "0"


@functools.cache
def _prepare_for_dumps() -> None:
    """Keeps the dumps of torch's flight recorder short, and delays the end of the program until half a second after the
    last failure of a group.

    A failure of a group makes torch write its own log on a thread that needs the interpreter, and the failing call waits
    for that for up to 15 seconds. To name the lines of stacks, that thread imports torch._inductor: here it is imported
    before. If the interpreter ends during a dump, the process ends with SIGABRT.
    """
    if not _recorder_is_on():
        return
    importlib.import_module("torch._inductor")

    def wait() -> None:
        age = extension().ms_since_collectives_abort()
        if 0 <= age < 500:
            time.sleep((500 - age) / 1000)

    atexit.register(wait)


def _switch(name: str) -> bool:
    """Returns whether a setting is on."""
    value = os.environ.get(name, "0")
    if value not in ("0", "1"):
        raise ValueError(f"{name} is {value!r}; use 0 or 1")
    return value == "1"


def _create(name: str, options, process_group_options=None):
    """Returns the backend of a new group. `options`: torch's DistributedBackendOptions."""
    from torch.distributed import PrefixStore

    if options.timeout.total_seconds() <= 0:
        raise ValueError(f"invalid timeout of a process group: {options.timeout.total_seconds():g} s; pass a positive datetime.timedelta")
    ranks = list(options.global_ranks_in_group) or list(range(options.group_size))
    store = PrefixStore(name, options.store)
    fresh = _incarnation.agree(store, options.group_rank, options.group_size, options.timeout)
    transport = os.environ.get("TORCH_BACKEND_COLLECTIVES", "auto")
    compares, registers = _switch("TORCH_BACKEND_COLLECTIVES_COMPARE"), _switch("TORCH_BACKEND_COLLECTIVES_REGISTER")
    blocks = _switch("TORCH_BACKEND_COLLECTIVES_BLOCKING_WAIT")
    _prepare_for_dumps()
    entries = _log.configure(ranks[options.group_rank])
    return extension().create_process_group_backend(
        name, options.group_rank, options.group_size, options.timeout, PrefixStore(fresh, store), transport, compares, registers, blocks, ranks,
        entries > 0,
        _host_backend,
    )  # fmt: skip


def is_ours(backend) -> bool:
    """Returns whether an object is the backend of a group of the device."""
    kind = getattr(extension(), "ProcessGroupDevice", None)  # created with the first group
    return kind is not None and isinstance(backend, kind)


def install() -> None:
    """Registers the backend in torch.distributed, under the name "torch_backend" and the name of the device type."""
    if not torch.distributed.is_available():
        return
    from torch.distributed import Backend

    device = _registry.type_name()
    for name in (NAME, device):
        if name not in _OF_TORCH or name.upper() not in Backend._plugins:
            Backend.register_backend(name, functools.partial(_create, name), extended_api=True, devices=["cpu", device])
