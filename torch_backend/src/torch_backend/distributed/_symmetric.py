"""Refuses symmetric memory on the device, at the call and with what to use instead.

Source: torch.distributed._symmetric_memory, whose functions call those of torch._C._distributed_c10d._SymmetricMemory.
"""

from __future__ import annotations

import functools

import torch

_INSTEAD = "use torch.empty and the collectives of torch.distributed, or torch.distributed._functional_collectives in compiled functions"


def _refusing(name: str, function, devices: tuple[str, ...]):
    """Wraps a function, which has a device or tensors among its arguments."""

    @functools.wraps(function)
    def wrapped(*args, **kwargs):
        for value in (*args, *kwargs.values()):
            device = value.device if isinstance(value, torch.Tensor) else value
            if isinstance(device, torch.device) and device.type in devices:
                raise NotImplementedError(f"{name}: symmetric memory is not supported on the device type '{device.type}'; {_INSTEAD}")
        return function(*args, **kwargs)

    return staticmethod(wrapped)


def _workspace(function, devices: tuple[str, ...]):
    """Wraps get_symm_mem_workspace, which has a group instead of a device and takes its memory from CUDA."""

    @functools.wraps(function)
    def get_symm_mem_workspace(group_name, *args, **kwargs):
        from torch.distributed import distributed_c10d

        group = distributed_c10d._resolve_process_group(group_name)
        if found := {device.type for device in group._device_types} & set(devices):
            raise NotImplementedError(f"get_symm_mem_workspace: symmetric memory is not supported on the device type '{found.pop()}'; {_INSTEAD}")
        return function(group_name, *args, **kwargs)

    return get_symm_mem_workspace


def _of_fsdp(function, devices: tuple[str, ...]):
    """Wraps FSDPModule.set_symm_mem_for_comm, whose memory is allocated in the first forward pass."""

    @functools.wraps(function)
    def set_symm_mem_for_comm(self, *args, **kwargs):
        if found := {parameter.device.type for parameter in self.parameters()} & set(devices):
            raise NotImplementedError(f"set_symm_mem_for_comm: symmetric memory is not supported on the device type '{found.pop()}'; FSDP works without it")
        return function(self, *args, **kwargs)

    return set_symm_mem_for_comm


def install_in_fsdp(module, device: str) -> None:
    """Wraps a method of torch.distributed.fsdp.FSDPModule, after the import of that module."""
    if function := getattr(module.FSDPModule, "set_symm_mem_for_comm", None):
        module.FSDPModule.set_symm_mem_for_comm = _of_fsdp(function, (device, "lazy"))


def install_functions(module, device: str) -> None:
    """Wraps what torch.distributed._symmetric_memory has in addition to the class, after its import."""
    module.get_symm_mem_workspace = _workspace(module.get_symm_mem_workspace, (device, "lazy"))


def install(device: str) -> None:
    from torch._C._distributed_c10d import _SymmetricMemory

    for name in ("empty_strided_p2p", "rendezvous", "get_mempool_allocator", "memset32", "stream_write_value32"):
        if function := getattr(_SymmetricMemory, name, None):
            setattr(_SymmetricMemory, name, _refusing(name, function, (device, "lazy")))
