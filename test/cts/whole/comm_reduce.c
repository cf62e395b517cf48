/* comm_reduce.c: reductions. float8, float16, bfloat16 and float32 are computed in float32, in the order of the ranks,
 * and the result is rounded once: the same bits on each rank. A complex number is two numbers, except in products. */
#include <math.h>

#include "comm.h"

#define BIT(type) HAL_DTYPE_BIT(HAL_##type)
#define FLOAT8 (BIT(FLOAT8_E5M2) | BIT(FLOAT8_E4M3FN))
#define FLOATS (BIT(FLOAT16) | BIT(BFLOAT16) | BIT(FLOAT32) | BIT(FLOAT64) | FLOAT8)
#define INTEGERS \
  (BIT(UINT8) | BIT(INT8) | BIT(INT16) | BIT(INT32) | BIT(INT64) | BIT(UINT16) | BIT(UINT32) | BIT(UINT64))
#define COMPLEX (BIT(COMPLEX64) | BIT(COMPLEX128))

const uint64_t comm_reduce_dtypes[16] = {[HAL_REDUCE_SUM] = FLOATS | INTEGERS | BIT(BOOL) | COMPLEX,
                                         [HAL_REDUCE_PROD] = FLOATS | INTEGERS | BIT(BOOL) | COMPLEX,
                                         [HAL_REDUCE_MIN] = FLOATS | INTEGERS | BIT(BOOL),
                                         [HAL_REDUCE_MAX] = FLOATS | INTEGERS | BIT(BOOL),
                                         [HAL_REDUCE_AVG] = FLOATS | COMPLEX,
                                         [HAL_REDUCE_BAND] = INTEGERS | BIT(BOOL),
                                         [HAL_REDUCE_BOR] = INTEGERS | BIT(BOOL),
                                         [HAL_REDUCE_BXOR] = INTEGERS | BIT(BOOL),
                                         [HAL_REDUCE_PREMUL_SUM] = FLOATS & ~FLOAT8};

size_t comm_dtype_size(hal_dtype_t dtype) {
  static const uint8_t sizes[64] = {
      [HAL_UINT8] = 1,           [HAL_INT8] = 1,        [HAL_INT16] = 2,          [HAL_INT32] = 4,
      [HAL_INT64] = 8,           [HAL_FLOAT16] = 2,     [HAL_FLOAT32] = 4,        [HAL_FLOAT64] = 8,
      [HAL_COMPLEX32] = 4,       [HAL_COMPLEX64] = 8,   [HAL_COMPLEX128] = 16,    [HAL_BOOL] = 1,
      [HAL_BFLOAT16] = 2,        [HAL_FLOAT8_E5M2] = 1, [HAL_FLOAT8_E4M3FN] = 1,  [HAL_FLOAT8_E5M2FNUZ] = 1,
      [HAL_FLOAT8_E4M3FNUZ] = 1, [HAL_UINT16] = 2,      [HAL_UINT32] = 4,         [HAL_UINT64] = 8,
      [HAL_UINT4] = 1,           [HAL_INT4] = 1,        [HAL_FLOAT8_E8M0FNU] = 1, [HAL_FLOAT4_E2M1FN_X2] = 1};
  return dtype >= 0 && dtype < 64 ? sizes[dtype] : 0;
}

/* ---- numbers ---- */

/* Of a format with this many bits of a fraction; there is no infinity in E4M3FN. */
static float load_float8(int fraction_bits, uint8_t bits) {
  const int exponent = (bits & 0x7f) >> fraction_bits, fraction = bits & ((1 << fraction_bits) - 1);
  const int bias = fraction_bits == 2 ? 15 : 7, shift = (exponent ? exponent : 1) - bias - fraction_bits;
  const int has_special = fraction_bits == 2 ? exponent == 31 : (bits & 0x7f) == 0x7f;
  const float value = has_special ? (fraction_bits == 2 && !fraction ? INFINITY : NAN)
                                  : ldexpf((float)(fraction + (exponent ? 1 << fraction_bits : 0)), shift);
  return bits >> 7 ? -value : value;
}

