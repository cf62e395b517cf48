"""Runs inductor's C++ kernels, which compute on the host in the device's memory; generated code calls this."""

from __future__ import annotations

import ctypes
import functools
import sys

import torch

from torch_backend import _C

from ..dynamo.graphs.recording import host_kernels
from ._codegen import check_host_visible

# The calls that the program's own captures have recorded. When their graphs end is not known.
_of_captures = None


def run_on_host(index: int, kernel, *arguments) -> None:
    """Runs a kernel at once, after the current stream of a device. While the stream is being captured, the kernel
    becomes a command of the graph.
    """
    check_host_visible(index)
    stream = torch.accelerator.current_stream(index)
    if not stream.is_capturing():
        stream.synchronize()
        kernel(*arguments)
        return
    calls = host_kernels() or _calls_of_captures()
    calls.queue(_address(kernel), kernel.__name__, *arguments)


def _calls_of_captures() -> _C.HostKernels:
    global _of_captures
    if _of_captures is None:
        _of_captures = _C.HostKernels()
    return _of_captures


@functools.lru_cache(maxsize=None)
def _address(kernel) -> int:
    """Returns the address of the C function that a generated Python function calls."""
    module = kernel.__self__
    file = getattr(module, "__file__", None) or sys.modules[module.__name__].__file__
    return ctypes.cast(ctypes.CDLL(file).kernel, ctypes.c_void_p).value
