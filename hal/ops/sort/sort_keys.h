/* sort_keys.h: an unsigned number for each element, in the order of the elements: NaN is the largest, and both zeros
 * are equal. */
#ifndef SORT_KEYS_H_
#define SORT_KEYS_H_
PK_FN pk_u64 pk_key_i64(pk_i64 x) { return (pk_u64)x; }
PK_FN pk_u64 pk_key_f32(float x) {
  const pk_u32 bits = pk_bits_of_float(x);
  if (x != x) return 0xffffffffu;
  if (x == 0.0f) return 0x80000000u;
  return bits & 0x80000000u ? (pk_u32)~bits : bits | 0x80000000u;
}
#if PK_FP64
PK_FN pk_u64 pk_key_f64(double x) {
  pk_u64 bits;
#if defined(PK_OPENCL)
  bits = as_ulong(x);
#elif defined(PK_CUDA)
  bits = (pk_u64)__double_as_longlong(x);
#else
  memcpy(&bits, &x, sizeof bits);
#endif
  if (x != x) return ~(pk_u64)0;
  if (x == 0.0) return (pk_u64)1 << 63;
  return bits >> 63 ? ~bits : bits | (pk_u64)1 << 63;
}
#endif
#endif
