/* pk_exp.h: pk_exp_wide(x), the exponential function for sums of many terms. It is pk_exp, except on wide cores: there
 * float32 is computed in float, with an error of up to 2 ulp where pk_exp (pk_float.h) has 0.6, in half of the
 * instructions.
 * pk_exp_vector(x) is the same function of a vector, if the dialect has vectors (PK_CPU_VECTOR). */
#ifndef PK_EXP_H_
#define PK_EXP_H_

#define pk_exp_wide(x) PK_CAT(pk_exp_wide_, PK_TOKEN)(x)

#if defined(PK_OWN_MATH) || defined(PK_CPU_VECTOR)
#ifndef PK_SPREAD
#define PK_SPREAD(REAL, x) ((REAL)(x)) /* a number, or a vector of equal numbers */
#endif
#ifndef PK_MADD
#define PK_MADD(x, y, z) ((x) * (y) + (z)) /* in one instruction where the compiler may contract it */
#endif
#define PK_SINGLE_ROUNDER 12582912.0f /* 1.5 * 2^23: adding it rounds to an integer, which is then in the low bits */
#define PK_SINGLE_ROUNDER_BITS 0x4b400000u
#define PK_LN2_HIGH 0.693359375f /* 10 bits, so that n times it is exact */
#define PK_LN2_LOW -2.12194440e-4f

/* Defines pk_single_exp<suffix> of REAL, whose bits are WORD. pk_single_exp_rest returns e^r - 1 for |r| <= ln(2) / 2:
 * minimax polynomial of degree 6, as in Moshier's Cephes library (expf). pk_single_exp_part returns e^r - 1 and n for x
 * = n ln 2 + r, with ln 2 in two parts. The result has 2^n in two factors, since one factor cannot represent n = 128
 * and subnormal results. */
#define PK_DEFINE_SINGLE_EXP(suffix, REAL, WORD, AS_WORD, AS_REAL)                                      \
  PK_FN REAL pk_single_exp_rest##suffix(REAL r) {                                                       \
    REAL p = PK_SPREAD(REAL, 1.9875691500e-4f);                                                         \
    p = PK_MADD(p, r, 1.3981999507e-3f);                                                                \
    p = PK_MADD(p, r, 8.3334519073e-3f);                                                                \
    p = PK_MADD(p, r, 4.1665795894e-2f);                                                                \
    p = PK_MADD(p, r, 1.6666665459e-1f);                                                                \
    p = PK_MADD(p, r, 5.0000001201e-1f);                                                                \
    return PK_MADD(p, r * r, r);                                                                        \
  }                                                                                                     \
  PK_FN REAL pk_single_exp_part##suffix(REAL x, WORD *out_n) {                                          \
    const REAL shifted = x * 1.44269504088896341f + PK_SINGLE_ROUNDER, n = shifted - PK_SINGLE_ROUNDER; \
    *out_n = AS_WORD(shifted) - PK_SINGLE_ROUNDER_BITS;                                                 \
    return pk_single_exp_rest##suffix((x - n * PK_LN2_HIGH) - n * PK_LN2_LOW);                          \
  }                                                                                                     \
  PK_FN REAL pk_single_exp##suffix(REAL x) {                                                            \
    WORD n;                                                                                             \
    const REAL y = x > 89.0f ? PK_SPREAD(REAL, 89.0f) : x; /* infinity from 88.73 on */                 \
    const REAL p = pk_single_exp_part##suffix(y < -104.0f ? PK_SPREAD(REAL, -104.0f) : y, &n) + 1.0f;   \
    const WORD whole = n + 256u, half_n = whole >> 1;                                                   \
    return p * AS_REAL((half_n - 1u) << 23) * AS_REAL((whole - half_n - 1u) << 23);                     \
  }
#ifndef PK_CPP
PK_DEFINE_SINGLE_EXP(, float, pk_u32, pk_bits_of_float, pk_float_of_bits)
#endif
#ifdef PK_CPU_VECTOR
PK_DEFINE_SINGLE_EXP(_vector, float16, uint16, as_uint16, as_float16)
#endif
#endif

#ifndef PK_CPP
#ifdef PK_HOST
PK_FN float pk_exp_wide_f32(float x) { return pk_single_exp(x); }
#else
PK_FN float pk_exp_wide_f32(float x) { return pk_exp_f32(x); }
#endif
#if PK_FP64
PK_FN double pk_exp_wide_f64(double x) { return pk_exp_f64(x); }
#endif

#ifdef PK_CPU_VECTOR
#define pk_exp_vector(x) PK_CAT(pk_exp_vector_, PK_TOKEN)(x)
PK_FN float16 pk_exp_vector_f32(float16 x) { return pk_single_exp_vector(x); }
#if PK_FP64
PK_FN double16 pk_exp_vector_f64(double16 x) { return exp(x); }
#endif
#endif

#endif /* PK_CPP */
#endif /* PK_EXP_H_ */
