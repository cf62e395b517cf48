/* conv_cpu.c: convolutions on devices with few wide cores, as products with the unfolded image in scratch memory, a few images at a
 * time. The product is the one of matrices (hal/ops/gemm/gemm_cpu.h). */
#include "hal_op_ids.h"
#include "hal_op_variants.h"
#include "ops/convolution/convolution.h"
#include "ops/reduce/reduce.h"

HAL_OP_LAUNCHER(queue_unfold, items, CONV_UNFOLD_ARGS)

/* Bytes of unfolded images at a time, unless one alone takes more: some times the second-level caches, so that launches are few. */
#define ROOM ((int64_t)16 << 20)

typedef pk_conv_t conv_t;

static int64_t divide_up(int64_t x, int64_t y) { return x / y + (x % y != 0); }
static int64_t product(const int64_t list[3]) { return list[0] * list[1] * list[2]; }

/* What every launch of a call has in common. */
typedef struct work_s {
  hal_op_context_t *context, gemm; /* of the convolution; of products */
  const conv_t *p;
  const hal_op_conv_operands_t *on;
  int64_t depth, windows, panels, element;
  int64_t images; /* at a time */
  hal_op_scalar_t one, none;
  char *unfolded;
} work_t;

static int64_t image_elements(const work_t *w) { return w->panels * PK_CPU_N * w->depth; }

/* `most`: images at a time, at most. */
static hal_status_t begin(hal_op_context_t *context, const conv_t *p, const hal_op_conv_operands_t *on, int64_t most,
                          work_t *w, hal_op_scratch_t *scratch) {
  static const hal_value_t one = {.tag = HAL_VALUE_INT, .u.i = 1}, zero = {.tag = HAL_VALUE_INT, .u.i = 0};
  *w = (work_t){.context = context,
                .p = p,
                .on = on,
                .depth = p->window.channels * product(p->window.size),
                .windows = product(p->window.out),
                .element = hal_op_dtype_size(on->dtype)};
  w->panels = divide_up(w->windows, PK_CPU_N);
  size_t bytes;
  const int64_t fit = ROOM / (image_elements(w) * w->element + 1) + 1;
  w->images = fit < most ? fit : most;
  if (w->images > p->batches) w->images = p->batches;
  if (__builtin_mul_overflow((size_t)image_elements(w) * (size_t)w->element, (size_t)w->images, &bytes))
    return hal_op_too_large(context, UINT64_MAX);
  hal_op_context_of(context, HAL_OP_ID_MM, &w->gemm);
  HAL_RETURN_IF_ERROR(hal_op_scalar(context, &one, on->dtype, "alpha", &w->one));
  HAL_RETURN_IF_ERROR(hal_op_scalar(context, &zero, on->dtype, "beta", &w->none));
  HAL_RETURN_IF_ERROR(hal_op_scratch(context, bytes, scratch));
  w->unfolded = scratch->address;
  return HAL_OK;
}

/* Unfolds `count` images from `first` on, of one group: `panels` after one another, or as rows of all windows. */
static hal_status_t unfold(const work_t *w, int64_t group, int64_t first, int64_t count, int in_panels) {
  const conv_t *const p = w->p;
  hal_plugin_kernel_t *kernel;
  HAL_RETURN_IF_ERROR(hal_op_kernel(w->context, w->on->dtype, HAL_CONVOLUTION_VARIANT_UNFOLD, &kernel));
  const int64_t at = first * p->image.batch + group * p->window.channels * p->image.channel;
  const uint64_t n = (uint64_t)count * (uint64_t)w->panels * (uint64_t)p->window.channels;
  return queue_unfold(w->context, kernel, n, w->unfolded, (char *)w->on->image + at * w->element, p, n, w->panels,
                      image_elements(w), in_panels ? PK_CPU_N * w->depth : PK_CPU_N,
                      in_panels ? PK_CPU_N : w->panels * PK_CPU_N);
}

/* ---- the grid ---- */

/* Whether the places of a channel of the grid lie evenly apart. */
static int is_even(const conv_t *p) {
  const int64_t *const out = p->window.out, *const space = p->grid.space;
  return (out[1] == 1 || space[1] == out[2] * space[2]) && (out[0] == 1 || space[0] == out[1] * out[2] * space[2]);
}

static hal_status_t multiply(work_t *w, int64_t group, int64_t count, char *grid, const pk_volume_t *strides) {
  const conv_t *const p = w->p;
  const int64_t channel = group * p->rows;
  const char *const weight = w->on->weight, *const bias = w->on->bias;
  const hal_op_product_t product = {.s = {.m = p->rows,
                                          .n = w->windows,
                                          .k = w->depth,
                                          .a_row = w->depth,
                                          .a_col = 1,
                                          .a_block = PK_CPU_M * w->depth,
                                          .b_batch = image_elements(w),
                                          .b_row = PK_CPU_N,
                                          .b_col = 1,
                                          .b_panel = PK_CPU_N * w->depth,
                                          .self_row = 1,
                                          .result_batch = strides->batch,
                                          .result_row = strides->channel,
                                          .result_col = strides->space[2]},
                                    .a = weight + channel * w->depth * w->element,
                                    .b = w->unfolded,
                                    .self = w->on->has_bias ? bias + channel * w->element : weight,
                                    .result = grid + channel * strides->channel * w->element,
                                    .alpha = &w->one,
                                    .beta = w->on->has_bias ? &w->one : &w->none,
                                    .dtype = w->on->dtype,
                                    .batch = count};
  return hal_op_gemm_cpu_tiles(&w->gemm, &product);
}

