/* comm_reduce.c: reductions. float16, bfloat16 and float32 are computed in float32, in the order of the ranks, and
 * the result is rounded once: the same bits on each rank. A complex number is two numbers. */
#include <math.h>

#include "comm.h"

#define BIT(type) HAL_DTYPE_BIT(HAL_##type)
#define FLOATS (BIT(FLOAT16) | BIT(BFLOAT16) | BIT(FLOAT32) | BIT(FLOAT64))
#define INTEGERS \
  (BIT(UINT8) | BIT(INT8) | BIT(INT16) | BIT(INT32) | BIT(INT64) | BIT(UINT16) | BIT(UINT32) | BIT(UINT64))
#define COMPLEX (BIT(COMPLEX64) | BIT(COMPLEX128))

const uint64_t comm_reduce_dtypes[16] = {[HAL_REDUCE_SUM] = FLOATS | INTEGERS | BIT(BOOL) | COMPLEX,
                                         [HAL_REDUCE_PROD] = FLOATS | INTEGERS | BIT(BOOL),
                                         [HAL_REDUCE_MIN] = FLOATS | INTEGERS | BIT(BOOL),
                                         [HAL_REDUCE_MAX] = FLOATS | INTEGERS | BIT(BOOL),
                                         [HAL_REDUCE_AVG] = FLOATS | COMPLEX,
                                         [HAL_REDUCE_BAND] = INTEGERS | BIT(BOOL),
                                         [HAL_REDUCE_BOR] = INTEGERS | BIT(BOOL),
                                         [HAL_REDUCE_BXOR] = INTEGERS | BIT(BOOL),
                                         [HAL_REDUCE_PREMUL_SUM] = FLOATS};

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

static float load_float(hal_dtype_t dtype, const void *at) {
  uint16_t half;
  uint32_t bits;
  _Float16 small;
  float value;
  if (dtype == HAL_FLOAT16) return memcpy(&small, at, 2), (float)small;
  if (dtype == HAL_FLOAT32) return memcpy(&value, at, 4), value;
  memcpy(&half, at, 2);
  bits = (uint32_t)half << 16;
  return memcpy(&value, &bits, 4), value;
}

static void store_float(hal_dtype_t dtype, void *to, float value) {
  uint32_t bits;
  const _Float16 small = (_Float16)value;
  if (dtype == HAL_FLOAT16) {
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

void comm_reduce(const hal_collective_t *call, const uint8_t *blocks, int ranks, size_t count, const void *scale) {
  const int is_complex = COMPLEX >> call->dtype & 1;
  const hal_dtype_t dtype = call->dtype == HAL_COMPLEX64    ? HAL_FLOAT32
                            : call->dtype == HAL_COMPLEX128 ? HAL_FLOAT64
                                                            : call->dtype;
  const size_t size = comm_dtype_size(dtype), block = count * comm_dtype_size(call->dtype);
  for (size_t i = 0; i < count << is_complex; i++) {
    const uint8_t *const at = blocks + i * size;
    uint8_t *const to = (uint8_t *)call->recv + i * size;
    if (dtype == HAL_FLOAT64)
      reduce_double(call, at, block, ranks, scale, to);
    else if (FLOATS >> dtype & 1)
      reduce_float(call, dtype, at, block, ranks, scale, to);
    else
      reduce_integer(call, dtype, at, block, ranks, to);
  }
}
