/* pk_angle.h: tangent, inverse trigonometric and hyperbolic functions of float32 for loops on wide cores, like those of
 * pk_float.h: straight-line code in double, results within 0.8 ulp, tan 1.5. Included by pk_math.h. */
#ifndef PK_ANGLE_H_
#define PK_ANGLE_H_

#include "pk_float.h"

/* For |x| < PK_NEAR_LIMIT, as pk_sin_near: sine over cosine of the reduced x, or cosine over sine. */
PK_FN float pk_tan_near(float x) {
  pk_u64 quadrants;
  double sine, cosine;
  pk_sine_and_cosine(x, &quadrants, &sine, &cosine);
  const pk_u64 swapped = 0u - (quadrants & 1u), s = pk_bits_of_double(sine), c = pk_bits_of_double(cosine);
  const double over = pk_double_of_bits((s & ~swapped) | (c & swapped));
  const double under = pk_double_of_bits((c & ~swapped) | ((s ^ (pk_u64)1 << 63) & swapped));
  return (float)(over / under);
}
PK_FN float pk_tan_f32(float x) { return pk_is_near(x) ? pk_tan_near(x) : PK_F32(tan)(x); }

/* Returns the angle of a point with coordinates x, y >= 0, at most 1e300: the arc tangent of y / x, or pi / 2 minus
 * that of x / y, reduced by pi / 4 if necessary, so that t is at most tan(pi / 8). (0, 0) has the angle 0. */
PK_FN double pk_angle(double y, double x) {
  const double tan_eighth = 0.41421356237309503, right = 1.5707963267948966, eighth = 0.7853981633974483;
  const double low = y > x ? x : y, high = y > x ? y : x, limit = tan_eighth * high;
  const double over = low > limit ? low - high : low, under = low > limit ? low + high : high;
  const double t = over / (under == 0.0 ? 1.0 : under), z = t * t;
  double p = -0.0604018703802777;
  p = p * z + 0.10575794531543668;
  p = p * z - 0.1424043049452943;
  p = p * z + 0.19998238238799065;
  p = p * z - 0.33333308082386176;
  p = p * z + 0.9999999994123334;
  const double angle = p * t + (low > limit ? eighth : 0.0);
  return y > x ? right - angle : angle;
}
PK_FN double pk_finite_of(float x) {
  const double a = (double)pk_abs_of_float(x);
  return a > 1e300 ? 1e300 : a;
}
PK_FN float pk_atan_f32(float x) { return pk_with_sign((float)pk_angle(pk_finite_of(x), 1.0), x); }
PK_FN float pk_atan2_f32(float y, float x) {
  const double angle = pk_angle(pk_finite_of(y), pk_finite_of(x));
  const double behind = pk_bits_of_float(x) >> 31 ? 3.141592653589793 - angle : angle;
  return pk_with_sign((float)behind, y);
}
/* Returns the other coordinate of a point of the unit circle; NaN outside it. */
PK_FN double pk_beside(double x) { return pk_sqrt_f64((1.0 - x) * (1.0 + x)); }
PK_FN float pk_asin_f32(float x) {
  const double a = (double)pk_abs_of_float(x);
  return pk_with_sign((float)pk_angle(a, pk_beside(a)), x);
}
PK_FN float pk_acos_f32(float x) {
  const double a = (double)pk_abs_of_float(x), angle = pk_angle(pk_beside(a), a);
  return (float)(x < 0.0f ? 3.141592653589793 - angle : angle);
}

/* Returns e^|x| - 1, and e^|x|; the result exceeds the range of float if e^|x| does. */
PK_FN double pk_grown(float x, double *out_power) {
  const double a = (double)pk_abs_of_float(x);
  return pk_exp2m1((a > 100.0 ? 100.0 : a) * PK_LOG2_E, out_power);
}
PK_FN float pk_sinh_f32(float x) {
  double power;
  const double m = pk_grown(x, &power);
  return pk_with_sign((float)(0.5 * (m + m / power)), x);
}
PK_FN float pk_cosh_f32(float x) {
  double power;
  pk_grown(x, &power);
  return (float)(0.5 * (power + 1.0 / power));
}

/* Returns log(1 + u), u >= 0 and finite. Near 0, where 1 + u loses low bits of u, f is u itself. */
PK_FN double pk_log_behind_1(double u) {
  double n;
  const double f = pk_split(1.0 + u, &n);
  return pk_log_of_parts(n == 0.0 ? u : f, n);
}
PK_FN float pk_asinh_f32(float x) {
  const double a = (double)pk_abs_of_float(x), square = a * a;
  const double y = pk_log_behind_1(a + square / (1.0 + pk_sqrt_f64(1.0 + square)));
  return pk_abs_of_float(x) < PK_INFINITY_F32 ? pk_with_sign((float)y, x) : x;
}
PK_FN float pk_acosh_f32(float x) {
  const double t = (double)x - 1.0;
  const double y = pk_log_behind_1(t + pk_sqrt_f64(t * (t + 2.0)));
  const float z = x < PK_INFINITY_F32 ? (float)y : x;
  return x < 1.0f ? PK_NAN_F32 : z;
}
PK_FN float pk_atanh_f32(float x) {
  const float bound = pk_abs_of_float(x);
  const double a = (double)bound, y = 0.5 * pk_log_behind_1((a + a) / (1.0 - a));
  const float z = bound < 1.0f ? (float)y : PK_INFINITY_F32;
  return pk_with_sign(bound > 1.0f || x != x ? PK_NAN_F32 : z, x);
}

/* The remainder of a division whose quotient is below 2^26. The quotient in double is then on the correct side of an
 * integer, since the rounding error is less than the distance to the next numerator, and quotient * y is exact. */
#define PK_QUOTIENT_LIMIT 67108864.0f
#define PK_IS_CLOSE(x, y)                                                                                             \
  ((int)(pk_abs_of_float(x) < pk_abs_of_float(y) * PK_QUOTIENT_LIMIT) & (int)(pk_abs_of_float(y) < PK_INFINITY_F32) & \
   (int)(pk_abs_of_float(x) < PK_INFINITY_F32))
PK_FN float pk_fmod_near(float x, float y) {
  const double a = (double)x, b = (double)y;
  return pk_with_sign((float)(a - pk_trunc_f64(a / b) * b), x);
}

#endif /* PK_ANGLE_H_ */
