/* pk_single.h: exp, log, tanh, sigmoid and erf of float32 in float: for the element-wise families on wide cores, where
 * the function is the whole computation, and of vectors in C++ kernels (PK_CPP). They take a third of the time of
 * pk_float.h, which the other families use, with errors of at most 1.1, 0.8, 2.4, 2.3 and 1.9 ulp
 * (test/hal/kernels/kernel_float.c); CUDA's have up to 2. exp is that of pk_exp.h. Polynomials by
 * hal/kernels/tools/minimax.py. */
#ifndef PK_SINGLE_H_
#define PK_SINGLE_H_

#ifdef PK_OWN_MATH

/* Defines the functions of REAL, whose bits are WORD.
 *
 * log: x = 2^n (1 + f), sqrt(1/2) <= 1 + f < sqrt(2); log(1 + f) = f - f^2 / 2 + f^3 P(f). Subnormal numbers are scaled
 * up first; moved has 2^23 + exponent in its high bits.
 *
 * expm1_part: e^t - 1 = 2^n p + (2^n - 1) for |t| < 60: p = e^r - 1 and 2^n. ln 2 in one part has an error of 2e-9: the
 * error of n ln 2 matters only where 2^n is near 1, so this is for functions that are bounded by 1.
 *
 * tanh: m / (m + 2), m = e^2x - 1; it is 1 from 9.02 on.
 *
 * sigmoid: 1 / (1 + e) or e / (1 + e), e = e^-|x|, whose n is at most 0: 2^24 in one factor and its inverse in the
 * other allow subnormal results.
 *
 * erf: 1 - e^(-x (1 + P(x))), which is 1 from 3.92 on. */
#define PK_DEFINE_SINGLE(suffix, REAL, WORD, AS_WORD, AS_REAL)                                          \
  PK_FN REAL pk_single_log##suffix(REAL x) {                                                            \
    const pk_u32 root = 0x3f3504f3u, one = 0x3f800000u; /* bits of sqrt(1/2) and 1 */                   \
    const REAL y = x < 1.17549435e-38f ? x * 8388608.0f : x;                                            \
    const WORD moved = AS_WORD(y) + (one - root);                                                       \
    const REAL moved_by = x < 1.17549435e-38f ? PK_SPREAD(REAL, 150.0f) : PK_SPREAD(REAL, 127.0f);      \
    const REAL n = AS_REAL((moved >> 23) | 0x4b000000u) - (8388608.0f + moved_by);                      \
    const REAL f = AS_REAL((moved & 0x007fffffu) + root) - 1.0f, square = f * f;                        \
    REAL p = PK_SPREAD(REAL, 0.07332628822206255f);                                                     \
    p = PK_MADD(p, f, -0.11659961011768571f);                                                           \
    p = PK_MADD(p, f, 0.11634643310926394f);                                                            \
    p = PK_MADD(p, f, -0.12396696465737471f);                                                           \
    p = PK_MADD(p, f, 0.14251157191443467f);                                                            \
    p = PK_MADD(p, f, -0.16669151119172343f);                                                           \
    p = PK_MADD(p, f, 0.20000688030871638f);                                                            \
    p = PK_MADD(p, f, -0.24999981185870915f);                                                           \
    p = PK_MADD(p, f, 0.33333331257125354f);                                                            \
    const REAL small = (n * PK_LN2_LOW + square * f * p) - 0.5f * square;                               \
    return pk_log_ends##suffix(x, n * PK_LN2_HIGH + (small + f));                                       \
  }                                                                                                     \
  PK_FN REAL pk_single_expm1_part##suffix(REAL t, REAL *out_scale) {                                    \
    const REAL shifted = t * 1.44269504088896341f + PK_SINGLE_ROUNDER, n = shifted - PK_SINGLE_ROUNDER; \
    const REAL r = t - n * 0.693147180559945309f;                                                       \
    *out_scale = AS_REAL((AS_WORD(shifted) + 127u) << 23);                                              \
    return pk_single_exp_rest##suffix(r);                                                               \
  }                                                                                                     \
  PK_FN REAL pk_single_tanh##suffix(REAL x) {                                                           \
    const REAL a = pk_abs_of_float##suffix(x), bound = a > 10.0f ? PK_SPREAD(REAL, 10.0f) : a;          \
    REAL scale;                                                                                         \
    const REAL p = pk_single_expm1_part##suffix(bound + bound, &scale), m = scale * p + (scale - 1.0f); \
    return pk_with_sign##suffix(m / (m + 2.0f), x);                                                     \
  }                                                                                                     \
  PK_FN REAL pk_single_sigmoid##suffix(REAL x) {                                                        \
    const REAL a = -pk_abs_of_float##suffix(x), bound = a < -104.0f ? PK_SPREAD(REAL, -104.0f) : a;     \
    WORD n;                                                                                             \
    const REAL p = pk_single_exp_part##suffix(bound, &n) + 1.0f;                                        \
    const REAL e = p * AS_REAL((n + 24u + 127u) << 23) * 5.9604644775390625e-8f;                        \
    return (x < 0.0f ? e : PK_SPREAD(REAL, 1.0f)) / (1.0f + e);                                         \
  }                                                                                                     \
  PK_FN REAL pk_single_erf##suffix(REAL x) {                                                            \
    const REAL a = pk_abs_of_float##suffix(x), b = a > 4.0f ? PK_SPREAD(REAL, 4.0f) : a;                \
    REAL scale, p = PK_SPREAD(REAL, 9.256266717231176e-06f);                                            \
    p = PK_MADD(p, b, -0.00011764135025877064f);                                                        \
    p = PK_MADD(p, b, 0.0006328372859251836f);                                                          \
    p = PK_MADD(p, b, -0.001667028413266964f);                                                          \
    p = PK_MADD(p, b, 0.00016039712581508047f);                                                         \
    p = PK_MADD(p, b, 0.019153063277148285f);                                                           \
    p = PK_MADD(p, b, -0.10277783032378804f);                                                           \
    p = PK_MADD(p, b, -0.6366193819872361f);                                                            \
    p = PK_MADD(p, b, -0.1283791716108864f);                                                            \
    const REAL e = pk_single_expm1_part##suffix(p * b - b, &scale);                                     \
    return pk_with_sign##suffix((1.0f - scale) - scale * e, x);                                         \
  }
#ifndef PK_CPP
PK_DEFINE_SINGLE(, float, pk_u32, pk_bits_of_float, pk_float_of_bits)

#define pk_exp_f32 pk_single_exp
#define pk_log_f32 pk_single_log
#define pk_tanh_f32 pk_single_tanh
#define pk_sigmoid_f32 pk_single_sigmoid
#define pk_erf_f32 pk_single_erf
#endif

#endif /* PK_OWN_MATH */
#endif /* PK_SINGLE_H_ */
