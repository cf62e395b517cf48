"""Properties of single operators: operators that have nothing to compare, results that may differ, and references for
operators that only devices have.
"""

from __future__ import annotations

import torch

_UNINITIALIZED = ("empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided", "_empty_affine_quantized",
                  "resize_", "resize_as_", "_resize_output_", "set_", "_efficientzerotensor")  # fmt: skip
# Their results describe the device, not values.
_QUERIES = ("is_pinned", "_pin_memory", "record_stream", "_fused_sdp_choice", "is_same_size", "_has_compatible_shallow_copy_type")
# Namespaces of PyTorch whose operators do not compute on a tensor's elements.
_OTHER_NAMESPACES = ("prim", "profiler", "streams", "c10d", "_c10d_functional", "_c10d_functional_autograd", "rngprims", "debugprims", "inductor")
# Arguments that are written although the schema does not declare it.
_STATISTICS = {"native_batch_norm": ("running_mean", "running_var"), "batch_norm_update_stats": ("running_mean", "running_var")}


# Results, by position, that each device fills for its own backward pass, in its own format.
_AUXILIARY = {"log_sigmoid_forward": (1,), "_embedding_bag": (1, 2, 3), "_embedding_bag_forward_only": (1, 2, 3)}


# Relative errors of CPU torch itself in float64, caused by constants in float32 or with fewer digits (compared with
# mpmath).
_ROUGH = {"hardsigmoid_backward": 1e-7, "special_airy_ai": 1e-6, "special_bessel_j0": 1e-4, "special_bessel_j1": 1e-4, "special_bessel_y0": 1e-4,
          "special_bessel_y1": 1e-4}  # fmt: skip


def rough(func) -> float:
    """Returns the minimal relative tolerance, because of CPU torch's own errors."""
    return _ROUGH.get(base_name(func), 0.0)


def auxiliary(func) -> tuple:
    """Returns the positions of results that have no meaning outside of the device."""
    return _AUXILIARY.get(base_name(func), ())


# Results, by position, that accelerators store in float32, and CPU torch in the dtype of the input.
_IN_FLOAT32 = {"native_layer_norm": (1, 2), "native_group_norm": (1, 2), "_fused_rms_norm": (1,)}


def statistics(func) -> tuple:
    """Returns the positions of results that may have a wider dtype than CPU torch's."""
    return _IN_FLOAT32.get(base_name(func), ())


def base_name(func) -> str:
    """Returns the name without namespace and overload."""
    return func._schema.name.partition("::")[2]


def nothing_to_compare(func) -> str:
    """Returns why an operator is never compared; "" if it is compared."""
    name = base_name(func)
    if func.namespace in _OTHER_NAMESPACES:
        return "not of tensors"
    if name in _UNINITIALIZED:
        return "uninitialized"
    if name in _QUERIES:
        return "query"
    returns = func._schema.returns
    if torch.Tag.inplace_view in func.tags or (returns and all(result.alias_info and not result.alias_info.is_write for result in returns)):
        return "view"
    return ""


def is_random(func, args, kwargs) -> bool:
    """Returns whether a call generates random numbers."""
    if name_of_chance := _CHANCE.get(base_name(func)):
        return _argument(func, args, kwargs, name_of_chance) != 0
    return torch.Tag.nondeterministic_seeded in func.tags


# Operators that are random only if this argument is not 0.
_CHANCE = {"_scaled_dot_product_fused_attention_overrideable": "dropout_p"}


def written_names(func) -> set[str]:
    """Returns the names of the arguments that the operator writes."""
    names = {argument.name for argument in func._schema.arguments if argument.alias_info and argument.alias_info.is_write}
    return names | set(_STATISTICS.get(base_name(func), ()))


def named(func, args, kwargs) -> dict:
    """Returns a call's arguments by name, with defaults for those not passed."""
    values = {}
    for position, argument in enumerate(func._schema.arguments):
        if position < len(args) and not argument.kwarg_only:
            values[argument.name] = args[position]
        elif argument.name in kwargs:
            values[argument.name] = kwargs[argument.name]
        else:
            values[argument.name] = argument.default_value if argument.has_default_value() else None
    return values


