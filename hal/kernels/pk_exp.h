/* pk_exp.h: pk_exp_wide(x), the exponential function for sums of many: as pk_exp, but on the host float32 is computed in
 * float, with up to 2 ulp of error where pk_exp (pk_float.h) has 0.6, in half of the instructions. */
#ifndef PK_EXP_H_
#define PK_EXP_H_

#define pk_exp_wide(x) PK_CAT(pk_exp_wide_, PK_TOKEN)(x)

#ifdef PK_HOST
/* exp(x) = 2^n exp(r), n = round(x / ln 2), |r| <= ln(2) / 2; minimax polynomial of degree 6 for exp(r) and ln 2 in two
 * parts as in Moshier's Cephes library (expf). At most 2 ulp; 0, infinity, NaN and subnormal results are right. */
PK_FN float pk_exp_wide_f32(float x) {
  const float shift = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer, which stands in the low bits */
  x = x > 89.0f ? 89.0f : x;       /* infinity from 88.73 on */
  x = x < -104.0f ? -104.0f : x;   /* 0 from -103.98 on; NaN passes both */
  const float shifted = x * 1.44269504088896341f + shift, n = shifted - shift;
  const float r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  /* 2^n in two factors: one alone has no room for n = 128 and for subnormal results. Unsigned, so NaN's n does no harm.
   */
  const pk_u32 whole = pk_bits_of_float(shifted) - pk_bits_of_float(shift) + 256u, half = whole >> 1;
  const pk_u32 low = (half - 128u + 127u) << 23, high = (whole - half - 128u + 127u) << 23;
  return p * pk_float_of_bits(low) * pk_float_of_bits(high);
}
#else
PK_FN float pk_exp_wide_f32(float x) { return pk_exp_f32(x); }
#endif
PK_FN double pk_exp_wide_f64(double x) { return pk_exp_f64(x); }

#endif /* PK_EXP_H_ */
