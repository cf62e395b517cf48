/* comm_reductions.h: each reduction of each type of a transport, by all_reduce, reduce and reduce_scatter, compared
 * with exact or double arithmetic of this file; equal bits on all ranks and at all sizes.
 *
 * Element i of rank r is number (7 i + 13 r) % PERIOD of a table of the type, so that results repeat after PERIOD
 * elements: the first ones are compared with the reference, the others with those. */
#ifndef TEST_HAL_COMM_REDUCTIONS_H_
#define TEST_HAL_COMM_REDUCTIONS_H_

#include <math.h>

#include "comm_testing.h"

enum { PERIOD = 251, MOST = 70001, TABLE_BYTES = 16 * PERIOD };
static const uint64_t counts[] = {0, 1, 7, 1000, MOST};
static const hal_dtype_t dtypes[] = {
    HAL_UINT8,     HAL_INT8,      HAL_INT16,      HAL_INT32, HAL_INT64,    HAL_FLOAT16, HAL_FLOAT32, HAL_FLOAT64,
    HAL_COMPLEX32, HAL_COMPLEX64, HAL_COMPLEX128, HAL_BOOL,  HAL_BFLOAT16, HAL_UINT16,  HAL_UINT32,  HAL_UINT64};
#define LENGTH(array) (sizeof(array) / sizeof(array)[0])

static int is_complex(hal_dtype_t d) { return d == HAL_COMPLEX32 || d == HAL_COMPLEX64 || d == HAL_COMPLEX128; }
static int is_float(hal_dtype_t d) {
  return d == HAL_FLOAT16 || d == HAL_BFLOAT16 || d == HAL_FLOAT32 || d == HAL_FLOAT64;
}
static int is_integer(hal_dtype_t d) { return !is_complex(d) && !is_float(d) && d != HAL_BOOL; }
static int is_signed(hal_dtype_t d) { return d == HAL_INT8 || d == HAL_INT16 || d == HAL_INT32 || d == HAL_INT64; }
/* The type of a real or imaginary part. */
static hal_dtype_t part_of(hal_dtype_t d) {
  return d == HAL_COMPLEX32 ? HAL_FLOAT16 : d == HAL_COMPLEX64 ? HAL_FLOAT32 : d == HAL_COMPLEX128 ? HAL_FLOAT64 : d;
}

/* The properties of a transport's reductions. */
typedef struct reductions_s {
  void (*create)(const char *name, int rank, int size, hal_comm_transport_t *out);
  int has_unsigned;    /* the types of 16 to 64 bits without a sign, and complex32 */
  const char *refusal; /* in the message for an unsupported reduction */
} reductions_t;

static int is_implemented(const reductions_t *reductions, hal_dtype_t d, uint32_t reduce) {
  const int is_rare = d == HAL_UINT16 || d == HAL_UINT32 || d == HAL_UINT64 || d == HAL_COMPLEX32;
  if (is_rare && !reductions->has_unsigned) return 0;
  const int bitwise = reduce == HAL_REDUCE_BAND || reduce == HAL_REDUCE_BOR || reduce == HAL_REDUCE_BXOR;
  if (is_complex(d)) return reduce == HAL_REDUCE_SUM || reduce == HAL_REDUCE_PROD || reduce == HAL_REDUCE_AVG;
  if (is_float(d)) return !bitwise;
  return reduce != HAL_REDUCE_AVG && reduce != HAL_REDUCE_PREMUL_SUM;
}

/* ---- numbers of a format with `digits` bits after the leading one and exponents from `least`, without the code
 * under test ---- */

static double half_value(uint16_t bits, int digits, int least) {
  const int exponent = (bits & 0x7fff) >> digits, rest = bits & ((1 << digits) - 1), top = 0x7fff >> digits;
  const double sign = bits & 0x8000 ? -1 : 1;
  if (exponent == top) return rest ? (double)NAN : sign * (double)INFINITY;
  return sign * (exponent ? ldexp(1 + ldexp(rest, -digits), exponent + least - 1) : ldexp(rest, least - digits));
}

