/* op_reference.h: the expected results of the element-wise operators, in extended precision and in exact integers. */
#ifndef TEST_HAL_OP_REFERENCE_H_
#define TEST_HAL_OP_REFERENCE_H_

#include <float.h>

#include "op_testing.h"

typedef struct input_s {
  number_t a, b, c, s0, s1;
} input_t;

/* One operator. `ulps` bounds the error of the floating result in units of the last place of `scale`. The scale is
 * ANY if an intermediate term overflows float32, so that any result is accepted. */
#define ANY (-1)
typedef struct reference_s {
  const char *name;
  int operands, numbers;
  double s0, s1;
  int result_bool;
  double ulps;
  long double (*floating)(const input_t *x, long double *scale);
  int64_t (*integer)(const input_t *x);
} reference_t;

#define FLOATING(name, expression)                                      \
  static long double name##_f(const input_t *x, long double *scale) {   \
    const long double a = x->a.f, b = x->b.f, c = x->c.f, s0 = x->s0.f; \
    (void)a, (void)b, (void)c, (void)s0;                                \
    const long double value = (expression);                             \
    *scale = fabsl(value);                                              \
    return value;                                                       \
  }
#define INTEGER(name, expression)                                      \
  static int64_t name##_i(const input_t *x) {                          \
    const int64_t a = x->a.i, b = x->b.i, s0 = x->s0.i, s1 = x->s1.i;  \
    const uint64_t A = (uint64_t)a, B = (uint64_t)b, S = (uint64_t)s0; \
    (void)a, (void)b, (void)s0, (void)s1, (void)A, (void)B, (void)S;   \
    return (int64_t)(expression);                                      \
  }
#define BOTH(name, floating, integer) FLOATING(name, floating) INTEGER(name, integer)
#define COMPARE(name, op) BOTH(name, a op b, a op b)
#define COMPARE_TRUTH(name, op) BOTH(name, (a != 0) op(b != 0), (a != 0) op(b != 0))

BOTH(add, a + s0 * b, A + S * B)
BOTH(sub, a - s0 * b, A - S * B)
BOTH(mul, a *b, A *B)
FLOATING(div, a / b)
BOTH(maximum, isnan(a) ? a : isnan(b) ? b : fmaxl(a, b), a > b ? a : b)
BOTH(minimum, isnan(a) ? a : isnan(b) ? b : fminl(a, b), a < b ? a : b)
FLOATING(pow, powl(a, b))
/* Modulo 2^64, from the highest bit of the exponent down; the fractional part is truncated, like in PyTorch. */
static int64_t pow_i(const input_t *x) {
  const int64_t a = x->a.i, b = x->b.i;
  if (b < 0) return a == 1 || (a == -1 && b % 2 == 0) ? 1 : a == -1 ? -1 : 0;
  uint64_t power = 1;
  for (int bit = 62; bit >= 0; bit--) power = power * power * (b >> bit & 1 ? (uint64_t)a : 1u);
  return (int64_t)power;
}
FLOATING(atan2, atan2l(a, b))
INTEGER(and, A &B)
INTEGER(or, A | B)
INTEGER(xor, A ^ B)
COMPARE(eq, ==)
COMPARE(ne, !=)
COMPARE(lt, <)
COMPARE(le, <=)
COMPARE(gt, >)
COMPARE(ge, >=)
FLOATING(threshold_backward, b <= s0 ? 0 : a)
BOTH(neg, -a, 0 - A)
BOTH(abs, fabsl(a), a < 0 ? 0 - A : A)
BOTH(sign, isnan(a) ? 0 : (a > 0) - (a < 0), (a > 0) - (a < 0))
FLOATING(exp, expl(a))
FLOATING(expm1, expm1l(a))
FLOATING(log, logl(a))
FLOATING(log1p, log1pl(a))
FLOATING(log2, log2l(a))
FLOATING(sqrt, sqrtl(a))
FLOATING(rsqrt, 1 / sqrtl(a))
FLOATING(reciprocal, 1 / a)
FLOATING(sin, sinl(a))
FLOATING(cos, cosl(a))
FLOATING(tan, tanl(a))
FLOATING(tanh, tanhl(a))
FLOATING(sigmoid, 1 / (1 + expl(-a)))
FLOATING(erf, erfl(a))
INTEGER(floor, a)
FLOATING(floor, floorl(a))
INTEGER(ceil, a)
FLOATING(ceil, ceill(a))
INTEGER(trunc, a)
FLOATING(trunc, truncl(a))
BOTH(clamp_min, isnan(a) ? a : fmaxl(a, s0), a > s0 ? a : s0)
BOTH(clamp_max, isnan(a) ? a : fminl(a, s0), a < s0 ? a : s0)
BOTH(clamp, isnan(a) ? a : fminl(fmaxl(a, x->s0.f), x->s1.f), a<s0 ? s0 : a> s1 ? s1 : a)
BOTH(logical_not, a == 0, a == 0)
INTEGER(not, ~A)

