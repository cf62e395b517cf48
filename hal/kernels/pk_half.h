/* pk_half.h: float16 and bfloat16 in memory, float in the kernel: pk_get_f16, pk_put_f16, pk_get_bf16, pk_put_bf16.
 * Rounding is to nearest, ties to even, as in torch on the CPU; NaN stays NaN. */
#ifndef PK_HALF_H_
#define PK_HALF_H_

#if defined(PK_OPENCL)
PK_FN pk_u32 pk_bits_of_float(float x) { return as_uint(x); }
PK_FN float pk_float_of_bits(pk_u32 bits) { return as_float(bits); }
#elif defined(PK_CUDA)
PK_FN pk_u32 pk_bits_of_float(float x) { return __float_as_uint(x); }
PK_FN float pk_float_of_bits(pk_u32 bits) { return __uint_as_float(bits); }
#else
PK_FN pk_u32 pk_bits_of_float(float x) {
  pk_u32 bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}
PK_FN float pk_float_of_bits(pk_u32 bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}
#endif

/* Elements of the lower 16 bits. */
PK_FN pk_f16 pk_of_bits_f16(pk_u32 bits) {
  pk_f16 result;
  result.bits = (pk_u16)bits;
  return result;
}
PK_FN pk_bf16 pk_of_bits_bf16(pk_u32 bits) {
  pk_bf16 result;
  result.bits = (pk_u16)bits;
  return result;
}

PK_FN float pk_get_bf16(pk_bf16 x) { return pk_float_of_bits((pk_u32)x.bits << 16); }

PK_FN pk_bf16 pk_put_bf16(float x) {
  const pk_u32 bits = pk_bits_of_float(x);
  const pk_u32 rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
  pk_bf16 result;
  result.bits = (pk_u16)(x != x ? 0x7fc0u : rounded);
  return result;
}

#if defined(PK_CUDA)
/* The hardware's conversions, without the header that declares them, which NVRTC may not find. */
PK_FN float pk_get_f16(pk_f16 x) {
  float result;
  asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(x.bits));
  return result;
}
PK_FN pk_f16 pk_put_f16(float x) {
  pk_f16 result;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result.bits) : "f"(x));
  return result;
}
#elif defined(PK_OPENCL) && !defined(PK_CPU_VECTOR)
/* The hardware's conversions, which OpenCL C also has without cl_khr_fp16, but only from and to memory. */
PK_FN float pk_get_f16(pk_f16 x) { return vload_half(0, (const half *)&x.bits); }
PK_FN pk_f16 pk_put_f16(float x) {
  pk_f16 result;
  vstore_half_rte(x, 0, (half *)&result.bits);
  return result;
}
#else
/* A multiplication changes the exponent's bias; it is exact, and normalizes subnormal numbers. */
PK_FN float pk_get_f16(pk_f16 x) {
  const pk_u32 sign = (pk_u32)(x.bits & 0x8000u) << 16, rest = (pk_u32)(x.bits & 0x7fffu) << 13;
  const pk_u32 finite = pk_bits_of_float(pk_float_of_bits(rest) * 0x1p112f);
  return pk_float_of_bits(sign | (rest >= 0x0f800000u ? rest | 0x7f800000u : finite));
}

PK_FN pk_f16 pk_put_f16(float x) {
  const pk_u32 bits = pk_bits_of_float(x), sign = bits >> 16 & 0x8000u, rest = bits & 0x7fffffffu;
  /* Normal results: round the 13 surplus bits. Subnormal ones: adding 0.5 aligns the last digit of the result (2^-24)
   * with the last digit of the sum, which the hardware rounds. */
  const pk_u32 normal = (rest - 0x38000000u + 0xfffu + (rest >> 13 & 1u)) >> 13;
  const pk_u32 subnormal = pk_bits_of_float(pk_float_of_bits(rest) + 0.5f) - 0x3f000000u;
  const pk_u32 small = rest < 0x38800000u ? subnormal : normal;
  const pk_u32 large = rest > 0x7f800000u ? 0x7e00u : 0x7c00u;
  pk_f16 result;
  result.bits = (pk_u16)(sign | (rest >= 0x477ff000u ? large : small));
  return result;
}
#endif

#endif /* PK_HALF_H_ */
