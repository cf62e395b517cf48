"""Device memory of a program's own allocator, in place of the caching allocator."""

from __future__ import annotations

import ctypes
import os

from torch_backend import _C
from torch_backend._hal import check_library

from ._utils import name

_changed = False


class PluggableAllocator:
    """An allocator of device memory in a shared library, as torch.cuda.memory.CUDAPluggableAllocator.

    `change_current_allocator` makes it allocate all tensors, `MemPool(allocator=...)` the segments of a pool.

    Args:
        path_to_so_file: path of the library, which stays loaded.
        alloc_fn_name: name of a function `void *alloc(ssize_t size, int device, void *stream)`. It returns memory of the
            device, aligned to 512 bytes, or NULL if there is none. `stream` is the driver's handle.
        free_fn_name: name of a function `void free(void *address, ssize_t size, int device, void *stream)`. It is called
            once no queued work uses the memory.
    """

    def __init__(self, path_to_so_file: str | os.PathLike, alloc_fn_name: str, free_fn_name: str):
        path = os.fspath(path_to_so_file)
        if os.sep in path:  # other names are searched for by the dynamic linker
            check_library(path)
        library = ctypes.CDLL(path)
        functions = [_address(library, path_to_so_file, function) for function in (alloc_fn_name, free_fn_name)]
        self._allocator = _C.PluggableAllocator(*functions)

    def allocator(self) -> _C.PluggableAllocator:
        """Returns the object that `MemPool` takes, too."""
        return self._allocator


def _address(library: ctypes.CDLL, path, function: str) -> int:
    if not isinstance(function, str):
        raise TypeError(f"expected the name of a function of '{path}', got {function!r}")
    try:
        return ctypes.cast(library[function], ctypes.c_void_p).value  # attributes of the library are also those of Python's object
    except (AttributeError, ValueError):
        raise ValueError(f"'{path}' has no function {function!r}") from None


def raw_allocator(allocator) -> _C.PluggableAllocator:
    """Returns the object of the extension for a `PluggableAllocator` or its `allocator()`."""
    raw = allocator.allocator() if isinstance(allocator, PluggableAllocator) else allocator
    if not isinstance(raw, _C.PluggableAllocator):
        raise TypeError(f"expected torch.{name()}.memory.PluggableAllocator(path, alloc_fn, free_fn), got {allocator!r}")
    return raw


def change_current_allocator(allocator: PluggableAllocator) -> None:
    """Makes an allocator allocate the memory of all tensors, without a cache.

    Raises:
        RuntimeError: a device has allocated memory already.
    """
    global _changed
    _C.change_allocator(raw_allocator(allocator))
    _changed = True


def get_allocator_backend() -> str:
    """Returns "native", or "pluggable" after `change_current_allocator`."""
    return "pluggable" if _changed else "native"
