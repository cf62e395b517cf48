/* pk_philox.h: Philox4x32-10 (Salmon et al., SC11) in kernels, and the float32 numbers from its words. */
#ifndef PK_PHILOX_H_
#define PK_PHILOX_H_

/* One round, and the next key; constants of the paper. */
#define PK_PHILOX_ROUND(c0, c1, c2, c3, key0, key1)                                \
  {                                                                                \
    const pk_u64 m0 = (pk_u64)0xD2511F53u * (c0), m1 = (pk_u64)0xCD9E8D57u * (c2); \
    c0 = (pk_u32)(m1 >> 32) ^ (c1) ^ (key0);                                       \
    c2 = (pk_u32)(m0 >> 32) ^ (c3) ^ (key1);                                       \
    c1 = (pk_u32)m1;                                                               \
    c3 = (pk_u32)m0;                                                               \
    key0 += 0x9E3779B9u;                                                           \
    key1 += 0xBB67AE85u;                                                           \
  }

/* The four words of block `counter`, in lvalues c0 to c3. The upper half of the counter stays 0. */
#define PK_PHILOX_BLOCK(seed, counter, c0, c1, c2, c3)           \
  {                                                              \
    pk_u32 key0 = (pk_u32)(seed), key1 = (pk_u32)((seed) >> 32); \
    c0 = (pk_u32)(counter), c1 = (pk_u32)((counter) >> 32);      \
    c2 = 0, c3 = 0;                                              \
    PK_PHILOX_ROUND(c0, c1, c2, c3, key0, key1)                  \
    PK_PHILOX_ROUND(c0, c1, c2, c3, key0, key1)                  \
    PK_PHILOX_ROUND(c0, c1, c2, c3, key0, key1)                  \
    PK_PHILOX_ROUND(c0, c1, c2, c3, key0, key1)                  \
    PK_PHILOX_ROUND(c0, c1, c2, c3, key0, key1)                  \
    PK_PHILOX_ROUND(c0, c1, c2, c3, key0, key1)                  \
    PK_PHILOX_ROUND(c0, c1, c2, c3, key0, key1)                  \
    PK_PHILOX_ROUND(c0, c1, c2, c3, key0, key1)                  \
    PK_PHILOX_ROUND(c0, c1, c2, c3, key0, key1)                  \
    PK_PHILOX_ROUND(c0, c1, c2, c3, key0, key1)                  \
  }

/* A call's key and first block: its numbers, or those that are in device memory when the work runs (hal_op_call_t). */
#define PK_RANDOM_STATE(key, start, seed, offset, state) \
  const pk_u64 key = (state) ? (state)[0] : (seed), start = (state) ? (state)[1] + (offset) : (offset);

/* x * y that no compiler fuses with a sum: CUDA's compilers have no pragma against it. */
#ifdef PK_CUDA
PK_FN float pk_product_f32(float x, float y) { return __fmul_rn(x, y); }
PK_FN double pk_product_f64(double x, double y) { return __dmul_rn(x, y); }
#else
PK_FN float pk_product_f32(float x, float y) { return x * y; }
#if PK_FP64
PK_FN double pk_product_f64(double x, double y) { return x * y; }
#endif
#endif
#define pk_product(x, y) PK_CAT(pk_product_, PK_TOKEN)(x, y)

/* -2 ln((w + 1) * 2^-32) in float, with polynomial and split of ln 2 from Moshier's Cephes library (logf). Near 1,
 * where 1 - a has no digits in float, the polynomial's variable a - 1 is computed from the integer. */
PK_FN float pk_normal_radius2_f32(pk_u32 w) {
  const float a = ((float)(pk_i32)(w >> 16) * 65536.0f + (float)(pk_i32)((w & 0xFFFFu) + 1u)) * 0x1p-32f;
  const pk_u32 bits = pk_bits_of_float(a) - 0x3F3504F3u; /* sqrt(1/2): the mantissa is in [sqrt(1/2), sqrt(2)) */
  const float m = pk_float_of_bits((bits & 0x7FFFFFu) + 0x3F3504F3u);
  const int near = w >= 0xC0000000u;
  const float e = near ? 0.0f : (float)((pk_i32)bits >> 23);
  const float f = near ? (float)(pk_i32)(~w) * -0x1p-32f : m - 1.0f;
  const float z = f * f;
  float p = 7.0376836292e-2f;
  p = p * f - 1.1514610310e-1f;
  p = p * f + 1.1676998740e-1f;
  p = p * f - 1.2420140846e-1f;
  p = p * f + 1.4249322787e-1f;
  p = p * f - 1.6668057665e-1f;
  p = p * f + 2.0000714765e-1f;
  p = p * f - 2.4999993993e-1f;
  p = p * f + 3.3333331174e-1f;
  p = p * f * z + e * -2.12194440e-4f - 0.5f * z;
  return -2.0f * (f + p + e * 0.693359375f);
}

/* cos and sin of 2 pi w 2^-32: the quadrant and the angle within it are computed from the integer, exactly. Polynomials
 * of Cephes. */
PK_FN void pk_normal_angle_f32(pk_u32 w, float *out_cos, float *out_sin) {
  const pk_u32 quadrant = (w + 0x20000000u) >> 30;
  const float x = (float)(pk_i32)(w - (quadrant << 30)) * 1.4629180792671596e-9f; /* pi / 2 / 2^30; |x| <= pi / 4 */
  const float z = x * x;
  const float s = ((-1.9515295891e-4f * z + 8.3321608736e-3f) * z - 1.6666654611e-1f) * z * x + x;
  const float c =
      ((2.443315711809948e-5f * z - 1.388731625493765e-3f) * z + 4.166664568298827e-2f) * z * z - 0.5f * z + 1.0f;
  const int odd = (int)(quadrant & 1u);
  *out_cos = pk_float_of_bits(pk_bits_of_float(odd ? s : c) ^ ((quadrant + 1u) & 2u) << 30);
  *out_sin = pk_float_of_bits(pk_bits_of_float(odd ? c : s) ^ (quadrant & 2u) << 30);
}

#define PK_WIDE(low, high) (((pk_u64)(high) << 32 | (low)) >> 11) /* 53 bits */

/* Floor of n * range / 2^64 for a range of at most 2^32, which distributes 64 bits evenly; larger ranges, and 2^64 as
 * 0, use the remainder. */
PK_FN pk_u64 pk_random_below(pk_u32 low, pk_u32 high, pk_u64 range) {
  const pk_u64 n = (pk_u64)high << 32 | low;
  if (range == 0) return n;
  if (range >> 32) return n % range;
  return ((pk_u64)high * range + ((pk_u64)low * range >> 32)) >> 32;
}

#endif /* PK_PHILOX_H_ */
