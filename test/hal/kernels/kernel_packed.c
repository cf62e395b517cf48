/* kernel_packed.c: the kernels of products with weights of 4 and 8 bits in each instruction set, compared with double
 * precision (hal/ops/packed_gemm). */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

#include "kernels/pk_host.h"
#include "ops/packed_gemm/packed_gemm_args.h"

enum { TILE_M = 24, TILE_N = 64, FORMS = 3 };

typedef struct packed_s {
  int m, n, k, group, form;
} packed_t;

/* Operands of a product, and its result; `weights` has a byte for each pair of weights of 4 bits. */
typedef struct operands_s {
  float *a, *scales, *zeros, *result;
  uint8_t *weights;
} operands_t;

static float *random_floats(int count) {
  float *x = malloc(((size_t)count + 1) * sizeof *x);
  cr_assert(x);
  for (int i = 0; i < count; i++) x[i] = (float)(rand() % 2001 - 1000) / 1000;
  return x;
}

static operands_t operands_of(const packed_t *p) {
  const int numbers = p->k / p->group * p->n, bytes = p->n * (p->form == PK_PACKED_EIGHT ? p->k : p->k / 2);
  operands_t o = {random_floats(p->m * p->k), random_floats(2 * numbers), random_floats(numbers),
                  random_floats(p->m * p->n), malloc((size_t)bytes + 1)};
  cr_assert(o.weights);
  for (int i = 0; i < bytes; i++) o.weights[i] = (uint8_t)(rand() >> 5);
  for (int i = 0; i < numbers; i++) o.zeros[i] = (float)(rand() % 16);
  return o;
}

static void release(operands_t *o) { free(o->a), free(o->scales), free(o->zeros), free(o->result), free(o->weights); }

/* Runs a kernel as several launches of a few groups. */
static void run(hal_host_kernel_fn_t fn, const packed_t *p, operands_t *o) {
  pk_packed_t s = {.m = p->m, .n = p->n, .k = p->k, .group = p->group, .form = p->form};
  s.row_bytes = p->form == PK_PACKED_EIGHT ? p->k : p->k / 2;
  s.tiles = (pk_tiles_t){TILE_M, TILE_N, (p->m + TILE_M - 1) / TILE_M, (p->n + TILE_N - 1) / TILE_N};
  uint64_t units = (uint64_t)(s.tiles.tiles_m * s.tiles.tiles_n), per_group = 2;
  void *args[] = {&o->result, &o->a, &o->weights, &o->scales, &o->zeros, &s, &units, &per_group};
  for (uint64_t g = 0; g < (units + 1) / 2; g++) {
    const hal_host_range_t range = {.begin = g, .end = g + 1};
    fn(&range, args);
  }
}

static double weight(const packed_t *p, const operands_t *o, int j, int k) {
  const int at = k / p->group * p->n + j, byte = o->weights[p->form == PK_PACKED_EIGHT ? 0 : j * (p->k / 2) + k / 2];
  if (p->form == PK_PACKED_EIGHT) return (int8_t)o->weights[j * p->k + k] * (double)o->scales[at];
  if (p->form == PK_PACKED_ZEROS)
    return ((k % 2 ? byte >> 4 : byte & 15) - (double)o->zeros[at]) * (double)o->scales[at];
  return ((k % 2 ? byte & 15 : byte >> 4) - 8) * (double)o->scales[2 * at] + (double)o->scales[2 * at + 1];
}

static void check(const packed_t *p, const operands_t *o, int isa) {
  for (int i = 0; i < p->m; i++)
    for (int j = 0; j < p->n; j++) {
      double sum = 0, size = 1e-30;
      for (int k = 0; k < p->k; k++) {
        const double term = weight(p, o, j, k) * (double)o->a[i * p->k + k];
        sum += term, size += fabs(term);
      }
      cr_assert_lt(fabs(sum - (double)o->result[i * p->n + j]) / size, 2e-6,
                   "set %d, form %d, %d x %d x %d, groups of %d: (%d, %d) is %g, not %g", isa, p->form, p->m, p->n,
                   p->k, p->group, i, j, (double)o->result[i * p->n + j], sum);
    }
}

/* Sizes with and without complete panels, blocks and words; groups that end within a word. */
Test(kernel_packed, products_are_right_in_all_sizes_and_groups_in_each_instruction_set) {
  static const int sizes[][4] = {{1, 8, 64, 32},     {5, 24, 256, 64},  {3, 64, 96, 32},   {2, 16, 128, 128},
                                 {1, 40, 2080, 32},  {1, 33, 1040, 16}, {1, 16, 96, 3},    {7, 16, 96, 3},
                                 {9, 50, 600, 600},  {9, 50, 600, 12},  {61, 130, 520, 8}, {1, 130, 520, 8},
                                 {1, 8, 1048, 1048}, {3, 8, 24, 24}};
  for (int isa = 0; isa <= PK_ISA_AVX512; isa++) {
    const hal_host_kernel_fn_t fn = pk_host_kernel_fn("packed_weight_mm_f32_tiles", isa);
    cr_assert(fn || isa != PK_ISA_BASE);
    for (size_t i = 0; fn && i < sizeof sizes / sizeof *sizes; i++)
      for (int form = 0; form < FORMS; form++) {
        packed_t p = {sizes[i][0], sizes[i][1], sizes[i][2], sizes[i][3], form};
        if (form == PK_PACKED_EIGHT) p.k = p.group = p.k + (int)(i % 4); /* any number of bytes in a row */
        operands_t o = operands_of(&p);
        run(fn, &p, &o);
        check(&p, &o, isa);
        release(&o);
      }
  }
}

/* Whole numbers, whose sums are exact in any order, produce equal bits. */
Test(kernel_packed, whole_numbers_are_exact_for_one_row_and_for_many) {
  for (int isa = 0; isa <= PK_ISA_AVX512; isa++) {
    const hal_host_kernel_fn_t fn = pk_host_kernel_fn("packed_weight_mm_f32_tiles", isa);
    for (int form = 0; fn && form < FORMS; form++)
      for (int m = 1; m <= 8; m += 7) {
        const packed_t p = {m, 40, 640, form == PK_PACKED_EIGHT ? 640 : 32, form};
        operands_t o = operands_of(&p);
        for (int i = 0; i < p.m * p.k; i++) o.a[i] = (float)(i % 5 - 2);
        for (int i = 0; i < 2 * p.k / p.group * p.n; i++) o.scales[i] = (float)(i % 3 - 1);
        run(fn, &p, &o);
        for (int i = 0; i < p.m; i++)
          for (int j = 0; j < p.n; j++) {
            double sum = 0;
            for (int k = 0; k < p.k; k++) sum += weight(&p, &o, j, k) * (double)o.a[i * p.k + k];
            cr_assert_eq((double)o.result[i * p.n + j], sum, "set %d, form %d, row %d of %d", isa, form, i, m);
          }
        release(&o);
      }
  }
}
