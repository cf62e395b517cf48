"""Modules, kernels and launches of the HAL by ctypes (hal/kernel.h). Launches of Triton need no more than one call."""

from __future__ import annotations

import ctypes
import functools
from typing import NamedTuple

from torch_backend import _C, _hal

_OK, _UNIMPLEMENTED = 0, 12  # HAL_OK, HAL_UNIMPLEMENTED of hal/plugin_base.h


class _ModuleDesc(ctypes.Structure):  # hal_module_desc_t
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("dialect", ctypes.c_char_p),
        ("options", ctypes.c_char_p),
        ("data", ctypes.c_char_p),
        ("size", ctypes.c_size_t),
        ("cancelled", ctypes.c_void_p),
    ]


class _KernelInfo(ctypes.Structure):  # hal_kernel_info_t
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("max_block_threads", ctypes.c_uint32),
        ("subgroup_size", ctypes.c_uint32),
        ("registers", ctypes.c_uint32),
        ("shared_bytes", ctypes.c_uint32),
        ("local_bytes", ctypes.c_uint64),
        ("max_shared", ctypes.c_uint32),
        ("blocks_per_unit", ctypes.c_uint32),
    ]


class Kernel(NamedTuple):
    """A loaded kernel: the HAL's handles, and what a launch may use. Sizes are in bytes; 0 = unknown."""

    module: int
    handle: int
    registers: int
    local_bytes: int  # of a thread
    max_threads: int  # of a block
    max_shared: int  # of a block


@functools.lru_cache(maxsize=None)
def library() -> ctypes.CDLL:
    """Returns the HAL with the functions of this module declared."""
    hal = _hal.library()
    address = ctypes.c_void_p
    for name, result, arguments in (
        ("hal_module_load", ctypes.c_int32, [ctypes.c_int32, ctypes.POINTER(_ModuleDesc), ctypes.POINTER(address)]),
        ("hal_module_unload", None, [address]),
        ("hal_kernel_get", ctypes.c_int32, [address, ctypes.c_char_p, ctypes.POINTER(address)]),
        ("hal_kernel_info", ctypes.c_int32, [address, ctypes.c_uint32, ctypes.c_uint32, ctypes.POINTER(_KernelInfo)]),
        ("hal_kernel_launch", ctypes.c_int32, [address, address, address]),
        ("hal_stream_from_id", ctypes.c_int32, [ctypes.c_int32, ctypes.c_int64, ctypes.POINTER(address)]),
        ("hal_host_device_pointer", ctypes.c_int32, [address, ctypes.c_int32, ctypes.POINTER(address)]),
    ):
        function = getattr(hal, name)
        function.restype, function.argtypes = result, arguments
    return hal


def message() -> str:
    """Returns the message of this thread's last failed call."""
    return _hal.library().hal_error_message().decode(errors="replace")


def check(status: int) -> None:
    """Raises NotImplementedError or RuntimeError with the HAL's message if a call has failed."""
    if status != _OK:
        raise (NotImplementedError if status == _UNIMPLEMENTED else RuntimeError)(message())


def load(device: int, dialect: str, name: str, binary: bytes, block_threads: int, shared_bytes: int) -> Kernel:
    """Loads the kernel `name` of a binary on a device, for blocks of that size.

    Raises:
        NotImplementedError: the plugin does not take the dialect; the message has those that it takes.
        RuntimeError: the device cannot load the binary, or it does not contain the kernel.
    """
    hal, module, kernel = library(), ctypes.c_void_p(), ctypes.c_void_p()
    _C.initialize(device)
    desc = _ModuleDesc(ctypes.sizeof(_ModuleDesc), dialect.encode(), b"", binary, len(binary), None)
    check(hal.hal_module_load(device, ctypes.byref(desc), ctypes.byref(module)))
    try:
        check(hal.hal_kernel_get(module, name.encode(), ctypes.byref(kernel)))
        info = _KernelInfo(struct_size=ctypes.sizeof(_KernelInfo))
        check(hal.hal_kernel_info(kernel, block_threads, shared_bytes, ctypes.byref(info)))
    except Exception:
        hal.hal_module_unload(module)
        raise
    return Kernel(module.value, kernel.value, info.registers, info.local_bytes, info.max_block_threads, info.max_shared)


def unload(module: int) -> None:
    """Waits for the module's device, then unloads the module."""
    library().hal_module_unload(module)


class _Streams(dict):
    """The HAL's streams of a device by their ids, which are valid until the process ends."""

    def __init__(self, device: int):
        super().__init__()
        self._device = device

    def __missing__(self, number: int) -> int:
        stream = ctypes.c_void_p()
        check(library().hal_stream_from_id(self._device, number, ctypes.byref(stream)))
        return self.setdefault(number, stream.value)


@functools.lru_cache(maxsize=None)
def streams(device: int) -> dict:
    """Returns a table of the device's streams by their ids."""
    return _Streams(device)


def address_of_pinned(host_address: int, device: int) -> int | None:
    """Returns the address by which kernels of a device access page-locked host memory; None if they cannot."""
    address = ctypes.c_void_p()
    status = library().hal_host_device_pointer(host_address, device, ctypes.byref(address))
    return address.value if status == _OK else None
