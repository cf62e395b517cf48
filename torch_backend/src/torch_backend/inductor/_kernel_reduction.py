"""Reductions of a kernel's loop: accumulators before the loop, their updates in it, results after it."""

from __future__ import annotations

import torch
from torch._inductor.ir import Reduction

from ._kernel_ops import as_dtype, extreme, value_of
from ._kernel_text import computing, convert, literal, unsigned_type, value_type

# additions of a partial sum: the error of a long float sum grows with this number and the number of blocks
_BLOCK = 256


class Reductions:
    """The code of each kind of reduction. An accumulator is a variable of the item, whose loop runs in order, so that
    results do not depend on the launch.
    """

    def reduction(self, dtype, src_dtype, reduction_type, value):
        key = (src_dtype, reduction_type, value)
        if key not in self.cse.reduction_cache:
            write = getattr(self, f"_reduce_{reduction_type}", None)
            if write is None:
                raise NotImplementedError(f"kernels of torch.compile do not support the reduction '{reduction_type}'; compute it outside of the compiled function")
            self.cse.reduction_cache[key] = write(dtype, value)
        return self.cse.reduction_cache[key]

    def _state(self, dtype: torch.dtype, start) -> str:
        """Declares an accumulator before the loop."""
        name = f"state{next(self.names)}"
        self.body.writeline(f"{value_type(dtype)} {name} = {literal(start, dtype)};")
        return name

    def _result(self, text: str, dtype: torch.dtype):
        """Declares the result after the loop."""
        var = self.cse.newvar(dtype=computing(dtype), shape=())
        self.after_loop.writeline(f"const {value_type(dtype)} {var} = {text};")
        self.kept.add(var)
        return var

    def _loop_index(self) -> str:
        (tree,) = (tree for tree in self.range_trees if tree.is_reduction)
        return tree.name

    def _reduce_sum(self, dtype, value):
        dtype = computing(dtype)
        value = as_dtype(value_of(value), dtype)
        total = self._state(dtype, 0)
        if not dtype.is_floating_point:
            wide = unsigned_type(dtype)
            step = f"{total} || {value}" if dtype == torch.bool else f"({value_type(dtype)})(({wide}){total} + ({wide}){value})"
            self.compute.writeline(f"{total} = {step};")
            return self._result(total, dtype)
        part = self._state(dtype, 0)
        self.compute.writeline(f"{part} += {value};")
        self.compute.writeline(
            f"if (({self._loop_index()} & {_BLOCK - 1}) == {_BLOCK - 1}) {{ {total} += {part}; {part} = {literal(0, dtype)}; }}"
        )
        return self._result(f"{total} + {part}", dtype)

    def _reduce_prod(self, dtype, value):
        dtype = computing(dtype)
        value = as_dtype(value_of(value), dtype)
        state = self._state(dtype, 1)
        wide = "pk_u64" if dtype.itemsize == 8 else "pk_u32"
        plain = dtype.is_floating_point or dtype == torch.bool
        step = f"{state} * {value}" if plain else f"({value_type(dtype)})(({wide}){state} * ({wide}){value})"
        self.compute.writeline(f"{state} = {step};")
        return self._result(state, dtype)

    def _reduce_xor_sum(self, dtype, value):
        dtype = computing(dtype)
        state = self._state(dtype, 0)
        self.compute.writeline(f"{state} ^= {as_dtype(value_of(value), dtype)};")
        return self._result(state, dtype)

    def _reduce_any(self, dtype, value):
        state = self._state(torch.bool, False)
        self.compute.writeline(f"{state} |= (pk_bool)({value_of(value)} != 0);")
        return self._result(convert(state, torch.bool, computing(dtype)), computing(dtype))

    def _extreme(self, name, sign, kind, dtype, value):
        value = value_of(value)
        state = self._state(value.dtype, Reduction.default_accumulator(kind, value.dtype))
        self.compute.writeline(f"{state} = {extreme(name, sign, state, value, value.dtype)};")
        return self._result(convert(state, value.dtype, computing(dtype)), computing(dtype))

    def _reduce_max(self, dtype, value):
        return self._extreme("maximum", ">", "max", dtype, value)

    def _reduce_min(self, dtype, value):
        return self._extreme("minimum", "<", "min", dtype, value)

    def _place(self, sign, kind, dtype, value):
        """Returns the first index of the maximum or minimum; NaN is both."""
        value = value_of(value)
        best = self._state(value.dtype, Reduction.default_accumulator(kind, value.dtype))
        place = self._state(dtype, 0)
        found = f"{value} {sign} {best}"
        if value.dtype.is_floating_point:
            found = f"({best} == {best}) && ({found} || {value} != {value})"
        self.compute.writeline(f"if ({found}) {{ {best} = {value}; {place} = ({value_type(dtype)}){self._loop_index()}; }}")
        return self._result(place, dtype)

    def _reduce_argmax(self, dtype, value):
        return self._place(">", "max", dtype, value)

    def _reduce_argmin(self, dtype, value):
        return self._place("<", "min", dtype, value)

    def _moments(self, dtype):
        return [self._state(computing(dtype), 0) for _ in range(3)]

    def _reduce_welford_reduce(self, dtype, value):
        dtype = computing(dtype)
        value = as_dtype(value_of(value), dtype)
        mean, m2, count = self._moments(dtype)
        delta, one = f"delta{next(self.names)}", literal(1, dtype)
        self.compute.writelines(
            [
                f"const {value_type(dtype)} {delta} = {value} - {mean};",
                f"{count} += {one};",
                f"{mean} += {delta} / {count};",
                f"{m2} += {delta} * ({value} - {mean});",
            ]
        )
        return tuple(self._result(state, dtype) for state in (mean, m2, count))

    def _reduce_welford_combine(self, dtype, value):
        dtype = computing(dtype)
        other_mean, other_m2, other_count = (as_dtype(value_of(x), dtype) for x in value)
        mean, m2, count = self._moments(dtype)
        number = next(self.names)
        kind, delta, share, whole = value_type(dtype), f"delta{number}", f"share{number}", f"whole{number}"
        self.compute.writelines(
            [
                f"const {kind} {whole} = {count} + {other_count}, {delta} = {other_mean} - {mean};",
                f"const {kind} {share} = {whole} == {literal(0, dtype)} ? {literal(0, dtype)} : {other_count} / {whole};",
                f"{mean} += {delta} * {share};",
                f"{m2} += {other_m2} + {delta} * {delta} * {count} * {share};",
                f"{count} = {whole};",
            ]
        )
        return tuple(self._result(state, dtype) for state in (mean, m2, count))

    def _reduce_online_softmax_reduce(self, dtype, value):
        dtype = computing(dtype)
        value = as_dtype(value_of(value), dtype)
        largest, total = self._state(dtype, float("-inf")), self._state(dtype, 0)
        number, kind, name = next(self.names), value_type(dtype), "f64" if dtype == torch.float64 else "f32"
        to, base = f"to{number}", f"base{number}"
        self.compute.writelines(
            [
                f"const {kind} {to} = pk_maximum_{name}({largest}, {value});",
                f"const {kind} {base} = pk_is_inf_{name}({to}) ? {literal(0, dtype)} : {to};",
                f"{total} = {total} * pk_exp_{name}({largest} - {base}) + pk_exp_{name}({value} - {base});",
                f"{largest} = {to};",
            ]
        )
        return self._result(largest, dtype), self._result(total, dtype)
