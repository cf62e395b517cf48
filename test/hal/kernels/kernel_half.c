/* kernel_half.c: half precision on the host (hal/kernels/pk_widen.h). Compares the fastest conversions of this CPU
 * with the portable ones, and element-wise kernels over rows of all kinds with the same kernels run on single
 * elements. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "hal/plugin_kernels.h"
#define PK_CAT_(a, b) a##b
#define PK_CAT(a, b) PK_CAT_(a, b)
#include "kernels/pk_widen.h"

enum { ALL = 1 << 16, CHUNK = 4096, MOST = 5000 };

static int is_nan_half(int dtype, pk_u16 bits) { return (bits & 0x7fff) > (dtype == PK_RUNS_F16 ? 0x7c00 : 0x7f80); }
static int same_float(float x, float y) { return memcmp(&x, &y, sizeof x) == 0 || (isnan(x) && isnan(y)); }
static int same_half(int dtype, pk_u16 x, pk_u16 y) {
  return x == y || (is_nan_half(dtype, x) && is_nan_half(dtype, y));
}

Test(kernel_half, every_number_of_half_precision_widens_alike_and_comes_back) {
  static pk_u16 half[ALL], back[ALL];
  static float best[ALL], base[ALL];
  for (int dtype = 0; dtype < PK_RUNS_COUNT; dtype++) {
    for (int i = 0; i < ALL; i++) half[i] = (pk_u16)i;
    pk_half_runs(dtype, 1)->widen(best, half, ALL);
    pk_half_runs(dtype, 0)->widen(base, half, ALL);
    pk_half_runs(dtype, 1)->narrow(back, best, ALL);
    for (int i = 0; i < ALL; i++) {
      cr_assert(same_float(best[i], base[i]), "dtype %d, bits %x: %a, %a", dtype, i, (double)best[i], (double)base[i]);
      cr_assert(same_half(dtype, back[i], (pk_u16)i), "dtype %d, bits %x came back as %x", dtype, i, back[i]);
    }
  }
}

/* Compares with the two nearest half-precision numbers; for a tie, the number with an even last bit is expected. */
static void check_rounding(int dtype, const float *x, const pk_u16 *got, int n) {
  float value[2];
  for (int i = 0; i < n; i++) {
    if (isnan(x[i])) {
      cr_assert(is_nan_half(dtype, got[i]));
      continue;
    }
    pk_half_runs(dtype, 0)->widen(value, &got[i], 1);
    cr_assert(!isnan(value[0]) && signbit(value[0]) == signbit(x[i]), "dtype %d, %a became %a", dtype, (double)x[i],
              (double)value[0]);
    if (isinf(value[0]) || isinf(x[i])) { /* from half a step above the largest number */
      const double limit = dtype == PK_RUNS_F16 ? 65520.0 : 0x1.ffp127;
      cr_assert_eq(!!isinf(value[0]), fabs((double)x[i]) >= limit, "dtype %d, %a became %a", dtype, (double)x[i],
                   (double)value[0]);
      continue;
    }
    for (int side = -1; side <= 1; side += 2) {
      const pk_u16 size = got[i] & 0x7fff, next = (pk_u16)((got[i] & 0x8000) | (pk_u16)(size + side));
      if (size == 0 && side < 0) continue;
      pk_half_runs(dtype, 0)->widen(value + 1, &next, 1);
      const double mine = fabs((double)x[i] - (double)value[0]), other = fabs((double)x[i] - (double)value[1]);
      cr_assert(mine < other || (mine == other && !(got[i] & 1)) || isinf(value[1]),
                "dtype %d, %a became %a, %a is nearer", dtype, (double)x[i], (double)value[0], (double)value[1]);
    }
  }
}

Test(kernel_half, floats_are_rounded_to_the_nearest_and_ties_to_even) {
  static float x[CHUNK];
  static pk_u16 got[CHUNK];
  for (int dtype = 0; dtype < PK_RUNS_COUNT; dtype++) {
    for (int best = 0; best <= 1; best++) {
      for (uint64_t bits = 0; bits < UINT64_C(1) << 32;) {
        int n = 0;
        for (; n < CHUNK && bits < UINT64_C(1) << 32;
             n++, bits += 997 * 16 + 16) { /* the last bits: these include ties */
          const uint32_t b = (uint32_t)bits & ~(uint32_t)0xfff;
          memcpy(&x[n], &b, sizeof b);
          if (n % 3 == 0) x[n] = nextafterf(x[n], INFINITY);
        }
        pk_half_runs(dtype, best)->narrow(got, x, (pk_u64)n);
        check_rounding(dtype, x, got, n);
      }
    }
  }
}

