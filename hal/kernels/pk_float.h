/* pk_float.h: float32 functions for loops on wide cores (PK_OWN_MATH): straight-line code that the compiler vectorizes,
 * where the language's functions are a call per element. Included by pk_math.h; other devices use their language's
 * functions.
 *
 * All functions compute in double: the arithmetic adds no error that is visible in float, subnormal numbers are
 * normal, and the final conversion rounds, overflows and underflows correctly. What remains is the error of the
 * polynomials, which hal/kernels/tools/minimax.py computes; results are within 0.8 ulp
 * (test/hal/kernels/kernel_float.c). Only additions, multiplications, divisions and bit operations are used, so
 * every instruction set returns the same result. */
#ifndef PK_FLOAT_H_
#define PK_FLOAT_H_

#include "pk_half.h"

#ifdef PK_OPENCL
PK_FN pk_u64 pk_bits_of_double(double x) { return as_ulong(x); }
PK_FN double pk_double_of_bits(pk_u64 bits) { return as_double(bits); }
#else
PK_FN pk_u64 pk_bits_of_double(double x) {
  pk_u64 bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}
PK_FN double pk_double_of_bits(pk_u64 bits) {
  double x;
  memcpy(&x, &bits, sizeof x);
  return x;
}
#endif
PK_FN float pk_abs_of_float(float x) { return pk_float_of_bits(pk_bits_of_float(x) & 0x7fffffffu); }
PK_FN float pk_with_sign(float x, float sign) {
  return pk_float_of_bits((pk_bits_of_float(x) & 0x7fffffffu) | (pk_bits_of_float(sign) & 0x80000000u));
}

/* Adding it rounds to an integer, which is then in the low bits: 1.5 * 2^52. */
#define PK_ROUNDER 6755399441055744.0
/* x / d for 1 <= d < 2^100: the reciprocal in float, which takes a quarter of the time, and one step of Newton's
 * method. */
PK_FN double pk_quotient(double x, double d) {
  const double near = (double)(1.0f / (float)d);
  return x * (near * (2.0 - d * near));
}

#define PK_LOG2_E 1.4426950408889634
#define PK_LN_2 0.6931471805599453
#define PK_INFINITY_F32 pk_float_of_bits(0x7f800000u)
#define PK_NAN_F32 pk_float_of_bits(0x7fc00000u)

/* Returns 2^t - 1 for |t| < 1000, with a small relative error also near 0, and 2^t - 1 + 1 in *out_power: 2^t = 2^n
 * 2^r, n = round(t), |r| <= 1/2. NaN returns NaN, because the bits of n do not affect the result. */
PK_FN double pk_exp2m1(double t, double *out_power) {
  const double shifted = t + PK_ROUNDER, r = t - (shifted - PK_ROUNDER);
  const double scale = pk_double_of_bits((pk_bits_of_double(shifted) + 1023u) << 52);
  double p = 0.00015403502333979043;
  p = p * r + 0.0013390735418871448;
  p = p * r + 0.009618237526449469;
  p = p * r + 0.055503574345580946;
  p = p * r + 0.24022649794835074;
  p = p * r + 0.6931471879257703;
  *out_power = scale * (p * r) + scale;
  return scale * (p * r) + (scale - 1.0);
}

/* The bounds result in 0 and infinity in float; NaN is unchanged. */
PK_FN double pk_exp_argument(float x) {
  const float y = x > 90.0f ? 90.0f : x;
  return (double)(y < -110.0f ? -110.0f : y) * PK_LOG2_E;
}
PK_FN float pk_exp_f32(float x) {
  double power;
  pk_exp2m1(pk_exp_argument(x), &power);
  return (float)power;
}
PK_FN float pk_exp2_f32(float x) {
  double power;
  const float y = x > 129.0f ? 129.0f : x;
  pk_exp2m1((double)(y < -151.0f ? -151.0f : y), &power);
  return (float)power;
}
PK_FN float pk_expm1_f32(float x) {
  double power;
  return pk_with_sign((float)pk_exp2m1(pk_exp_argument(x), &power), x);
}

/* 1 / (1 + e^-x); for negative x, e^x is in the numerator and the sum, which neither overflows nor loses small
 * results. */
PK_FN float pk_sigmoid_f32(float x) {
  double power;
  pk_exp2m1(pk_exp_argument(-pk_abs_of_float(x)), &power);
  const double above = x < 0.0f ? power : 1.0;
  return (float)pk_quotient(above, 1.0 + power);
}

