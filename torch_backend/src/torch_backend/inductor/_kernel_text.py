"""The portable dialect (hal/kernels/pk.h) as inductor's code: types, conversions, numbers and index expressions."""

from __future__ import annotations

import math
import struct

import sympy
import torch
from torch.utils._sympy.printers import ExprPrinter

# dtype: (type in memory and of arguments, token in function names)
TYPES = {
    torch.bool: ("pk_bool", "bool"),
    torch.uint8: ("pk_u8", "u8"),
    torch.int8: ("pk_i8", "i8"),
    torch.int16: ("pk_i16", "i16"),
    torch.int32: ("pk_i32", "i32"),
    torch.int64: ("pk_i64", "i64"),
    torch.uint16: ("pk_u16", "u16"),
    torch.uint32: ("pk_u32", "u32"),
    torch.uint64: ("pk_u64", "u64"),
    torch.float16: ("pk_f16", "f16"),
    torch.bfloat16: ("pk_bf16", "bf16"),
    torch.float32: ("float", "f32"),
    torch.float64: ("double", "f64"),
}
HALVES = (torch.float16, torch.bfloat16)
_UNSIGNED = {1: "pk_u8", 2: "pk_u16", 4: "pk_u32", 8: "pk_u64"}


def memory_type(dtype: torch.dtype) -> str:
    """Returns the type of an element; raises NotImplementedError for a dtype that kernels do not support."""
    if dtype not in TYPES:
        raise NotImplementedError(f"kernels of torch.compile do not support {dtype}; compute it outside of the compiled function")
    return TYPES[dtype][0]


def computing(dtype: torch.dtype) -> torch.dtype:
    """Returns the dtype in which values of a dtype are computed."""
    return torch.float32 if dtype in HALVES else dtype


def value_type(dtype: torch.dtype) -> str:
    """Returns the type of a variable for values of a dtype."""
    return memory_type(computing(dtype))


def token(dtype: torch.dtype) -> str:
    return TYPES[computing(dtype)][1]


def unsigned_type(dtype: torch.dtype) -> str:
    """Returns the unsigned type of the same size, in which sums and products wrap."""
    return _UNSIGNED[dtype.itemsize]


def convert(text: str, source: torch.dtype, to: torch.dtype) -> str:
    """Returns an expression of dtype `source` converted to dtype `to`, rounded as torch does on the CPU."""
    if to in HALVES:
        single = convert(text, source, torch.float32)
        return single if source == to else f"pk_get_{TYPES[to][1]}(pk_put_{TYPES[to][1]}({single}))"
    source = computing(source)
    if source == to:
        return text
    if to == torch.bool:
        return f"(pk_bool)(({text}) != 0)"
    if source.is_floating_point and not to.is_floating_point:
        if to == torch.uint64:
            return f"pk_u64_of_double({text})"
        if to.itemsize < 4 or to == torch.uint32:  # integers that are out of range wrap
            return f"({memory_type(to)})(pk_i64)({text})"
    return f"({memory_type(to)})({text})"


def stored(text: str, source: torch.dtype, to: torch.dtype) -> str:
    """Returns a value as the element of a tensor."""
    if to in HALVES:
        return f"pk_put_{TYPES[to][1]}({convert(text, source, torch.float32)})"
    return convert(text, source, to)


def loaded(element: str, dtype: torch.dtype) -> str:
    """Returns the element of a tensor as a value."""
    return f"pk_get_{TYPES[dtype][1]}({element})" if dtype in HALVES else element


def literal(value, dtype: torch.dtype) -> str:
    """Returns a Python number as a value of a dtype."""
    dtype = computing(dtype)
    if not dtype.is_floating_point:
        if dtype == torch.bool:
            return "(pk_bool)1" if value else "(pk_bool)0"
        value = int(value)
        if value == -(1 << 63):
            return "(pk_i64)0x8000000000000000"
        text = f"{value}" if value < 1 << 63 else f"0x{value:x}"
        return f"({memory_type(dtype)}){text}" if value >= 0 else f"({memory_type(dtype)})({text})"
    value = float(value)
    name = memory_type(dtype)
    if dtype == torch.float32 and math.isfinite(value):
        try:
            value = struct.unpack("f", struct.pack("f", value))[0]
        except OverflowError:
            value = math.copysign(math.inf, value)
    if not math.isfinite(value):
        bits = "0x7fc00000u" if math.isnan(value) else "0x7f800000u" if value > 0 else "0xff800000u"
        return f"({name})pk_float_of_bits({bits})"
    text = repr(value) + ("f" if dtype == torch.float32 else "")
    return f"({text})" if text.startswith("-") else text


