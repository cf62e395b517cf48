/* pk_math.h: the functions for expressions in codegen/operators, by computing type: pk_exp(x) is pk_exp_f32(x) in an
 * instance whose PK_TOKEN is f32. The meaning is torch's on the CPU: maximum and minimum propagate NaN, the sign of NaN
 * is 0, the absolute value of the smallest integer is itself. */
#ifndef PK_MATH_H_
#define PK_MATH_H_

#define pk_abs(x) PK_CAT(pk_abs_, PK_TOKEN)(x)
#define pk_sign(x) PK_CAT(pk_sign_, PK_TOKEN)(x)
#define pk_maximum(x, y) PK_CAT(pk_maximum_, PK_TOKEN)(x, y)
#define pk_minimum(x, y) PK_CAT(pk_minimum_, PK_TOKEN)(x, y)
#define pk_exp(x) PK_CAT(pk_exp_, PK_TOKEN)(x)
#define pk_expm1(x) PK_CAT(pk_expm1_, PK_TOKEN)(x)
#define pk_log(x) PK_CAT(pk_log_, PK_TOKEN)(x)
#define pk_log1p(x) PK_CAT(pk_log1p_, PK_TOKEN)(x)
#define pk_log2(x) PK_CAT(pk_log2_, PK_TOKEN)(x)
#define pk_sqrt(x) PK_CAT(pk_sqrt_, PK_TOKEN)(x)
#define pk_sin(x) PK_CAT(pk_sin_, PK_TOKEN)(x)
#define pk_cos(x) PK_CAT(pk_cos_, PK_TOKEN)(x)
#define pk_tan(x) PK_CAT(pk_tan_, PK_TOKEN)(x)
#define pk_tanh(x) PK_CAT(pk_tanh_, PK_TOKEN)(x)
#define pk_sigmoid(x) PK_CAT(pk_sigmoid_, PK_TOKEN)(x)
#define pk_erf(x) PK_CAT(pk_erf_, PK_TOKEN)(x)
#define pk_floor(x) PK_CAT(pk_floor_, PK_TOKEN)(x)
#define pk_ceil(x) PK_CAT(pk_ceil_, PK_TOKEN)(x)
#define pk_trunc(x) PK_CAT(pk_trunc_, PK_TOKEN)(x)
#define pk_pow(x, y) PK_CAT(pk_pow_, PK_TOKEN)(x, y)
#define pk_atan2(x, y) PK_CAT(pk_atan2_, PK_TOKEN)(x, y)
#define pk_rint(x) PK_CAT(pk_rint_, PK_TOKEN)(x)
#define pk_exp2(x) PK_CAT(pk_exp2_, PK_TOKEN)(x)
#define pk_log10(x) PK_CAT(pk_log10_, PK_TOKEN)(x)
#define pk_asin(x) PK_CAT(pk_asin_, PK_TOKEN)(x)
#define pk_acos(x) PK_CAT(pk_acos_, PK_TOKEN)(x)
#define pk_atan(x) PK_CAT(pk_atan_, PK_TOKEN)(x)
#define pk_sinh(x) PK_CAT(pk_sinh_, PK_TOKEN)(x)
#define pk_cosh(x) PK_CAT(pk_cosh_, PK_TOKEN)(x)
#define pk_asinh(x) PK_CAT(pk_asinh_, PK_TOKEN)(x)
#define pk_acosh(x) PK_CAT(pk_acosh_, PK_TOKEN)(x)
#define pk_atanh(x) PK_CAT(pk_atanh_, PK_TOKEN)(x)
#define pk_erfc(x) PK_CAT(pk_erfc_, PK_TOKEN)(x)
#define pk_log_ndtr(x) PK_CAT(pk_log_ndtr_, PK_TOKEN)(x)
#define pk_lgamma(x) PK_CAT(pk_lgamma_, PK_TOKEN)(x)
#define pk_signbit(x) PK_CAT(pk_signbit_, PK_TOKEN)(x)
#define pk_copysign(x, y) PK_CAT(pk_copysign_, PK_TOKEN)(x, y)
#define pk_hypot(x, y) PK_CAT(pk_hypot_, PK_TOKEN)(x, y)
#define pk_nextafter(x, y) PK_CAT(pk_nextafter_, PK_TOKEN)(x, y)
#define pk_ldexp(x, y) PK_CAT(pk_ldexp_, PK_TOKEN)(x, y)
#define pk_fmax(x, y) PK_CAT(pk_fmax_, PK_TOKEN)(x, y)
#define pk_fmin(x, y) PK_CAT(pk_fmin_, PK_TOKEN)(x, y)
#define pk_replaced(x, nan, high, low) PK_CAT(pk_replaced_, PK_TOKEN)(x, nan, high, low)
#define pk_is_inf(x) PK_CAT(pk_is_inf_, PK_TOKEN)(x)
#define pk_log_sigmoid(x) PK_CAT(pk_log_sigmoid_, PK_TOKEN)(x)
#define pk_logit(x) PK_CAT(pk_logit_, PK_TOKEN)(x)
#define pk_logit_backward(g, x, eps) PK_CAT(pk_logit_backward_, PK_TOKEN)(g, x, eps)
#define pk_gelu_tanh_slope(x) PK_CAT(pk_gelu_tanh_slope_, PK_TOKEN)(x)
#define pk_cross_entropy(x, y) PK_CAT(pk_cross_entropy_, PK_TOKEN)(x, y)
#define PK_SQRT_1_2 PK_C(0.70710678118654752440)
#define PK_SQRT_1_2PI PK_C(0.39894228040143267794)
#define PK_GELU_SLOPE PK_C(0.79788456080286535588) /* sqrt(2 / pi) */
#define PK_PI PK_C(3.14159265358979323846)
#define PK_INFINITY (PK_C(1.0) / PK_C(0.0))