static double value_of(hal_dtype_t dtype, const unsigned char *at) {
  uint16_t half;
  float single;
  double wide;
  switch (dtype) {
    case HAL_FLOAT16:
      memcpy(&half, at, 2);
      return half_value(half, 10, -14);
    case HAL_BFLOAT16:
      memcpy(&half, at, 2);
      return half_value(half, 7, -126);
    case HAL_FLOAT32:
      memcpy(&single, at, 4);
      return (double)single;
    default:
      memcpy(&wide, at, 8);
      return wide;
  }
}

static int digits_of(hal_dtype_t d) {
  return d == HAL_FLOAT16 ? 10 : d == HAL_BFLOAT16 ? 7 : d == HAL_FLOAT32 ? 23 : 52;
}
static int least_of(hal_dtype_t d) { return d == HAL_FLOAT16 ? -14 : d == HAL_FLOAT64 ? -1022 : -126; }

static uint64_t integer_of(hal_dtype_t dtype, const unsigned char *at) {
  uint64_t bits = 0;
  const uint32_t size = hal_dtype_size(dtype);
  memcpy(&bits, at, size);
  if (is_signed(dtype) && size < 8 && bits >> (8 * size - 1)) bits |= UINT64_MAX << (8 * size);
  return bits;
}

/* ---- the table ---- */

static uint32_t noise(uint32_t *state) { return (*state = *state * 1664525 + 1013904223) >> 8; }

static void make_part(hal_dtype_t dtype, int index, uint32_t *state, unsigned char *at) {
  static const double special[] = {0.0, -0.0, INFINITY, -INFINITY, NAN, 1, -1};
  const double value = index < (int)LENGTH(special) ? special[index] : (double)(noise(state) % 4001) / 512 - 4;
  const float single = (float)value;
  uint32_t bits;
  memcpy(&bits, &single, 4);
  /* Numbers of a 16-bit format by truncation: any number of the format is suitable. Some are subnormal, some near
     the largest. */
  uint16_t half = (uint16_t)(dtype == HAL_BFLOAT16 ? bits >> 16
                                                   : (uint32_t)(value < 0 ? 0x8000 : 0) |
                                                         (isnan(value)   ? 0x7e00
                                                          : isinf(value) ? 0x7c00
                                                                         : 0x3000 + noise(state) % 0x1800));
  if (dtype == HAL_FLOAT16 && index >= 200)
    half = (uint16_t)(index < 210 ? noise(state) % 0x400 : index < 220 ? 0x7bff : half);
  if (dtype == HAL_FLOAT32 || dtype == HAL_COMPLEX64)
    memcpy(at, &single, 4);
  else if (dtype == HAL_FLOAT64 || dtype == HAL_COMPLEX128)
    memcpy(at, &value, 8);
  else
    memcpy(at, &half, 2);
}

static void make_table(hal_dtype_t dtype, unsigned char *table) {
  uint32_t state = 99 + (uint32_t)dtype;
  const uint32_t size = hal_dtype_size(dtype), parts = is_complex(dtype) ? 2 : 1;
  for (int i = 0; i < PERIOD; i++) {
    unsigned char *const at = table + (size_t)i * size;
    if (is_integer(dtype))
      for (uint32_t b = 0; b < size; b++) at[b] = (unsigned char)noise(&state);
    else if (dtype == HAL_BOOL)
      at[0] = (unsigned char)(i % 3 == 0 ? 0 : i % 5 ? 1 : 2); /* 2 is true, too */
    /* Numbers that are not finite are for real types only: products of complex ones have no agreed result. */
    else
      for (uint32_t p = 0; p < parts; p++)
        make_part(part_of(dtype), parts == 2 ? i + 20 : i, &state, at + p * size / parts);
  }
}

static const unsigned char *element(const unsigned char *table, hal_dtype_t dtype, uint64_t i, int rank) {
  return table + (7 * i + 13 * (uint64_t)rank) % PERIOD * hal_dtype_size(dtype);
}

/* ---- the reference of one element ---- */

static double scale_of(int rank) { return 0.5 + rank; }

