"""Inductor's operations in the portable dialect.

Every value is a variable of a known dtype. Halves are computed in float32, and integers wrap. NaN, remainders and
comparisons behave as in torch on the CPU.
"""

from __future__ import annotations

import torch
from torch._inductor.codegen.common import CSEProxy, CSEVariable, OpOverrides
from torch._inductor.ops_handler import OpsHandler  # noqa: F401  (the operations that there are)
from torch._inductor.utils import get_bounds_index_expr
from torch._inductor.virtualized import OpsValue, V
from torch.utils import _pytree as pytree

from ._kernel_text import computing, convert, literal, token, unsigned_type, value_type

_ORDERED = ("f32", "f64", "i64", "i32", "i16", "i8", "u8")  # dtype tokens of pk_maximum and similar functions


def emit(text: str, dtype: torch.dtype):
    """Returns a variable of a dtype with the value of an expression."""
    return V.kernel.cse.generate(V.kernel.compute, text, dtype=dtype, shape=())


def value_of(x, dtype: torch.dtype | None = None):
    """Returns an operand as a variable; Python numbers are converted to `dtype`."""
    if isinstance(x, OpsValue):
        x = x.value
    if isinstance(x, CSEVariable):
        return x
    if dtype is None:
        dtype = torch.bool if isinstance(x, bool) else torch.int64 if isinstance(x, int) else torch.float32
    return emit(literal(x, dtype), computing(dtype))


def as_dtype(x, dtype: torch.dtype):
    """Returns a variable converted to another dtype."""
    return x if x.dtype == dtype else emit(convert(str(x), x.dtype, dtype), computing(dtype))


def promoted(*operands):
    """Returns the operands in their common dtype, and that dtype."""
    known = [x.value if isinstance(x, OpsValue) else x for x in operands]
    dtypes = [x.dtype for x in known if isinstance(x, CSEVariable)]
    values = [value_of(x, dtypes[0] if dtypes else None) for x in known]
    dtype = values[0].dtype
    for x in values[1:]:
        dtype = torch.promote_types(dtype, x.dtype)
    return [as_dtype(x, dtype) for x in values], dtype


def floating(x):
    """Returns an operand as a floating-point number."""
    x = value_of(x)
    return x if x.dtype.is_floating_point else as_dtype(x, torch.float32)


def refuse_zero(divisor) -> None:
    """Reports an integer divisor of 0, as operators do."""
    bounds = divisor.bounds
    if bounds.lower > 0 or bounds.upper < 0:
        return
    V.kernel.report(f"{divisor} == 0", "PK_BAD_DIVISOR", "0", "0")


def _wrapping(sign: str):
    def operation(a, b):
        (a, b), dtype = promoted(a, b)
        if dtype.is_floating_point:
            return emit(f"{a} {sign} {b}", dtype)
        if dtype == torch.bool:
            return emit(f"(pk_bool)((({a}) {sign} ({b})) != 0)", dtype)
        wide = "pk_u64" if dtype.itemsize == 8 else "pk_u32"
        return emit(f"({value_type(dtype)})(({wide}){a} {sign} ({wide}){b})", dtype)

    return staticmethod(operation)


def _compared(sign: str):
    def operation(a, b):
        (a, b), _ = promoted(a, b)
        return emit(f"(pk_bool)({a} {sign} {b})", torch.bool)

    return staticmethod(operation)


def _bitwise(sign: str):
    def operation(a, b):
        (a, b), dtype = promoted(a, b)
        return emit(f"({value_type(dtype)})({a} {sign} {b})", dtype)

    return staticmethod(operation)


def _logical(sign: str):
    def operation(a, b):
        a, b = value_of(a), value_of(b)
        return emit(f"(pk_bool)(({a} != 0) {sign} ({b} != 0))", torch.bool)

    return staticmethod(operation)


def _unary(name: str):
    def operation(x):
        x = floating(x)
        return emit(f"pk_{name}_{token(x.dtype)}({x})", x.dtype)

    return staticmethod(operation)


def _binary(name: str):
    def operation(a, b):
        (a, b), dtype = promoted(floating(a), floating(b))
        return emit(f"pk_{name}_{token(dtype)}({a}, {b})", dtype)

    return staticmethod(operation)


def _special(name: str, count: int = 1):
    """Returns a function that the dialect has in float64 only."""

    def operation(*operands):
        operands, dtype = promoted(*map(floating, operands))
        V.kernel.need_fp64(name)
        text = ", ".join(f"(double){x}" for x in operands[:count])
        return emit(f"({value_type(dtype)})pk_{name}_f64({text})", dtype)

    return staticmethod(operation)