Test(kernel_half, runs_of_any_length_are_converted_and_nothing_after_them) {
  static pk_u16 half[64], back[64];
  static float wide[64], whole[64];
  for (int dtype = 0; dtype < PK_RUNS_COUNT; dtype++) {
    for (int i = 0; i < 64; i++) half[i] = (pk_u16)(0x3c00 + 37 * i);
    pk_half_runs(dtype, 1)->widen(whole, half, 64);
    for (pk_u64 n = 0; n <= 40; n++) {
      for (int at = 0; at < 3; at++) {
        for (int i = 0; i < 64; i++) wide[i] = -1, back[i] = 0xffff;
        pk_half_runs(dtype, 1)->widen(wide, half + at, n);
        pk_half_runs(dtype, 1)->narrow(back, whole + at, n);
        for (pk_u64 i = 0; i < 64 - 3; i++) {
          cr_assert(i < n ? wide[i] == whole[i + (pk_u64)at] : wide[i] == -1);
          cr_assert_eq(back[i], i < n ? half[i + (pk_u64)at] : 0xffff);
        }
      }
    }
  }
}

/* ---- kernels ---- */
typedef struct {
  int dtype;
  const char *name;
  int operands, numbers;
} kernel_t;
static const kernel_t kernels[] = {{PK_RUNS_F16, "add_f16_rows", 3, 1},     {PK_RUNS_F16, "exp_f16_rows", 2, 1},
                                   {PK_RUNS_F16, "gt_f16_rows", 3, 1},      {PK_RUNS_F16, "add_f16_rows_s", 2, 2},
                                   {PK_RUNS_BF16, "exp_bf16_rows", 2, 1},   {PK_RUNS_BF16, "gt_bf16_rows", 3, 1},
                                   {PK_RUNS_F16, "addcmul_f16_rows", 4, 1}, {PK_RUNS_BF16, "maximum_bf16_rows_s", 2, 2},
                                   {PK_RUNS_BF16, "add_bf16_rows", 3, 1}};

/* Computes blocks `begin` to `end` of 1024 elements. */
static void launch(const kernel_t *kernel, void *const *operands, const pk_rows_t *rows, pk_u64 n, pk_u64 begin,
                   pk_u64 end) {
  const hal_host_kernel_t *found = hal_host_kernel_find(kernel->name);
  cr_assert(found, "there is no kernel %s", kernel->name);
  static float number[2] = {0.75f, 1.5f};
  pk_u64 block = 1024;
  void *address[4], *args[10];
  int count = 0;
  for (int k = 0; k < kernel->operands; k++) address[k] = operands[k], args[count++] = &address[k];
  for (int k = 0; k < kernel->numbers; k++) args[count++] = &number[k];
  args[count++] = &n, args[count++] = &block, args[count++] = (void *)(uintptr_t)rows;
  cr_assert_eq((uint32_t)count, found->arg_count, "%s", kernel->name);
  const hal_host_range_t range = {.begin = begin, .end = end};
  found->fn(&range, args);
}

/* Computes each element in a separate launch of one element at its position. */
static void one_by_one(const kernel_t *kernel, char *const *operands, const pk_rows_t *rows, pk_u64 n) {
  const pk_rows_t one = {.ndim = 1, .size = {1}, .stride = {{1}, {1}, {1}, {1}}};
  const int bytes = strncmp(kernel->name, "gt_", 3) == 0 ? 1 : 2;
  for (pk_u64 i = 0; i < n; i++) {
    void *at[4];
    for (int k = 0; k < kernel->operands; k++) {
      pk_i64 offset = 0;
      pk_u64 rest = i;
      for (int d = 0; d < rows->ndim; d++) {
        offset += (pk_i64)(rest % (pk_u64)rows->size[d]) * rows->stride[k][d];
        rest /= (pk_u64)rows->size[d];
      }
      at[k] = operands[k] + offset * (k == 0 ? bytes : 2);
    }
    launch(kernel, at, &one, 1, 0, 1);
  }
}

