/* Tests of the arithmetic of reductions: rounding to the 16-bit types compared with exact sums in double, and equal
 * bits from the loops for each instruction set. The tested file is included, since its loops are private. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

#include "comm/shm/arithmetic.c"

enum { ALL = 65536, TAIL = 5 };

/* ---- rounding ---- */

typedef struct format_s {
  hal_dtype_t dtype;
  int digits, least; /* bits after the leading one; the exponent of the least normal number */
  double largest;    /* from here on, numbers are infinite */
} format_t;
static const format_t formats[] = {{HAL_FLOAT16, 10, -14, 65520}, {HAL_BFLOAT16, 7, -126, 0x1.ffp127}};

static double value_of(const format_t *format, uint16_t half) {
  const int exponent = (half & 0x7fff) >> format->digits, rest = half & ((1 << format->digits) - 1);
  const double sign = half & 0x8000 ? -1 : 1;
  if (exponent == 0x7fff >> format->digits) return rest ? (double)NAN : sign * (double)INFINITY;
  return sign * (exponent ? ldexp(1 + ldexp(rest, -format->digits), exponent + format->least - 1)
                          : ldexp(rest, format->least - format->digits));
}

/* The number of the format next to `value`; the even one of two. */
static double rounded(const format_t *format, double value) {
  if (!isfinite(value)) return value;
  if (fabs(value) >= format->largest) return value < 0 ? -(double)INFINITY : (double)INFINITY;
  int exponent = 0;
  frexp(value, &exponent);
  exponent = exponent - 1 < format->least ? format->least : exponent - 1;
  return ldexp(nearbyint(ldexp(value, format->digits - exponent)), exponent - format->digits);
}

static void check_sum(const format_t *format, uint16_t got, double wanted, uint32_t index) {
  const double value = value_of(format, got);
  cr_assert((isnan(wanted) && isnan(value)) || (value == wanted && !signbit(value) == !signbit(wanted)),
            "%s, element %u: %.9g instead of %.9g", hal_dtype_name(format->dtype), index, value, wanted);
}

/* Each number of a format plus one with a similar exponent, so that about every second sum is rounded, and many are
 * ties. The sums are exact in float and double. */
static void check_format(const format_t *format, const arithmetic_set_t *set) {
  static uint16_t in[2][ALL + TAIL], out[ALL + TAIL];
  const half_t *const half = format->dtype == HAL_FLOAT16 ? &set->f16 : &set->bf16;
  static float sums[ALL + TAIL];
  uint32_t state = 7;
  for (uint32_t i = 0; i < ALL + TAIL; i++) {
    state = state * 1664525 + 1013904223;
    in[0][i] = (uint16_t)i;
    in[1][i] = (uint16_t)((i & 0x7fff) + (state >> 20) % (6u << format->digits) - (3u << format->digits)) ^
               (uint16_t)(state >> 16 & 0x8000);
  }
  half->sum.only(out, in[0], in[1], ALL + TAIL);
  for (uint32_t i = 0; i < ALL + TAIL; i++)
    check_sum(format, out[i], rounded(format, value_of(format, in[0][i]) + value_of(format, in[1][i])), i);
  half->sum.first(sums, in[0], in[1], ALL + TAIL);
  half->store(out, sums, ALL + TAIL);
  for (uint32_t i = 0; i < ALL + TAIL; i++)
    check_sum(format, out[i], rounded(format, value_of(format, in[0][i]) + value_of(format, in[1][i])), i);
  half->load(sums, in[0], ALL + TAIL);
  half->sum.last(out, sums, in[1], ALL + TAIL);
  for (uint32_t i = 0; i < ALL + TAIL; i++)
    check_sum(format, out[i], rounded(format, value_of(format, in[0][i]) + value_of(format, in[1][i])), i);
}

Test(comm_shm_arithmetic, sums_of_half_types_are_the_nearest_numbers) {
  for (int i = 0; i < 2; i++) {
    check_format(&formats[i], &set_base);
    check_format(&formats[i], the_set());
  }
}

/* ---- equal bits ---- */

static uint64_t noise(void) {
  static uint64_t state = 12345;
  state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return state >> 16;
}

/* Numbers that are not NaN: the payload of a sum of two NaN is not specified. */
static void make_inputs(hal_dtype_t dtype, int is_accumulator, void *out, size_t count) {
  const int is_half = dtype == HAL_FLOAT16 || dtype == HAL_BFLOAT16 || dtype == HAL_COMPLEX32;
  const int is_single = dtype == HAL_FLOAT32 || dtype == HAL_COMPLEX64 || (is_half && is_accumulator);
  for (size_t i = 0; i < count; i++) {
    const double value = ((double)(noise() % 2000001) - 1e6) / 4096;
    const float single = (float)value;
    if (is_single)
      memcpy((float *)out + i, &single, sizeof single);
    else if (is_wide(dtype))
      memcpy((double *)out + i, &value, sizeof value);
    else
      memset((unsigned char *)out + i * 8, (int)noise() & 0x7f, 8);
  }
}

Test(comm_shm_arithmetic, each_instruction_set_has_the_same_bits) {
  enum { COUNT = 61 }; /* odd, so that loops have a remainder */
  static uint64_t a[COUNT + 1], x[COUNT + 1], one[COUNT + 1], other[COUNT + 1];
  int compared = 0;
  for (hal_dtype_t dtype = 0; dtype < DTYPES; dtype++)
    for (uint32_t reduce = 0; reduce < REDUCTIONS; reduce++) {
      hal_shm_reducer_t reducer;
      const hal_shm_step_t base = set_base.steps[dtype][reduce], best = the_set()->steps[dtype][reduce];
      cr_assert_eq(!base, !best);
      cr_assert_eq(!base, !hal_shm_reducer_find(dtype, reduce, &reducer));
      if (!base) continue;
      make_inputs(dtype, 1, a, COUNT + 1);
      make_inputs(dtype, 1, x, COUNT + 1);
      memset(one, 0x5a, sizeof one);
      memset(other, 0x5a, sizeof other);
      const size_t numbers = reducer.numbers == 2 ? COUNT - 1 : COUNT;
      base(one, a, x, numbers);
      best(other, a, x, numbers);
      cr_assert_arr_eq((unsigned char *)one, (unsigned char *)other, sizeof one, "%s, reduction %u",
                       hal_dtype_name(dtype), reduce);
      best(a, a, x, numbers); /* in place */
      cr_assert_arr_eq((unsigned char *)a, (unsigned char *)one, numbers * (reducer.wide / reducer.numbers),
                       "%s, reduction %u in place", hal_dtype_name(dtype), reduce);
      compared++;
    }
  cr_assert_gt(compared, 90);
}
