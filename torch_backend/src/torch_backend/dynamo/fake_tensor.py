"""What FakeTensor cannot know of the device's results: torch decides their memory format by a list of its own devices."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch._prims_common import suggest_memory_format

from .._registry import type_name


def install() -> None:
    """Corrects FakeTensor's results of this device's operators; those of other devices stay torch's own."""
    from torch._subclasses.fake_impls import op_implementations_dict as implementations

    for name, correct in _CORRECTIONS.items():
        packet, overload = name.split(".")
        operator = getattr(getattr(torch.ops.aten, packet), overload)
        if operator in implementations:  # else torch takes the strides of its meta function
            implementations[operator] = _corrected(implementations[operator], correct)


def _corrected(original: Callable, correct: Callable) -> Callable:
    """Returns FakeTensor's implementation of an operator: the original one, and for tensors of this device the correction after it."""

    @functools.wraps(original)
    def implementation(fake_mode, operator, *args, **kwargs):
        results = original(fake_mode, operator, *args, **kwargs)
        given = dict(zip((argument.name for argument in operator._schema.arguments), args)) | kwargs
        if given["input"].device.type != type_name():
            return results
        with fake_mode:
            return correct(results, given)

    return implementation


# ---- convolutions: channels last when the image or the weight is, as csrc/aten/spatial/convolution.cpp returns them ----
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


_CORRECTIONS = {
    "convolution.default": _convolution,
    "_convolution.default": _convolution,
    "_convolution.deprecated": _convolution,
    "convolution_backward.default": _convolution,
}