/* Copies `count` images of a grid whose places lie evenly apart to the grid of the call. */
static hal_status_t spread(const work_t *w, int64_t first, int64_t count, void *from, const pk_volume_t *strides) {
  const conv_t *const p = w->p;
  const pk_volume_t *const to = &p->grid;
  const int64_t sizes[] = {count, p->groups * p->rows, p->window.out[0], p->window.out[1], p->window.out[2]};
  const int64_t source[] = {strides->batch, strides->channel, strides->space[0], strides->space[1], strides->space[2]};
  const int64_t target[] = {to->batch, to->channel, to->space[0], to->space[1], to->space[2]};
  const hal_tensor_t a = {
      .struct_size = sizeof a, .data = from, .ndim = 5, .dtype = w->on->dtype, .sizes = sizes, .strides = source};
  hal_tensor_t result = a;
  result.data = (char *)w->on->grid + first * to->batch * w->element, result.strides = target;
  const hal_tensor_t *const results[] = {&result};
  const hal_value_t argument = hal_op_value(&a);
  return hal_op_run_part(w->context, HAL_OP_ID_COPY, &argument, 1, results, 1);
}

hal_status_t hal_op_conv_cpu(hal_op_context_t *context, const pk_conv_t *p, const hal_op_conv_operands_t *on) {
  work_t w;
  hal_op_scratch_t scratch = {.block = NULL}, grid = {.block = NULL};
  hal_status_t status = begin(context, p, on, p->batches, &w, &scratch);
  const int even = is_even(p);
  const int64_t channels = p->groups * p->rows, *const out = p->window.out;
  const pk_volume_t own = {.batch = channels * w.windows, .channel = w.windows, .space = {out[1] * out[2], out[2], 1}};
  if (!status && !even) status = hal_op_scratch(context, (size_t)(own.batch * w.images) * (size_t)w.element, &grid);
  for (int64_t first = 0; !status && first < p->batches; first += w.images) {
    const int64_t count = p->batches - first < w.images ? p->batches - first : w.images;
    char *const to = even ? (char *)on->grid + first * p->grid.batch * w.element : grid.address;
    for (int64_t group = 0; group < p->groups && !status; group++) {
      status = unfold(&w, group, first, count, 1);
      if (!status) status = multiply(&w, group, count, to, even ? &p->grid : &own);
    }
    if (!status && !even) status = spread(&w, first, count, to, &own);
  }
  hal_op_scratch_release(&grid);
  hal_op_scratch_release(&scratch);
  return status;
}

/* ---- the gradient of the weight ---- */

/* Adds the products of `count` images to as many partial sums, or starts these with them. */
static hal_status_t add_products(work_t *w, int64_t group, int64_t first, int64_t count, char *sums, int64_t numel) {
  const conv_t *const p = w->p;
  const int64_t channel = group * p->rows, ld = w->panels * PK_CPU_N;
  char *const result = sums + channel * w->depth * w->element;
  const hal_op_product_t product = {
      .s = {.m = w->depth,
            .n = p->rows,
            .k = w->windows,
            .a_batch = image_elements(w),
            .a_row = ld,
            .a_col = 1,
            .b_batch = p->grid.batch,
            .b_row = p->grid.space[2],
            .b_col = p->grid.channel,
            .self_batch = numel,
            .self_row = 1,
            .self_col = w->depth,
            .result_batch = numel,
            .result_row = 1,
            .result_col = w->depth},
      .a = w->unfolded,
      .b = (char *)w->on->grid + (first * p->grid.batch + channel * p->grid.channel) * w->element,
      .self = result,
      .result = result,
      .alpha = &w->one,
      .beta = first ? &w->one : &w->none,
      .dtype = w->on->dtype,
      .batch = count};
  return hal_op_gemm_cpu(&w->gemm, &product);
}

hal_status_t hal_op_conv_cpu_slope(hal_op_context_t *context, const pk_conv_t *p, const hal_op_conv_operands_t *on,
                                   const hal_tensor_t *result) {
  work_t w;
  int64_t numel;
  hal_op_scratch_t scratch = {.block = NULL}, partial = {.block = NULL};
  HAL_RETURN_IF_ERROR(hal_op_numel(context, result, "the weight's gradient", &numel));
  const int64_t fit = ROOM / (numel * hal_op_dtype_size(on->dtype)) + 1; /* sums that are made side by side */
  hal_status_t status = begin(context, p, on, fit, &w, &scratch);
  if (!status && w.images > 1)
    status = hal_op_scratch(context, (size_t)(numel * w.images) * (size_t)w.element, &partial);
  char *const sums = w.images > 1 ? partial.address : result->data;
  for (int64_t first = 0; !status && first < p->batches; first += w.images) {
    const int64_t count = p->batches - first < w.images ? p->batches - first : w.images;
    for (int64_t group = 0; group < p->groups && !status; group++) {
      status = unfold(&w, group, first, count, 0);
      if (!status) status = add_products(&w, group, first, count, sums, numel);
    }
  }
  if (!status && w.images > 1) status = hal_op_add_rows(context, w.images, sums, on->dtype, result);
  hal_op_scratch_release(&partial);
  hal_op_scratch_release(&scratch);
  return status;
}
