"""Corrects FakeTensor where it does not describe the device's results.

torch decides memory formats by a list of its own devices. Its meta functions of fused recurrent cells and of grouped
products by recipes are missing or fail.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch._prims_common import suggest_memory_format

from .._registry import type_name


def install() -> None:
    """Corrects or implements FakeTensor's results of this device's operators. Those of other devices do not change."""
    from torch._subclasses.fake_impls import op_implementations_dict as implementations

    for name, correct in _CORRECTIONS.items():
        packet, overload = name.split(".")
        operator = getattr(getattr(torch.ops.aten, packet), overload)
        if operator in implementations:  # otherwise torch uses the strides of its meta function
            implementations[operator] = _corrected(implementations[operator], correct)
    for name, implement in _IMPLEMENTATIONS.items():
        implementations.setdefault(getattr(torch.ops.aten, name).default, _implemented(implement))


def _implemented(implement: Callable) -> Callable:
    """Returns FakeTensor's implementation of an operator for tensors of this device. Other tensors use torch's
    implementation.
    """

    def implementation(fake_mode, operator, first, *args, **kwargs):
        if first.device.type != type_name():
            return NotImplemented
        with fake_mode:
            return implement(first, *args, **kwargs)

    return implementation


def _corrected(original: Callable, correct: Callable) -> Callable:
    """Returns FakeTensor's implementation of an operator: the original one, followed by the correction for tensors of
    this device.
    """

    @functools.wraps(original)
    def implementation(fake_mode, operator, *args, **kwargs):
        results = original(fake_mode, operator, *args, **kwargs)
        given = dict(zip((argument.name for argument in operator._schema.arguments), args)) | kwargs
        if given["input"].device.type != type_name():
            return results
        with fake_mode:
            return correct(results, given)

    return implementation


# ---- convolutions: channels last if the image or the weight is, as csrc/aten/spatial/convolution.cpp returns them ----
def _convolution(results, given):
    memory_format = _memory_format(given["input"], given["weight"])
    if isinstance(results, torch.Tensor):
        return _converted(results, memory_format)
    grad_input, grad_weight, grad_bias = results
    return _converted(grad_input, memory_format), _converted(grad_weight, memory_format), grad_bias


def _memory_format(*operands: torch.Tensor) -> torch.memory_format:
    for tensor in operands:
        # Images of one dimension are made contiguous before torch expands them to two.
        if tensor.dim() in (4, 5) and _has_hints(tensor):
            memory_format = suggest_memory_format(tensor)
            if memory_format != torch.contiguous_format:
                return memory_format
    return torch.contiguous_format


def _has_hints(tensor: torch.Tensor) -> bool:
    from torch.fx.experimental.symbolic_shapes import has_guarding_hint

    return all(has_guarding_hint(size) for size in (*tensor.shape, *tensor.stride()))


def _converted(tensor, memory_format):
    known = {4: torch.channels_last, 5: torch.channels_last_3d}
    if tensor is None or known.get(tensor.dim()) != memory_format:
        return tensor
    return tensor.to(memory_format=memory_format)


# ---- recurrent cells: contiguous, as csrc/aten/recurrent/recurrent.cpp returns them; the sums check the sizes ----
def _sum_of(gates, bias):
    return gates if bias is None else gates + bias


def _lstm_cell(input_gates, hidden_gates, cx, input_bias=None, hidden_bias=None):
    gates = _sum_of(input_gates, input_bias) + _sum_of(hidden_gates, hidden_bias)
    state = gates.chunk(4, 1)[0] * cx
    return state.new_empty(state.shape), state.new_empty(state.shape), gates.new_empty(gates.shape)


def _gru_cell(input_gates, hidden_gates, hx, input_bias=None, hidden_bias=None):
    gates = _sum_of(input_gates, input_bias) + _sum_of(hidden_gates, hidden_bias)
    state = gates.chunk(3, 1)[0] * hx
    return state.new_empty(state.shape), state.new_empty((state.shape[0], 5 * state.shape[1]))


def _gru_cell_backward(grad_hy, workspace, has_bias):
    state = workspace.chunk(5, 1)[0] * grad_hy
    rows, width = state.shape
    bias = [state.new_empty(3 * width) if has_bias else None for _ in range(2)]
    return state.new_empty((rows, 3 * width)), state.new_empty((rows, 3 * width)), state.new_empty((rows, width)), *bias


def _scaled_grouped_mm_v2(
    self, mat2, scale_a, recipe_a, swizzle_a, scale_b, recipe_b, swizzle_b, offs=None, bias=None, out_dtype=None, contraction_dim=(), use_fast_accum=False
):
    shape = self.shape[-2], mat2.shape[-1]
    if self.dim() == mat2.dim():
        shape = (self.shape[0] if offs is None else offs.shape[0], *shape)
    return self.new_empty(shape, dtype=out_dtype or torch.bfloat16)


_IMPLEMENTATIONS = {
    "_scaled_grouped_mm_v2": _scaled_grouped_mm_v2,
    "_thnn_fused_lstm_cell": _lstm_cell,
    "_thnn_fused_gru_cell": _gru_cell,
    "_thnn_fused_gru_cell_backward": _gru_cell_backward,
}

_CORRECTIONS = {
    "convolution.default": _convolution,
    "_convolution.default": _convolution,
    "_convolution.deprecated": _convolution,
    "convolution_backward.default": _convolution,
}
