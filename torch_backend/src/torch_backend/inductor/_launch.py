"""Functions that generated code calls: kernels in the portable dialect, compiled when the code is loaded."""

from __future__ import annotations

import functools

from torch_backend import _C, backend

_FP64 = 1 << 3  # HAL_DEVICE_FP64 of hal/plugin.h
_SOURCES = ("opencl-c", "cuda-c")


@functools.lru_cache(maxsize=None)
def takes_source(index: int) -> bool:
    """Returns whether a device compiles kernels from source; starts the device."""
    _C.initialize(index)
    return _C.kernel_stats(index)["dialect"] in _SOURCES


@functools.lru_cache(maxsize=None)
def has_fp64(index: int) -> bool:
    return bool(backend.get_device_properties(index).flags & _FP64)


def compile_kernel(index: int, name: str, text: str, arguments: str, reports: bool):
    """Returns a function that launches the kernel `name` of `text` on a device's current stream.

    Its arguments are the number of items, then one for each letter of `arguments`: p a tensor, v a number on the
    CPU, i an int, f a float.

    Raises:
        RuntimeError: the kernel does not compile; the message has the compiler's log.
    """
    return _C.Kernel(index, name, text, arguments, False, reports).launch
