"""Which operators of a graph inductor calls instead of fusing them."""

from __future__ import annotations

import functools
import warnings

import torch

from torch_backend import backend
from torch_backend.backend import _utils

from ._launch import has_fp64
from ._scheduling import EAGER, HOST, SOURCE, way

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


# Inductor makes loops of these behind the pass, in nodes of its own without our mark.
_REWRITTEN = (_aten.select_scatter.default, _aten.slice_scatter.default, _aten.as_strided_scatter.default, _aten.diagonal_scatter.default)


@functools.lru_cache(maxsize=None)
def _opaque(operator: torch._ops.OpOverload) -> torch._ops.OpOverload:
    """The same operator under a name that inductor does not know."""
    library = torch.library.Library("torch_backend_inductor", "FRAGMENT")
    name = operator._schema.name.removeprefix("aten::")
    library.define(str(operator._schema).removeprefix("aten::"))
    library.impl(name, operator, "CompositeExplicitAutograd")
    _libraries.append(library)
    return getattr(torch.ops.torch_backend_inductor, name).default


_libraries = []  # a library's operators end with it


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
            if node.target in _REWRITTEN:
                node.target = _opaque(node.target)
