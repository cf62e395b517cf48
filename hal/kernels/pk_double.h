/* pk_double.h: pk_double, the type of doubles among a kernel's arguments, for devices that have no double: a
 * computation with floats replaces them. With PK_FP64 they are doubles. */
#ifndef PK_DOUBLE_H_
#define PK_DOUBLE_H_

#include "pk_types.h"

#if PK_FP64
typedef double pk_wide_number_t; /* the type to compute with */
PK_FN double pk_number(pk_double x) { return x; }
PK_FN double pk_rest(pk_double x) { return 1.0 - x; }
PK_FN double pk_power_rest(pk_double x, float n) { return 1.0 - pow(x, (double)n); }
#else
typedef float pk_wide_number_t;

/* The sum of two floats, of which `low` is less than half of the last digit of `high`: about 48 bits. */
typedef struct {
  float high, low;
} pk_pair_t;

PK_FN pk_pair_t pk_pair(float high, float low) {
  pk_pair_t pair;
  pair.high = high + low;
  pair.low = pair.high - pair.high == 0.0f ? low - (pair.high - high) : 0.0f; /* 0 for infinity and NaN */
  return pair;
}

/* Splits the mantissa into two parts; a value too small for float becomes 0, one too large infinity. */
PK_FN pk_pair_t pk_pair_of_double(pk_double x) {
  const pk_u32 sign = x.high & 0x80000000u;
  const pk_i32 exponent = (pk_i32)(x.high >> 20 & 0x7ffu) - 1023;
  if (exponent > 127) {
    const int nan = exponent == 1024 && ((x.high & 0xfffffu) | x.low) != 0;
    return pk_pair(pk_float_of_bits(sign | (nan ? 0x7fc00000u : 0x7f800000u)), 0.0f);
  }
  if (exponent < -126) return pk_pair(pk_float_of_bits(sign), 0.0f);
  const pk_u32 top = (x.high & 0xfffffu) << 3 | x.low >> 29 | 0x800000u; /* 24 bits, then 29 */
  const float scale = pk_float_of_bits(sign | (pk_u32)(exponent + 127) << 23);
  return pk_pair((float)top * 0x1p-23f * scale, (float)(x.low & 0x1fffffffu) * 0x1p-52f * scale);
}
PK_FN pk_pair_t pk_pair_of_count(pk_u64 n) { /* below 2^63 */
  const float high = (float)n;
  return pk_pair(high, high < 0x1p63f ? (float)((pk_i64)n - (pk_i64)high) : 0.0f);
}

/* Knuth's sum and Dekker's product, with the error from fma. */
PK_FN pk_pair_t pk_pair_sum(pk_pair_t x, pk_pair_t y) {
  const float sum = x.high + y.high, back = sum - x.high;
  return pk_pair(sum, (x.high - (sum - back)) + (y.high - back) + (x.low + y.low));
}
PK_FN pk_pair_t pk_pair_product(pk_pair_t x, pk_pair_t y) {
  const float product = x.high * y.high;
  return pk_pair(product, fma(x.high, y.high, -product) + (x.high * y.low + x.low * y.high));
}
PK_FN pk_pair_t pk_pair_negated(pk_pair_t x) { return pk_pair(-x.high, -x.low); }

PK_FN float pk_number(pk_double x) { return pk_pair_of_double(x).high; }
/* 1 - x, and 1 - x^n for 0 <= x < 1, without cancellation. */
PK_FN float pk_rest(pk_double x) {
  const pk_pair_t pair = pk_pair_of_double(x);
  return (1.0f - pair.high) - pair.low;
}
PK_FN float pk_power_rest(pk_double x, float n) { return -expm1(n * log1p(-pk_rest(x))); }
#endif

#endif /* PK_DOUBLE_H_ */