/* To nearest, ties to even; what is too large becomes the largest. */
static uint8_t store_float8(int fraction_bits, float value) {
  const uint8_t sign = signbit(value) ? 0x80 : 0, largest = fraction_bits == 2 ? 0x7b : 0x7e;
  uint8_t bits = 0;
  if (isnan(value)) return 0x7f;
  while (bits < largest && load_float8(fraction_bits, bits + 1) <= fabsf(value)) bits++;
  const float below = fabsf(value) - load_float8(fraction_bits, bits),
              above = load_float8(fraction_bits, bits + 1) - fabsf(value);
  if (bits < largest && (above < below || (above == below && bits % 2))) bits++;
  return sign | bits;
}

static float load_float(hal_dtype_t dtype, const void *at) {
  uint16_t half;
  uint32_t bits;
  _Float16 small;
  float value;
  if (FLOAT8 >> dtype & 1) return load_float8(dtype == HAL_FLOAT8_E5M2 ? 2 : 3, *(const uint8_t *)at);
  if (dtype == HAL_FLOAT16) return memcpy(&small, at, 2), (float)small;
  if (dtype == HAL_FLOAT32) return memcpy(&value, at, 4), value;
  memcpy(&half, at, 2);
  bits = (uint32_t)half << 16;
  return memcpy(&value, &bits, 4), value;
}

