"""Attention of DTensors with the device's fused operator: each rank computes its part of the batch or of the heads. In
`context_parallel`, keys and values move around a ring of ranks.

Source: torch.distributed.tensor._ops._matrix_ops and torch.distributed.tensor.experimental._context_parallel._attention,
which do this for the fused operators of CUDA.
"""

from __future__ import annotations

import math

import torch

_BATCH, _HEADS, _SEQUENCE = 0, 1, 2  # dimensions of query, key and value


def _refuse(what: str, instead: str) -> None:
    raise NotImplementedError(f"scaled_dot_product_attention of DTensors: {what} is not supported; {instead}")


def _placements(tensors) -> tuple:
    """Returns the placements in which each rank computes its part alone. Dimensions of the mesh that divide something
    else than the batch or the heads are replicated.
    """
    from torch.distributed.tensor import Replicate, Shard

    mesh, found = tensors[0].device_mesh, []
    for number in range(mesh.ndim):
        kinds = {tensor.placements[number] for tensor in tensors}
        kind = kinds.pop() if len(kinds) == 1 else Replicate()
        if kind in (Shard(_BATCH), Shard(_HEADS)):
            parts = mesh.size(number) * math.prod(mesh.size(other) for other, one in enumerate(found) if one == kind)
            is_even = all(tensor.shape[kind.dim] % parts == 0 for tensor in tensors)
            found.append(kind if is_even else Replicate())
        else:
            found.append(Replicate())
    return tuple(found)


def _of_bias(bias, placements: tuple) -> tuple:
    """Returns the placements of the bias, which is broadcast to (batch, heads, queries, keys)."""
    from torch.distributed.tensor import Replicate, Shard

    found = []
    for placement in placements:
        at = placement.dim - 4 + bias.dim() if placement.is_shard() else -1
        found.append(Replicate() if at < 0 or bias.shape[at] == 1 else Shard(at))
    return tuple(found)


def _part(tensor, mesh, placements: tuple):
    """Returns this rank's part of a tensor. Tensors that are no DTensors are the same on all ranks."""
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor._dtensor_spec import DTensorSpec
    from torch.distributed.tensor._redistribute import redistribute_local_tensor

    if not isinstance(tensor, DTensor):
        if tensor is not None and any(placement.is_shard() for placement in placements):
            _refuse("an attn_bias that is no DTensor", "pass distribute_tensor(attn_bias, mesh, placements)")
        return tensor
    if tensor.placements == placements:
        return tensor._local_tensor
    return redistribute_local_tensor(tensor._local_tensor, tensor._spec, DTensorSpec(mesh, placements, tensor._spec.tensor_meta))


def _whole(local, shape, mesh, placements: tuple):
    """Returns the DTensor of which `local` is this rank's part, in the same memory order."""
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta

    if local is None:
        return None
    strides, step = [0] * local.ndim, 1
    for dim in sorted(range(local.ndim), key=local.stride):
        strides[dim], step = step, step * max(shape[dim], 1)
    return DTensor(local, DTensorSpec(mesh, placements, TensorMeta(torch.Size(shape), tuple(strides), local.dtype)), requires_grad=False)


# ---- around a ring ---------------------------------------------------------------------------------------------------


def _is_ring(tensors) -> bool:
    """Returns whether context_parallel is active and divides these tensors."""
    from torch.distributed.tensor import DTensor, Shard

    is_active = torch.ops.aten._scaled_dot_product_flash_attention.default in DTensor._op_dispatcher._custom_op_handlers
    return is_active and all(tensor.placements == (Shard(_SEQUENCE),) for tensor in tensors)


def _block_backward(query, key, value, out, logsumexp, is_causal, grad_out, scale):
    """Returns the gradients of a block of keys. `out` and `logsumexp` are those of all keys; an operator that computes
    its own sums, as the device's may, has others.
    """
    dtype = torch.float64 if query.dtype == torch.float64 else torch.float32
    groups = query.size(_HEADS) // key.size(_HEADS)
    query, key, value, out, grad_out = (tensor.to(dtype) for tensor in (query, key, value, out, grad_out))
    if groups > 1:
        key, value = (tensor.repeat_interleave(groups, _HEADS) for tensor in (key, value))
    scale = query.size(-1) ** -0.5 if scale is None else scale
    scores = query @ key.transpose(-2, -1) * scale
    if is_causal:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(later, -math.inf)
    weights = (scores - logsumexp.to(dtype).unsqueeze(-1)).exp()
    slopes = weights * (grad_out @ value.transpose(-2, -1) - (grad_out * out).sum(-1, keepdim=True)) * scale
    of_key, of_value = slopes.transpose(-2, -1) @ query, weights.transpose(-2, -1) @ grad_out
    if groups > 1:
        of_key, of_value = (tensor.unflatten(_HEADS, (-1, groups)).sum(_HEADS + 1) for tensor in (of_key, of_value))
    return slopes @ key, of_key, of_value


