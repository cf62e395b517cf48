"""Functions of torch that work on the device but check a fixed list of device types: flex_attention, products of int8
with `out_dtype`, opcheck's test of autograd, snapshots of the accelerator's memory, and attention of jagged tensors.
2:4 sparse tensors, whose products torch has for CUDA only, are refused by an error that names what to use.
"""

from __future__ import annotations

import functools
import sys

import torch
import torch.utils._pytree

from ._imports import after_import
from ._registry import type_name


def install() -> None:
    """Adds the device to those lists as soon as torch imports the modules that contain them."""
    after_import("torch.nn.attention.flex_attention", _admit_to_flex_attention)
    after_import("torch._higher_order_ops.out_dtype", _admit_to_int_mm)
    after_import("torch.testing._internal.optests.generate_tests", _admit_to_opcheck)
    after_import("torch.accelerator.memory", _admit_to_snapshots)
    after_import("torch.nested._internal.sdpa", _admit_to_jagged_attention)
    after_import("torch.sparse.semi_structured", _refuse_semi_structured)


def _admit_to_flex_attention() -> None:
    from torch.nn.attention import flex_attention

    original = flex_attention._validate_device

    @functools.wraps(original)
    def _validate_device(query, key, value) -> None:
        if query.device.type != type_name():
            original(query, key, value)

    flex_attention._validate_device = _validate_device


def _admit_to_int_mm() -> None:
    """`out_dtype(mm, torch.int32, ...)` of int8 calls `_int_mm`, whose kernels devices have, in place of `mm` of int32."""
    out_dtype = sys.modules["torch._higher_order_ops.out_dtype"]  # the package has an operator of that name
    original = out_dtype.is_int_mm

    @functools.wraps(original)
    def is_int_mm(op, output_dtype, args) -> bool:
        is_ours = op is torch.ops.aten.mm.default and all(x.device.type == type_name() for x in args)
        if is_ours and output_dtype == torch.int32 and len(args) == 2:
            return all(x.dtype == torch.int8 for x in args)
        return original(op, output_dtype, args)

    out_dtype.is_int_mm = is_int_mm


def _admit_to_jagged_attention() -> None:
    """Attention of jagged tensors selects the attention of packed sequences, which devices have, as on CUDA: torch's
    other implementation has no causal mask.
    """
    sdpa = sys.modules["torch.nested._internal.sdpa"]
    original = sdpa.can_use_flash_attention

    @functools.wraps(original)
    def can_use_flash_attention(params, debug=False) -> bool:
        if params.query.device.type != type_name():
            return original(params, debug)
        return params.attn_mask is None

    sdpa.can_use_flash_attention = can_use_flash_attention


def _refuse_semi_structured() -> None:
    from torch.sparse.semi_structured import SparseSemiStructuredTensor

    original = SparseSemiStructuredTensor._validate_device_dim_dtype_shape.__func__

    @functools.wraps(original)
    def _validate_device_dim_dtype_shape(cls, original_tensor) -> None:
        if original_tensor.device.type == type_name():
            raise NotImplementedError(
                f"2:4 sparse tensors are not supported on '{type_name()}': torch implements their products for CUDA only. Use the dense tensor, "
                "whose pruned elements are zero, or torchao's weights of 4 and 8 bits."
            )
        original(cls, original_tensor)

    SparseSemiStructuredTensor._validate_device_dim_dtype_shape = classmethod(_validate_device_dim_dtype_shape)


def _admit_to_snapshots() -> None:
    """torch.accelerator.memory._snapshot, new in torch 2.15, returns CUDA's snapshot, which is empty, for other devices."""
    from torch.accelerator import memory

    original = getattr(memory, "_snapshot", None)
    if original is None:
        return

    @functools.wraps(original)
    def _snapshot(device=None, *args, **kwargs):
        accelerator = torch.accelerator.current_accelerator()
        if accelerator is None or accelerator.type != type_name():
            return original(device, *args, **kwargs)
        return torch.get_device_module(accelerator).memory._snapshot(device, *args, **kwargs)

    memory._snapshot = _snapshot


def _admit_to_opcheck() -> None:
    from torch.testing._internal.optests import generate_tests

    original = generate_tests.autograd_registration_check

    @functools.wraps(original)
    def autograd_registration_check(operator, args, kwargs) -> None:
        operands = [x for x in torch.utils._pytree.arg_tree_leaves(*args, **kwargs) if isinstance(x, torch.Tensor)]
        if any(x.device.type == type_name() for x in operands):
            _check_autograd_registration(operator, args, kwargs, operands)
        else:
            original(operator, args, kwargs)

    generate_tests.autograd_registration_check = autograd_registration_check


def _check_autograd_registration(operator, args, kwargs, operands) -> None:
    """Checks that an operator has its gradient at an autograd key, with torch's own check applied to the device's
    dispatch keys.

    Raises:
        AssertionError: a kernel of the device computes gradients itself.
        RuntimeError: no operand requires a gradient, so that nothing would be tested.
    """
    from torch.testing._internal.optests.autograd_registration import set_autograd_fallback_mode

    if not any(x.requires_grad for x in operands):
        raise RuntimeError(f"autograd_registration_check: expected an operand of {operator} that requires a gradient, got none")
    keys = ("AutogradPrivateUse1", "Autograd", "CompositeImplicitAutograd")
    if any(torch._C._dispatch_has_kernel_for_dispatch_key(operator.name(), key) for key in keys):
        return
    with set_autograd_fallback_mode("nothing"):
        results = torch.utils._pytree.tree_leaves(operator(*args, **kwargs))
    given = {id(x) for x in operands}
    if any(isinstance(x, torch.Tensor) and x.requires_grad and id(x) not in given for x in results):
        raise AssertionError(
            f"{operator.name()}: a result requires a gradient, but the operator has no kernel at an autograd key: its kernel for "
            f"'{type_name()}' computes gradients itself, which other transforms do not see. Register them with register_autograd."
        )
