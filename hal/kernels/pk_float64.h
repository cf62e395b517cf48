/* pk_float64.h: float64 functions of the host: straight-line code that the compiler vectorizes, where those of the C
 * library are a call per element. Included by pk_math.h; other devices use their language's functions.
 *
 * Results are within 1 ulp, log2 and expm1 2, tanh and sigmoid 2.5 (test/hal/kernels/kernel_double.c). Only additions,
 * multiplications, divisions and bit operations are used, so every instruction set returns the same result.
 * hal/kernels/tools/minimax.py computes the polynomial of the logarithm; that of the exponential function is Taylor's
 * series. */
#ifndef PK_FLOAT64_H_
#define PK_FLOAT64_H_

#include "pk_float.h"

#define PK_INFINITY_F64 pk_double_of_bits(0x7ff0000000000000u)
#define PK_NAN_F64 pk_double_of_bits(0x7ff8000000000000u)
#define PK_SIGN_F64 0x8000000000000000u
#define PK_LN_2_HIGH_F64 0.69314718036912381649 /* 32 bits, so that n times it is exact */
#define PK_LN_2_LOW_F64 1.9082149292705877e-10

PK_FN double pk_abs_of_double(double x) { return pk_double_of_bits(pk_bits_of_double(x) & ~PK_SIGN_F64); }
PK_FN double pk_double_with_sign(double x, double sign) {
  return pk_double_of_bits((pk_bits_of_double(x) & ~PK_SIGN_F64) | (pk_bits_of_double(sign) & PK_SIGN_F64));
}

/* ---- exponential functions ---- */

/* e^r - 1 for |r| <= ln(2) / 2; the error of the series to r^13 is 4e-18. */
PK_FN double pk_exp_rest_f64(double r) {
  double p = 1.0 / 6227020800.0; /* 1 / 13! */
  p = p * r + 1.0 / 479001600.0;
  p = p * r + 1.0 / 39916800.0;
  p = p * r + 1.0 / 3628800.0;
  p = p * r + 1.0 / 362880.0;
  p = p * r + 1.0 / 40320.0;
  p = p * r + 1.0 / 5040.0;
  p = p * r + 1.0 / 720.0;
  p = p * r + 1.0 / 120.0;
  p = p * r + 1.0 / 24.0;
  p = p * r + 1.0 / 6.0;
  p = p * r + 1.0 / 2.0;
  return p * (r * r) + r;
}
PK_FN double pk_between_f64(double x, double low, double high) { /* NaN is unchanged */
  const double y = x > high ? high : x;
  return y < low ? low : y;
}
/* Returns r and n for x = n ln 2 + r, |x| < 1100. */
PK_FN double pk_exp_split_f64(double x, pk_u64 *out_n) {
  const double shifted = x * PK_LOG2_E + PK_ROUNDER, n = shifted - PK_ROUNDER;
  *out_n = pk_bits_of_double(shifted) - pk_bits_of_double(PK_ROUNDER);
  return (x - n * PK_LN_2_HIGH_F64) - n * PK_LN_2_LOW_F64;
}
/* 2^n in two factors, since one cannot represent n = 1024 and subnormal results. */
PK_FN double pk_scale_f64(pk_u64 n, double *out_other) {
  const pk_u64 whole = n + 2048u, part = whole >> 1;
  *out_other = pk_double_of_bits((whole - part - 1u) << 52);
  return pk_double_of_bits((part - 1u) << 52);
}
PK_FN double pk_exp_f64(double x) { /* infinity from 709.79 on */
  pk_u64 n;
  double other;
  const double p = pk_exp_rest_f64(pk_exp_split_f64(pk_between_f64(x, -746.0, 710.0), &n)) + 1.0;
  const double scale = pk_scale_f64(n, &other);
  return p * scale * other;
}
PK_FN double pk_exp2_f64(double x) {
  const double y = pk_between_f64(x, -1080.0, 1025.0), shifted = y + PK_ROUNDER, r = y - (shifted - PK_ROUNDER);
  double other;
  const double p = pk_exp_rest_f64(r * PK_LN_2) + 1.0;
  const double scale = pk_scale_f64(pk_bits_of_double(shifted) - pk_bits_of_double(PK_ROUNDER), &other);
  return p * scale * other;
}
/* 2^n p + 2^n - 1 = (2^b p + (2^b - 2^-a)) 2^a, n = a + b: the difference is exact where it matters. */
PK_FN double pk_expm1_f64(double x) {
  pk_u64 n;
  double other;
  const double p = pk_exp_rest_f64(pk_exp_split_f64(pk_between_f64(x, -40.0, 710.0), &n));
  const double scale = pk_scale_f64(n, &other);
  const double inverse = pk_double_of_bits((2047u - ((n + 2048u) >> 1)) << 52);
  return pk_double_with_sign((p * other + (other - inverse)) * scale, x);
}
PK_FN double pk_sigmoid_f64(double x) { return 1.0 / (1.0 + pk_exp_f64(-x)); }
PK_FN double pk_tanh_f64(double x) { /* 1 from 19.1 on */
  const double m = pk_expm1_f64(pk_between_f64(2.0 * pk_abs_of_double(x), 0.0, 40.0));
  return pk_double_with_sign(m / (m + 2.0), x);
}

