"""expm1, log, log1p, tanh, sigmoid and erf of float32 in inductor's C++ kernels: the device's own functions, of vectors.

PyTorch's tanh of vectors takes 4 times as long, erf up to 1.8 times. Its erf and inductor's expm1 have relative errors up
to 1 near 0. The polynomials are those of the device's operators (hal/kernels/pk_single.h). exp is PyTorch's, which
is as fast.
"""

from __future__ import annotations

import functools
import re

from torch._inductor.codegen import cpp

from torch_backend import _builds

from ._threads import PREFIX

NAMES = ("expm1", "log", "log1p", "tanh", "sigmoid", "erf")

_CALL = re.compile(rf"\bhal_(?:{'|'.join(NAMES)})\(")

# GCC's vectors have C's operators, so that the text of the two headers also defines functions of vectors.
_BEFORE = r"""
#ifndef HAL_FUNCTIONS
#define HAL_FUNCTIONS
#if defined(__GNUC__) && !defined(__clang__) && (defined(CPU_CAPABILITY_AVX2) || defined(CPU_CAPABILITY_AVX512))
namespace {
typedef uint32_t pk_u32;
typedef at::vec::Vectorized<float> hal_aten;
typedef float hal_floats __attribute__((vector_size(sizeof(hal_aten))));
typedef uint32_t hal_words __attribute__((vector_size(sizeof(hal_aten))));
#define PK_CPP 1
#define PK_OWN_MATH 1
#define PK_FN inline __attribute__((always_inline))
#define PK_SPREAD(REAL, x) (REAL{} + (x))
// Inductor's kernels are compiled without contraction.
#define PK_MADD(x, y, z) hal_madd(x, y, z)
PK_FN hal_floats hal_madd(hal_floats x, hal_floats y, hal_floats z) {
  const auto aten = [](hal_floats v) { return c10::bit_cast<hal_aten>(v); };
  return c10::bit_cast<hal_floats>(at::vec::fmadd(aten(x), aten(y), aten(z)));
}
PK_FN hal_floats hal_madd(hal_floats x, hal_floats y, float z) { return hal_madd(x, y, PK_SPREAD(hal_floats, z)); }
PK_FN hal_words hal_bits(hal_floats x) { return (hal_words)x; }
PK_FN hal_floats hal_of_bits(hal_words x) { return (hal_floats)x; }
PK_FN hal_floats pk_abs_of_float_vector(hal_floats x) { return hal_of_bits(hal_bits(x) & 0x7fffffffu); }
PK_FN hal_floats pk_with_sign_vector(hal_floats x, hal_floats sign) {
  return hal_of_bits((hal_bits(x) & 0x7fffffffu) | (hal_bits(sign) & 0x80000000u));
}
PK_FN hal_floats pk_log_ends_vector(hal_floats x, hal_floats y) {
  const float infinity = std::numeric_limits<float>::infinity();
  const hal_floats z = x < infinity ? y : x;  // infinity, NaN
  const hal_floats w = x == 0.0f ? PK_SPREAD(hal_floats, -infinity) : z;
  return x < 0.0f ? PK_SPREAD(hal_floats, std::numeric_limits<float>::quiet_NaN()) : w;
}
"""

# expm1: where x rounds to no multiple of ln 2, e^x - 1 is the polynomial; elsewhere the difference has no cancellation.
# log1p: u = 1 + x is rounded, and (x - (u - 1)) / u is the logarithm of what is lost; for u = 0 and infinity it is NaN.
_AFTER = r"""
PK_DEFINE_SINGLE_EXP(_vector, hal_floats, hal_words, hal_bits, hal_of_bits)
PK_DEFINE_SINGLE(_vector, hal_floats, hal_words, hal_bits, hal_of_bits)
PK_FN hal_floats pk_single_expm1_vector(hal_floats x) {
  const hal_floats a = pk_abs_of_float_vector(x), near = a < 0.34f ? x : hal_floats{};
  const hal_floats y = a < 0.34f ? pk_single_exp_rest_vector(near) : pk_single_exp_vector(x) - 1.0f;
  return pk_with_sign_vector(y, x);
}
PK_FN hal_floats pk_single_log1p_vector(hal_floats x) {
  const hal_floats u = 1.0f + x, lost = (x - (u - 1.0f)) / u, y = pk_single_log_vector(u);
  return pk_with_sign_vector(lost == lost ? y + lost : y, x);
}
#define HAL_OF_FLOATS(name)                                                                     \
  PK_FN hal_aten hal_##name(const hal_aten &x) {                                                \
    return c10::bit_cast<hal_aten>(pk_single_##name##_vector(c10::bit_cast<hal_floats>(x)));    \
  }                                                                                             \
  template <int N>                                                                              \
  PK_FN at::vec::VectorizedN<float, N> hal_##name(at::vec::VectorizedN<float, N> x) {           \
    for (int i = 0; i < N; i++) x[i] = hal_##name(x[i]);                                        \
    return x;                                                                                   \
  }
#else
namespace {
#define HAL_OF_FLOATS(name)
#endif
#define HAL_FUNCTION(name, theirs)                                        \
  template <class V> inline V hal_##name(const V &x) { return theirs; }   \
  HAL_OF_FLOATS(name)
HAL_FUNCTION(expm1, x.expm1())
HAL_FUNCTION(log, x.log())
HAL_FUNCTION(log1p, x.log1p())
HAL_FUNCTION(tanh, x.tanh())
HAL_FUNCTION(sigmoid, V(1) / (V(1) + x.neg().exp()))
HAL_FUNCTION(erf, x.erf())
}  // namespace
#endif  // HAL_FUNCTIONS
"""


@functools.cache
def _definitions() -> str:
    """Returns C++ that defines the functions."""
    headers = (_builds.PACKAGE / "include/hal/kernels" / name for name in ("pk_exp.h", "pk_single.h"))
    return _BEFORE + "".join(header.read_text(encoding="utf-8") for header in headers) + _AFTER


def define(source: str) -> str:
    """Returns the source of a kernel with the definitions of the functions that it calls."""
    if not _CALL.search(source):
        return source
    if PREFIX not in source:
        source = PREFIX + source
    return source.replace(PREFIX, PREFIX + _definitions(), 1)


class _Functions:
    """Adds calls of the functions to inductor's operators on vectors."""

    def __new__(cls, *arguments, **options):
        self = super().__new__(cls, *arguments, **options)
        for name in NAMES:
            setattr(self, name, functools.partial(_call, name, getattr(self, name)))
        return self


def _call(name: str, theirs, x) -> str:
    of_vector = isinstance(x, cpp.CppCSEVariable) and x.is_vec
    return f"hal_{name}({x})" if of_vector else theirs(x)


class _VectorOperators(_Functions, cpp.CppVecOverrides):
    pass


class _TileOperators(_Functions, cpp.CppTile2DOverrides):
    pass


class _VectorKernel(cpp.CppVecKernel):
    overrides = _VectorOperators


class _TileKernel(cpp.CppTile2DKernel, _VectorKernel):  # inductor requires that it is one
    overrides = _TileOperators


class KernelProxy(cpp.CppKernelProxy):
    """Inductor's loops, with the functions."""

    vec_kernel_cls = _VectorKernel
    tile2d_kernel_cls = _TileKernel
