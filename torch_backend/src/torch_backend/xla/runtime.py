"""The number of processes, the number of this process, and its devices, under torch_xla's names."""

from __future__ import annotations

import os

import torch

from torch_backend._registry import device_name

from .core import _devices


def world_size() -> int:
    """Returns the number of replicas that train together."""
    return _devices.xrt_world_size()


def global_ordinal() -> int:
    """Returns this replica's number among all replicas."""
    return _devices.get_ordinal()


def local_ordinal() -> int:
    """Returns this replica's number among those of its host."""
    return _devices.get_local_ordinal()


def process_count() -> int:
    """Returns the number of processes."""
    return _devices._of_group("get_world_size") or 1


def process_index() -> int:
    """Returns this process's number among all processes."""
    return _devices._of_group("get_rank") or 0


def local_process_count() -> int:
    """Returns the number of processes on this host: LOCAL_WORLD_SIZE of the environment, else all."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", process_count()))


def device_type() -> str:
    """Returns the kind of hardware: the name of the device type, in capitals."""
    return device_name().upper()


def addressable_device_count() -> int:
    """Returns the number of devices of this process."""
    return torch.accelerator.device_count()


def global_device_count() -> int:
    """Returns the number of all devices: one for each process if there are several, else those of this process."""
    return max(process_count(), addressable_device_count())


def using_pjrt() -> bool:
    """Returns False: the HAL loads the plugins, not PJRT."""
    return False


def is_spmd() -> bool:
    """Returns False: programs are not partitioned over devices."""
    return False


def initialize_cache(path: str, readonly: bool = False) -> None:
    """Stores compiled kernels in a folder (HAL_CACHE_DIR). It must be called before the first use of a device. Raises
    RuntimeError afterwards, and NotImplementedError for `readonly`.
    """
    if readonly:
        raise NotImplementedError("initialize_cache(readonly=True): a read-only cache is not supported; the folder must be writable")
    if torch.get_device_module(device_name()).is_initialized():
        raise RuntimeError(f"initialize_cache({path!r}): a device is in use already; call it earlier, or set HAL_CACHE_DIR")
    os.environ["HAL_CACHE_DIR"] = os.fspath(path)


def get_master_ip() -> str:
    """Returns the address at which processes connect: MASTER_ADDR of the environment, else this host."""
    return os.environ.get("MASTER_ADDR", "127.0.0.1")
