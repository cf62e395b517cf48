"""Runs inductor's C++ kernels, which compute on the host in the device's memory; generated code calls this."""

from __future__ import annotations

import ctypes
import functools
import sys

import torch

from torch_backend import _C

from ..dynamo.graphs.recording import host_kernels
from . import _threads
from ._codegen import check_host_visible

# The calls that the program's own captures have recorded. When their graphs end is not known.
_of_captures = None


def queue_on_host(index: int, kernel, name: str, *arguments) -> None:
    """Queues a kernel that the device's threads compute on the current stream of a device. A check in it that fails is
    reported as failures of the device's operators are: if streams are asynchronous, by the next synchronization.
    """
    check_host_visible(index)
    if not _C.queue_host_kernel(index, _address_with_threads(kernel), name, *arguments):
        run_on_host(index, kernel, name, *arguments)


def run_on_host(index: int, kernel, name: str, *arguments) -> None:
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
    calls.queue(_address(kernel), name, *arguments)


def _calls_of_captures() -> _C.HostKernels:
    global _of_captures
    if _of_captures is None:
        _of_captures = _C.HostKernels()
    return _of_captures


@functools.lru_cache(maxsize=None)
def _address_with_threads(kernel) -> int:
    _threads.attach(_library(kernel))
    return _address(kernel)


@functools.lru_cache(maxsize=None)
def _address(kernel) -> int:
    """Returns the address of the C function that a generated Python function calls."""
    return ctypes.cast(_library(kernel).kernel, ctypes.c_void_p).value


def _library(kernel) -> ctypes.CDLL:
    module = kernel.__self__
    return ctypes.CDLL(getattr(module, "__file__", None) or sys.modules[module.__name__].__file__)
