/* arithmetic.c: reductions over the ranks' elements, in blocks whose accumulators stay in the first-level cache. */
#include "comm/shm/arithmetic.h"

#include <stdatomic.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

#include "base/dtype.h"

enum { DTYPES = HAL_UINT64 + 1, REDUCTIONS = HAL_REDUCE_PREMUL_SUM + 1, BLOCK = 8192 /* bytes of accumulators */ };

typedef void (*convert_t)(void *, const void *, size_t);

typedef struct half_s {
  convert_t load, store;
  hal_shm_fused_t sum;
} half_t;

/* The loops of one instruction set. */
typedef struct arithmetic_set_s {
  hal_shm_step_t steps[DTYPES][REDUCTIONS];
  half_t f16, bf16;
  convert_t bool_load, f32_scale, f64_scale;
  void (*f32_divide)(void *, size_t, size_t), (*f64_divide)(void *, size_t, size_t);
} arithmetic_set_t;

/* No element depends on another one: the output is one of the inputs exactly, or does not overlap it. */
#if defined(__clang__)
#define IVDEP _Pragma("clang loop vectorize(assume_safety)")
#else
#define IVDEP _Pragma("GCC ivdep")
#endif

static inline float bf16_to_float(uint16_t half) {
  const uint32_t bits = (uint32_t)half << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* Rounds to nearest even. Every NaN becomes the NaN of torch's conversion. */
static inline uint16_t float_to_bf16(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  const uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  return (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? 0x7fc0 : rounded);
}

/* Both conversions return the same bits as the processor's instructions. A NaN becomes quiet and keeps the upper bits
 * of its payload. */
static inline float half_to_float(uint16_t half) {
  const uint32_t sign = (uint32_t)(half & 0x8000) << 16, rest = half & 0x7fff;
  uint32_t bits;
  float value;
  if (rest < 0x400) { /* 0 and subnormal numbers: a multiple of 2^-24 */
    value = (float)rest * 0x1p-24f;
    memcpy(&bits, &value, sizeof bits);
  } else {
    bits = rest < 0x7c00 ? (rest << 13) + (UINT32_C(112) << 23)
                         : 0x7f800000 | (rest & 0x3ff) << 13 | (rest > 0x7c00 ? 0x400000 : 0);
  }
  bits |= sign;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static inline uint16_t float_to_half(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  const uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
  const uint32_t rest = bits & 0x7fffffff;
  if (rest > 0x7f800000) return (uint16_t)(sign | 0x7e00 | (rest >> 13 & 0x3ff));
  if (rest >= 0x477ff000) return (uint16_t)(sign | 0x7c00); /* 65520 and above: infinity */
  if (rest < 0x38800000) { /* subnormal: the sum with 0.5 rounds to a multiple of 2^-24 */
    float magnitude;
    memcpy(&magnitude, &rest, sizeof magnitude);
    magnitude += 0.5f;
    memcpy(&bits, &magnitude, sizeof bits);
    return (uint16_t)(sign | (bits - 0x3f000000));
  }
  return (uint16_t)(sign | ((rest + 0xfff + (rest >> 13 & 1) - (UINT32_C(112) << 23)) >> 13));
}

#define NAME(x) x##_base
#define TARGET
#define HAS_AVX2 0
#include "comm/shm/arithmetic_kernels.inc"

#if defined(__x86_64__)
/* float_to_bf16 of 8 floats. */
__attribute__((target("avx2,f16c"))) static inline __m128i floats_to_bf16(__m256 value) {
  const __m256i bits = _mm256_castps_si256(value), one = _mm256_set1_epi32(1);
  const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(value, value, _CMP_UNORD_Q));
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), one);
  const __m256i sum = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  const __m256i rounded = _mm256_blendv_epi8(_mm256_srli_epi32(sum, 16), _mm256_set1_epi32(0x7fc0), is_nan);
  return _mm_packus_epi32(_mm256_castsi256_si128(rounded), _mm256_extracti128_si256(rounded, 1));
}

#define NAME(x) x##_avx2
#define TARGET __attribute__((target("avx2,f16c")))
#define HAS_AVX2 1
#include "comm/shm/arithmetic_kernels.inc"
#endif

static const arithmetic_set_t *best_set(void) {
#if defined(__x86_64__)
  unsigned a, b, c = 0, d;
  if (__builtin_cpu_supports("avx2") && __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C)) return &set_avx2;
#endif
  return &set_base;
}

/* The instruction cpuid takes 10 to 20 us on a virtual machine, so its result is stored. All threads compute the same
 * result. */
static const arithmetic_set_t *the_set(void) {
  static _Atomic(const arithmetic_set_t *) known;
  const arithmetic_set_t *set = atomic_load_explicit(&known, memory_order_relaxed);
  if (!set) atomic_store_explicit(&known, set = best_set(), memory_order_relaxed);
  return set;
}

static int is_wide(hal_dtype_t dtype) { return dtype == HAL_FLOAT64 || dtype == HAL_COMPLEX128; }