/* Comparison with itself finds NaN. The result is the second operand unless it is smaller, so also if it is NaN. Two
 * selections: gcc 12 does not vectorize nested uses of one with `||`. */
#define PK_DEFINE_ORDER(token, type)              \
  PK_FN type pk_maximum_##token(type x, type y) { \
    const type larger = x > y ? x : y;            \
    return x != x ? x : larger;                   \
  }                                               \
  PK_FN type pk_minimum_##token(type x, type y) { \
    const type smaller = x < y ? x : y;           \
    return x != x ? x : smaller;                  \
  }
#ifdef PK_HOST
/* All bits of a NaN are set, which saves a selection, and several in a row do not become a tree of selections. */
PK_FN float pk_nan_or(float x, float y) { return pk_float_of_bits(pk_bits_of_float(y) | (0u - (pk_u32)(x != x))); }
PK_FN float pk_maximum_f32(float x, float y) { return pk_nan_or(x, x > y ? x : y); }
PK_FN float pk_minimum_f32(float x, float y) { return pk_nan_or(x, x < y ? x : y); }
#else
PK_DEFINE_ORDER(f32, float)
#endif
#if PK_FP64
PK_DEFINE_ORDER(f64, double)
#endif
PK_DEFINE_ORDER(i64, pk_i64)
PK_DEFINE_ORDER(i32, pk_i32)
PK_DEFINE_ORDER(i16, pk_i16)
PK_DEFINE_ORDER(i8, pk_i8)
PK_DEFINE_ORDER(u8, pk_u8)

#define PK_DEFINE_SIGN(token, type) \
  PK_FN type pk_sign_##token(type x) { return (type)((type)(x > (type)0) - (type)(x < (type)0)); }
PK_DEFINE_SIGN(f32, float)
#if PK_FP64
PK_DEFINE_SIGN(f64, double)
#endif
PK_DEFINE_SIGN(i64, pk_i64)
PK_DEFINE_SIGN(i32, pk_i32)
PK_DEFINE_SIGN(i16, pk_i16)
PK_DEFINE_SIGN(i8, pk_i8)
PK_FN pk_u8 pk_sign_u8(pk_u8 x) { return x != 0; }

#define PK_DEFINE_ABS(token, type, unsigned_type) \
  PK_FN type pk_abs_##token(type x) { return (type)(x < 0 ? (unsigned_type)0 - (unsigned_type)x : (unsigned_type)x); }
PK_DEFINE_ABS(i64, pk_i64, pk_u64)
PK_DEFINE_ABS(i32, pk_i32, pk_u32)
PK_DEFINE_ABS(i16, pk_i16, pk_u16)
PK_DEFINE_ABS(i8, pk_i8, pk_u8)
PK_FN pk_u8 pk_abs_u8(pk_u8 x) { return x; }

/* Conversions of copy.pk: an unsigned 64-bit integer of a floating number, for negative ones as on x86-64; a complex
 * number of a real one. */