def _rounded(name: str):
    def operation(x):
        x = value_of(x)
        return emit(f"pk_{name}_{token(x.dtype)}({x})", x.dtype) if x.dtype.is_floating_point else x

    def to_int(x, dtype):
        return as_dtype(operation(x), dtype)

    return staticmethod(operation), staticmethod(to_int)


def _shift(direction: str):
    def operation(a, b):
        (a, b), dtype = promoted(a, b)
        if token(dtype) in _ORDERED:
            return emit(f"pk_shift_{direction}_{token(dtype)}({a}, {b})", dtype)
        sign, size = "<<" if direction == "left" else ">>", dtype.itemsize * 8
        return emit(f"({value_type(dtype)})({b} >= {size} ? 0 : {a} {sign} {b})", dtype)

    return staticmethod(operation)


def _ordered(name: str, sign: str):
    def operation(a, b):
        (a, b), dtype = promoted(a, b)
        return emit(extreme(name, sign, a, b, dtype), dtype)

    return staticmethod(operation)


def extreme(name: str, sign: str, a, b, dtype: torch.dtype) -> str:
    """Returns maximum or minimum, with torch's NaN handling, as an expression."""
    if token(dtype) in _ORDERED:
        return f"pk_{name}_{token(dtype)}({a}, {b})"
    return f"({a} {sign} {b} ? {a} : {b})"


