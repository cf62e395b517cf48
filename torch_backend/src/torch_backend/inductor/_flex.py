"""flex_attention in compiled graphs, for devices without Triton.

Its operators become matrix products and element-wise operators of the graph. Inductor then fuses the modification of
the scores, the mask and the softmax. The scores of all queries and keys are in memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex
from torch._inductor.decomposition import select_decomp_table
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import guarding_hint_or_throw
from torch.fx.node import map_arg
from torch.nn.attention.flex_attention import _LARGE_SPARSE_BLOCK_SIZE, _vmap_for_bhqkv
from torch.utils import _pytree as pytree

from torch_backend.backend import _utils

# places in the tuple of a BlockMask: number of blocks and their indices, of blocks with and without a mask function
_MASKED, _FULL, _SIZES = (2, 3), (4, 5), (-3, -2)


def _order_of(strides) -> list[int]:
    """Returns the dimensions from the largest stride to the smallest."""
    return sorted(range(len(strides)), key=lambda dim: -guarding_hint_or_throw(strides[dim]))


def _like(result: torch.Tensor, model: torch.Tensor) -> torch.Tensor:
    """Returns a dense copy with the order of dimensions of another tensor."""
    order = _order_of(model.stride())
    inverse = [order.index(dim) for dim in range(len(order))]
    return result.permute(order).contiguous().permute(inverse)


def _present(counts: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    """Returns for each block of queries and block of keys whether a table lists it."""
    columns = torch.arange(indices.size(-1), device=indices.device)
    listed = columns < counts.unsqueeze(-1)
    return ((indices.unsqueeze(-1) == columns) & listed.unsqueeze(-1)).any(-2)


def _allowed(block_mask: tuple, mask: torch.Tensor) -> torch.Tensor:
    """Returns the mask function's values, restricted to the blocks that the tables list."""
    q_size, kv_size = (block_mask[place] for place in _SIZES)
    if q_size == kv_size == _LARGE_SPARSE_BLOCK_SIZE:  # the call has no block mask
        return mask
    rows, columns = mask.shape[-2:]
    q_blocks = torch.arange(rows, device=mask.device) // q_size
    kv_blocks = torch.arange(columns, device=mask.device) // kv_size

    def spread(table):
        return table[:, :, q_blocks][:, :, :, kv_blocks]

    allowed = spread(_present(*(block_mask[place] for place in _MASKED))) & mask
    if block_mask[_FULL[0]] is not None:
        allowed = allowed | spread(_present(*(block_mask[place] for place in _FULL)))
    return allowed


class _Scores:
    """The scores of a call, before and after the modification."""

    def __init__(self, query, key, value, block_mask, scale, mask_buffers):
        self.dtype = torch.float64 if query.dtype == torch.float64 else torch.float32
        batch, self.groups = query.size(0), query.size(1) // key.size(1)
        self.key, self.value = (x.expand(batch, *x.shape[1:]).repeat_interleave(self.groups, dim=1) for x in (key, value))
        self.scores = (query.to(self.dtype) @ self.key.to(self.dtype).transpose(-2, -1)) * scale
        self.places = tuple(torch.arange(size, device=query.device) for size in self.scores.shape)
        mask = _vmap_for_bhqkv(block_mask[-1], prefix=(), suffix=(None,) * len(mask_buffers))
        with TransformGetItemToIndex():
            self.allowed = _allowed(block_mask, mask(*self.places, *mask_buffers))

    def modified(self, score_mod: Callable, buffers: tuple) -> torch.Tensor:
        score_mod = _vmap_for_bhqkv(score_mod, prefix=(0,), suffix=(None,) * len(buffers))
        with TransformGetItemToIndex():
            values = score_mod(self.scores, *self.places, *buffers)
        return torch.where(self.allowed, values.to(self.dtype), -math.inf)


def _forward(query, key, value, score_mod, block_mask, scale, kernel_options, score_buffers=(), mask_buffers=()):
    """Returns the output, and for each query the logarithm to the base 2 of the sum, and the maximum in that base."""
    scores = _Scores(query, key, value, block_mask, scale, mask_buffers)
    modified = scores.modified(score_mod, score_buffers)
    largest = modified.amax(-1, keepdim=True)
    base = torch.where(largest == -math.inf, 0.0, largest)
    weights = (modified - base).exp()
    total = weights.sum(-1, keepdim=True)
    weights = weights / torch.where(total == 0, 1.0, total)
    output = weights.to(query.dtype) @ scores.value.to(query.dtype)
    logarithm = (base + total.log()).squeeze(-1)
    return _like(output, query), logarithm / math.log(2), largest.squeeze(-1) / math.log(2)


