"""How many processes train together, which one this is, and what its devices are, under torch_xla's names."""

from __future__ import annotations

import os

import torch

from torch_backend._registry import device_name

from .core import _devices


def world_size() -> int:
    """The number of replicas that train together."""
    return _devices.xrt_world_size()


def global_ordinal() -> int:
    """This replica's number among them."""
    return _devices.get_ordinal()


def local_ordinal() -> int:
    """This replica's number among those of its host."""
    return _devices.get_local_ordinal()


def process_count() -> int:
    """The number of processes."""
    return _devices._of_group("get_world_size") or 1


def process_index() -> int:
    """This process's number among them."""
    return _devices._of_group("get_rank") or 0


def local_process_count() -> int:
    """The number of processes on this host: LOCAL_WORLD_SIZE of the environment, else all."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", process_count()))


def device_type() -> str:
    """The kind of hardware: the name of our device type, in capitals."""
    return device_name().upper()


def addressable_device_count() -> int:
    """The number of devices that this process sees."""
    return torch.accelerator.device_count()


def global_device_count() -> int:
    """The number of devices: one for each process where several train, else those of this one."""
    return max(process_count(), addressable_device_count())


def using_pjrt() -> bool:
    """False: plugins are loaded by the HAL."""
    return False


def is_spmd() -> bool:
    """False: programs are not partitioned over devices."""
    return False


def initialize_cache(path: str, readonly: bool = False) -> None:
    """Has compiled kernels kept in a folder, before the first device is used: HAL_CACHE_DIR. Raises RuntimeError afterwards, and NotImplementedError for `readonly`."""
    if readonly:
        raise NotImplementedError("initialize_cache(readonly=True): a cache that is read alone is not there; leave the folder writable")
    if torch.get_device_module(device_name()).is_initialized():
        raise RuntimeError(f"initialize_cache({path!r}): a device is in use already; call it before, or set HAL_CACHE_DIR")
    os.environ["HAL_CACHE_DIR"] = os.fspath(path)


def get_master_ip() -> str:
    """The address at which processes meet: MASTER_ADDR of the environment, else this host."""
    return os.environ.get("MASTER_ADDR", "127.0.0.1")
