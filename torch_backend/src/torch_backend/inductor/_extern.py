"""Selects the operators of a graph that inductor calls instead of fusing them."""

from __future__ import annotations

from collections.abc import Callable
from operator import add, mul

import torch
from torch._inductor import inductor_prims, lowering
from torch._inductor.fx_passes import post_grad

from torch_backend.backend import _utils

from ..dynamo.decompositions import NOT_DECOMPOSED

_aten, _prims = torch.ops.aten, torch.ops.prims

# Operators whose kernels on the device add in a fixed order; fused kernels would add in a random order.
ORDERED = (
    _aten.index_put,
    _aten._unsafe_index_put,
    _aten._unsafe_masked_index_put_accumulate,
    _aten.scatter,
    _aten.scatter_add,
    _aten.scatter_reduce,
    _aten.masked_scatter,
    _aten.embedding_dense_backward,
)
# Functions that the portable dialect does not have.
_MISSING = (
    *(_aten.polygamma, _aten.special_zeta, _aten.frexp, _aten.ldexp, _aten._assert_async),
    *(getattr(_aten, f"special_chebyshev_polynomial_{kind}") for kind in "tuvw"),
    *(getattr(_aten, f"special_shifted_chebyshev_polynomial_{kind}") for kind in "tuvw"),
    *(_aten.special_hermite_polynomial_h, _aten.special_hermite_polynomial_he),
    *(_aten.special_laguerre_polynomial_l, _aten.special_legendre_polynomial_p),
)
# Functions that it has in float64 only.
_DOUBLE = (
    *(_aten.digamma, _aten.erfinv, _aten.special_erfcx, _aten.special_ndtri, _aten.special_airy_ai, _aten.igamma, _aten.igammac),
    *(_aten.i0, _aten.special_i0e, _aten.special_i1, _aten.special_i1e, _aten.special_spherical_bessel_j0),
    *(getattr(_aten, f"special_bessel_{kind}") for kind in ("j0", "j1", "y0", "y1")),
    *(getattr(_aten, f"special_modified_bessel_{kind}") for kind in ("i0", "i1", "k0", "k1")),
    *(getattr(_aten, f"special_scaled_modified_bessel_{kind}") for kind in ("k0", "k1")),
)
# Operators that inductor's lowering calls without some arguments: scale_result, recipes and second scales.
_SCALED = tuple(getattr(_aten, name) for name in ("_scaled_mm", "_scaled_mm_v2") if hasattr(_aten, name))


def is_slower_in_loops(node: torch.fx.Node) -> bool:
    """Returns whether the device's operator is faster than inductor's C++ loops. A convolution that is called adds its
    bias; inductor adds it in a loop of its own.
    """
    return node.target in NOT_DECOMPOSED or node.target is _aten.convolution.default and node.args[2] is not None


def is_ours(node: torch.fx.Node) -> bool:
    """Returns whether an operator of a graph has a result on the device."""
    values = node.meta.get("val")
    values = values if isinstance(values, (list, tuple)) else (values,)
    return any(isinstance(value, torch.Tensor) and value.device.type == _utils.name() for value in values)


def _is_scaled(node: torch.fx.Node) -> bool:
    return node.target.overloadpacket in _SCALED and is_ours(node)


# After this pass, inductor turns the first line's operators into loops, in new nodes without the mark. It writes the
# results of the others in place, with operators without results, and then reads them. It does not change operators with
# unknown names.
_REWRITTEN = (
    *(_aten.select_scatter.default, _aten.slice_scatter.default, _aten.as_strided_scatter.default, _aten.diagonal_scatter.default),
    *lowering.inplaceable_foreach_ops,
)
_library = torch.library.Library("torch_backend_inductor", "FRAGMENT")


def _opaque(operator: torch._ops.OpOverload) -> torch._ops.OpOverload:
    """Defines an operator under another name. Cached code of inductor calls it in processes that never trace, so all
    are defined on import.
    """
    name, overload = operator._schema.name.removeprefix("aten::"), operator._overloadname
    _library.define(str(operator._schema).removeprefix("aten::"))
    _library.impl(name if overload == "default" else f"{name}.{overload}", operator, "CompositeExplicitAutograd")
    return getattr(getattr(torch.ops.torch_backend_inductor, name), overload)


def name_of(operator: torch._ops.OpOverload) -> str:
    """Returns the name of an operator under which C++ programs have it."""
    return operator._schema.name.replace(f"{_library.ns}::", "aten::")


