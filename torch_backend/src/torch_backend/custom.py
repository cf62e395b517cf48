"""Libraries of custom operators that work with every torch version: what their generated Python modules register
(docs/custom-operators.md).

The library itself defines the operators and their kernels on LibTorch's stable ABI. Meta functions with symbolic
sizes, gradients, reference implementations and reroutes are not available there and are registered from here.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import torch

__all__ = ["Check", "Library", "refuse_second_derivative"]


class Library:
    """A library of custom operators: loads the file `path`, whose operators are in `namespace`.

    Raises:
        OSError: the library cannot be loaded.
        RuntimeError: its operators exist already.
    """

    def __init__(self, path: str | os.PathLike, namespace: str):
        torch.ops.load_library(str(path))
        self.namespace = namespace
        self._fragment = torch.library.Library(namespace, "FRAGMENT")

    def register(self, name: str, fake: Callable, reference: Callable | None = None, save: Callable | None = None,
                 backward: Callable | None = None, reroutes: list[tuple] = ()) -> None:  # fmt: skip
        """Registers the functions that belong to an operator.

        Args:
            fake: its meta function.
            reference: the implementation for devices without a kernel.
            save: saves tensors for the gradient (`setup_context` of torch.library.register_autograd).
            backward: the gradient.
            reroutes: for each operator of torch whose calls come here: its name, the name of the operator that tries
            these calls, for each argument of this operator the index of torch's argument (-1: the default), and
            pairs of an argument and its required value.
        """
        from . import _C

        qualified = f"{self.namespace}::{name}"
        torch.library.register_fake(qualified, fake, lib=self._fragment)
        if reference is not None:
            self._fragment.impl(reference.__name__, reference, "CompositeExplicitAutograd")
        if backward is None:

            def backward(ctx, *grads):
                raise RuntimeError(f"derivative for {qualified} is not implemented")

        torch.library.register_autograd(qualified, backward, setup_context=save, lib=self._fragment)
        for aten, attempt, sources, conditions in reroutes:
            _C.reroute_to(aten, f"{self.namespace}::{attempt}", sources, conditions)


def refuse_second_derivative(op: str, constant: str) -> None:
    """Raises NotImplementedError when the gradient is to be differentiated: its formula uses the result `constant`,
    which is not differentiable.
    """
    if torch.is_grad_enabled():
        raise NotImplementedError(f"{op}: the gradient cannot be differentiated again (create_graph=True), because its formula uses the "
                                  f"result '{constant}', which is not differentiable; write the formula without it.")  # fmt: skip


def _each(value) -> list:
    return [] if value is None else list(value) if isinstance(value, (list, tuple)) else [value]


class Check:
    """The checks of an operator's arguments for tensors without memory, whose sizes may be symbols. The messages are
    those of csrc/api/custom_check.cpp for real tensors.
    """

    def __init__(self, op: str):
        self.op = op

    def device(self, first_name: str, first: torch.Tensor, name: str, other) -> None:
        for tensor in _each(other):
            if tensor.device != first.device:
                raise RuntimeError(f"Expected all tensors to be on the same device, but found at least two devices, {first.device} and "
                                   f"{tensor.device}! ({self.op}: '{first_name}' is on {first.device}, '{name}' is on {tensor.device})")  # fmt: skip

    def dtype(self, value, position: int, name: str, allowed: tuple[str, ...]) -> None:
        for tensor in _each(value):
            if str(tensor.dtype).removeprefix("torch.") not in allowed:
                kinds = "scalar type" if len(allowed) == 1 else "one of the following scalar types:"
                raise RuntimeError(f"Expected tensor for argument #{position} '{name}' to have {kinds} {', '.join(allowed)}; but got "
                                   f"{str(tensor.dtype).removeprefix('torch.')} instead (while checking arguments for {self.op})")  # fmt: skip

    def same_dtype(self, value, name: str, other: torch.Tensor, other_name: str) -> None:
        for tensor in _each(value):
            if tensor.dtype != other.dtype:
                raise RuntimeError(f"{self.op}: expected '{name}' to have the dtype of '{other_name}', {other.dtype}, but got {tensor.dtype}")

    def rank(self, tensor: torch.Tensor, name: str, count: int, exact: bool, pattern: str) -> None:
        if tensor.dim() < count or (exact and tensor.dim() != count):
            raise RuntimeError(f"{self.op}: expected '{name}' to have the shape {pattern}, but got {list(tensor.shape)}")

    def size(self, tensor: torch.Tensor, name: str, dim: int, wanted, symbol: str, source: str | None) -> None:
        if tensor.shape[dim] != wanted:
            of = f" ({symbol} of '{source}')" if source else ""
            raise RuntimeError(f"{self.op}: expected dimension {dim} of '{name}' to have the size {wanted}{of}, but '{name}' has the shape "
                               f"{list(tensor.shape)}")  # fmt: skip

    def leading(self, tensor: torch.Tensor, name: str, fixed: int, leading, source: str) -> None:
        mine = tensor.shape[: max(tensor.dim() - fixed, 0)]
        if len(mine) != len(leading) or any(a != b for a, b in zip(mine, leading)):
            raise RuntimeError(f"{self.op}: expected the leading dimensions of '{name}' to be {list(leading)} as those of '{source}', but "
                               f"'{name}' has the shape {list(tensor.shape)}")  # fmt: skip

    def number(self, value, name: str, least: float, most: float) -> None:
        if not least <= value <= most:
            raise ValueError(f"{self.op}: expected {least:g} <= {name} <= {most:g}, but got {value:g}")
