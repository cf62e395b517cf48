"""Properties of a device: its name, its capabilities and its limits."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import torch

from torch_backend import _C

from ._utils import Device, existing_device, existing_index

_UNIFIED = 1 << 1  # HAL_DEVICE_UNIFIED of hal/plugin.h


@dataclass(frozen=True)
class DeviceProperties:
    """The properties that a device reports, under the names of `torch.cuda.get_device_properties`.

    Sizes are in bytes and clocks in kilohertz; 0 or "" = unknown. `major` and `minor` are those of an architecture
    "sm_<major><minor>", else 0. `numa_node` is that of the host memory nearest to the device, -1 = unknown.
    `partition_index` identifies a part of a partitioned device, -1 = a whole device.
    """

    name: str
    total_memory: int
    multi_processor_count: int
    warp_size: int
    max_threads_per_block: int
    shared_memory_per_block: int
    major: int = 0
    minor: int = 0
    L2_cache_size: int = 0
    pci_domain_id: int = 0
    pci_bus_id: int = 0
    pci_device_id: int = 0
    pci_function_id: int = 0
    numa_node: int = -1
    partition_index: int = -1
    async_engine_count: int = 0
    max_threads_per_multi_processor: int = 0
    regs_per_multiprocessor: int = 0
    shared_memory_per_multiprocessor: int = 0
    shared_memory_per_block_optin: int = 0
    clock_rate: int = 0
    memory_clock_rate: int = 0
    memory_bus_width: int = 0
    is_integrated: int = 0
    is_multi_gpu_board: int = 0
    gcnArchName: str = ""  # noqa: N815  torch.cuda's name
    architecture: str = ""
    driver_version: str = ""
    firmware_version: str = ""
    dialects: str = ""
    uuid: bytes = field(default=b"", repr=False)
    flags: int = field(default=0, repr=False)


def _properties(index: int) -> DeviceProperties:
    facts = _C.device_properties(index)
    facts["is_integrated"] = int(bool(facts["flags"] & _UNIFIED))
    facts["shared_memory_per_block_optin"] = facts["shared_memory_per_block"]
    facts["gcnArchName"] = facts["architecture"]
    version = re.match(r"sm_(\d+)(\d)", facts["architecture"])
    if version:
        facts["major"], facts["minor"] = map(int, version.groups())
    return DeviceProperties(**facts)


_properties._dynamo_marked_constant = True  # a constant to TorchDynamo: a device's properties never change in a process


def get_device_properties(device: Device = None) -> DeviceProperties:
    """Returns the properties of a device."""
    return _properties(existing_index(device))


def get_device_name(device: Device = None) -> str:
    """Returns a device's name."""
    return get_device_properties(device).name


def get_device_capability(device: Device = None) -> dict:
    """Returns the dtypes and layouts that a device supports, as torch.accelerator.get_device_capability."""
    return torch.accelerator.get_device_capability(existing_device(device))


def get_arch_list() -> list[str]:
    """Returns the architectures of the compiled kernels in this package: none, because kernels are compiled at run time."""
    return []


def get_gencode_flags() -> str:
    """Returns the compiler flags for `get_arch_list`: an empty string."""
    return ""


def is_tf32_supported() -> bool:
    """Returns whether float32 matrix products may be computed in TF32. The portable kernels compute them in float32."""
    return False