def _ring_of(bias, dropout: float):
    """Returns torch's module of ring attention. Raises NotImplementedError for calls that it does not support."""
    from torch.distributed.tensor.experimental._context_parallel import _attention as ring

    if bias is not None:
        _refuse("attn_bias in context_parallel", "use is_causal=True, or attention without a mask")
    if dropout:
        _refuse("dropout in context_parallel", "set dropout_p=0.0")
    return ring


# ---- the operators ---------------------------------------------------------------------------------------------------


def _forward(query, key, value, attn_bias=None, dropout_p=0.0, is_causal=False, return_debug_mask=False, *, scale=None):
    operator, mesh = torch.ops.aten._scaled_dot_product_fused_attention_overrideable, query.device_mesh
    if _is_ring((query, key, value)):
        ring = _ring_of(attn_bias, dropout_p)
        placements = query.placements
        locals_ = (tensor._local_tensor for tensor in (query, key, value))
        found = ring._templated_ring_attention(mesh.get_group(), _SEQUENCE, operator, *locals_, is_causal=is_causal, scale=scale)
    else:
        placements = _placements((query, key, value))
        locals_ = [_part(tensor, mesh, placements) for tensor in (query, key, value)]
        bias = None if attn_bias is None else _part(attn_bias, mesh, _of_bias(attn_bias, placements))
        found = operator(*locals_, bias, dropout_p, is_causal, return_debug_mask, scale=scale)
    out, logarithms, *_, seed, offset, weights = found
    shape = (*query.shape[:-1], value.shape[-1])
    return (_whole(out, shape, mesh, placements), _whole(logarithms, query.shape[:-1], mesh, placements), None, None, query.shape[-2], key.shape[-2],
            seed, offset, _whole(weights, (*query.shape[:-1], key.shape[-2]), mesh, placements))  # fmt: skip


def _backward(grad_out, query, key, value, attn_bias, grad_input_mask, out, logsumexp, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p, is_causal,
              philox_seed, philox_offset, *, scale=None):  # fmt: skip
    from torch.distributed.tensor import Replicate

    mesh, operands, of_bias = query.device_mesh, (query, key, value), None
    if _is_ring(operands):
        ring, placements = _ring_of(attn_bias, dropout_p), query.placements
        grad, *locals_ = (_part(tensor, mesh, placements) for tensor in (grad_out, *operands, out, logsumexp))
        grads = ring._templated_ring_attention_backward(mesh.get_group(), _SEQUENCE, _block_backward, grad, "grad_out", *locals_, is_causal, scale=scale)
    else:
        # The gradient of a bias that is broadcast is a sum over all parts.
        placements = tuple(Replicate() for _ in query.placements) if grad_input_mask[3] else _placements(operands)
        bias_placements = placements if attn_bias is None else _of_bias(attn_bias, placements)
        bias = None if attn_bias is None else _part(attn_bias, mesh, bias_placements)
        grad, *locals_ = (_part(tensor, mesh, placements) for tensor in (grad_out, *operands))
        results = [_part(tensor, mesh, placements) for tensor in (out, logsumexp)]
        operator = torch.ops.aten._scaled_dot_product_fused_attention_overrideable_backward
        grads = operator(grad, *locals_, bias, grad_input_mask, *results, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p, is_causal, philox_seed,
                         philox_offset, scale=scale)  # fmt: skip
        of_bias = _whole(grads[3], attn_bias.shape, mesh, bias_placements) if grad_input_mask[3] else None
    return (*(_whole(one, tensor.shape, mesh, placements) for one, tensor in zip(grads, operands)), of_bias)


def install() -> None:
    """Makes DTensor call these functions, once torch.distributed.tensor has been imported."""
    from torch.distributed.tensor import DTensor

    handlers = getattr(DTensor._op_dispatcher, "_custom_op_handlers", None)
    if handlers is None:
        return
    for name, function in (("", _forward), ("_backward", _backward)):
        operator = getattr(torch.ops.aten, f"_scaled_dot_product_fused_attention_overrideable{name}").default
        handlers.setdefault(operator, lambda _, args, kwargs, function=function: function(*args, **kwargs))
