"""One call of an operator: its arguments, the device's results, and CPU torch's results for the same arguments."""

from __future__ import annotations

from functools import partial

import torch
from torch.utils._pytree import tree_flatten, tree_map

from . import operators, tolerance
from .memory import Snapshot, is_plain, storage_id, to_host


class Uncomputed(Exception):
    """CPU torch cannot compute this call; the message has the reason."""


def describe(value) -> str:
    """Describes a value for error messages: tensors by dtype, sizes and strides."""
    if isinstance(value, torch.Tensor):
        text = f"{str(value.dtype).removeprefix('torch.')}{list(value.size())}"
        if value.layout is not torch.strided:
            return f"{text} {value.layout}"
        text += "" if value.is_contiguous() else f" strides {list(value.stride())}"
        text += f" offset {value.storage_offset()}" if value.storage_offset() else ""
        bits = (" conj" if value.is_complex() and value.is_conj() else "") + (" neg" if value.is_neg() else "")
        return f"{text}{bits} on {value.device}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(describe, value)) + "]"
    return repr(value)


class Call:
    """Created before the device runs the operator; `check` is called afterwards."""

    def __init__(self, func, args, kwargs, device_type: str):
        self.func, self.args, self.kwargs, self.device_type = func, args, kwargs, device_type
        self.arguments = operators.named(func, args, kwargs)
        names = operators.written_names(func)
        self.written = [tensor for name in names for tensor in self._tensors(self.arguments.get(name))]
        flat = self.given = {id(tensor): tensor for tensor in self._tensors((args, kwargs))}
        self.on_device = [tensor for tensor in flat.values() if tensor.device.type == device_type]
        self.plain = all(map(is_plain, flat.values()))
        # Described before the call, because an operator may change its operands' shapes.
        self.described = {name: describe(value) for name, value in self.arguments.items()}
        if self.plain:
            written = {id(tensor) for tensor in self.written}
            self.snapshot = Snapshot([tensor for tensor in flat.values() if tensor.device.type == device_type or id(tensor) in written], written)

    @staticmethod
    def _tensors(tree):
        return [leaf for leaf in tree_flatten(tree)[0] if isinstance(leaf, torch.Tensor)]

    def on_cpu(self, wide=None):
        """Returns (args, kwargs, copies) for the CPU, with tensors converted by `wide`. Copies are keyed by the id of
        the original argument.
        """
        copies = self.snapshot.copies()
        if wide:
            copies = {key: wide(tensor) for key, tensor in copies.items()}

        def swap(value):
            if isinstance(value, torch.Tensor):
                if id(value) in copies:
                    return copies[id(value)]
                return wide(value) if wide else value
            if isinstance(value, torch.device):
                return torch.device("cpu")
            return _WIDER.get(value, value) if wide and isinstance(value, torch.dtype) else value

        args, kwargs = tree_map(swap, self.args), tree_map(swap, self.kwargs)
        if kwargs.get("pin_memory"):
            kwargs["pin_memory"] = False
        return args, kwargs, copies

    def _compute(self, wide=None):
        """Returns CPU torch's results as a flat list, and the copies that it wrote, for operands converted by `wide`."""
        args, kwargs, copies = self.on_cpu(wide)
        reference = operators.REFERENCES.get(operators.base_name(self.func))
        if reference and not self.written:
            return reference(*args, **kwargs), copies
        if not torch._C._dispatch_has_computed_kernel_for_dispatch_key(self.func.name(), "CPU"):
            raise Uncomputed("CPU torch has no kernel")
        try:
            return _flat(self.func, self.func(*args, **kwargs)), copies
        except (RuntimeError, TypeError, ValueError, IndexError) as error:
            if not wide:
                try:  # such as an operator that the CPU does not have in float16, or with statistics in float32
                    computed = self._compute(_widened)
                    self.only_wide = True
                    return computed
                except Uncomputed:
                    pass
            raise Uncomputed(f"CPU torch raised: {str(error).splitlines()[0] if str(error) else type(error).__name__}") from error

    def check(self, results) -> str:
        """Returns how the device's results differ from CPU torch's, or "" if they agree. Raises Uncomputed."""
        changed = self.snapshot.changed()
        if changed is not None:
            return f"{self._name_of(self.given[changed])} was changed in memory that the operator must not write"
        theirs, copies = self._compute()
        precise = _Precise(self)
        for tensor in self.written:
            if id(tensor) in copies:
                difference = self._compare(f"{self._name_of(tensor)}, which the operator writes,", tensor, copies[id(tensor)], precise.written(tensor))
                if difference:
                    return difference
        returns = self.func._schema.returns
        for position, (ours, expected) in enumerate(zip(_flat(self.func, results), theirs)):
            declared = returns[min(position, len(returns) - 1)]
            if (declared.alias_info and declared.alias_info.is_write) or position in operators.auxiliary(self.func):
                continue  # compared above; only the backward pass of the same device reads it
            difference = self._compare(f"result {position}" if len(theirs) > 1 else "the result", ours, expected, precise.result(position), position)
            if not difference and isinstance(ours, torch.Tensor):
                difference = self._shares(position, ours, expected, copies)
            if difference:
                return difference
        return ""

    def _compare(self, what, ours, theirs, precise, position=None) -> str:
        if not isinstance(ours, torch.Tensor) or not isinstance(theirs, torch.Tensor):
            return self._compare_numbers(what, ours, theirs)
        if not is_plain(ours) or not is_plain(theirs):
            raise Uncomputed("a result is not strided memory")
        if ours.dtype != theirs.dtype and (self.only_wide or position in operators.statistics(self.func)) and not tolerance.is_exact(theirs.dtype):
            theirs = theirs.to(ours.dtype) if not tolerance.is_exact(ours.dtype) else theirs
        if ours.dtype != theirs.dtype or ours.shape != theirs.shape:
            return f"{what} is {describe(ours)}; CPU torch returns {describe(theirs)}"
        ours = to_host(ours)
        rtol = self.rtol
        if rtol is None and not tolerance.is_exact(ours.dtype):
            rtol = max(tolerance.rtol_of(ours.dtype), operators.rough(self.func))
        found = tolerance.compare(ours, theirs, rtol, self.atol + self._rounding(), precise)
        if found and position is not None and operators.is_a_tie(self.func, self._host_arguments(), position, ours, theirs):
            return ""
        return f"{what}, {describe(ours).rpartition(' on ')[0]}: {found}" if found else ""

    def _rounding(self) -> float:
        """Returns the rounding error of float32 at the operands' magnitude, used where CPU torch's own error is unknown."""
        if not self.only_wide:
            return 0.0
        copies = [copy for copy in self.snapshot.copies().values() if copy.is_floating_point() or copy.is_complex()]
        largest = max((copy.abs().double().nan_to_num(0.0, 0.0, 0.0).max().item() for copy in copies if copy.numel()), default=0.0)
        return tolerance.RTOL[torch.float32] * largest

    def _compare_numbers(self, what, ours, theirs) -> str:
        if type(ours) is not type(theirs):
            return f"{what} is {describe(ours)}; CPU torch returns {describe(theirs)}"
        if isinstance(ours, (float, complex)):
            dtype = next((tensor.dtype for tensor in self.on_device if not tolerance.is_exact(tensor.dtype)), torch.float64)
            found = tolerance.compare(torch.tensor(ours), torch.tensor(theirs), tolerance.rtol_of(dtype) if self.rtol is None else self.rtol, self.atol)
            return f"{what}: {found}" if found else ""
        return "" if ours == theirs else f"{what} is {ours!r}; CPU torch returns {theirs!r}"

    def _shares(self, position, ours, theirs, copies) -> str:
        """Returns an error message if a result is in an operand's memory but CPU torch allocates new memory."""
        if ours.numel() == 0 or ours.device.type != self.device_type:
            return ""
        for tensor in self.on_device:
            if storage_id(tensor) == storage_id(ours) and storage_id(copies[id(tensor)]) != storage_id(theirs):
                return f"result {position} is in the memory of {self._name_of(tensor)}; CPU torch allocates new memory"
        return ""

    def _host_arguments(self) -> dict:
        """Returns the arguments by name, as they were before the call, on the host."""
        copies = self.on_cpu()[2]
        return {name: tree_map(lambda leaf: copies.get(id(leaf), leaf), value) for name, value in self.arguments.items()}

    def _name_of(self, tensor) -> str:
        for name, value in self.arguments.items():
            tensors = self._tensors(value)
            for place, found in enumerate(tensors):
                if found is tensor:
                    return name if value is tensor else f"{name}[{place}]"
        return "an argument"

    rtol, atol = None, 0.0
    only_wide = False  # whether CPU torch computed the call in double precision only