static void store_float(hal_dtype_t dtype, void *to, float value) {
  uint32_t bits;
  const _Float16 small = (_Float16)value;
  if (FLOAT8 >> dtype & 1) {
    *(uint8_t *)to = store_float8(dtype == HAL_FLOAT8_E5M2 ? 2 : 3, value);
  } else if (dtype == HAL_FLOAT16) {
    memcpy(to, &small, 2);
  } else if (dtype == HAL_FLOAT32) {
    memcpy(to, &value, 4);
  } else { /* to nearest, ties to even */
    memcpy(&bits, &value, 4);
    const uint16_t half = isnan(value) ? 0x7fc0 : (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    memcpy(to, &half, 2);
  }
}

static int64_t load_integer(hal_dtype_t dtype, const void *at) {
  const size_t size = comm_dtype_size(dtype);
  uint64_t bits = 0;
  memcpy(&bits, at, size); /* little-endian */
  const int is_signed = dtype == HAL_INT8 || dtype == HAL_INT16 || dtype == HAL_INT32;
  const unsigned unused = 64 - 8 * (unsigned)size;
  return is_signed ? (int64_t)(bits << unused) >> unused : (int64_t)bits;
}

/* ---- two numbers ---- */

/* NaN propagates, in any order. */
static double join_floats(uint32_t reduce, double a, double b) {
  switch (reduce) {
    case HAL_REDUCE_PROD:
      return a * b;
    case HAL_REDUCE_MIN:
      return isnan(a) || a < b ? a : b;
    case HAL_REDUCE_MAX:
      return isnan(a) || a > b ? a : b;
    default:
      return a + b;
  }
}

static uint64_t join_integers(uint32_t reduce, int is_unsigned, int64_t a, int64_t b) {
  const uint64_t x = (uint64_t)a, y = (uint64_t)b;
  const int less = is_unsigned ? x < y : a < b;
  switch (reduce) {
    case HAL_REDUCE_PROD:
      return x * y;
    case HAL_REDUCE_MIN:
      return less ? x : y;
    case HAL_REDUCE_MAX:
      return less ? y : x;
    case HAL_REDUCE_BAND:
      return x & y;
    case HAL_REDUCE_BOR:
      return x | y;
    case HAL_REDUCE_BXOR:
      return x ^ y;
    default:
      return x + y;
  }
}

/* ---- one element ---- */

static void reduce_double(const hal_collective_t *call, const uint8_t *at, size_t block, int ranks, const void *scale,
                          void *to) {
  double sum = 0, value, factor = 1;
  if (call->reduce == HAL_REDUCE_PREMUL_SUM) memcpy(&factor, scale, sizeof factor);
  for (int i = 0; i < ranks; i++) {
    memcpy(&value, at + (size_t)i * block, sizeof value);
    sum = i ? join_floats(call->reduce, sum, value * factor) : value * factor;
  }
  if (call->reduce == HAL_REDUCE_AVG) sum /= ranks;
  memcpy(to, &sum, sizeof sum);
}

static void reduce_float(const hal_collective_t *call, hal_dtype_t dtype, const uint8_t *at, size_t block, int ranks,
                         const void *scale, void *to) {
  float sum = 0, factor = 1;
  if (call->reduce == HAL_REDUCE_PREMUL_SUM) memcpy(&factor, scale, sizeof factor);
  for (int i = 0; i < ranks; i++) {
    const float value = load_float(dtype, at + (size_t)i * block) * factor;
    sum = i ? (float)join_floats(call->reduce, (double)sum, (double)value) : value;
  }
  if (call->reduce == HAL_REDUCE_AVG) sum /= (float)ranks;
  store_float(dtype, to, sum);
}

/* The sum of bools is "or", their product "and". */
static void reduce_integer(const hal_collective_t *call, hal_dtype_t dtype, const uint8_t *at, size_t block, int ranks,
                           void *to) {
  const int is_bool = dtype == HAL_BOOL;
  const uint32_t reduce = is_bool && call->reduce == HAL_REDUCE_SUM    ? HAL_REDUCE_BOR
                          : is_bool && call->reduce == HAL_REDUCE_PROD ? HAL_REDUCE_BAND
                                                                       : call->reduce;
  int64_t sum = load_integer(dtype, at);
  for (int i = 1; i < ranks; i++)
    sum = (int64_t)join_integers(reduce, dtype == HAL_UINT64, sum, load_integer(dtype, at + (size_t)i * block));
  memcpy(to, &sum, comm_dtype_size(dtype)); /* modulo 2^n */
}

static double load_part(hal_dtype_t dtype, const uint8_t *at) {
  double value;
  return dtype == HAL_FLOAT32 ? (double)load_float(dtype, at) : (memcpy(&value, at, sizeof value), value);
}

static void multiply_complex(hal_dtype_t dtype, const uint8_t *at, size_t block, int ranks, uint8_t *to) {
  const size_t size = comm_dtype_size(dtype);
  double re = 1, im = 0;
  for (int i = 0; i < ranks; i++, at += block) {
    const double a = load_part(dtype, at), b = load_part(dtype, at + size), whole = re * a - im * b;
    im = re * b + im * a;
    re = whole;
  }
  if (dtype == HAL_FLOAT32) {
    store_float(dtype, to, (float)re), store_float(dtype, to + size, (float)im);
  } else {
    memcpy(to, &re, size), memcpy(to + size, &im, size);
  }
}

void comm_reduce(const hal_collective_t *call, const uint8_t *blocks, int ranks, size_t count, const void *scale) {
  const int is_complex = COMPLEX >> call->dtype & 1;
  const hal_dtype_t dtype = call->dtype == HAL_COMPLEX64    ? HAL_FLOAT32
                            : call->dtype == HAL_COMPLEX128 ? HAL_FLOAT64
                                                            : call->dtype;
  const size_t size = comm_dtype_size(dtype), block = count * comm_dtype_size(call->dtype);
  for (size_t i = 0; i < count << is_complex; i++) {
    const uint8_t *const at = blocks + i * size;
    uint8_t *const to = (uint8_t *)call->recv + i * size;
    if (is_complex && call->reduce == HAL_REDUCE_PROD) {
      if (i % 2 == 0) multiply_complex(dtype, at, block, ranks, to);
    } else if (dtype == HAL_FLOAT64)
      reduce_double(call, at, block, ranks, scale, to);
    else if (FLOATS >> dtype & 1)
      reduce_float(call, dtype, at, block, ranks, scale, to);
    else
      reduce_integer(call, dtype, at, block, ranks, to);
  }
}