static void check_integer(hal_dtype_t dtype, uint32_t reduce, int size, const unsigned char *table, uint64_t i,
                          const unsigned char *got) {
  uint64_t acc = integer_of(dtype, element(table, dtype, i, 0));
  for (int rank = 1; rank < size; rank++) {
    const uint64_t x = integer_of(dtype, element(table, dtype, i, rank));
    const int less = is_signed(dtype) ? (int64_t)x < (int64_t)acc : x < acc;
    if (reduce == HAL_REDUCE_SUM) acc += x;
    if (reduce == HAL_REDUCE_PROD) acc *= x;
    if (reduce == HAL_REDUCE_MIN && less) acc = x;
    if (reduce == HAL_REDUCE_MAX && !less) acc = x;
    if (reduce == HAL_REDUCE_BAND) acc &= x;
    if (reduce == HAL_REDUCE_BOR) acc |= x;
    if (reduce == HAL_REDUCE_BXOR) acc ^= x;
  }
  CHECK(memcmp(&acc, got, hal_dtype_size(dtype)) == 0, "%s, reduction %u, element %d: %llx instead of %llx",
        hal_dtype_name(dtype), reduce, (int)i, (unsigned long long)integer_of(dtype, got), (unsigned long long)acc);
}

static void check_bool(uint32_t reduce, int size, const unsigned char *table, uint64_t i, const unsigned char *got) {
  int any = 0, all = 1, odd = 0;
  for (int rank = 0; rank < size; rank++) {
    const int x = *element(table, HAL_BOOL, i, rank) != 0;
    any |= x, all &= x, odd ^= x;
  }
  const int wanted = reduce == HAL_REDUCE_BXOR                                                          ? odd
                     : reduce == HAL_REDUCE_SUM || reduce == HAL_REDUCE_MAX || reduce == HAL_REDUCE_BOR ? any
                                                                                                        : all;
  CHECK(*got == wanted, "bool, reduction %u, element %d: %d instead of %d", reduce, (int)i, *got, wanted);
}

/* `got` must be `wanted` rounded once, plus the rounding of float accumulators: `bound`, in units of the
   accumulator. */
static void check_near(hal_dtype_t dtype, uint32_t reduce, uint64_t i, double wanted, double magnitude,
                       const unsigned char *at) {
  const double got = value_of(dtype, at);
  if (isnan(wanted)) {
    CHECK(isnan(got), "%s, reduction %u, element %d: %g instead of NaN", hal_dtype_name(dtype), reduce, (int)i, got);
    return;
  }
  const int digits = digits_of(dtype), wide = digits < 23 ? 23 : digits;
  const double largest = dtype == HAL_FLOAT16 ? 65520 : INFINITY;
  int exponent = 0;
  frexp(wanted, &exponent);
  if (exponent - 1 < least_of(dtype)) exponent = least_of(dtype) + 1;
  const double half_unit = digits < 23 ? ldexp(0.5, exponent - 1 - digits) : 0;
  const double bound = half_unit + 8 * ldexp(magnitude, -wide);
  if (fabs(wanted) >= largest) {
    CHECK(isinf(got) && (got > 0) == (wanted > 0), "%s, reduction %u, element %d: %g instead of %g",
          hal_dtype_name(dtype), reduce, (int)i, got, wanted);
    return;
  }
  CHECK(got == wanted || fabs(got - wanted) <= bound, "%s, reduction %u, element %d: %.9g instead of %.9g +- %g",
        hal_dtype_name(dtype), reduce, (int)i, got, wanted, bound);
}

static void check_float(hal_dtype_t dtype, uint32_t reduce, int size, const unsigned char *table, uint64_t i,
                        const unsigned char *got) {
  double acc = 0, magnitude = 0;
  for (int rank = 0; rank < size; rank++) {
    double x = value_of(dtype, element(table, dtype, i, rank));
    if (reduce == HAL_REDUCE_PREMUL_SUM) x *= scale_of(rank);
    if (!rank)
      acc = x;
    else if (reduce == HAL_REDUCE_PROD)
      acc *= x;
    else if (reduce == HAL_REDUCE_MIN)
      acc = isnan(acc) || isnan(x) ? (double)NAN : x < acc ? x : acc;
    else if (reduce == HAL_REDUCE_MAX)
      acc = isnan(acc) || isnan(x) ? (double)NAN : x > acc ? x : acc;
    else
      acc += x;
    magnitude = reduce == HAL_REDUCE_PROD ? fabs(acc) : magnitude + fabs(x);
  }
  if (reduce == HAL_REDUCE_AVG) acc /= size;
  if (!isfinite(magnitude)) magnitude = 0;
  check_near(dtype, reduce, i, acc, magnitude, got);
}