FLOATING(asin, asinl(a))
FLOATING(acos, acosl(a))
FLOATING(atan, atanl(a))
FLOATING(sinh, sinhl(a))
FLOATING(cosh, coshl(a))
FLOATING(asinh, asinhl(a))
FLOATING(acosh, acoshl(a))
FLOATING(atanh, atanhl(a))
FLOATING(erfc, erfcl(a))
FLOATING(exp2, exp2l(a))
FLOATING(log10, log10l(a))
BOTH(round, rintl(a), a)
FLOATING(copysign, copysignl(a, b))
FLOATING(hypot, hypotl(a, b))
BOTH(fmax, fmaxl(a, b), a > b ? a : b)
BOTH(fmin, fminl(a, b), a < b ? a : b)
BOTH(fmod, fmodl(a, b), b == 0 || b == -1 ? 0 : a % b)
FLOATING(leaky_relu, a > 0 ? a : a * s0)
FLOATING(hardtanh_backward, b > x->s0.f && b < x->s1.f ? a : 0)
BOTH(threshold, a <= s0 ? x->s1.f : a, a <= s0 ? s1 : a)
COMPARE_TRUTH(logical_and, &&)
COMPARE_TRUTH(logical_or, ||)

/* Sums of products that may cancel: the error is measured relative to the largest term. */
static long double terms(long double x, long double y, long double z, long double *scale) {
  const long double largest = fmaxl(fabsl(x), fmaxl(fabsl(y), fabsl(z)));
  *scale = isfinite(x + y + z) && largest <= FLT_MAX / 4 ? largest : ANY;
  return x + y + z;
}
static long double scaled_add_f(const input_t *x, long double *scale) {
  return terms(x->a.f, x->s0.f * x->b.f, 0, scale);
}
static long double scaled_sub_f(const input_t *x, long double *scale) {
  return terms(x->a.f, -x->s0.f * x->b.f, 0, scale);
}
static long double tanh_backward_f(const input_t *x, long double *scale) {
  const long double g = x->a.f, y = x->b.f;
  const long double value = terms(g, -g * y * y, 0, scale);
  if (fmaxl(fabsl(g), fabsl(y)) > 1e18L) *scale = ANY; /* intermediate products overflow */
  return value;
}
static long double sigmoid_backward_f(const input_t *x, long double *scale) {
  const long double g = x->a.f, y = x->b.f;
  const long double value = terms(g * y, -g * y * y, 0, scale);
  if (fmaxl(fabsl(g), fabsl(y)) > 1e18L) *scale = ANY; /* intermediate products overflow */
  return value;
}
static int64_t addcmul_i(const input_t *x) {
  return (int64_t)((uint64_t)x->a.i + (uint64_t)x->s0.i * (uint64_t)x->b.i * (uint64_t)x->c.i);
}
static long double addcmul_f(const input_t *x, long double *scale) {
  return terms(x->a.f, x->s0.f * x->b.f * x->c.f, 0, scale);
}
static long double addcdiv_f(const input_t *x, long double *scale) {
  return terms(x->a.f, x->s0.f * x->b.f / x->c.f, 0, scale);
}
static long double lerp_f(const input_t *x, long double *scale) {
  return terms(x->a.f, x->s0.f * x->b.f, -x->s0.f * x->a.f, scale);
}