/* tanh x = (e^2x - 1) / (e^2x + 1); 1 in float from 9.02 on. */
PK_FN float pk_tanh_f32(float x) {
  const float a = pk_abs_of_float(x), y = a > 10.0f ? 10.0f : a;
  double power;
  const double m = pk_exp2m1((double)y * (2.0 * PK_LOG2_E), &power);
  return pk_with_sign((float)pk_quotient(m, power + 1.0), x);
}

/* erf x = 1 - 2^(-x P(x)); 1 in float from 3.92 on. */
PK_FN float pk_erf_f32(float x) {
  const float bound = pk_abs_of_float(x);
  const double a = (double)(bound > 4.0f ? 4.0f : bound);
  double power;
  double p = -1.3353970090094982e-05;
  p = p * a + 0.00016972059262181;
  p = p * a - 0.0009129912140938935;
  p = p * a + 0.002405013624841246;
  p = p * a - 0.00023140413798625973;
  p = p * a - 0.02763202940777435;
  p = p * a + 0.14827706612145633;
  p = p * a + 0.9184476253267823;
  p = p * a + 1.6279070351254226;
  return pk_with_sign((float)-pk_exp2m1(-(a * p), &power), x);
}

/* x = 2^n (1 + f) with sqrt(1/2) <= 1 + f < sqrt(2): n and f, for finite x > 0. */
PK_FN double pk_split(double x, double *out_exponent) {
  const pk_u64 root = 0x3fe6a09e667f3bcdu, one = 0x3ff0000000000000u; /* bits of sqrt(1/2) and 1 */
  const pk_u64 moved = pk_bits_of_double(x) + (one - root);
  *out_exponent = pk_double_of_bits((moved >> 52) | 0x4330000000000000u) - (4503599627370496.0 + 1023.0); /* 2^52 + n */
  return pk_double_of_bits((moved & 0x000fffffffffffffu) + root) - 1.0;
}

/* Returns the logarithm of x, given that of finite x > 0 as y. */
PK_FN float pk_log_ends(float x, float y) {
  const float z = x < PK_INFINITY_F32 ? y : x; /* infinity, NaN */
  const float w = x == 0.0f ? -PK_INFINITY_F32 : z;
  return x < 0.0f ? PK_NAN_F32 : w;
}
PK_FN double pk_log_of_parts(double f, double n) {
  double p = -0.07621189561992196;
  p = p * f + 0.12904701431537716;
  p = p * f - 0.13243450442692495;
  p = p * f + 0.1418182782522812;
  p = p * f - 0.16609013380721432;
  p = p * f + 0.2000196889859975;
  p = p * f - 0.2500158653584011;
  p = p * f + 0.3333332598696271;
  p = p * f - 0.4999998829018421;
  p = p * f + 0.9999999999592326;
  return n * PK_LN_2 + p * f;
}
PK_FN float pk_log_f32(float x) {
  double n;
  const double f = pk_split((double)x, &n);
  return pk_log_ends(x, (float)pk_log_of_parts(f, n));
}
PK_FN float pk_log10_f32(float x) {
  double n;
  const double f = pk_split((double)x, &n);
  return pk_log_ends(x, (float)(pk_log_of_parts(f, n) * 0.4342944819032518));
}
PK_FN float pk_log2_f32(float x) {
  double n;
  const double f = pk_split((double)x, &n);
  double p = -0.10995052386760873;
  p = p * f + 0.1861754875943217;
  p = p * f - 0.19106260277931209;
  p = p * f + 0.2046005267419772;
  p = p * f - 0.23961741238425247;
  p = p * f + 0.28856741338025144;
  p = p * f - 0.36069664909612803;
  p = p * f + 0.4808982409772631;
  p = p * f - 0.72134735150755;
  p = p * f + 1.4426950408301484;
  return pk_log_ends(x, (float)(n + p * f));
}
/* Near 0, where 1 + x loses low bits of x, f is x itself. */
PK_FN float pk_log1p_f32(float x) {
  double n;
  const double f = pk_split(1.0 + (double)x, &n);
  const double y = pk_log_of_parts(n == 0.0 ? (double)x : f, n);
  const float z = pk_with_sign((float)y, x);
  const float w = x < PK_INFINITY_F32 ? z : x;
  const float v = x == -1.0f ? -PK_INFINITY_F32 : w;
  return x < -1.0f ? PK_NAN_F32 : v;
}

/* Sine and cosine of r = x - n pi/2, |r| <= pi/4, which are swapped and negated depending on n. pi/2 has two parts, the
 * first of 32 bits, so that n times it is exact. For |x| < 2^20: pk_sin_near; other arguments use the language's
 * function. */
