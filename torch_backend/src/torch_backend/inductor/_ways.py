"""How inductor computes a graph on the device: kernels of Triton, kernels from source, kernels on the host, or operators
one by one.
"""

from __future__ import annotations

import abc
import functools
import warnings

import torch
from torch._inductor.codegen.triton import TritonScheduling
from torch._inductor.scheduler import BaseScheduling
from torch._inductor.virtualized import V

from torch_backend import backend
from torch_backend.backend import _utils

from . import _extern, _threads, _triton
from ._codegen import HostScheduling, host_visible
from ._launch import has_fp64, takes_source
from ._source import OperatorScheduling, SourceScheduling


class Way(abc.ABC):
    """The interface of a way to compute a graph. `name` is part of inductor's cache keys. `place` is where the kernels of
    a package run, for its runner in C++.
    """

    name: str
    place: str
    scheduling: type[BaseScheduling]

    @abc.abstractmethod
    def takes(self, index: int) -> bool:
        """Returns whether a device supports this way; starts the device."""

    @abc.abstractmethod
    def mark(self, gm: torch.fx.GraphModule) -> None:
        """Marks the operators of a graph that inductor calls and does not fuse."""


class SourceKernels(Way):
    """Fused kernels that the device compiles from source and runs."""

    name = "kernels from source"
    place = "device"
    scheduling = SourceScheduling

    def takes(self, index: int) -> bool:
        return takes_source(index)

    def mark(self, gm: torch.fx.GraphModule) -> None:
        missing = _extern.without_kernel(fp64=all(map(has_fp64, range(backend.device_count()))))
        _extern.keep_extern(gm, lambda node: node.target.overloadpacket in missing)


class TritonKernels(Way):
    """Fused kernels of Triton, whose compiler is that of the device's vendor. Scheduled by inductor itself."""

    name = "kernels of Triton"
    place = "device"
    scheduling = TritonScheduling

    def takes(self, index: int) -> bool:
        return _triton.generates()

    def mark(self, gm: torch.fx.GraphModule) -> None:
        for index in range(backend.device_count()):
            _triton.check_generated(index)
        _extern.keep_extern(gm, lambda node: node.target.overloadpacket in _extern.ORDERED)


class HostKernels(Way):
    """Fused C++ kernels that the host runs on the device's memory; they express all operators."""

    @property
    def name(self) -> str:
        return f"C++ on the host, {_threads.threads()} threads of the device"

    place = "host"
    scheduling = HostScheduling

    def takes(self, index: int) -> bool:
        return host_visible(index)

    def mark(self, gm: torch.fx.GraphModule) -> None:
        _extern.keep_extern(gm, lambda node: _extern.is_ours(node) and _extern.is_slower_in_loops(node))


class Operators(Way):
    """No kernels: each operator of the graph is called, as in eager mode."""

    name = "operators"
    place = "operators"
    scheduling = OperatorScheduling

    def takes(self, index: int) -> bool:
        return True

    def mark(self, gm: torch.fx.GraphModule) -> None:
        _say_no_kernels()
        _extern.write_loops(gm)
        if V.aot_compilation:
            _extern.use_operators_of_libtorch(gm)
        missing = _extern.without_kernel(fp64=True)
        _extern.keep_extern(gm, lambda node: _extern.is_ours(node) or node.target.overloadpacket in missing)


# In the order of preference; Triton's are on request only. A GPU that shares its memory with the host is faster than
# the host.
_WAYS = (TritonKernels(), SourceKernels(), HostKernels(), Operators())


def way_of_device(index: int) -> Way:
    """Returns the way to compute a graph on a device; starts the device."""
    return next(way for way in _WAYS if way.takes(index))


def way() -> Way:
    """Returns the way of all devices together, because inductor has one per device type."""
    ways = {way_of_device(index) for index in range(backend.device_count())}
    return ways.pop() if len(ways) == 1 else _WAYS[-1]


def computes_on_host() -> bool:
    """Returns whether the kernels of all devices are C++ on the host."""
    return isinstance(way(), HostKernels)


def calls_operators() -> bool:
    """Returns whether the devices have no kernels, so that the graph's operators run one by one."""
    return isinstance(way(), Operators)


class Scheduling(BaseScheduling):
    """The scheduling of the device's way. Inductor requires a class."""

    def __new__(cls, scheduler):
        return way().scheduling(scheduler)


@functools.lru_cache(maxsize=1)
def _say_no_kernels() -> None:
    name = _utils.name()
    warnings.warn(
        f"torch.compile does not generate kernels for '{name}': the host may not access its memory, and its plugin supports neither opencl-c nor cuda-c. "
        "The graph's operators run one by one, as with torch.compile(backend='aot_eager').",
        stacklevel=2,
    )