#if PK_FP64
PK_FN pk_u64 pk_u64_of_double(double x) {
  return x >= 9223372036854775808.0 ? (pk_u64)(pk_i64)(x - 9223372036854775808.0) ^ (pk_u64)1 << 63 : (pk_u64)(pk_i64)x;
}
#else
PK_FN pk_u64 pk_u64_of_double(float x) {
  return x >= 9223372036854775808.0f ? (pk_u64)(pk_i64)(x - 9223372036854775808.0f) ^ (pk_u64)1 << 63
                                     : (pk_u64)(pk_i64)x;
}
#endif
PK_FN pk_c64 pk_real_c64(float x) {
  pk_c64 result;
  result.re = x;
  result.im = 0.0f;
  return result;
}
#if PK_FP64
PK_FN pk_c128 pk_real_c128(double x) {
  pk_c128 result;
  result.re = x;
  result.im = 0.0;
  return result;
}
#endif

/* The languages' functions: OpenCL's are overloaded, CUDA and host C have a suffix f. Functions of float that are a
 * call on wide cores, and prevent vectorization, are in pk_float.h. */
#ifdef PK_OPENCL
#define PK_F32(name) name
#else
#define PK_F32(name) name##f
#endif
#define PK_DEFINE_MATH_F32(name, function) \
  PK_FN float pk_##name##_f32(float x) { return PK_F32(function)(x); }
/* PK_DEFINE_MATH_1 does not use the two others, because an argument that is passed on is expanded, and abs and floor
 * may be macros of the language. */
#if PK_FP64
#define PK_DEFINE_MATH_F64(name, function) \
  PK_FN double pk_##name##_f64(double x) { return function(x); }
#define PK_DEFINE_MATH_1(name, function)                               \
  PK_FN float pk_##name##_f32(float x) { return PK_F32(function)(x); } \
  PK_FN double pk_##name##_f64(double x) { return function(x); }
#else
#define PK_DEFINE_MATH_F64(name, function)
#define PK_DEFINE_MATH_1 PK_DEFINE_MATH_F32
#endif
PK_DEFINE_MATH_1(abs, fabs)
PK_DEFINE_MATH_1(sqrt, sqrt)
PK_DEFINE_MATH_F64(tan, tan)
PK_DEFINE_MATH_1(floor, floor)
PK_DEFINE_MATH_1(ceil, ceil)
PK_DEFINE_MATH_1(trunc, trunc)
PK_DEFINE_MATH_1(rint, rint)
PK_DEFINE_MATH_F64(asin, asin)
PK_DEFINE_MATH_F64(acos, acos)
PK_DEFINE_MATH_F64(atan, atan)
PK_DEFINE_MATH_F64(sinh, sinh)
PK_DEFINE_MATH_F64(cosh, cosh)
PK_DEFINE_MATH_F64(asinh, asinh)
PK_DEFINE_MATH_F64(acosh, acosh)
PK_DEFINE_MATH_F64(atanh, atanh)
PK_DEFINE_MATH_1(erfc, erfc)
PK_DEFINE_MATH_F64(log10, log10)
PK_DEFINE_MATH_F64(lgamma, lgamma)
#if PK_FP64
PK_FN float pk_lgamma_f32(float x) { return (float)lgamma((double)x); }
#else
PK_DEFINE_MATH_F32(lgamma, lgamma)
#endif
PK_DEFINE_MATH_F64(sin, sin)
PK_DEFINE_MATH_F64(cos, cos)
PK_DEFINE_MATH_F64(erf, erf)
#if PK_FP64
PK_FN double pk_pow_f64(double x, double y) { return pow(x, y); }
#endif
#if PK_FP64
PK_FN double pk_atan2_f64(double y, double x) { return atan2(y, x); }
#endif

#ifdef PK_HOST
#include "pk_float64.h"
#else
PK_DEFINE_MATH_F64(exp2, exp2)
PK_DEFINE_MATH_F64(exp, exp)
PK_DEFINE_MATH_F64(expm1, expm1)
PK_DEFINE_MATH_F64(log, log)
PK_DEFINE_MATH_F64(log1p, log1p)
PK_DEFINE_MATH_F64(log2, log2)
PK_DEFINE_MATH_F64(tanh, tanh)
#if PK_FP64
PK_FN double pk_sigmoid_f64(double x) { return 1.0 / (1.0 + exp(-x)); }
#endif
#endif

