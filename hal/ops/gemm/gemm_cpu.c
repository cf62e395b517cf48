/* gemm_cpu.c: products of matrices on devices with few wide cores: packs operands that `tiles` of gemm_cpu.h cannot
 * read directly, and multiplies. */
#include "hal_op_variants.h"
#include "ops/gemm/gemm.h"
#include "ops/gemm/gemm_args.h"

HAL_OP_LAUNCHER(queue_tiles, groups, GEMM_ARGS)
HAL_OP_LAUNCHER(queue_pack, items, GEMM_PACK_ARGS)

static int64_t divide_up(int64_t x, int64_t y) { return x / y + (x % y != 0); }

/* An operand to be packed: element (e, k) of a matrix, e < extent. */
typedef struct side_s {
  const void *data;
  int64_t extent, step, row, batch; /* batch: stride of matrices */
  int64_t width;
} side_t;

/* Packs `batches` matrices into scratch memory. */
static hal_status_t pack(hal_op_context_t *context, const hal_op_product_t *p, const side_t *side, int64_t batches,
                         hal_op_scratch_t *out) {
  const int64_t panels = divide_up(side->extent, side->width);
  hal_plugin_kernel_t *kernel;
  uint64_t lines, size;
  HAL_RETURN_IF_ERROR(hal_op_kernel(context, p->dtype, HAL_GEMM_VARIANT_PACK, &kernel));
  if (__builtin_mul_overflow((uint64_t)batches * (uint64_t)panels, (uint64_t)p->s.k, &lines) ||
      __builtin_mul_overflow(lines, (uint64_t)side->width * p->alpha->size, &size))
    return hal_op_too_large(context, UINT64_MAX);
  HAL_RETURN_IF_ERROR(hal_op_scratch(context, size, out));
  const uint64_t n = (uint64_t)batches * (uint64_t)panels * (uint64_t)divide_up(p->s.k, PK_CPU_N);
  return queue_pack(context, kernel, n, out->address, side->data, n, p->s.k, panels, side->extent, side->width,
                    side->batch, side->row, side->step);
}

/* Packs the rows of a in blocks, only to convert them. */
static hal_status_t pack_a(hal_op_context_t *context, hal_op_product_t *p, hal_op_scratch_t *out) {
  pk_gemm_t *const s = &p->s;
  const int64_t blocks = divide_up(s->m, PK_CPU_M);
  const side_t side = {p->a, s->m, s->a_row, s->a_col, s->a_batch, PK_CPU_M};
  s->a_block = PK_CPU_M * s->a_row;
  if (!p->widened) return HAL_OK;
  HAL_RETURN_IF_ERROR(pack(context, p, &side, s->a_batch ? p->batch : 1, out));
  p->a = out->address;
  s->a_row = 1, s->a_col = PK_CPU_M, s->a_block = PK_CPU_M * s->k;
  if (s->a_batch) s->a_batch = blocks * s->a_block;
  return HAL_OK;
}

/* Packs the columns of b in panels, unless they are contiguous and fill all panels. */
static hal_status_t pack_b(hal_op_context_t *context, hal_op_product_t *p, hal_op_scratch_t *out) {
  pk_gemm_t *const s = &p->s;
  const int64_t panels = divide_up(s->n, PK_CPU_N);
  const side_t side = {p->b, s->n, s->b_col, s->b_row, s->b_batch, PK_CPU_N};
  s->b_panel = PK_CPU_N;
  if (!p->widened && s->b_col == 1 && s->n % PK_CPU_N == 0) return HAL_OK;
  HAL_RETURN_IF_ERROR(pack(context, p, &side, s->b_batch ? p->batch : 1, out));
  p->b = out->address;
  s->b_row = PK_CPU_N, s->b_col = 1, s->b_panel = PK_CPU_N * s->k;
  if (s->b_batch) s->b_batch = panels * s->b_panel;
  return HAL_OK;
}

static hal_status_t multiply(hal_op_context_t *context, const hal_op_product_t *p) {
  pk_gemm_t s = p->s;
  hal_plugin_kernel_t *kernel;
  uint64_t groups;
  HAL_RETURN_IF_ERROR(hal_op_kernel(context, p->dtype, HAL_GEMM_VARIANT_TILES, &kernel));
  s.tiles = hal_op_gemm_vector_tiles(hal_op_target(context), s.m, s.n, s.k, p->batch);
  if (__builtin_mul_overflow((uint64_t)s.tiles.tiles_m * (uint64_t)s.tiles.tiles_n, (uint64_t)p->batch, &groups))
    return hal_op_too_large(context, UINT64_MAX);
  return queue_tiles(context, kernel, groups, p->result, p->a, p->b, p->self, &s, hal_op_number(p->alpha),
                     hal_op_number(p->beta), groups, 1);
}

hal_status_t hal_op_gemm_cpu(hal_op_context_t *context, const hal_op_product_t *product) {
  hal_op_product_t p = *product;
  hal_op_scratch_t a = {.block = NULL}, b = {.block = NULL};
  hal_status_t status = pack_a(context, &p, &a);
  if (!status) status = pack_b(context, &p, &b);
  if (!status) status = multiply(context, &p);
  hal_op_scratch_release(&a);
  hal_op_scratch_release(&b);
  return status;
}
