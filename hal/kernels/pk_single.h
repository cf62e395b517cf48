/* pk_single.h: exp, log, tanh, sigmoid and erf of float32 in float, for the loops of the family `unary` on the host, where they
 * are all that is computed: half of the instructions of pk_float.h, whose versions the other families keep, for errors of at
 * most 1.0, 0.8, 1.3, 1.4 and 1.3 ulp at every 997th float (test/hal/kernel_float.c). exp is that of
 * pk_exp.h. Polynomials by hal/kernels/tools/minimax.py. */
#ifndef PK_SINGLE_H_
#define PK_SINGLE_H_

#ifdef PK_HOST

/* x = 2^n (1 + f), sqrt(1/2) <= 1 + f < sqrt(2); log(1 + f) = f - f^2 / 2 + f^3 P(f). Subnormal numbers are scaled up first. */
PK_FN float pk_single_log(float x) {
  const pk_u32 root = 0x3f3504f3u, one = 0x3f800000u; /* bits of sqrt(1/2) and 1 */
  const float y = x < 1.17549435e-38f ? x * 8388608.0f : x;
  const pk_u32 moved = pk_bits_of_float(y) + (one - root);
  const float bias = 8388608.0f + (x < 1.17549435e-38f ? 150.0f : 127.0f);
  const float n = pk_float_of_bits((moved >> 23) | 0x4b000000u) - bias; /* 2^23 + exponent */
  const float f = pk_float_of_bits((moved & 0x007fffffu) + root) - 1.0f, square = f * f;
  float p = 0.07332628822206255f;
  p = p * f - 0.11659961011768571f;
  p = p * f + 0.11634643310926394f;
  p = p * f - 0.12396696465737471f;
  p = p * f + 0.14251157191443467f;
  p = p * f - 0.16669151119172343f;
  p = p * f + 0.20000688030871638f;
  p = p * f - 0.24999981185870915f;
  p = p * f + 0.33333331257125354f;
  const float small = (n * PK_LN2_LOW + square * f * p) - 0.5f * square;
  return pk_log_ends(x, n * PK_LN2_HIGH + (small + f));
}

/* x + x^3 Q(x^2) near 0, else 1 - 2 / (e^2x + 1), which is 1 from 9.02 on. */
PK_FN float pk_single_tanh(float x) {
  const float a = pk_abs_of_float(x), z = a * a, bound = a > 10.0f ? 10.0f : a;
  float q = 0.002147529791422345f;
  q = q * z - 0.008182666204581485f;
  q = q * z + 0.021702964109321904f;
  q = q * z - 0.053947203760750996f;
  q = q * z + 0.133332097602636f;
  q = q * z - 0.3333333090658879f;
  const float far = 1.0f - 2.0f / (pk_single_exp(bound + bound) + 1.0f);
  return pk_with_sign(a < 0.625f ? a + a * z * q : far, x);
}

/* 1 / (1 + e) or e / (1 + e), e = e^-|x|, in two parts, as its rounding would show twice: the quotient of the first parts, then
 * what the second parts change, where the reciprocal of 1 + e is the quotient or 1 less it. */
PK_FN float pk_single_sigmoid(float x) {
  const float a = pk_abs_of_float(x), bound = a > 104.0f ? 104.0f : a;
  pk_u32 whole;
  const float part = pk_single_exp_part(-bound, &whole), sum = 1.0f + part;
  const float e = pk_single_scale(sum, whole), rest = pk_single_scale(part - (sum - 1.0f), whole);
  const float d = 1.0f + e, d_rest = (e - (d - 1.0f)) + rest;
  const float quotient = (x < 0.0f ? e : 1.0f) / d, reciprocal = x < 0.0f ? 1.0f - quotient : quotient;
  return quotient + ((x < 0.0f ? rest : 0.0f) - quotient * d_rest) * reciprocal;
}

/* x + x (2 / sqrt(pi) - 1 + x^2 Q(x^2)) up to 1, then 1 - e^P(x), which is 1 from 3.92 on. */
PK_FN float pk_single_erf(float x) {
  const float a = pk_abs_of_float(x), z = a * a, b = a > 4.0f ? 4.0f : a;
  float q = -9.722147131093048e-06f;
  q = q * z + 0.00011286207191885185f;
  q = q * z - 0.0008487043564205783f;
  q = q * z + 0.005221251297177005f;
  q = q * z - 0.0268655170194136f;
  q = q * z + 0.11283784212024395f;
  q = q * z - 0.3761263861472392f;
  float p = -2.1686625140120105e-05f;
  p = p * b + 0.0004413336130698042f;
  p = p * b - 0.004204547630557429f;
  p = p * b + 0.025208216835501465f;
  p = p * b - 0.10841851165478035f;
  p = p * b - 0.6332199566518056f;
  p = p * b - 1.1295783907465469f;
  p = p * b + 0.00018803279354674113f;
  return pk_with_sign(a < 1.0f ? a + a * (0.12837916709551256f + z * q) : 1.0f - pk_single_exp(p), x);
}

#define pk_exp_f32 pk_single_exp
#define pk_log_f32 pk_single_log
#define pk_tanh_f32 pk_single_tanh
#define pk_sigmoid_f32 pk_single_sigmoid
#define pk_erf_f32 pk_single_erf

#endif /* PK_HOST */
#endif /* PK_SINGLE_H_ */