static void compare(const kernel_t *kernel, const pk_rows_t *rows, pk_u64 n) {
  static pk_u16 operand[3][8 * MOST], got[8 * MOST], want[8 * MOST];
  pk_u64 state = 11;
  for (int k = 0; k < 3; k++)
    for (int i = 0; i < 8 * MOST; i++) {
      state = state * UINT64_C(6364136223846793005) + 1;
      operand[k][i] = (pk_u16)(state >> 48); /* including NaN and infinity */
    }
  memset(got, 0x5a, sizeof got), memset(want, 0x5a, sizeof want);
  char *mine[4] = {(char *)(got + MOST)}, *other[4] = {(char *)(want + MOST)};
  for (int k = 1; k < kernel->operands; k++) mine[k] = other[k] = (char *)(operand[k - 1] + MOST);
  const pk_u64 blocks = (n + 1023) / 1024, half = blocks / 2;
  launch(kernel, (void *const *)mine, rows, n, 0, half); /* as two threads do */
  launch(kernel, (void *const *)mine, rows, n, half, blocks);
  one_by_one(kernel, other, rows, n);
  if (strncmp(kernel->name, "gt_", 3) == 0) {
    cr_assert_arr_eq(got, want, sizeof got, "%s of %d elements", kernel->name, (int)n);
    return;
  }
  for (int i = 0; i < 8 * MOST; i++)
    cr_assert(same_half(kernel->dtype, got[i], want[i]), "%s of %d elements, place %d: %x, alone %x", kernel->name,
              (int)n, i - MOST, got[i], want[i]);
}

Test(kernel_half, an_element_does_not_depend_on_adjacent_elements_nor_on_strides) {
  static const pk_rows_t layouts[] = {
      {.ndim = 1, .stride = {{1}, {1}, {1}, {1}}},
      {.ndim = 1, .stride = {{1}, {1}, {0}, {1}}},
      {.ndim = 1, .stride = {{2}, {3}, {1}, {0}}},
      {.ndim = 1, .stride = {{1}, {0}, {2}, {2}}},
      {.ndim = 2, .size = {3}, .stride = {{1, 3}, {1, 4}, {1, 0}, {0, 1}}},
      {.ndim = 2, .size = {700}, .stride = {{1, 700}, {2, 1}, {1, 0}, {0, 3}}},
      {.ndim = 3, .size = {5, 7}, .stride = {{1, 5, 35}, {7, 1, 35}, {0, 1, 9}, {1, 0, 2}}},
  };
  static const pk_u64 counts[] = {1, 7, 511, 512, 513, 1023, 1024, 1025, 1537, 4200};
  for (size_t k = 0; k < sizeof kernels / sizeof *kernels; k++)
    for (size_t l = 0; l < sizeof layouts / sizeof *layouts; l++)
      for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        pk_rows_t rows = layouts[l];
        pk_u64 inner = 1;
        for (int d = 0; d + 1 < rows.ndim; d++) inner *= (pk_u64)rows.size[d];
        rows.size[rows.ndim - 1] = (pk_i64)((counts[c] + inner - 1) / inner);
        compare(&kernels[k], &rows, inner * (pk_u64)rows.size[rows.ndim - 1]);
      }
}

Test(kernel_half, the_result_may_be_an_operand_and_rows_may_go_backwards) {
  enum { N = 1300 };
  static pk_u16 x[N], y[N], before[N];
  for (int i = 0; i < N; i++) x[i] = before[i] = (pk_u16)(0x3000 + 5 * i), y[i] = (pk_u16)(0x3400 + 3 * i);
  const kernel_t *add = &kernels[0];
  pk_rows_t rows = {.ndim = 1, .size = {N}, .stride = {{1}, {1}, {-1}}};
  void *in_place[] = {x, x, y + N - 1};
  launch(add, in_place, &rows, N, 0, 2);
  for (int i = 0; i < N; i++) {
    float a, b;
    pk_u16 want;
    pk_half_runs(PK_RUNS_F16, 0)->widen(&a, &before[i], 1);
    pk_half_runs(PK_RUNS_F16, 0)->widen(&b, &y[N - 1 - i], 1);
    const float sum = a + 0.75f * b; /* add's number is alpha */
    pk_half_runs(PK_RUNS_F16, 0)->narrow(&want, &sum, 1);
    cr_assert_eq(x[i], want, "place %d: %x, want %x", i, x[i], want);
  }
}