def _argument(func, args, kwargs, name):
    return named(func, args, kwargs).get(name)


# ---- ties: several indices are correct ----


def _gathered(dimension):
    """For results (values, indices), or indices alone: returns the elements of `input` at the indices."""

    def values(arguments, indices):
        x, dim = arguments["self"], dimension(arguments)
        if dim is None:
            return x.flatten()[indices]
        keep = indices.dim() == x.dim()
        found = x.gather(dim, indices if keep else indices.unsqueeze(dim))
        return found if keep else found.squeeze(dim)

    return values


def _pooled(arguments, indices):
    x = arguments["self"]
    dims = 3 if indices.dim() >= 4 and "3d" in arguments["__name__"] else 2
    return x.flatten(-dims).gather(-1, indices.flatten(-dims)).view(indices.shape)


_dim = _gathered(lambda arguments: arguments["dim"])
# For these results, by position, any index is correct whose element of the input equals the element that CPU torch
# chose.
_TIES = {"sort": (1, _dim), "topk": (1, _dim), "kthvalue": (1, _dim), "median": (1, _dim), "nanmedian": (1, _dim), "mode": (1, _dim),
         "max": (1, _dim), "min": (1, _dim), "cummax": (1, _dim), "cummin": (1, _dim), "_cummax_helper": (1, _dim), "argmax": (0, _dim),
         "argmin": (0, _dim), "argsort": (0, _dim), "aminmax": (-1, _dim), "max_pool2d_with_indices": (1, _pooled),
         "max_pool3d_with_indices": (1, _pooled), "adaptive_max_pool2d": (1, _pooled), "adaptive_max_pool3d": (1, _pooled)}  # fmt: skip


def is_a_tie(func, arguments: dict, position: int, ours, theirs) -> bool:
    """Returns whether indices that differ select equal elements of the input; `arguments` are host copies."""
    place, values = _TIES.get(base_name(func), (-1, None))
    if place != position or ours.shape != theirs.shape or arguments.get("stable") or ours.dtype is not torch.int64:
        return False
    try:
        first, second = (values({**arguments, "__name__": base_name(func)}, indices) for indices in (ours, theirs))
    except (RuntimeError, IndexError):  # an index is out of range
        return False
    return bool(((first == second) | (first.isnan() & second.isnan() if first.is_floating_point() else first == second)).all())


# ---- operators that the CPU does not have, or has with other arguments ----


def _scores(query, key, bias, is_causal, scale):
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    scores = query.double() @ key.double().transpose(-2, -1) * scale
    if is_causal:
        seen = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
        scores = scores.masked_fill(~seen, float("-inf"))
    if bias is not None:
        scores = scores.masked_fill(~bias, float("-inf")) if bias.dtype is torch.bool else scores + bias.double()
    return scores, scale


def _repeated(query, *tensors):
    """Returns key and value of grouped-query attention, repeated for each head of the query."""
    heads = query.shape[-3]
    return [tensor if tensor.shape[-3] == heads else tensor.repeat_interleave(heads // tensor.shape[-3], -3) for tensor in tensors]


def _attention(query, key, value, attn_bias=None, dropout_p=0.0, is_causal=False, return_debug_mask=False, *, scale=None, **_):
    key, value = _repeated(query, key, value)
    scores, _ = _scores(query, key, attn_bias, is_causal, scale)
    return [(scores.softmax(-1).nan_to_num(0.0) @ value.double()).to(query.dtype)]


def _log_sigmoid_backward(grad_output, x, buffer):
    """Uses the buffer of CPU torch's own forward pass, because other devices store none."""
    return [torch.ops.aten.log_sigmoid_backward(grad_output, x, torch.ops.aten.log_sigmoid_forward(x)[1])]


# Functions of host tensors by operator name. They return the first results, in the order of the schema; later results
# are not compared.
REFERENCES = {"_scaled_dot_product_fused_attention_overrideable": _attention, "log_sigmoid_backward": _log_sigmoid_backward}
