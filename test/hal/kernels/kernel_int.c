/* kernel_int.c: the kernels of products of 8-bit integers in each instruction set, compared with sums in 64 bits
 * (hal/ops/int_gemm). */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "kernels/pk_host.h"
#include "ops/int_gemm/int_gemm_args.h"

enum { TILE_M = 24, TILE_N = 64, WRAPS = 3 };

/* How the elements of an operand are stored: by rows, by columns, every second one of twice the columns. */
typedef enum { BY_ROWS, BY_COLUMNS, APART, ORDERS } order_t;

typedef struct {
  uint8_t *a;
  int8_t *b;
  int32_t *result;
} operands_t;

static void set_strides(order_t order, int64_t rows, int64_t columns, int64_t *row, int64_t *col) {
  *row = order == BY_ROWS ? columns : order == BY_COLUMNS ? 1 : 2 * columns;
  *col = order == BY_ROWS ? 1 : order == BY_COLUMNS ? rows : 2;
}

/* Creates operands of random bytes, or with `largest` of those whose products are the largest. */
static operands_t operands_of(const pk_int_gemm_t *s, int is_signed, int largest) {
  operands_t o = {malloc((size_t)(2 * s->m * s->k) + 1), malloc((size_t)(2 * s->k * s->n) + 1),
                  malloc((size_t)(s->m * s->n) * sizeof *o.result)};
  cr_assert(o.a && o.b && o.result);
  for (int64_t i = 0; i < 2 * s->m * s->k; i++) o.a[i] = (uint8_t)(largest ? (is_signed ? 128 : 255) : rand() >> 5);
  for (int64_t i = 0; i < 2 * s->k * s->n; i++) o.b[i] = (int8_t)(largest ? -128 : rand() >> 5);
  for (int64_t i = 0; i < s->m * s->n; i++) o.result[i] = -1;
  return o;
}

/* Runs a kernel as launches of two groups. */
static void run(hal_host_kernel_fn_t fn, pk_int_gemm_t *s, operands_t *o) {
  s->tiles = (pk_tiles_t){TILE_M, TILE_N, (s->m + TILE_M - 1) / TILE_M, (s->n + TILE_N - 1) / TILE_N};
  uint64_t units = (uint64_t)(s->tiles.tiles_m * s->tiles.tiles_n), per_group = 2;
  void *args[] = {&o->result, &o->a, &o->b, s, &units, &per_group};
  for (uint64_t g = 0; g < (units + 1) / 2; g++) {
    const hal_host_range_t range = {.begin = g, .end = g + 1};
    fn(&range, args);
  }
}

static void check(const pk_int_gemm_t *s, const operands_t *o, int is_signed, int isa) {
  for (int64_t i = 0; i < s->m; i++)
    for (int64_t j = 0; j < s->n; j++) {
      int64_t sum = 0;
      for (int64_t k = 0; k < s->k; k++) {
        const uint8_t x = o->a[i * s->a_row + k * s->a_col];
        sum += (is_signed ? (int8_t)x : x) * o->b[k * s->b_row + j * s->b_col];
      }
      cr_assert_eq(o->result[i * s->n + j], (int32_t)(uint32_t)(uint64_t)sum,
                   "set %d, %s, %d x %d x %d, strides %d, %d: (%d, %d) is %d, not %lld", isa,
                   is_signed ? "int8" : "uint8", (int)s->m, (int)s->n, (int)s->k, (int)s->a_col, (int)s->b_col, (int)i,
                   (int)j, o->result[i * s->n + j], (long long)sum);
    }
}

static void check_orders(hal_host_kernel_fn_t fn, int m, int n, int k, int is_signed, int isa) {
  for (order_t a = 0; a < ORDERS; a++)
    for (order_t b = 0; b < ORDERS; b++)
      for (int largest = 0; largest < 2; largest++) {
        pk_int_gemm_t s = {.m = m, .n = n, .k = k};
        set_strides(a, m, k, &s.a_row, &s.a_col);
        set_strides(b, k, n, &s.b_row, &s.b_col);
        operands_t o = operands_of(&s, is_signed, largest);
        run(fn, &s, &o);
        check(&s, &o, is_signed, isa);
        free(o.a), free(o.b), free(o.result);
      }
}

/* Sizes with and without complete panels, blocks, words and vectors, for a few rows and for many. */
Test(kernel_int, sums_of_bytes_are_exact_in_all_sizes_orders_and_instruction_sets) {
  static const int sizes[][3] = {{3, 4, 5},   {17, 9, 512}, {1, 1, 513}, {5, 3, 2100},    {4, 130, 300}, {2, 5, 2100},
                                 {9, 33, 64}, {3, 40, 63},  {1, 5, 65},  {70, 150, 1030}, {8, 32, 4},    {2, 3, 0}};
  for (int isa = 0; isa <= PK_ISA_AVX512_BF16; isa++)
    for (int is_signed = 0; is_signed < 2; is_signed++) {
      const hal_host_kernel_fn_t fn = pk_host_kernel_fn(is_signed ? "int_mm_i8_tiles" : "int_mm_u8_tiles", isa);
      cr_assert(fn || isa != PK_ISA_BASE);
      for (size_t i = 0; fn && i < sizeof sizes / sizeof *sizes; i++)
        check_orders(fn, sizes[i][0], sizes[i][1], sizes[i][2], is_signed, isa);
    }
}

/* 2^31 is 131072 times 128 * 128; sums beyond it wrap, as those of integers in torch. */
Test(kernel_int, sums_beyond_32_bits_wrap) {
  for (int isa = 0; isa <= PK_ISA_AVX512_BF16; isa++)
    for (int m = 1; m < 2 * WRAPS; m += 4) {
      const hal_host_kernel_fn_t fn = pk_host_kernel_fn("int_mm_i8_tiles", isa);
      pk_int_gemm_t s = {.m = m, .n = WRAPS, .k = 131073, .a_row = 131073, .a_col = 1, .b_row = 1, .b_col = 131073};
      operands_t o = operands_of(&s, 1, 1);
      if (fn) run(fn, &s, &o);
      if (fn) check(&s, &o, 1, isa);
      free(o.a), free(o.b), free(o.result);
    }
}