static void check_complex(hal_dtype_t dtype, uint32_t reduce, int size, const unsigned char *table, uint64_t i,
                          const unsigned char *got) {
  const hal_dtype_t part = part_of(dtype);
  const uint32_t step = hal_dtype_size(part);
  double re = 0, im = 0, magnitude = 0;
  for (int rank = 0; rank < size; rank++) {
    const unsigned char *const at = element(table, dtype, i, rank);
    const double x = value_of(part, at), y = value_of(part, at + step), old = re;
    if (!rank || reduce != HAL_REDUCE_PROD)
      re += x, im += y, magnitude += fabs(x) + fabs(y);
    else
      re = old * x - im * y, im = old * y + im * x, magnitude *= fabs(x) + fabs(y);
  }
  if (reduce == HAL_REDUCE_AVG) re /= size, im /= size;
  check_near(part, reduce, i, re, magnitude, got);
  check_near(part, reduce, i, im, magnitude, got + step);
}

static void check_element(hal_dtype_t dtype, uint32_t reduce, int size, const unsigned char *table, uint64_t i,
                          const unsigned char *got) {
  if (is_integer(dtype))
    check_integer(dtype, reduce, size, table, i, got);
  else if (dtype == HAL_BOOL)
    check_bool(reduce, size, table, i, got);
  else if (is_complex(dtype))
    check_complex(dtype, reduce, size, table, i, got);
  else
    check_float(dtype, reduce, size, table, i, got);
}

/* ---- the ranks ---- */

typedef struct rank_state_s {
  hal_comm_transport_t comm;
  int rank, size;
  unsigned char table[TABLE_BYTES], first[TABLE_BYTES]; /* `first`: the results of this type and reduction */
  uint64_t known;                                       /* of `first` */
  unsigned char *in, *out; /* MOST elements of 16 bytes for each rank, followed by one more */
} rank_state_t;

/* The results that begin with element `from`: the first ones are compared with the reference, and all others with
   the first ones. */
static void check_results(rank_state_t *state, hal_dtype_t dtype, uint32_t reduce, uint64_t from, uint64_t count,
                          const unsigned char *got) {
  const size_t size = hal_dtype_size(dtype);
  for (uint64_t i = 0; i < count; i++) {
    const uint64_t at = (from + i) % PERIOD;
    if (at == state->known) {
      check_element(dtype, reduce, state->size, state->table, at, got + i * size);
      memcpy(state->first + at * size, got + i * size, size);
      state->known++;
    }
    /* The later results of a part that begins in the middle are not known yet: only the reference is used. */
    if (at >= state->known)
      check_element(dtype, reduce, state->size, state->table, at, got + i * size);
    else
      CHECK(memcmp(state->first + at * size, got + i * size, size) == 0,
            "%s, reduction %u: element %llu of %llu has other bits than element %llu", hal_dtype_name(dtype), reduce,
            (unsigned long long)(from + i), (unsigned long long)count, (unsigned long long)at);
  }
}

static void fill_input(rank_state_t *state, hal_dtype_t dtype, uint64_t count) {
  const size_t size = hal_dtype_size(dtype);
  for (uint64_t i = 0; i < count && i < PERIOD; i++)
    memcpy(state->in + i * size, element(state->table, dtype, i, state->rank), size);
  for (uint64_t i = PERIOD; i < count; i += i)
    memcpy(state->in + i * size, state->in, (i < count - i ? i : count - i) * size);
}

