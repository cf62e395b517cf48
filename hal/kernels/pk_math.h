/* pk_math.h: the functions that expressions in codegen/ops.yaml may use, by computing type: pk_exp(x) is pk_exp_f32(x) in an
 * instance whose PK_TOKEN is f32. The meaning is torch's on the CPU: maximum and minimum propagate NaN, the sign of NaN is 0,
 * the absolute value of the smallest integer is itself. */
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

/* Comparison with itself finds NaN; the second operand is given back unless it is smaller, and so when it is NaN. Two
 * selections: gcc 12 does not vectorise nested uses of one with `||`. */
#define PK_DEFINE_ORDER(token, type)                 \
  PK_FN type pk_maximum_##token(type x, type y) {    \
    const type larger = x > y ? x : y;               \
    return x != x ? x : larger;                      \
  }                                                  \
  PK_FN type pk_minimum_##token(type x, type y) {    \
    const type smaller = x < y ? x : y;              \
    return x != x ? x : smaller;                     \
  }
PK_DEFINE_ORDER(f32, float)
PK_DEFINE_ORDER(f64, double)
PK_DEFINE_ORDER(i64, pk_i64)
PK_DEFINE_ORDER(i32, pk_i32)
PK_DEFINE_ORDER(i16, pk_i16)
PK_DEFINE_ORDER(i8, pk_i8)
PK_DEFINE_ORDER(u8, pk_u8)

#define PK_DEFINE_SIGN(token, type) \
  PK_FN type pk_sign_##token(type x) { return (type)((type)(x > (type)0) - (type)(x < (type)0)); }
PK_DEFINE_SIGN(f32, float)
PK_DEFINE_SIGN(f64, double)
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

/* Conversions of copy.pk: an unsigned 64-bit integer of a floating number, as x86-64 makes it of negative ones too; a
 * complex number of a real one. */
PK_FN pk_u64 pk_u64_of_double(double x) {
  return x >= 9223372036854775808.0 ? (pk_u64)(pk_i64)(x - 9223372036854775808.0) ^ (pk_u64)1 << 63 : (pk_u64)(pk_i64)x;
}
PK_FN pk_c64 pk_real_c64(float x) {
  pk_c64 result;
  result.re = x;
  result.im = 0.0f;
  return result;
}
PK_FN pk_c128 pk_real_c128(double x) {
  pk_c128 result;
  result.re = x;
  result.im = 0.0;
  return result;
}

/* The languages' own functions: OpenCL's are overloaded, CUDA and host C have a suffix f. Those of float that are a call on
 * the host, and hinder vectorisation, are in pk_float.h. */
#ifdef PK_OPENCL
#define PK_F32(name) name
#else
#define PK_F32(name) name##f
#endif
#define PK_DEFINE_MATH_F32(name, function) \
  PK_FN float pk_##name##_f32(float x) { return PK_F32(function)(x); }
#define PK_DEFINE_MATH_F64(name, function) \
  PK_FN double pk_##name##_f64(double x) { return function(x); }
#define PK_DEFINE_MATH_1(name, function) PK_DEFINE_MATH_F32(name, function) PK_DEFINE_MATH_F64(name, function)
PK_DEFINE_MATH_1(abs, fabs)
PK_DEFINE_MATH_1(sqrt, sqrt)
PK_DEFINE_MATH_1(tan, tan)
PK_DEFINE_MATH_1(floor, floor)
PK_DEFINE_MATH_1(ceil, ceil)
PK_DEFINE_MATH_1(trunc, trunc)
PK_DEFINE_MATH_F64(exp, exp)
PK_DEFINE_MATH_F64(expm1, expm1)
PK_DEFINE_MATH_F64(log, log)
PK_DEFINE_MATH_F64(log1p, log1p)
PK_DEFINE_MATH_F64(log2, log2)
PK_DEFINE_MATH_F64(sin, sin)
PK_DEFINE_MATH_F64(cos, cos)
PK_DEFINE_MATH_F64(tanh, tanh)
PK_DEFINE_MATH_F64(erf, erf)
PK_FN double pk_sigmoid_f64(double x) { return 1.0 / (1.0 + exp(-x)); }
PK_FN double pk_pow_f64(double x, double y) { return pow(x, y); }
PK_FN float pk_atan2_f32(float y, float x) { return PK_F32(atan2)(y, x); }
PK_FN double pk_atan2_f64(double y, double x) { return atan2(y, x); }

#ifdef PK_HOST
#include "pk_float.h"
#else
PK_DEFINE_MATH_F32(exp, exp)
PK_DEFINE_MATH_F32(expm1, expm1)
PK_DEFINE_MATH_F32(log, log)
PK_DEFINE_MATH_F32(log1p, log1p)
PK_DEFINE_MATH_F32(log2, log2)
PK_DEFINE_MATH_F32(sin, sin)
PK_DEFINE_MATH_F32(cos, cos)
PK_DEFINE_MATH_F32(tanh, tanh)
PK_DEFINE_MATH_F32(erf, erf)
PK_FN float pk_sigmoid_f32(float x) { return 1.0f / (1.0f + PK_F32(exp)(-x)); }
PK_FN float pk_pow_f32(float x, float y) { return PK_F32(pow)(x, y); }
#endif

#endif /* PK_MATH_H_ */
