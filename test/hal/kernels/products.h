/* products.h: bfloat16 products of a kernel, compared with the same in double precision. */
#ifndef TEST_PRODUCTS_H_
#define TEST_PRODUCTS_H_

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "hal/plugin_kernels.h"
#define PK_CAT_(a, b) a##b
#define PK_CAT(a, b) PK_CAT_(a, b)
#include "kernels/pk_amx.h"
#include "ops/gemm/gemm_args.h"

/* The memory layout of the operands. */
enum { PLAIN = 0, A_TURNED = 1, B_TURNED = 2, SPACED = 4, RESULT_TURNED = 8, LAYOUTS = 16 };

typedef struct product_s {
  int m, n, k, batch, layout;
  float alpha, beta;
  int tile_m, tile_n; /* 0: one tile */
  int whole;          /* integers whose sums are exact */
} product_t;

static inline float widened(pk_u16 bits) {
  const pk_u32 wide = (pk_u32)bits << 16;
  float x;
  memcpy(&x, &wide, sizeof x);
  return x;
}

static inline pk_u16 narrowed(float x) { /* to nearest, ties to even; NaN is not supported */
  pk_u32 bits;
  memcpy(&bits, &x, sizeof bits);
  return (pk_u16)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* A matrix of `rows` x `columns`, `batch` times, in newly allocated memory. */
typedef struct operand_s {
  pk_u16 *data;
  pk_i64 row, column, batch;
  size_t elements;
} operand_t;

static inline operand_t operand_new(int rows, int columns, int batch, int turned, int spaced, int whole,
                                    unsigned seed) {
  const pk_i64 step = spaced ? 3 : 1;
  operand_t x = {.row = turned ? step : columns * step + spaced, .column = turned ? rows * step + spaced : step};
  x.batch = rows * x.row + columns * x.column + 5;
  x.elements = (size_t)(batch * x.batch + 1);
  x.data = malloc(x.elements * sizeof *x.data);
  cr_assert(x.data);
  for (size_t i = 0; i < x.elements; i++) {
    seed = seed * 1664525u + 1013904223u;
    const float uniform = (float)(seed >> 8) / 16777216.0f - 0.5f;
    x.data[i] = narrowed(whole ? rintf(uniform * 2.4f) : uniform);
  }
  return x;
}

static inline double operand_at(const operand_t *x, int batch, int i, int j) {
  return (double)widened(x->data[batch * x->batch + i * x->row + j * x->column]);
}

static inline pk_i64 tiles_of(int size, int tile) { return (size + tile - 1) / tile; }

/* Runs the kernel on `parts` shares of the launch and returns the result; the caller frees it. */
static inline operand_t product_run(hal_host_kernel_fn_t fn, const product_t *p, operand_t *a, operand_t *b,
                                    operand_t *self) {
  const int spaced = p->layout & SPACED ? 1 : 0;
  *a = operand_new(p->m, p->k, p->batch, p->layout & A_TURNED, spaced, p->whole, 1);
  *b = operand_new(p->k, p->n, p->batch, p->layout & B_TURNED, spaced, p->whole, 2);
  *self = operand_new(p->m, p->n, p->batch, 0, spaced, p->whole, 3);
  operand_t result = operand_new(p->m, p->n, p->batch, p->layout & RESULT_TURNED, 0, 0, 4);
  const int tile_m = p->tile_m ? p->tile_m : p->m, tile_n = p->tile_n ? p->tile_n : p->n;
  pk_gemm_t s = {.m = p->m,
                 .n = p->n,
                 .k = p->k,
                 .a_batch = a->batch,
                 .a_row = a->row,
                 .a_col = a->column,
                 .b_batch = b->batch,
                 .b_row = b->row,
                 .b_col = b->column,
                 .self_batch = self->batch,
                 .self_row = self->row,
                 .self_col = self->column,
                 .result_batch = result.batch,
                 .result_row = result.row,
                 .result_col = result.column,
                 .tiles = {tile_m, tile_n, tiles_of(p->m, tile_m), tiles_of(p->n, tile_n)}};
  pk_u64 units = (pk_u64)(s.tiles.tiles_m * s.tiles.tiles_n * p->batch), per_group = 2;
  float alpha = p->alpha, beta = p->beta;
  void *const args[] = {&result.data, &a->data, &b->data, &self->data, &s, &alpha, &beta, &units, &per_group};
  const pk_u64 groups = (units + 1) / 2, half = groups / 2;
  const hal_host_range_t first = {0, half}, second = {half, groups};
  fn(&first, args); /* as two threads do */
  fn(&second, args);
  return result;
}

/* Compares each element with double precision. The bound is that of float sums in any order, plus one rounding to
   bfloat16. */
static inline void product_check(const char *who, hal_host_kernel_fn_t fn, const product_t *p) {
  operand_t a, b, self;
  operand_t result = product_run(fn, p, &a, &b, &self);
  for (int x = 0; x < p->batch; x++)
    for (int i = 0; i < p->m; i++)
      for (int j = 0; j < p->n; j++) {
        double sum = 0, size = 0;
        for (int k = 0; k < p->k; k++) {
          const double term = operand_at(&a, x, i, k) * operand_at(&b, x, k, j);
          sum += term, size += fabs(term);
        }
        const double more = p->beta == 0 ? 0 : (double)p->beta * operand_at(&self, x, i, j);
        const double want = (double)p->alpha * sum + more, got = operand_at(&result, x, i, j);
        const double bound = (fabs((double)p->alpha) * size * (p->k + 2) + fabs(more)) * 0x1p-23 + fabs(want) * 0x1p-8;
        cr_assert(fabs(got - want) <= (p->whole ? 0 : bound) + 1e-30,
                  "%s: %d x %d, k %d, batch %d, layout %d, alpha %g, beta %g: element (%d, %d, %d) is %g, not %g", who,
                  p->m, p->n, p->k, p->batch, p->layout, (double)p->alpha, (double)p->beta, x, i, j, got, want);
      }
  free(a.data), free(b.data), free(self.data), free(result.data);
}

/* The sizes around the edges of squares, tiles and blocks of k. */
static inline void products_check(const char *who, hal_host_kernel_fn_t fn, int most) {
  static const int sizes[][3] = {{1, 1, 1},     {1, 1, 0},     {3, 5, 0},     {1, 17, 33},  {2, 32, 31},
                                 {15, 16, 32},  {16, 16, 64},  {17, 31, 63},  {31, 33, 65}, {32, 32, 256},
                                 {33, 65, 257}, {5, 128, 300}, {48, 40, 512}, {7, 9, 4000}};
  for (size_t c = 0; c < sizeof sizes / sizeof *sizes; c++)
    for (int layout = 0; layout < LAYOUTS; layout++) {
      if ((int)(c + (size_t)layout) % most) continue;
      product_t p = {sizes[c][0], sizes[c][1], sizes[c][2], 1, layout, 1, 0, 0, 0, 0};
      product_check(who, fn, &p);
      p.alpha = -0.75f, p.beta = 0.5f, p.batch = 3, p.tile_m = 16, p.tile_n = 32;
      product_check(who, fn, &p);
    }
  const product_t large = {190, 150, 70, 2, PLAIN, 1, 1, 96, 128, 0};
  product_check(who, fn, &large);
  const product_t whole = {61, 83, 100, 1, B_TURNED, 1, 0, 0, 0, 1};
  product_check(who, fn, &whole);
}

#endif /* TEST_PRODUCTS_H_ */