class IndexPrinter(ExprPrinter):
    """Prints index expressions as C. Expressions not handled here are refused, because the base class would print
    Python.
    """

    def _print_Symbol(self, expr) -> str:
        return expr.name

    def _print_Integer(self, expr) -> str:
        return str(int(expr))

    def _refuse(self, expr) -> str:
        raise NotImplementedError(f"kernels of torch.compile cannot compute the index {expr}: it has a {type(expr).__name__}")

    emptyPrinter = _print_Function = _print_Rational = _print_floor = _print_ceiling = _refuse

    def _nonnegative(self, *args) -> bool:
        return all(arg.is_nonnegative for arg in args)

    def _print_FloorDiv(self, expr) -> str:
        x, divisor = expr.args
        if self._nonnegative(x, divisor):
            return f"(({self._print(x)}) / ({self._print(divisor)}))"
        return f"pk_div_floor_i64({self._print(x)}, {self._print(divisor)})"

    _print_CleanDiv = _print_FloorDiv

    def _print_ModularIndexing(self, expr) -> str:
        x, divisor, modulus = expr.args
        if self._nonnegative(x, divisor, modulus):
            text = f"({self._print(x)})"
            return f"(({text if divisor == 1 else f'{text} / ({self._print(divisor)})'}) % ({self._print(modulus)}))"
        return f"pk_remainder_i64(pk_div_floor_i64({self._print(x)}, {self._print(divisor)}), {self._print(modulus)})"

    def _print_Mod(self, expr) -> str:
        return f"pk_remainder_i64({self._print(expr.args[0])}, {self._print(expr.args[1])})"

    _print_PythonMod = _print_Mod

    def _print_Pow(self, expr) -> str:
        base, exponent = expr.args
        if not (exponent.is_Integer and exponent > 0):
            return self._refuse(expr)
        return "(" + " * ".join([f"({self._print(base)})"] * int(exponent)) + ")"

    _print_PowByNatural = _print_Pow

    def _choose(self, expr, sign: str) -> str:
        texts = [self._print(arg) for arg in expr.args]
        result = texts[0]
        for text in texts[1:]:
            result = f"(({result}) {sign} ({text}) ? ({result}) : ({text}))"
        return result

    def _print_Min(self, expr) -> str:
        return self._choose(expr, "<")

    def _print_Max(self, expr) -> str:
        return self._choose(expr, ">")

    def _print_Abs(self, expr) -> str:
        return f"pk_abs_i64({self._print(expr.args[0])})"

    def _print_Where(self, expr) -> str:
        condition, yes, no = (self._print(arg) for arg in expr.args)
        return f"(({condition}) ? ({yes}) : ({no}))"

    def _join(self, expr, sign: str) -> str:
        return "(" + f" {sign} ".join(f"({self._print(arg)})" for arg in expr.args) + ")"

    def _print_And(self, expr) -> str:
        return self._join(expr, "&&")

    def _print_Or(self, expr) -> str:
        return self._join(expr, "||")

    def _print_Not(self, expr) -> str:
        return f"(!({self._print(expr.args[0])}))"

    def _print_Relational(self, expr) -> str:
        return f"(({self._print(expr.lhs)}) {expr.rel_op} ({self._print(expr.rhs)}))"

    def _print_BooleanTrue(self, expr) -> str:
        return "1"

    def _print_BooleanFalse(self, expr) -> str:
        return "0"


class WideIndexPrinter(IndexPrinter):
    """The same for indices that become values: computed so that no product overflows in 32 bits."""

    def _print_Symbol(self, expr) -> str:
        return f"(pk_i64){expr.name}"


index_text = IndexPrinter().doprint
wide_index_text = WideIndexPrinter().doprint


def is_float_size(expr) -> bool:
    """Returns whether an argument of a kernel is a Python float that the host knows."""
    return isinstance(expr, sympy.Expr) and expr.is_integer is False