#ifdef PK_OWN_MATH
#include "pk_angle.h"
#include "pk_float.h"
#else
PK_DEFINE_MATH_F32(tan, tan)
PK_DEFINE_MATH_F32(asin, asin)
PK_DEFINE_MATH_F32(acos, acos)
PK_DEFINE_MATH_F32(atan, atan)
PK_DEFINE_MATH_F32(sinh, sinh)
PK_DEFINE_MATH_F32(cosh, cosh)
PK_DEFINE_MATH_F32(asinh, asinh)
PK_DEFINE_MATH_F32(acosh, acosh)
PK_DEFINE_MATH_F32(atanh, atanh)
PK_FN float pk_atan2_f32(float y, float x) { return PK_F32(atan2)(y, x); }
PK_DEFINE_MATH_F32(exp, exp)
PK_DEFINE_MATH_F32(expm1, expm1)
PK_DEFINE_MATH_F32(log, log)
PK_DEFINE_MATH_F32(log1p, log1p)
PK_DEFINE_MATH_F32(log2, log2)
PK_DEFINE_MATH_F32(exp2, exp2)
PK_DEFINE_MATH_F32(log10, log10)
PK_DEFINE_MATH_F32(sin, sin)
PK_DEFINE_MATH_F32(cos, cos)
PK_DEFINE_MATH_F32(tanh, tanh)
PK_DEFINE_MATH_F32(erf, erf)
PK_FN float pk_sigmoid_f32(float x) { return 1.0f / (1.0f + PK_F32(exp)(-x)); }
PK_FN float pk_pow_f32(float x, float y) { return PK_F32(pow)(x, y); }
#endif

PK_FN pk_i32 pk_signbit_f32(float x) { return (pk_i32)(pk_bits_of_float(x) >> 31); }
#if PK_FP64
PK_FN pk_i32 pk_signbit_f64(double x) { return signbit(x) != 0; }
#endif
PK_FN pk_i32 pk_signbit_i64(pk_i64 x) { return x < 0; }
PK_FN pk_i32 pk_signbit_bool(pk_bool x) { return (void)x, 0; }
#if PK_FP64
PK_FN double pk_copysign_f64(double x, double y) { return copysign(x, y); }
#endif
PK_FN float pk_copysign_f32(float x, float y) { return PK_F32(copysign)(x, y); }
#if PK_FP64
PK_FN double pk_hypot_f64(double x, double y) { return hypot(x, y); }
#endif
#ifdef PK_OWN_MATH
/* In double, no square overflows, and the sum of two is rounded once. */
PK_FN float pk_hypot_f32(float x, float y) {
  const float a = pk_abs_of_float(x), b = pk_abs_of_float(y);
  const float length = (float)sqrt((double)a * (double)a + (double)b * (double)b);
  const float first = a == PK_INFINITY_F32 ? a : length; /* infinite, even if the other number is NaN */
  return b == PK_INFINITY_F32 ? b : first;
}
/* The number whose bits are one more or one less: away from 0, or towards it. */
#define PK_DEFINE_NEXTAFTER(token, type, bits_t, top, bits_of, of_bits)                \
  PK_FN type pk_nextafter_##token(type x, type y) {                                    \
    const bits_t bits = bits_of(x), sign = (bits_t)1 << (top);                         \
    const bits_t away = bits + 1u, back = bits - 1u, least = (bits_of(y) & sign) | 1u; \
    const bits_t up = bits & sign ? back : away, down = bits & sign ? away : back;     \
    const bits_t moved = x < y ? up : down, from_zero = x == (type)0 ? least : moved;  \
    const type next = x == y ? y : of_bits(from_zero), ordered = x != x ? x : next;    \
    return y != y ? y : ordered;                                                       \
  }
PK_DEFINE_NEXTAFTER(f32, float, pk_u32, 31, pk_bits_of_float, pk_float_of_bits)
PK_DEFINE_NEXTAFTER(f64, double, pk_u64, 63, pk_bits_of_double, pk_double_of_bits)
#else
PK_FN float pk_hypot_f32(float x, float y) { return PK_F32(hypot)(x, y); }
PK_FN float pk_nextafter_f32(float x, float y) { return PK_F32(nextafter)(x, y); }
#if PK_FP64
PK_FN double pk_nextafter_f64(double x, double y) { return nextafter(x, y); }
#endif
#endif

/* x * 2^y, rounded once: 2^y alone may be infinite or 0. */
#define PK_DEFINE_LDEXP(token, type)                                              \
  PK_FN type pk_ldexp_##token(type x, type y) {                                   \
    if (y - y != (type)0) return y != y ? y : x * (y > (type)0 ? y : (type)0);    \
    const type most = (type)4000, near = y < -most ? -most : y > most ? most : y; \
    const type whole = rint(near), rest = near - whole;                           \
    return (type)ldexp(rest == (type)0 ? x : x * (type)exp2(rest), (int)whole);   \
  }
PK_DEFINE_LDEXP(f32, float)
#if PK_FP64
PK_DEFINE_LDEXP(f64, double)
#endif