_OPAQUE = {operator: _opaque(operator) for operator in _REWRITTEN}


def write_loops(gm: torch.fx.GraphModule) -> None:
    """Decomposes scan and map into while_loop now. Inductor would do it after this pass, and trace their bodies again
    without the marks.
    """
    for name in ("decompose_scan_to_while_loop", "decompose_map_to_while_loop"):
        decompose = getattr(post_grad, name, None)  # a version without it has a lowering for the operator
        if decompose is not None:
            decompose(gm)


def use_operators_of_libtorch(gm: torch.fx.GraphModule) -> None:
    """Replaces operators that torch defines in Python by operators that C++ programs have."""
    for operator in (_aten._to_copy.default, _aten.arange.start_step):
        if operator not in lowering.lowerings:  # inductor knows them only as operators that it decomposes
            lowering.make_fallback(operator, warn=False, override_decomp=True)
    for part in gm.modules():
        for node in part.graph.nodes if isinstance(part, torch.fx.GraphModule) else ():
            if node.target is _prims.convert_element_type.default:
                node.target, node.args, node.kwargs = _aten._to_copy.default, node.args[:1], {"dtype": node.args[1]}
            elif node.target is _prims.device_put.default and is_ours(node.args[0]) and node.args[0].op == "get_attr":
                # Inductor would read the constant in loops of the other device.
                node.target, node.args, node.kwargs = _aten._to_copy.default, node.args[:1], {"device": node.args[1]}
                node.meta["should_fallback"] = True
            elif node.target is _prims.iota.default and is_ours(node):
                _write_arange(node)
            elif node.target in _RANDOM and is_ours(node):
                _RANDOM[node.target](node)
        for node in reversed(part.graph.nodes) if isinstance(part, torch.fx.GraphModule) else ():
            if node.target in _SEEDS and not node.users:
                part.graph.erase_node(node)


def _write_arange(node: torch.fx.Node) -> None:
    (length,), numbers = node.args, dict(node.kwargs)
    start, step = numbers.pop("start"), numbers.pop("step")
    numbers.pop("requires_grad")
    with node.graph.inserting_before(node):
        end = _number(node.graph, add, start, _number(node.graph, mul, length, step))
    node.target, node.args, node.kwargs = _aten.arange.start_step, (start, end, step), numbers


def _write_random(node: torch.fx.Node) -> None:
    size, seed, mode = node.args
    target = {"rand": _aten.rand.default, "randn": _aten.randn.default}[mode]
    node.target, node.args, node.kwargs = target, (size,), {"dtype": torch.float32, "device": seed.meta["val"].device}


def _write_randint(node: torch.fx.Node) -> None:
    *numbers, seed = node.args
    node.target, node.args, node.kwargs = _aten.randint.low, tuple(numbers), {"dtype": torch.int64, "device": seed.meta["val"].device}


# Inductor's operators that generate random numbers from seeds of a kernel.
_RANDOM = {inductor_prims.random: _write_random, inductor_prims.randint: _write_randint}
_SEEDS = (inductor_prims.seed, inductor_prims.seeds, inductor_prims.lookup_seed)


def _number(graph: torch.fx.Graph, function: Callable, *args):
    """Returns a number, or a node that computes it of symbolic numbers."""
    if not any(isinstance(arg, torch.fx.Node) for arg in args):
        return function(*args)
    node = graph.call_function(function, args)
    node.meta["val"] = function(*(arg.meta["val"] if isinstance(arg, torch.fx.Node) else arg for arg in args))
    return node


def without_kernel(fp64: bool) -> set[torch._ops.OpOverloadPacket]:
    """Returns the operators that kernels from source cannot express; `fp64` is whether the device computes in float64."""
    return {*ORDERED, *_MISSING} if fp64 else {*ORDERED, *_MISSING, *_DOUBLE}


def keep_extern(gm: torch.fx.GraphModule, is_called: Callable[[torch.fx.Node], bool]) -> None:
    """Marks the operators that inductor calls instead of fusing them, in a graph and its subgraphs."""
    for part in gm.modules():
        for node in part.graph.nodes if isinstance(part, torch.fx.GraphModule) else ():
            if isinstance(node.target, torch._ops.OpOverload) and (is_called(node) or _is_scaled(node)):
                node.meta["should_fallback"] = True
                node.target = _OPAQUE.get(node.target, node.target)