#define PK_NEAR_LIMIT 1048576.0f
PK_FN void pk_sine_and_cosine(float x, pk_u64 *out_quadrants, double *out_sine, double *out_cosine) {
  const double shifted = (double)x * 0.6366197723675814 + PK_ROUNDER, n = shifted - PK_ROUNDER;
  const double r = ((double)x - n * 1.5707963267341256) - n * 6.077100506506192e-11, z = r * r;
  *out_quadrants = pk_bits_of_double(shifted);
  {
    double p = -0.00019501788143437887;
    p = p * z + 0.008332016190243801;
    p = p * z - 0.16666650219344836;
    p = p * z + 0.9999999967605515;
    *out_sine = p * r;
  }
  {
    double p = 2.4372636615577518e-05;
    p = p * z - 0.0013886528679282124;
    p = p * z + 0.04166661321766864;
    p = p * z - 0.4999999957139068;
    p = p * z + 0.999999999943912;
    *out_cosine = p;
  }
}
PK_FN float pk_sine_of_quadrant(float x, pk_u64 quadrants) {
  double sine, cosine;
  pk_u64 n;
  pk_sine_and_cosine(x, &n, &sine, &cosine);
  const pk_u64 quadrant = n + quadrants, swapped = 0u - (quadrant & 1u);
  const pk_u64 bits = (pk_bits_of_double(sine) & ~swapped) | (pk_bits_of_double(cosine) & swapped);
  return (float)pk_double_of_bits(bits ^ (quadrant & 2u) << 62);
}
PK_FN int pk_is_near(float x) { return pk_abs_of_float(x) < PK_NEAR_LIMIT; }
PK_FN float pk_sin_near(float x) { return pk_sine_of_quadrant(x, 0); }
PK_FN float pk_cos_near(float x) { return pk_sine_of_quadrant(x, 1); }
PK_FN float pk_sin_f32(float x) { return pk_is_near(x) ? pk_sin_near(x) : PK_F32(sin)(x); }
PK_FN float pk_cos_f32(float x) { return pk_is_near(x) ? pk_cos_near(x) : PK_F32(cos)(x); }

/* |x|^y = 2^(y log2 |x|), then the cases of C99's annex F. A y greater than 2^26 is even; infinite ones become finite
 * so that 1^y is 1. The logarithm is accurate to 2^-43, because y multiplies its error. */
PK_FN float pk_pow_f32(float x, float y) {
  const float a = pk_abs_of_float(x), largest = 3.402823466e38f;
  const float low = y > largest ? largest : y, bounded = low < -largest ? -largest : low;
  double n, power;
  const double f = pk_split((double)a, &n);
  double p = -0.057495715467024554;
  p = p * f + 0.11560436537318568;
  p = p * f - 0.11887328594721007;
  p = p * f + 0.1106974053123034;
  p = p * f - 0.11798095301133274;
  p = p * f + 0.13093575025284984;
  p = p * f - 0.14442256969747388;
  p = p * f + 0.16032086486813268;
  p = p * f - 0.18033135137038694;
  p = p * f + 0.2060984591204811;
  p = p * f - 0.24044927722461037;
  p = p * f + 0.288539022323061;
  p = p * f - 0.36067375933465373;
  p = p * f + 0.48089834687658556;
  p = p * f - 0.721347520446803;
  p = p * f + 1.442695040889047;
  const double known = n + p * f;
  const double finite = a < PK_INFINITY_F32 ? known : (double)a; /* infinity, NaN */
  const double product = (double)bounded * (a == 0.0f ? -(double)PK_INFINITY_F32 : finite);
  const double top = product > 200.0 ? 200.0 : product;
  pk_exp2m1(top < -200.0 ? -200.0 : top, &power);
  const float b = pk_abs_of_float(y), small = b > 67108864.0f ? 67108864.0f : b;
  const double whole = (double)small, halved = whole * 0.5;
  const int is_whole = (whole + PK_ROUNDER) - PK_ROUNDER == whole,
            is_even = (halved + PK_ROUNDER) - PK_ROUNDER == halved;
  const float magnitude = (float)power;
  const float odd = pk_with_sign(magnitude, x); /* x to an odd power */
  const float even = is_even ? magnitude : odd;
  const float broken = x < 0.0f ? PK_NAN_F32 : magnitude;
  const float fraction = a < PK_INFINITY_F32 ? broken : magnitude;
  const float signed_power = is_whole ? even : fraction;
  const float one = y == 0.0f ? 1.0f : signed_power;
  return x == 1.0f ? 1.0f : one;
}

#endif /* PK_FLOAT_H_ */
