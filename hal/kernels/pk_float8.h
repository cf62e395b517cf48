/* pk_float8.h: the float8 types in memory, float in the kernel. Rounding is to nearest, ties to even, as in torch on
 * the CPU. Numbers beyond the largest one become infinity, the largest number ("fn") or NaN ("fnuz").
 *
 * A code is sign, exponent and mantissa; an exponent of 0 is a multiple of the smallest number. */
#ifndef PK_FLOAT8_H_
#define PK_FLOAT8_H_

#include "pk_half.h"

/* What the largest codes mean. */
#define PK_FLOAT8_IEEE 0          /* infinity and NaN, as float16 */
#define PK_FLOAT8_FINITE 1        /* "fn": no infinity, only one code is NaN */
#define PK_FLOAT8_UNSIGNED_ZERO 2 /* "fnuz": the code of negative zero is NaN */

PK_FN float pk_get_float8(pk_u8 code, int mantissa, int bias, int kind) {
  const pk_u32 sign = (pk_u32)(code & 0x80u) << 24, rest = code & 0x7fu;
  const float small = (float)rest * pk_float_of_bits((pk_u32)(128 - bias - mantissa) << 23);
  const pk_u32 normal = (rest << (23 - mantissa)) + ((pk_u32)(127 - bias) << 23);
  pk_u32 bits = rest >> mantissa ? normal : pk_bits_of_float(small);
  if (kind == PK_FLOAT8_IEEE && rest >= 0x7cu) bits = rest == 0x7cu ? 0x7f800000u : 0x7fc00000u;
  if (kind == PK_FLOAT8_FINITE && rest == 0x7fu) bits = 0x7fc00000u;
  if (kind == PK_FLOAT8_UNSIGNED_ZERO && code == 0x80u) bits = 0x7fc00000u;
  return pk_float_of_bits(sign | bits);
}

PK_FN pk_u8 pk_put_float8(float x, int mantissa, int bias, int kind) {
  const pk_u32 bits = pk_bits_of_float(x), size = bits & 0x7fffffffu, shift = (pk_u32)(23 - mantissa);
  const pk_u32 last = kind == PK_FLOAT8_IEEE ? 0x7bu : kind == PK_FLOAT8_FINITE ? 0x7eu : 0x7fu;
  const pk_u32 nan = kind == PK_FLOAT8_UNSIGNED_ZERO ? 0x80u : 0x7fu;
  const pk_u32 beyond = kind == PK_FLOAT8_FINITE ? last : last + 1u; /* of the IEEE form infinity, of fnuz NaN */
  const pk_u32 coarse = (pk_u32)(151 - bias - mantissa) << 23; /* a float whose last digit is the smallest number */
  const pk_u32 small = pk_bits_of_float(pk_float_of_bits(size) + pk_float_of_bits(coarse)) - coarse;
  const pk_u32 normal =
      (size - ((pk_u32)(127 - bias) << 23) + (1u << (shift - 1u)) - 1u + (size >> shift & 1u)) >> shift;
  pk_u32 code = size < (pk_u32)(128 - bias) << 23 ? small : normal;
  if (code > last) code = beyond;
  if (size > 0x7f800000u) code = nan;
  const pk_u32 sign = kind == PK_FLOAT8_UNSIGNED_ZERO && (code == 0u || code == nan) ? 0u : bits >> 24 & 0x80u;
  return (pk_u8)(code | sign);
}

#define PK_FLOAT8_TYPE(name, mantissa, bias, kind)                                                    \
  PK_FN float PK_CAT(pk_get_, name)(pk_u8 code) { return pk_get_float8(code, mantissa, bias, kind); } \
  PK_FN pk_u8 PK_CAT(pk_put_, name)(float x) { return pk_put_float8(x, mantissa, bias, kind); }
PK_FLOAT8_TYPE(e4m3fn, 3, 7, PK_FLOAT8_FINITE)
PK_FLOAT8_TYPE(e5m2, 2, 15, PK_FLOAT8_IEEE)
PK_FLOAT8_TYPE(e4m3fnuz, 3, 8, PK_FLOAT8_UNSIGNED_ZERO)
PK_FLOAT8_TYPE(e5m2fnuz, 2, 16, PK_FLOAT8_UNSIGNED_ZERO)
#undef PK_FLOAT8_TYPE

/* Powers of two from 2^-127 on, without sign and mantissa; the last code is NaN, also of an infinity. */
PK_FN float pk_get_e8m0fnu(pk_u8 code) {
  const pk_u32 bits = (pk_u32)code << 23;
  return pk_float_of_bits(code == 255u ? 0x7fc00000u : code ? bits : 0x00400000u);
}

/* A number in the middle of two is rounded up; the one of 2^-127 and 2^-126 is rounded down. */
PK_FN pk_u8 pk_put_e8m0fnu(float x) {
  const pk_u32 bits = pk_bits_of_float(x), exponent = bits >> 23 & 255u, rest = bits & 0x7fffffu;
  const pk_u32 up = exponent < 255u && (rest > 0x400000u || (rest == 0x400000u && exponent > 0u));
  return (pk_u8)(exponent + up);
}

#endif /* PK_FLOAT8_H_ */