/* ---- logarithms ---- */

/* log(1 + f) for sqrt(1/2) <= 1 + f < sqrt(2), and n ln 2 + low are added: with s = f / (2 + f) it is 2 atanh(s) =
 * f - (f^2 / 2 - s (f^2 / 2 + s^2 P(s^2))). */
PK_FN double pk_log_sum_f64(double f, double n, double low) {
  const double s = f / (2.0 + f), z = s * s, half = 0.5 * f * f;
  double p = 0.1308716702103467;
  p = p * z + 0.13268718479806443;
  p = p * z + 0.1538624187177582;
  p = p * z + 0.1818179559747706;
  p = p * z + 0.2222222239214429;
  p = p * z + 0.28571428570801544;
  p = p * z + 0.4000000000000088;
  p = p * z + 0.6666666666666666;
  return n * PK_LN_2_HIGH_F64 - ((half - (s * (half + z * p) + (n * PK_LN_2_LOW_F64 + low))) - f);
}
/* pk_split, also of subnormal numbers. */
PK_FN double pk_split_f64(double x, double *out_n) {
  const int is_small = x < 0x1p-1022;
  const double f = pk_split(is_small ? x * 0x1p54 : x, out_n);
  *out_n -= is_small ? 54.0 : 0.0;
  return f;
}
/* Returns the logarithm of x, given that of finite x > 0 as y. */
PK_FN double pk_log_ends_f64(double x, double y) {
  const double z = x < PK_INFINITY_F64 ? y : x; /* infinity, NaN */
  const double w = x == 0.0 ? -PK_INFINITY_F64 : z;
  return x < 0.0 ? PK_NAN_F64 : w;
}
PK_FN double pk_log_f64(double x) {
  double n;
  const double f = pk_split_f64(x, &n);
  return pk_log_ends_f64(x, pk_log_sum_f64(f, n, 0.0));
}
PK_FN double pk_log2_f64(double x) {
  double n;
  const double f = pk_split_f64(x, &n);
  return pk_log_ends_f64(x, n + pk_log_sum_f64(f, 0.0, 0.0) * PK_LOG2_E);
}
/* Near 0, where 1 + x loses low bits of x, f is x itself; elsewhere they are added as c / (1 + x). */
PK_FN double pk_log1p_f64(double x) {
  double n;
  const double u = 1.0 + x, f = pk_split(u, &n);
  const double c = x > 1.0 ? 1.0 - (u - x) : x - (u - 1.0);
  const double near = pk_log_sum_f64(x, 0.0, 0.0), far = pk_log_sum_f64(f, n, c / u);
  const double y = pk_log_ends_f64(u, n == 0.0 ? near : far);
  return x == 0.0 ? x : y;
}

#endif /* PK_FLOAT64_H_ */