class _Precise:
    """The call in double precision, with its operands unchanged or disturbed; each variant is computed when it is first
    used.
    """

    def __init__(self, call):
        self._call, self._done = call, {}

    def _pick(self, pick, *disturbance):
        if disturbance not in self._done:
            try:
                self._done[disturbance] = self._call._compute(_Disturbed(*disturbance) if disturbance else _widened)
            except Exception:  # not every operator supports double precision for these arguments
                self._done[disturbance] = ((), {})
        found = pick(*self._done[disturbance])
        return found if isinstance(found, torch.Tensor) else None

    def result(self, position):
        return partial(self._pick, lambda results, copies: results[position] if position < len(results) else None)

    def written(self, tensor):
        return partial(self._pick, lambda results, copies: copies.get(id(tensor)))


_WIDER = {torch.float16: torch.float64, torch.bfloat16: torch.float64, torch.float32: torch.float64, torch.complex32: torch.complex128,
          torch.complex64: torch.complex128}  # fmt: skip


def _widened(tensor):
    return tensor.to(_WIDER.get(tensor.dtype, tensor.dtype))


class _Disturbed:
    """Returns tensors of double precision with each element changed by up to `units` times four units in the last
    place.

    The unit is that of the dtype in which sums are computed (float32, or double for double operands). The results
    then show how much of them depends on rounding.
    """

    def __init__(self, seed: int, units: float):
        self._units = units
        self._generator = torch.Generator().manual_seed(seed)  # does not change the program's random numbers

    def __call__(self, tensor):
        if tensor.numel() == 0 or not (tensor.is_floating_point() or tensor.is_complex()):
            return tensor
        off = torch.empty(tensor.shape, dtype=torch.float64).uniform_(-1, 1, generator=self._generator)
        return _widened(tensor) * (1 + self._units * (2.0**-21 if tensor.dtype in _WIDER else 2.0**-50) * off)


def _flat(func, results) -> list:
    """Returns the results in the order of the schema, with lists flattened."""
    if not func._schema.returns:
        return []
    return list(tree_flatten(results, is_leaf=lambda leaf: leaf is None)[0])
