"""What is to be known of single operators: which have nothing to compare, which results are free to differ, and what stands for an
operator that only devices have."""

from __future__ import annotations

import torch

_UNINITIALISED = ("empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided", "_empty_affine_quantized",
                  "resize_", "resize_as_", "_resize_output_", "set_", "_efficientzerotensor")  # fmt: skip
# Their answers are about the device, not about values.
_QUESTIONS = ("is_pinned", "_pin_memory", "record_stream", "_fused_sdp_choice", "is_same_size", "_has_compatible_shallow_copy_type")
# Of PyTorch's own, those that compute on a tensor's elements.
_OTHER_NAMESPACES = ("prim", "profiler", "streams", "c10d", "_c10d_functional", "_c10d_functional_autograd", "rngprims", "debugprims", "inductor")
# Written, of which their schema says nothing.
_STATISTICS = {"native_batch_norm": ("running_mean", "running_var"), "batch_norm_update_stats": ("running_mean", "running_var")}


# Results by position that each device fills for its own backward pass, in a form of its own.
_AUXILIARY = {"log_sigmoid_forward": (1,), "_embedding_bag": (1, 2, 3), "_embedding_bag_forward_only": (1, 2, 3)}


# Relative errors of CPU torch itself in float64, from constants that it has in float32 or to fewer digits (against mpmath).
_ROUGH = {"hardsigmoid_backward": 1e-7, "special_airy_ai": 1e-6, "special_bessel_j0": 1e-4, "special_bessel_j1": 1e-4, "special_bessel_y0": 1e-4,
          "special_bessel_y1": 1e-4}  # fmt: skip


def rough(func) -> float:
    """The relative tolerance that CPU torch's own errors need at least."""
    return _ROUGH.get(base_name(func), 0.0)


def auxiliary(func) -> tuple:
    """Positions of the results that have no meaning outside of the device."""
    return _AUXILIARY.get(base_name(func), ())


# Results by position that accelerators keep in float32, and CPU torch in the dtype of the input.
_IN_FLOAT32 = {"native_layer_norm": (1, 2), "native_group_norm": (1, 2), "_fused_rms_norm": (1,)}


def statistics(func) -> tuple:
    """Positions of the results that may have a wider dtype than CPU torch's."""
    return _IN_FLOAT32.get(base_name(func), ())


def base_name(func) -> str:
    """The name without namespace and overload."""
    return func._schema.name.partition("::")[2]


def nothing_to_compare(func) -> str:
    """Says why an operator is never compared; empty when it is."""
    name = base_name(func)
    if func.namespace in _OTHER_NAMESPACES:
        return "not of tensors"
    if name in _UNINITIALISED:
        return "uninitialised"
    if name in _QUESTIONS:
        return "question"
    returns = func._schema.returns
    if torch.Tag.inplace_view in func.tags or (returns and all(result.alias_info and not result.alias_info.is_write for result in returns)):
        return "view"
    return ""


def is_random(func, args, kwargs) -> bool:
    """Whether a call draws random numbers."""
    if name_of_chance := _CHANCE.get(base_name(func)):
        return _argument(func, args, kwargs, name_of_chance) != 0
    return torch.Tag.nondeterministic_seeded in func.tags


# Operators that are random only where this argument is not 0.
_CHANCE = {"_scaled_dot_product_fused_attention_overrideable": "dropout_p"}


def written_names(func) -> set[str]:
    """Names of the arguments that the operator writes."""
    names = {argument.name for argument in func._schema.arguments if argument.alias_info and argument.alias_info.is_write}
    return names | set(_STATISTICS.get(base_name(func), ()))


def named(func, args, kwargs) -> dict:
    """Gives a call's arguments by name, defaults where nothing was given."""
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


# ---- ties: several indices are right ----


def _gathered(dimension):
    """Of (values, indices), or indices alone: what `input` holds there."""

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
# Of these results, named by position, any index is right under which the input holds what CPU torch chose.
_TIES = {"sort": (1, _dim), "topk": (1, _dim), "kthvalue": (1, _dim), "median": (1, _dim), "nanmedian": (1, _dim), "mode": (1, _dim),
         "max": (1, _dim), "min": (1, _dim), "cummax": (1, _dim), "cummin": (1, _dim), "_cummax_helper": (1, _dim), "argmax": (0, _dim),
         "argmin": (0, _dim), "argsort": (0, _dim), "aminmax": (-1, _dim), "max_pool2d_with_indices": (1, _pooled),
         "max_pool3d_with_indices": (1, _pooled), "adaptive_max_pool2d": (1, _pooled), "adaptive_max_pool3d": (1, _pooled)}  # fmt: skip


def is_a_tie(func, arguments: dict, position: int, ours, theirs) -> bool:
    """Whether indices that differ name equal elements of the input; `arguments` are host copies."""
    place, values = _TIES.get(base_name(func), (-1, None))
    if place != position or ours.shape != theirs.shape or arguments.get("stable") or ours.dtype is not torch.int64:
        return False
    try:
        first, second = (values({**arguments, "__name__": base_name(func)}, indices) for indices in (ours, theirs))
    except (RuntimeError, IndexError):  # an index outside
        return False
    return bool(((first == second) | (first.isnan() & second.isnan() if first.is_floating_point() else first == second)).all())


# ---- operators that the CPU has not, or asks in another way ----


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
    """Key and value of grouped-query attention, once for each head of the query."""
    heads = query.shape[-3]
    return [tensor if tensor.shape[-3] == heads else tensor.repeat_interleave(heads // tensor.shape[-3], -3) for tensor in tensors]


def _attention(query, key, value, attn_bias=None, dropout_p=0.0, is_causal=False, return_debug_mask=False, *, scale=None, **_):
    key, value = _repeated(query, key, value)
    scores, _ = _scores(query, key, attn_bias, is_causal, scale)
    return [(scores.softmax(-1).nan_to_num(0.0) @ value.double()).to(query.dtype)]


def _log_sigmoid_backward(grad_output, x, buffer):
    """With the buffer of CPU torch's own forward pass: other devices keep none."""
    return [torch.ops.aten.log_sigmoid_backward(grad_output, x, torch.ops.aten.log_sigmoid_forward(x)[1])]


# Names to functions of host tensors: the first results, in the order of the schema. Not compared: what is behind them.
REFERENCES = {"_scaled_dot_product_fused_attention_overrideable": _attention, "log_sigmoid_backward": _log_sigmoid_backward}