class Overrides(OpOverrides):
    """The operations. `Proxy` refuses operations that are neither defined here nor composed of these."""

    add, sub, mul = _wrapping("+"), _wrapping("-"), _wrapping("*")
    eq, ne, lt, gt, le, ge = map(_compared, ("==", "!=", "<", ">", "<=", ">="))
    bitwise_and = and_ = _bitwise("&")
    bitwise_or = or_ = _bitwise("|")
    bitwise_xor = xor = _bitwise("^")
    bitwise_left_shift = lshift = _shift("left")
    bitwise_right_shift = rshift = _shift("right")
    logical_and, logical_or, logical_xor = _logical("&&"), _logical("||"), _logical("!=")
    maximum, minimum = _ordered("maximum", ">"), _ordered("minimum", "<")
    exp, exp2, expm1, sqrt, cos, sin, tan = map(_unary, ("exp", "exp2", "expm1", "sqrt", "cos", "sin", "tan"))
    log, log1p, log2, log10, tanh, sigmoid = map(_unary, ("log", "log1p", "log2", "log10", "tanh", "sigmoid"))
    lgamma, erf, erfc, cosh, sinh = map(_unary, ("lgamma", "erf", "erfc", "cosh", "sinh"))
    acos, acosh, asin, asinh, atan, atanh = map(_unary, ("acos", "acosh", "asin", "asinh", "atan", "atanh"))
    atan2, hypot, copysign, nextafter = map(_binary, ("atan2", "hypot", "copysign", "nextafter"))
    digamma, erfinv, erfcx, ndtri, airy_ai = map(_special, ("digamma", "erfinv", "erfcx", "ndtri", "airy_ai"))
    i0, i0e, i1, i1e = map(_special, ("i0", "i0e", "i1", "i1e"))
    modified_bessel_i0, modified_bessel_i1 = _special("i0"), _special("i1")
    modified_bessel_k0, modified_bessel_k1 = _special("k0"), _special("k1")
    scaled_modified_bessel_k0, scaled_modified_bessel_k1 = _special("k0e"), _special("k1e")
    bessel_j0, bessel_j1, bessel_y0, bessel_y1 = map(_special, ("j0", "j1", "y0", "y1"))
    spherical_bessel_j0 = _special("spherical_j0")
    igamma, igammac = _special("igamma", 2), _special("igammac", 2)
    gammainc, gammaincc = _special("igamma", 2), _special("igammac", 2)
    log_ndtr = _unary("log_ndtr")
    floor, floor_to_int = _rounded("floor")
    ceil, ceil_to_int = _rounded("ceil")
    trunc, trunc_to_int = _rounded("trunc")
    round, round_to_int = _rounded("rint")

    @staticmethod
    def constant(value, dtype):
        return emit(literal(value, dtype), computing(dtype))

    @staticmethod
    def identity(x):
        return value_of(x)

    @staticmethod
    def to_dtype(x, dtype, src_dtype=None, use_compute_types=True):
        x = value_of(x)
        return emit(convert(str(x), x.dtype, dtype), computing(dtype)) if x.dtype != dtype else x

    @staticmethod
    def to_dtype_bitcast(x, dtype, src_dtype):
        x = value_of(x)
        pair = (src_dtype, dtype)
        if src_dtype == dtype:
            return x
        if pair == (torch.float32, torch.int32):
            return emit(f"(pk_i32)pk_bits_of_float({x})", dtype)
        if pair == (torch.int32, torch.float32):
            return emit(f"pk_float_of_bits((pk_u32){x})", dtype)
        if not (src_dtype.is_floating_point or dtype.is_floating_point) and torch.bool not in pair:
            return emit(f"({value_type(dtype)})({x})", dtype)
        raise NotImplementedError(f"kernels of torch.compile do not support viewing {src_dtype} as {dtype}")

    @staticmethod
    def index_expr(expr, dtype):
        text = V.kernel.wide_index(expr)
        return V.kernel.cse.generate(
            V.kernel.compute, convert(text, torch.int64, dtype), dtype=computing(dtype), bounds=get_bounds_index_expr(expr), shape=()
        )

    value_expr = index_expr

    @staticmethod
    def masked(mask, body, other):
        kernel = V.kernel
        from torch._inductor.utils import IndentedBuffer

        scope = IndentedBuffer()
        with kernel.swap_buffers(scope):
            result = value_of(body())
        result_dtype = result.dtype
        var = kernel.cse.newvar(dtype=result_dtype, shape=())
        given = other.value if isinstance(other, OpsValue) else other
        start = convert(str(given), given.dtype, result_dtype) if isinstance(given, CSEVariable) else literal(given, result_dtype)
        kernel.compute.writelines([f"{value_type(result_dtype)} {var} = {start};", f"if ({mask}) {{"])
        with kernel.compute.indent():
            kernel.compute.splice(scope)
            kernel.compute.writeline(f"{var} = {result};")
        kernel.compute.writeline("}")
        return var

    @staticmethod
    def where(condition, yes, no):
        (yes, no), dtype = promoted(yes, no)
        return emit(f"{value_of(condition)} ? {yes} : {no}", dtype)

    @staticmethod
    def truediv(a, b):
        (a, b), dtype = promoted(floating(a), floating(b))
        return emit(f"{a} / {b}", dtype)

    div_rn = int_truediv = truediv

    @staticmethod
    def mul_rn(a, b):
        return Overrides.mul(a, b)

    @staticmethod
    def fma(a, b, c):
        return Overrides.add(Overrides.mul(a, b), c)

    @staticmethod
    def _divided(name, a, b):
        (a, b), dtype = promoted(a, b)
        if dtype.is_floating_point:
            return emit(f"pk_{name}_{token(dtype)}({a}, {b})", dtype)
        refuse_zero(b)
        if dtype in (torch.uint16, torch.uint32, torch.uint64):
            sign = "/" if name.startswith("div") else "%"
            return emit(f"({value_type(dtype)})({b} == 0 ? 0 : {a} {sign} {b})", dtype)
        return emit(f"({value_type(dtype)})pk_{name}_i64((pk_i64){a}, (pk_i64){b})", dtype)

    @staticmethod
    def floordiv(a, b):
        return Overrides._divided("div_floor", a, b)

    @staticmethod
    def truncdiv(a, b):
        return Overrides._divided("div_trunc", a, b)

    @staticmethod
    def remainder(a, b):
        return Overrides._divided("remainder", a, b)

    @staticmethod
    def fmod(a, b):
        return Overrides._divided("fmod", a, b)

    mod = fmod

    @staticmethod
    def pow(a, b):
        (a, b), dtype = promoted(a, b)
        if dtype.is_floating_point:
            return emit(f"pk_pow_{token(dtype)}({a}, {b})", dtype)
        return emit(f"({value_type(dtype)})pk_pow_i64((pk_i64){a}, (pk_i64){b})", dtype)

    @staticmethod
    def abs(x):
        x = value_of(x)
        unchanged = x.dtype in (torch.bool, torch.uint16, torch.uint32, torch.uint64)
        return x if unchanged else emit(f"pk_abs_{token(x.dtype)}({x})", x.dtype)

    @staticmethod
    def neg(x):
        x = value_of(x)
        if x.dtype.is_floating_point:
            return emit(f"-{x}", x.dtype)
        return emit(f"({value_type(x.dtype)})(0u - ({unsigned_type(x.dtype)}){x})", x.dtype)

    @staticmethod
    def sign(x):
        x = value_of(x)
        if token(x.dtype) in _ORDERED:
            return emit(f"pk_sign_{token(x.dtype)}({x})", x.dtype)
        return emit(f"({value_type(x.dtype)})({x} != 0)", x.dtype)

    @staticmethod
    def relu(x):
        x = value_of(x)
        return Overrides.maximum(x, Overrides.constant(0, x.dtype))

    @staticmethod
    def rsqrt(x):
        x = floating(x)
        return emit(f"{literal(1, x.dtype)} / pk_sqrt_{token(x.dtype)}({x})", x.dtype)

    @staticmethod
    def reciprocal(x):
        x = floating(x)
        return emit(f"{literal(1, x.dtype)} / {x}", x.dtype)

    @staticmethod
    def square(x):
        return Overrides.mul(x, x)

    @staticmethod
    def ndtr(x):
        x = floating(x)
        return emit(f"{literal(0.5, x.dtype)} * pk_erfc_{token(x.dtype)}(-{x} * {literal(0.5**0.5, x.dtype)})", x.dtype)

    @staticmethod
    def bitwise_not(x):
        x = value_of(x)
        return Overrides.logical_not(x) if x.dtype == torch.bool else emit(f"({value_type(x.dtype)})(~{x})", x.dtype)

    @staticmethod
    def logical_not(x):
        return emit(f"(pk_bool)({value_of(x)} == 0)", torch.bool)

    @staticmethod
    def isnan(x):
        x = value_of(x)
        return emit(f"(pk_bool)({x} != {x})", torch.bool)

    @staticmethod
    def isinf(x):
        x = value_of(x)
        text = f"pk_is_inf_{token(x.dtype)}({x}) != 0" if x.dtype.is_floating_point else "0"
        return emit(f"(pk_bool)({text})", torch.bool)

    @staticmethod
    def signbit(x):
        x = value_of(x)
        text = f"pk_signbit_{token(x.dtype)}({x}) != 0" if x.dtype.is_floating_point else f"{x} < 0"
        return emit(f"(pk_bool)({text})", torch.bool)

    @staticmethod
    def rand(seed, offset):
        return emit(f"fused_rand({value_of(seed)}, {value_of(offset)})", torch.float32)

    @staticmethod
    def randn(seed, offset):
        return emit(f"fused_randn({value_of(seed)}, {value_of(offset)})", torch.float32)

    @staticmethod
    def randint64(seed, offset, low, high):
        numbers = ", ".join(str(value_of(x)) for x in (seed, offset, low, high))
        return emit(f"fused_randint64({numbers})", torch.int64)