/* Operators that return integers unchanged. */
PK_FN pk_i64 pk_floor_i64(pk_i64 x) { return x; }
PK_FN pk_i64 pk_ceil_i64(pk_i64 x) { return x; }
PK_FN pk_i64 pk_trunc_i64(pk_i64 x) { return x; }
PK_FN pk_i64 pk_rint_i64(pk_i64 x) { return x; }

/* 1 for +infinity, -1 for -infinity, 0 for all others. */
#define PK_DEFINE_IS_INF(token, type)                                                                              \
  PK_FN pk_i32 pk_is_inf_##token(type x) { return x == (type)1 / (type)0 ? 1 : x == (type)-1 / (type)0 ? -1 : 0; } \
  /* The replacements of NaN and the infinities. */                                                                \
  PK_FN type pk_replaced_##token(type x, type nan, type high, type low) {                                          \
    const type above = x == (type)1 / (type)0 ? high : x;                                                          \
    const type below = x == (type)-1 / (type)0 ? low : above;                                                      \
    return x != x ? nan : below;                                                                                   \
  }
PK_DEFINE_IS_INF(f32, float)
#if PK_FP64
PK_DEFINE_IS_INF(f64, double)
#endif
PK_FN pk_i32 pk_is_inf_i64(pk_i64 x) { return (void)x, 0; }
PK_FN pk_i32 pk_is_inf_bool(pk_bool x) { return (void)x, 0; }
PK_FN pk_i64 pk_replaced_i64(pk_i64 x, pk_i64 nan, pk_i64 high, pk_i64 low) {
  return (void)nan, (void)high, (void)low, x;
}
PK_FN pk_bool pk_replaced_bool(pk_bool x, pk_bool nan, pk_bool high, pk_bool low) {
  return (void)nan, (void)high, (void)low, x;
}

/* If one operand is NaN, the result is the other one. */
#define PK_DEFINE_NUMBER_ORDER(token, type)    \
  PK_FN type pk_fmax_##token(type x, type y) { \
    const type larger = x > y ? x : y;         \
    return y != y ? x : larger;                \
  }                                            \
  PK_FN type pk_fmin_##token(type x, type y) { \
    const type smaller = x < y ? x : y;        \
    return y != y ? x : smaller;               \
  }
PK_DEFINE_NUMBER_ORDER(f32, float)
#if PK_FP64
PK_DEFINE_NUMBER_ORDER(f64, double)
#endif
PK_DEFINE_NUMBER_ORDER(i64, pk_i64)

#define PK_DEFINE_LOG_SIGMOID(token, type)                                                        \
  PK_FN type pk_log_sigmoid_##token(type x) {                                                     \
    return pk_minimum_##token(x, (type)0) - pk_log1p_##token(pk_exp_##token(-pk_abs_##token(x))); \
  }
#define PK_DEFINE_SLOPES(token, type)                                                             \
  PK_FN type pk_logit_##token(type x) { return pk_log_##token(x / ((type)1 - x)); }               \
  PK_FN type pk_logit_backward_##token(type g, type x, type eps) {                                \
    const type lowest = eps < (type)0 ? (type)0 : eps, highest = (type)1 - lowest;                \
    if (x >= lowest && x <= highest) return g / (x * ((type)1 - x));                              \
    return eps < (type)0 ? (type)0 / (type)0 : (type)0;                                           \
  }                                                                                               \
  /* Logarithms are bounded by -100; the result for a number that is not a probability is NaN. */ \
  PK_FN type pk_cross_entropy_##token(type x, type y) {                                           \
    const type no = pk_maximum_##token(pk_log1p_##token(-x), (type)-100);                         \
    const type yes = pk_maximum_##token(pk_log_##token(x), (type)-100);                           \
    return (y - (type)1) * no - y * yes;                                                          \
  }                                                                                               \
  /* d/dx of x (1 + t) / 2, t = tanh(k (x + 0.044715 x^3)) */                                     \
  PK_FN type pk_gelu_tanh_slope_##token(type x) {                                                 \
    const type k = (type)0.79788456080286535588, square = x * x;                                  \
    const type t = pk_tanh_##token(k * (x + (type)0.044715 * square * x));                        \
    const type inner = k * ((type)1 + (type)(3 * 0.044715) * square);                             \
    return (type)0.5 * ((type)1 + t) + (type)0.5 * x * ((type)1 - t * t) * inner;                 \
  }
PK_DEFINE_SLOPES(f32, float)
#if PK_FP64
PK_DEFINE_SLOPES(f64, double)
#endif
PK_DEFINE_LOG_SIGMOID(f32, float)
#if PK_FP64
PK_DEFINE_LOG_SIGMOID(f64, double)
#endif

#include "pk_integer.h"

#endif /* PK_MATH_H_ */