def _backward(
    query, key, value, out, logsumexp, grad_out, grad_logsumexp, score_mod, joint, block_mask, scale, kernel_options, score_buffers=(), mask_buffers=()
):
    """Returns the gradients of query, key, value, and of the buffers of the modification."""
    scores = _Scores(query, key, value, block_mask, scale, mask_buffers)
    dtype = scores.dtype
    logarithm = logsumexp.unsqueeze(-1) * math.log(2)
    empty = logarithm == -math.inf
    weights = torch.where(empty, 0.0, (scores.modified(score_mod, score_buffers) - torch.where(empty, 0.0, logarithm)).exp())
    if grad_out is None:
        grad_out = torch.zeros_like(out)
    change = (grad_out.to(dtype) @ scores.value.to(dtype).transpose(-2, -1)) - (out.to(dtype) * grad_out.to(dtype)).sum(-1, keepdim=True)
    if grad_logsumexp is not None:
        change = change + (grad_logsumexp / math.log(2)).unsqueeze(-1)
    joint = _vmap_for_bhqkv(
        joint, prefix=(0,), suffix=(0, *(None,) * len(score_buffers)), out_dims=[0, None, None, None, None, *(None,) * len(score_buffers)]
    )
    with TransformGetItemToIndex():
        grad_scores, _, _, _, _, *grad_buffers = joint(scores.scores, *scores.places, weights * change, *score_buffers)
    grad_scores = torch.where(scores.allowed, grad_scores * scale, 0.0).to(query.dtype)

    def reduced(grad, operand):
        grad = grad.unflatten(1, (-1, scores.groups)).sum(2)
        return _like(grad.sum(0, keepdim=True) if operand.size(0) != grad.size(0) else grad, operand)

    grad_key = reduced(grad_scores.transpose(-2, -1) @ query, key)
    grad_value = reduced(weights.to(query.dtype).transpose(-2, -1) @ grad_out, value)
    grads = tuple(None if grad is None else grad.contiguous() for grad in grad_buffers)
    return _like(grad_scores @ scores.key, query), grad_key, grad_value, grads


_IMPLEMENTATIONS = {torch.ops.higher_order.flex_attention: _forward, torch.ops.higher_order.flex_attention_backward: _backward}


def inline(gm: torch.fx.GraphModule) -> None:
    """Replaces the operators of flex_attention in a graph of inductor."""
    nodes = [node for node in gm.graph.nodes if node.op == "call_function" and node.target in _IMPLEMENTATIONS]
    for node in nodes:
        if node.args[0].meta["val"].device.type == _utils.name():
            _replace(gm, node, _IMPLEMENTATIONS[node.target])
    if nodes:
        gm.graph.eliminate_dead_code()
        gm.recompile()


def _replace(gm: torch.fx.GraphModule, node: torch.fx.Node, implementation: Callable) -> None:
    leaves, spec = pytree.tree_flatten((node.args, dict(node.kwargs)))
    modules = {leaf: getattr(gm, leaf.target) for leaf in leaves if isinstance(leaf, torch.fx.Node) and leaf.op == "get_attr" and "val" not in leaf.meta}
    operands = list(dict.fromkeys(leaf for leaf in leaves if isinstance(leaf, torch.fx.Node) and leaf not in modules))

    def function(*values):
        known = {**modules, **dict(zip(operands, values))}
        args, kwargs = pytree.tree_unflatten([known[leaf] if isinstance(leaf, torch.fx.Node) else leaf for leaf in leaves], spec)
        return implementation(*args, **kwargs)

    values = [operand.meta["val"] for operand in operands]
    with torch._guards.detect_fake_mode(values), torch.no_grad():
        traced = make_fx(function, decomposition_table=select_decomp_table())(*values)
    with gm.graph.inserting_before(node):
        result = _insert(gm, traced, operands)
    _replace_uses(node, result)


def _insert(gm: torch.fx.GraphModule, traced: torch.fx.GraphModule, operands: list):
    """Copies the nodes of a graph into another one; returns the nodes of its results."""
    remaining, copies = iter(operands), {}
    for node in traced.graph.nodes:
        if node.op == "placeholder":
            copies[node] = next(remaining)
        elif node.op == "output":
            return map_arg(node.args[0], copies.__getitem__)
        else:
            copy = copies[node] = gm.graph.node_copy(node, copies.__getitem__)
            if node.op == "get_attr":
                number = 0
                while hasattr(gm, name := f"_flex_attention_constant_{number}"):
                    number += 1
                setattr(gm, name, getattr(traced, node.target))
                copy.target = name
    raise AssertionError("a traced graph has no output")


def _replace_uses(node: torch.fx.Node, result) -> None:
    """Replaces a node, a tuple or one of its elements, by the result."""
    if isinstance(result, torch.fx.Node):
        node.replace_all_uses_with(result)
    elif isinstance(result, (tuple, list)):
        for user in list(node.users):
            _replace_uses(user, result[user.args[1]])
    else:
        for user in list(node.users):
            user.args = map_arg(user.args, lambda one: result if one is node else one)
    if not node.users:
        node.graph.erase_node(node)