static void run_case(rank_state_t *state, hal_dtype_t dtype, uint32_t reduce, uint32_t op, uint64_t count,
                     int in_place) {
  const size_t size = hal_dtype_size(dtype);
  const int root = (int)(count + reduce) % state->size;
  const float single = (float)scale_of(state->rank);
  const double wide = scale_of(state->rank);
  const uint64_t all = op == HAL_COMM_REDUCE_SCATTER ? count * (uint64_t)state->size : count;
  const uint64_t at = op == HAL_COMM_REDUCE_SCATTER ? count * (uint64_t)state->rank : 0;
  unsigned char *const out = in_place ? state->in + at * size : state->out;
  const int receives = op != HAL_COMM_REDUCE || state->rank == root;
  fill_input(state, dtype, all);
  memset(state->out, 0x5a, (count + 1) * size);
  CHECK_OK(run_one(&state->comm,
                   (hal_collective_t){.op = op,
                                      .reduce = reduce,
                                      .dtype = dtype,
                                      .peer = root,
                                      .send = state->in,
                                      .recv = receives ? out : NULL,
                                      .count = count,
                                      .scale = dtype == HAL_FLOAT64 ? (const void *)&wide : &single},
                   20 * (int64_t)SECOND));
  if (receives) check_results(state, dtype, reduce, at, count, out);
  for (size_t i = 0; i < size && !in_place; i++)
    CHECK(state->out[count * size + i] == 0x5a, "%s: memory after the result was written", hal_dtype_name(dtype));
}

static void run_reduction(rank_state_t *state, hal_dtype_t dtype, uint32_t reduce) {
  state->known = 0;
  for (size_t c = 0; c < LENGTH(counts); c++) {
    run_case(state, dtype, reduce, HAL_COMM_ALL_REDUCE, counts[c], 0);
    run_case(state, dtype, reduce, HAL_COMM_ALL_REDUCE, counts[c], 1);
    run_case(state, dtype, reduce, HAL_COMM_REDUCE, counts[c], (int)c % 2);
    run_case(state, dtype, reduce, HAL_COMM_REDUCE_SCATTER, counts[c], (int)c % 2);
  }
}

/* All ranks have the same bits. */
static void compare_ranks(rank_state_t *state, hal_dtype_t dtype, uint32_t reduce) {
  static unsigned char all[RANKS * TABLE_BYTES];
  const uint64_t bytes = PERIOD * hal_dtype_size(dtype);
  CHECK(state->known == PERIOD, "%s: %llu results are known", hal_dtype_name(dtype), (unsigned long long)state->known);
  CHECK_OK(
      run_one(&state->comm,
              (hal_collective_t){
                  .op = HAL_COMM_ALL_GATHER, .dtype = HAL_UINT8, .send = state->first, .recv = all, .count = bytes},
              20 * (int64_t)SECOND));
  for (int rank = 0; rank < state->size; rank++)
    CHECK(memcmp(all + (uint64_t)rank * bytes, state->first, bytes) == 0,
          "%s, reduction %u: ranks %d and %d have other bits", hal_dtype_name(dtype), reduce, rank, state->rank);
}

/* `argument`: a reductions_t. */
static void every_reduction(int rank, int size, void *argument) {
  static rank_state_t state;
  const reductions_t *const reductions = argument;
  state.rank = rank;
  state.size = size;
  state.in = malloc((size_t)16 * MOST * (size_t)size);
  state.out = malloc((size_t)16 * (MOST + 1));
  CHECK(state.in && state.out, "no memory");
  reductions->create("reduce", rank, size, &state.comm);
  for (size_t d = 0; d < LENGTH(dtypes); d++) {
    make_table(dtypes[d], state.table);
    for (uint32_t reduce = 0; reduce <= HAL_REDUCE_PREMUL_SUM; reduce++) {
      if (!is_implemented(reductions, dtypes[d], reduce)) {
        float scale = 1;
        CHECK_FAILS(run_one(&state.comm,
                            (hal_collective_t){.reduce = reduce,
                                               .dtype = dtypes[d],
                                               .send = state.in,
                                               .recv = state.out,
                                               .count = 5,
                                               .scale = &scale},
                            20 * (int64_t)SECOND),
                    HAL_UNIMPLEMENTED, hal_dtype_name(dtypes[d]), reductions->refusal);
        continue;
      }
      run_reduction(&state, dtypes[d], reduce);
      compare_ranks(&state, dtypes[d], reduce);
    }
  }
  state.comm.destroy(state.comm.context);
  free(state.in);
  free(state.out);
}

#endif /* TEST_HAL_COMM_REDUCTIONS_H_ */
