"""Random operators that a compiled backward pass computes again (torch.utils.checkpoint): the forward pass stores the
state of the device's generator, and the backward pass uses it.

torch's operators for this have one implementation per device type, and none for out-of-tree backends.
"""

from __future__ import annotations

import functools

import torch
from torch._C import DispatchKey

from .. import backend
from .._registry import type_name

_STATE_BYTES = 16  # of the device's generator


def install() -> None:
    """Called when torch has defined its operators."""
    from torch._higher_order_ops.utils import registered_hop_fake_fns
    from torch._prims import rng_prims

    for operator, implementation in ((rng_prims.run_and_save_rng_state, _run_and_save), (rng_prims.run_with_rng_state, _run_with)):
        kernels = operator.py_kernels
        kernels[DispatchKey.BackendSelect] = _extended(kernels[DispatchKey.BackendSelect], implementation)
    operator = rng_prims.run_and_save_rng_state
    registered_hop_fake_fns[operator] = _extended(registered_hop_fake_fns[operator], _describe)


def _extended(original, implementation):
    """Returns torch's function, extended by the implementation for tensors of the device."""

    @functools.wraps(original)
    def function(*args, **kwargs):
        index = _index(args, kwargs)
        return original(*args, **kwargs) if index is None else implementation(index, *args, **kwargs)

    return function


def _index(args, kwargs) -> int | None:
    """Returns the index of the device on which an operator computes; None if it is of another type. The state of the
    generator, a tensor of the CPU, is not an operand.
    """
    device = kwargs.get("device")
    if device is None:
        device = next((arg.device for arg in args if isinstance(arg, torch.Tensor) and arg.device.type != "cpu"), None)
    if device is None or torch.device(device).type != type_name():
        return None
    index = torch.device(device).index
    return backend.current_device() if index is None else index


def _run_and_save(index: int, op, *args, **kwargs):
    # torch describes the state of an out-of-tree backend as one of the CPU's generator, which is larger.
    state = torch.zeros_like(torch.get_rng_state())
    state[:_STATE_BYTES] = backend.get_rng_state(index)
    return state, op(*args, **kwargs)


def _run_with(index: int, state: torch.Tensor, op, *args, **kwargs):
    current = backend.get_rng_state(index)
    backend.set_rng_state(state[:_STATE_BYTES].clone(), index)
    try:
        return op(*args, **kwargs)
    finally:
        backend.set_rng_state(current, index)


def _describe(index: int, op, *args, **kwargs):
    return torch.empty(torch.get_rng_state().shape, dtype=torch.uint8), op(*args, **kwargs)