int hal_shm_reducer_find(hal_dtype_t dtype, uint32_t reduce, hal_shm_reducer_t *out) {
  const arithmetic_set_t *const set = the_set();
  if (dtype < 0 || dtype >= DTYPES || reduce >= REDUCTIONS || !set->steps[dtype][reduce]) return 0;
  const int is_complex = dtype == HAL_COMPLEX32 || dtype == HAL_COMPLEX64 || dtype == HAL_COMPLEX128;
  const int is_half = dtype == HAL_FLOAT16 || dtype == HAL_BFLOAT16 || dtype == HAL_COMPLEX32;
  *out = (hal_shm_reducer_t){.size = hal_dtype_size(dtype), .numbers = is_complex ? 2 : 1};
  out->wide = is_half ? out->size * 2 : out->size;
  out->arithmetic.step = set->steps[dtype][reduce];
  if (is_half) {
    const half_t *const half = dtype == HAL_BFLOAT16 ? &set->bf16 : &set->f16;
    out->arithmetic.load = half->load;
    out->arithmetic.store = half->store;
    if (reduce == HAL_REDUCE_SUM || reduce == HAL_REDUCE_AVG) out->arithmetic.fused = half->sum;
  }
  if (dtype == HAL_BOOL) out->arithmetic.load = set->bool_load;
  if (reduce == HAL_REDUCE_PREMUL_SUM) out->arithmetic.scale = is_wide(dtype) ? set->f64_scale : set->f32_scale;
  if (reduce == HAL_REDUCE_AVG) out->arithmetic.divide = is_wide(dtype) ? set->f64_divide : set->f32_divide;
  return 1;
}

const char *hal_shm_reducer_supported(hal_dtype_t dtype) {
  hal_shm_reducer_t reducer;
  if (!hal_shm_reducer_find(dtype, HAL_REDUCE_SUM, &reducer))
    return "this type can be copied only: convert it to float32, or use all_gather";
  if (!hal_shm_reducer_find(dtype, HAL_REDUCE_MIN, &reducer)) return "supported are sum, prod and avg";
  if (hal_shm_reducer_find(dtype, HAL_REDUCE_BAND, &reducer))
    return "supported are sum, prod, min, max, band, bor and bxor";
  return "supported are sum, prod, min, max, avg and premul_sum";
}

/* Returns the elements of one rank as accumulators: in place, or converted in `buffer`. */
static const void *accumulators(const hal_shm_reducer_t *reducer, const void *in, const void *scale, size_t count,
                                void *buffer) {
  const hal_shm_arithmetic_t *const arithmetic = &reducer->arithmetic;
  if (!arithmetic->load && !arithmetic->scale) return in;
  if (arithmetic->load) arithmetic->load(buffer, in, count * reducer->numbers);
  if (!arithmetic->load) memcpy(buffer, in, count * reducer->size);
  if (arithmetic->scale) arithmetic->scale(buffer, scale, count * reducer->numbers);
  return buffer;
}

/* Reduces one block of `count` elements. `in`: its beginning for each rank. The last step writes the result if no
 * division follows. */
static void reduce_block(const hal_shm_reducer_t *reducer, const void *const *in, const void *const *scales,
                         int32_t ranks, size_t count, void *out) {
  _Alignas(64) unsigned char acc[BLOCK], first[BLOCK], next[BLOCK];
  const hal_shm_arithmetic_t *const arithmetic = &reducer->arithmetic;
  const size_t numbers = count * reducer->numbers;
  const int ends = !arithmetic->divide && !arithmetic->store;
  const void *const start = accumulators(reducer, in[0], scales ? scales[0] : NULL, count, first);
  for (int32_t rank = 1; rank < ranks; rank++)
    arithmetic->step(ends && rank == ranks - 1 ? out : acc, rank == 1 ? start : acc,
                     accumulators(reducer, in[rank], scales ? scales[rank] : NULL, count, next), numbers);
  if (ends) return;
  if (arithmetic->divide) arithmetic->divide(acc, (size_t)ranks, numbers);
  if (arithmetic->store) arithmetic->store(out, acc, numbers);
  if (!arithmetic->store) memcpy(out, acc, count * reducer->size);
}

/* Reduces a block with fused sums. */
static void sum_block(const hal_shm_reducer_t *reducer, const void *const *in, int32_t ranks, size_t count, void *out) {
  _Alignas(64) unsigned char acc[BLOCK];
  const hal_shm_fused_t *const fused = &reducer->arithmetic.fused;
  const size_t numbers = count * reducer->numbers;
  const int ends = !reducer->arithmetic.divide;
  if (ends && ranks == 2) {
    fused->only(out, in[0], in[1], numbers);
    return;
  }
  fused->first(acc, in[0], in[1], numbers);
  for (int32_t rank = 2; rank < ranks - ends; rank++) fused->next(acc, acc, in[rank], numbers);
  if (ends) fused->last(out, acc, in[ranks - 1], numbers);
  if (ends) return;
  reducer->arithmetic.divide(acc, (size_t)ranks, numbers);
  reducer->arithmetic.store(out, acc, numbers);
}

void hal_shm_reduce(const hal_shm_reducer_t *reducer, const void *const *in, const void *const *scales, int32_t ranks,
                    size_t count, void *out, void *copy) {
  const size_t most = BLOCK / reducer->wide;
  const void *block[HAL_SHM_INPUTS];
  for (size_t at = 0; at < count; at += most) {
    const size_t length = count - at < most ? count - at : most, offset = at * reducer->size;
    unsigned char *const result = (unsigned char *)out + offset;
    for (int32_t rank = 0; rank < ranks; rank++) block[rank] = (const unsigned char *)in[rank] + offset;
    if (reducer->arithmetic.fused.first) sum_block(reducer, block, ranks, length, result);
    if (!reducer->arithmetic.fused.first) reduce_block(reducer, block, scales, ranks, length, result);
    if (copy) memcpy((unsigned char *)copy + offset, result, length * reducer->size);
  }
}