# The functions of random operations: the block of Philox at the position of an element, with the graph's seed.
RANDOM_TEXT = """
PK_FN float fused_rand(pk_i64 seed, pk_i64 position) {
  pk_u32 c0, c1, c2, c3;
  PK_PHILOX_BLOCK((pk_u64)seed, (pk_u64)position, c0, c1, c2, c3)
  return (float)(c0 >> 8) * 0x1p-24f;
}
PK_FN float fused_randn(pk_i64 seed, pk_i64 position) {
  pk_u32 c0, c1, c2, c3;
  float cosine, sine;
  PK_PHILOX_BLOCK((pk_u64)seed, (pk_u64)position, c0, c1, c2, c3)
  pk_normal_angle_f32(c1, &cosine, &sine);
  return pk_sqrt_f32(pk_normal_radius2_f32(c0)) * cosine;
}
PK_FN pk_i64 fused_randint64(pk_i64 seed, pk_i64 position, pk_i64 low, pk_i64 high) {
  pk_u32 c0, c1, c2, c3;
  PK_PHILOX_BLOCK((pk_u64)seed, (pk_u64)position, c0, c1, c2, c3)
  return (pk_i64)((pk_u64)low + pk_random_below(c0, c1, (pk_u64)high - (pk_u64)low));
}
"""


class Proxy(CSEProxy):
    """Returns the results of `Overrides`, which are variables, to inductor. A result of type str is an operation that
    `Overrides` inherited from inductor, which is not in the portable dialect.
    """

    def _default(self, name, args, kwargs):
        bounds = self._bound_variable(name, *args, **kwargs)
        result = getattr(self.parent_handler, name)(*args, **kwargs)

        def checked(value):
            if isinstance(value, OpsValue):
                value = value.value
            if not isinstance(value, CSEVariable):
                raise NotImplementedError(f"kernels of torch.compile do not support the operation '{name}'; compute it outside of the compiled function")
            # For a single value, sympy's floats of two precisions, 0.1 and 0.1, would have an empty intersection
            if not value.bounds.is_singleton():
                value.bounds = value.bounds.tighten(bounds)
            return value

        return pytree.tree_map(checked, result)
