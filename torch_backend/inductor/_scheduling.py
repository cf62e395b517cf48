"""Which way inductor goes on the devices that there are, and which operators of a graph it calls instead of fusing them."""

from __future__ import annotations

import functools
import warnings

import torch
from torch._inductor.scheduler import BaseScheduling

from torch_backend import backend
from torch_backend.backend import _utils

from ._codegen import HostScheduling, host_visible
from ._launch import has_fp64, takes_source
from ._source import SourceScheduling

HOST, SOURCE, EAGER = "C++ on the host", "kernels from source", "operators"

_aten = torch.ops.aten

# Operators that the device's own kernels compute in one order, whatever the launch; fused, they would add up by chance.
_ORDERED = (
    _aten.index_put,
    _aten._unsafe_index_put,
    _aten._unsafe_masked_index_put_accumulate,
    _aten.scatter,
    _aten.scatter_add,
    _aten.scatter_reduce,
    _aten.masked_scatter,
    _aten.embedding_dense_backward,
)
# Functions that the dialect of kernels does not have.
_MISSING = (
    *(_aten.polygamma, _aten.special_zeta, _aten.frexp, _aten.ldexp, _aten._assert_async),
    *(getattr(_aten, f"special_chebyshev_polynomial_{kind}") for kind in "tuvw"),
    *(getattr(_aten, f"special_shifted_chebyshev_polynomial_{kind}") for kind in "tuvw"),
    *(_aten.special_hermite_polynomial_h, _aten.special_hermite_polynomial_he),
    *(_aten.special_laguerre_polynomial_l, _aten.special_legendre_polynomial_p),
)
# Those that it has in float64 alone.
_DOUBLE = (
    *(_aten.digamma, _aten.erfinv, _aten.special_erfcx, _aten.special_ndtri, _aten.special_airy_ai, _aten.igamma, _aten.igammac),
    *(_aten.i0, _aten.special_i0e, _aten.special_i1, _aten.special_i1e, _aten.special_spherical_bessel_j0),
    *(getattr(_aten, f"special_bessel_{kind}") for kind in ("j0", "j1", "y0", "y1")),
    *(getattr(_aten, f"special_modified_bessel_{kind}") for kind in ("i0", "i1", "k0", "k1")),
    *(getattr(_aten, f"special_scaled_modified_bessel_{kind}") for kind in ("k0", "k1")),
)


def way_of_device(index: int) -> str:
    """What a graph on a device becomes; starts the device. Kernels on the device itself come first: beside a GPU that shares its memory
    the host is the slower one."""
    return SOURCE if takes_source(index) else HOST if host_visible(index) else EAGER


def way() -> str:
    """The way of all devices together: inductor has one for a type of devices."""
    ways = {way_of_device(index) for index in range(backend.device_count())}
    return ways.pop() if len(ways) == 1 else EAGER


class Scheduling(BaseScheduling):
    """The scheduling of the device; inductor wants a class. Where there are no kernels, `keep_extern` leaves nothing to schedule."""

    def __new__(cls, scheduler):
        return HostScheduling(scheduler) if way() == HOST else SourceScheduling(scheduler)


@functools.lru_cache(maxsize=1)
def _say_eager() -> None:
    name = _utils.name()
    warnings.warn(
        f"torch.compile makes no kernels for '{name}': the host may not touch its memory, and its plugin takes neither opencl-c nor cuda-c. "
        "The graph's operators run one by one, as with torch.compile(backend='aot_eager').",
        stacklevel=2,
    )


def _is_ours(node: torch.fx.Node) -> bool:
    values = node.meta.get("val")
    values = values if isinstance(values, (list, tuple)) else (values,)
    return any(isinstance(value, torch.Tensor) and value.device.type == _utils.name() for value in values)


def keep_extern(gm: torch.fx.GraphModule) -> None:
    """Marks the operators that inductor shall call: all where the device has no kernels, else those that kernels cannot express."""
    found = way()
    if found == HOST:
        return
    missing = {*_ORDERED, *_MISSING}
    if found == SOURCE and not all(map(has_fp64, range(backend.device_count()))):
        missing.update(_DOUBLE)
    if found == EAGER:
        _say_eager()
    for node in gm.graph.nodes:
        if isinstance(node.target, torch._ops.OpOverload) and (found == EAGER and _is_ours(node) or node.target.overloadpacket in missing):
            node.meta["should_fallback"] = True