/* glibc states at most 2 ulp for these functions in float and double (manual, "Errors in Math Functions"); one more
 * for the surrounding arithmetic. */
#define EXACT 0.5
#define LIBM 3
static const reference_t references[] = {
    {"add.Tensor", 2, 1, 1, 0, 0, EXACT, add_f, add_i},
    {"add.Tensor", 2, 1, 2, 0, 0, EXACT, scaled_add_f, add_i},
    {"sub.Tensor", 2, 1, 1, 0, 0, EXACT, sub_f, sub_i},
    {"sub.Tensor", 2, 1, 4, 0, 0, EXACT, scaled_sub_f, sub_i},
    {"mul.Tensor", 2, 0, 0, 0, 0, EXACT, mul_f, mul_i},
    {"div.Tensor", 2, 0, 0, 0, 0, EXACT, div_f, NULL},
    {"maximum", 2, 0, 0, 0, 0, 0, maximum_f, maximum_i},
    {"minimum", 2, 0, 0, 0, 0, 0, minimum_f, minimum_i},
    {"pow.Tensor_Tensor", 2, 0, 0, 0, 0, LIBM, pow_f, pow_i},
    {"atan2", 2, 0, 0, 0, 0, LIBM, atan2_f, NULL},
    {"bitwise_and.Tensor", 2, 0, 0, 0, 0, 0, NULL, and_i},
    {"bitwise_or.Tensor", 2, 0, 0, 0, 0, 0, NULL, or_i},
    {"bitwise_xor.Tensor", 2, 0, 0, 0, 0, 0, NULL, xor_i},
    {"eq.Tensor", 2, 0, 0, 0, 1, 0, eq_f, eq_i},
    {"ne.Tensor", 2, 0, 0, 0, 1, 0, ne_f, ne_i},
    {"lt.Tensor", 2, 0, 0, 0, 1, 0, lt_f, lt_i},
    {"le.Tensor", 2, 0, 0, 0, 1, 0, le_f, le_i},
    {"gt.Tensor", 2, 0, 0, 0, 1, 0, gt_f, gt_i},
    {"ge.Tensor", 2, 0, 0, 0, 1, 0, ge_f, ge_i},
    {"tanh_backward", 2, 0, 0, 0, 0, 4, tanh_backward_f, NULL},
    {"sigmoid_backward", 2, 0, 0, 0, 0, 4, sigmoid_backward_f, NULL},
    {"threshold_backward", 2, 1, 0.25, 0, 0, 0, threshold_backward_f, NULL},
    {"neg", 1, 0, 0, 0, 0, 0, neg_f, neg_i},
    {"abs", 1, 0, 0, 0, 0, 0, abs_f, abs_i},
    {"sgn", 1, 0, 0, 0, 0, 0, sign_f, sign_i},
    {"sign", 1, 0, 0, 0, 0, 0, sign_f, sign_i},
    {"exp", 1, 0, 0, 0, 0, LIBM, exp_f, NULL},
    {"expm1", 1, 0, 0, 0, 0, LIBM, expm1_f, NULL},
    {"log", 1, 0, 0, 0, 0, LIBM, log_f, NULL},
    {"log1p", 1, 0, 0, 0, 0, LIBM, log1p_f, NULL},
    {"log2", 1, 0, 0, 0, 0, LIBM, log2_f, NULL},
    {"sqrt", 1, 0, 0, 0, 0, EXACT, sqrt_f, NULL},
    {"rsqrt", 1, 0, 0, 0, 0, 1.5, rsqrt_f, NULL},
    {"reciprocal", 1, 0, 0, 0, 0, EXACT, reciprocal_f, NULL},
    {"sin", 1, 0, 0, 0, 0, LIBM, sin_f, NULL},
    {"cos", 1, 0, 0, 0, 0, LIBM, cos_f, NULL},
    {"tan", 1, 0, 0, 0, 0, LIBM, tan_f, NULL},
    {"tanh", 1, 0, 0, 0, 0, LIBM, tanh_f, NULL},
    {"sigmoid", 1, 0, 0, 0, 0, LIBM, sigmoid_f, NULL},
    {"erf", 1, 0, 0, 0, 0, LIBM, erf_f, NULL},
    {"floor", 1, 0, 0, 0, 0, 0, floor_f, floor_i},
    {"ceil", 1, 0, 0, 0, 0, 0, ceil_f, ceil_i},
    {"trunc", 1, 0, 0, 0, 0, 0, trunc_f, trunc_i},
    {"clamp_min", 1, 1, 3, 0, 0, 0, clamp_min_f, clamp_min_i},
    {"clamp_max", 1, 1, 3, 0, 0, 0, clamp_max_f, clamp_max_i},
    {"clamp", 1, 2, 1, 5, 0, 0, clamp_f, clamp_i},
    {"logical_not", 1, 0, 0, 0, 1, 0, logical_not_f, logical_not_i},
    {"bitwise_not", 1, 0, 0, 0, 0, 0, NULL, not_i},
    {"addcmul", 3, 1, 0.5, 0, 0, 3, addcmul_f, addcmul_i},
    {"addcdiv", 3, 1, 0.5, 0, 0, 3, addcdiv_f, NULL},
    {"lerp.Scalar", 2, 1, 0.25, 0, 0, 4, lerp_f, NULL},
    {"lerp.Scalar", 2, 1, 0.75, 0, 0, 4, lerp_f, NULL},
    {"asin", 1, 0, 0, 0, 0, LIBM, asin_f, NULL},
    {"acos", 1, 0, 0, 0, 0, LIBM, acos_f, NULL},
    {"atan", 1, 0, 0, 0, 0, LIBM, atan_f, NULL},
    {"sinh", 1, 0, 0, 0, 0, LIBM, sinh_f, NULL},
    {"cosh", 1, 0, 0, 0, 0, LIBM, cosh_f, NULL},
    {"asinh", 1, 0, 0, 0, 0, LIBM, asinh_f, NULL},
    {"acosh", 1, 0, 0, 0, 0, LIBM, acosh_f, NULL},
    {"atanh", 1, 0, 0, 0, 0, LIBM, atanh_f, NULL},
    {"erfc", 1, 0, 0, 0, 0, 4, erfc_f, NULL},
    {"exp2", 1, 0, 0, 0, 0, LIBM, exp2_f, NULL},
    {"log10", 1, 0, 0, 0, 0, LIBM, log10_f, NULL},
    {"round", 1, 0, 0, 0, 0, 0, round_f, round_i},
    {"copysign.Tensor", 2, 0, 0, 0, 0, 0, copysign_f, NULL},
    {"hypot", 2, 0, 0, 0, 0, LIBM, hypot_f, NULL},
    {"fmax", 2, 0, 0, 0, 0, 0, fmax_f, fmax_i},
    {"fmin", 2, 0, 0, 0, 0, 0, fmin_f, fmin_i},
    {"fmod.Tensor", 2, 0, 0, 0, 0, 0, fmod_f, fmod_i},
    {"leaky_relu", 1, 1, 0.125, 0, 0, EXACT, leaky_relu_f, NULL},
    {"hardtanh_backward", 2, 2, -0.5, 0.75, 0, 0, hardtanh_backward_f, NULL},
    {"threshold", 1, 2, 1, 7, 0, 0, threshold_f, threshold_i},
    {"logical_and", 2, 0, 0, 0, 1, 0, logical_and_f, logical_and_i},
    {"logical_or", 2, 0, 0, 0, 1, 0, logical_or_f, logical_or_i},
};
/* On bool, a result is true if the integer is not zero, except that `~` is the logical complement. */
static inline int64_t integer_reference(const reference_t *ref, hal_dtype_t dtype, const input_t *x) {
  return dtype == HAL_BOOL && ref->integer == not_i ? logical_not_i(x) : ref->integer(x);
}
#define REFERENCE_COUNT (sizeof references / sizeof references[0])

#endif /* TEST_HAL_OP_REFERENCE_H_ */
