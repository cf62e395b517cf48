/* conv_product.c: launches of convolutions as products of the weight and the unfolded image
 * (hal/ops/convolution/convolution.pk).
 *
 * The small image is such a product of the weight and the unfolded large one. The large image is computed in the same
 * way, class by class. A class is its positions first + j * step, one class for each `first` below the step in each
 * dimension. They use the same part of the window over the small image, reversed, with steps of 1. */
#include "ops/convolution/convolution.h"
#include "ops/gemm/gemm.h"
#include "ops/reduce/reduce.h"

#include "hal_op_variants.h"
#include "ops/convolution/convolution_args.h"

HAL_OP_LAUNCHER(queue_conv_tiles, groups, CONV_TILES_ARGS)
HAL_OP_LAUNCHER(queue_conv_turn, items, CONV_TURN_ARGS)
HAL_OP_LAUNCHER(queue_conv_slope, groups, CONV_SLOPE_ARGS)

typedef pk_conv_t product_t;

typedef pk_conv_part_t part_t;

enum { LEAST_PART = 512 }; /* windows */

/* Returns the maximum number of rows of a tile. */
static int64_t most_rows(const hal_op_context_t *context, int slope) {
  if (hal_op_target(context)->form == HAL_FORM_CPU_VECTOR) return slope ? PK_CONV_VECTOR_ROWS : PK_VECTOR_TILE_M;
  return slope ? PK_CONV_ROWS : PK_GEMM_TILE_M;
}

pk_volume_t hal_op_conv_dense(int64_t channels, const int64_t space[3]) {
  const int64_t plane = space[0] * space[1] * space[2];
  return (pk_volume_t){.batch = channels * plane, .channel = plane, .space = {space[1] * space[2], space[2], 1}};
}

static int64_t product(const int64_t list[3]) { return list[0] * list[1] * list[2]; }

/* Computes the number of units of all groups, and how many of them a group of items computes. */
static void count_units(const hal_op_context_t *context, const product_t *p, int64_t depth, uint64_t *out_units,
                        uint64_t *out_per_group) {
  *out_units = (uint64_t)p->groups * (uint64_t)p->tiles.tiles_m * (uint64_t)p->tiles.tiles_n;
  *out_per_group =
      hal_op_gemm_per_group(context, (double)p->tiles.tile_m * (double)p->tiles.tile_n * (double)(depth + 1));
}

static hal_status_t launch_tiles(hal_op_context_t *context, product_t *p, const hal_op_conv_operands_t *on) {
  const int64_t depth = p->window.channels * product(p->window.size), columns = p->batches * product(p->window.out);
  hal_plugin_kernel_t *kernel;
  uint64_t units, per_group;
  HAL_RETURN_IF_ERROR(hal_op_kernel(context, on->dtype, HAL_CONVOLUTION_VARIANT_TILES, &kernel));
  /* Channels-last: adjacent terms of a sum are adjacent in memory, where threads read the image, else in the weight. */
  p->by_place = (hal_op_target(context)->form == HAL_FORM_SIMT ? p->image.channel : p->weight.channel) == 1;
  p->tiles = hal_op_gemm_tiles(context, p->rows, columns, depth, p->groups, hal_op_dtype_size(on->dtype),
                               most_rows(context, 0), 0);
  count_units(context, p, depth, &units, &per_group);
  return queue_conv_tiles(context, kernel, (units + per_group - 1) / per_group, on->grid, on->image, on->weight,
                          on->bias, on->has_bias, p, units, per_group);
}

/* Queues grid = bias + weight x unfolded image; the grid begins at `grid`. */
static hal_status_t multiply(hal_op_context_t *context, product_t *p, void *grid, void *weight,
                             const hal_op_conv_image_t *call) {
  const hal_op_conv_operands_t on = {.dtype = call->result->dtype,
                                     .grid = grid,
                                     .image = call->from->data,
                                     .weight = weight,
                                     .bias = call->bias ? call->bias->data : weight,
                                     .has_bias = call->bias != NULL};
  return hal_op_conv_cut_planes(context, p, on.dtype) ? hal_op_conv_planes(context, p, &on)
                                                      : launch_tiles(context, p, &on);
}

/* Returns the product with the windows over the large image and the positions of the small one. */
static product_t product_over_large(const hal_op_conv_t *conv) {
  product_t p = {.window = conv->window,
                 .image = conv->large,
                 .grid = conv->small,
                 .weight = conv->weight,
                 .batches = conv->batches,
                 .groups = conv->groups,
                 .rows = conv->small_per_group,
                 .image_elements = conv->batches * conv->window.channels * product(conv->window.in)};
  p.window.channels = conv->large_per_group;
  return p;
}

static hal_status_t make_small(hal_op_context_t *context, const hal_op_conv_t *conv, const hal_op_conv_image_t *image) {
  product_t p = product_over_large(conv);
  return multiply(context, &p, image->result->data, image->weight->data, image);
}

/* ---- the large image ---- */

static int64_t common_divisor(int64_t a, int64_t b) {
  while (b) {
    const int64_t rest = a % b;
    a = b, b = rest;
  }
  return a;
}

/* Computes the part of the window for the class of positions first + j * step along dimension d: position i = first + j
 * * step is position k of window o if o * step = i + pad - k * dilation. The k's are every `part->step[d]`-th one; in
 * reverse order, o = j - pad' + t * dilation'. */
static void see(const pk_window_t *w, int d, int64_t first, part_t *part, pk_window_t *out) {
  const int64_t step = w->step[d], divisor = common_divisor(step, w->dilation[d]), apart = step / divisor;
  int64_t k = 0;
  while (k < apart && k < w->size[d] && (first + w->pad[d] - k * w->dilation[d]) % step != 0) k++;
  const int64_t seen = k < apart && k < w->size[d] ? (w->size[d] - k + apart - 1) / apart : 0;
  part->size[d] = seen, part->first[d] = k, part->step[d] = apart;
  out->in[d] = w->out[d];
  out->out[d] = (w->in[d] - first + step - 1) / step;
  out->size[d] = seen;
  out->step[d] = 1;
  out->dilation[d] = w->dilation[d] / divisor;
  out->pad[d] = seen ? (seen - 1) * out->dilation[d] - (first + w->pad[d] - k * w->dilation[d]) / step : 0;
}

/* Queues the part of the weight as rows (group, large channel) of (small channel, position). */
static hal_status_t turn_weight(hal_op_context_t *context, const hal_op_conv_t *conv, const hal_op_conv_image_t *image,
                                const part_t *part, void *turned) {
  hal_plugin_kernel_t *kernel;
  HAL_RETURN_IF_ERROR(hal_op_kernel(context, image->weight->dtype, HAL_CONVOLUTION_VARIANT_TURN, &kernel));
  const void *weight = image->weight->data;
  const uint64_t most = hal_op_units_per_group(context, (uint64_t)product(part->size));
  int64_t lines = most < (uint64_t)conv->small_per_group ? (int64_t)most : conv->small_per_group;
  uint64_t n = (uint64_t)conv->groups * (uint64_t)conv->large_per_group *
               (uint64_t)((conv->small_per_group + lines - 1) / lines);
  return queue_conv_turn(context, kernel, n, turned, weight, n, part, conv->small_per_group, conv->large_per_group,
                         lines);
}

/* Computes the positions of one class; `turned` has the size of the part of the weight that they use. */
static hal_status_t make_class(hal_op_context_t *context, const hal_op_conv_t *conv, const hal_op_conv_image_t *image,
                               const int64_t first[3], char *turned) {
  part_t part = {.weight = conv->weight};
  product_t p = {.window = {.channels = conv->small_per_group},
                 .image = conv->small,
                 .grid = conv->large,
                 .batches = conv->batches,
                 .groups = conv->groups,
                 .rows = conv->large_per_group,
                 .image_elements = conv->batches * conv->groups * conv->small_per_group * product(conv->window.out)};
  int64_t offset = 0;
  for (int d = 0; d < 3; d++) {
    see(&conv->window, d, first[d], &part, &p.window);
    p.grid.space[d] *= conv->window.step[d];
    offset += first[d] * conv->large.space[d];
  }
  p.weight = hal_op_conv_dense(conv->small_per_group, part.size);
  if (product(part.size)) HAL_RETURN_IF_ERROR(turn_weight(context, conv, image, &part, turned));
  char *const grid = (char *)image->result->data + offset * (int64_t)hal_op_dtype_size(image->result->dtype);
  return multiply(context, &p, grid, turned, image);
}

static hal_status_t make_large(hal_op_context_t *context, const hal_op_conv_t *conv, const hal_op_conv_image_t *image) {
  const int64_t *const step = conv->window.step, *const in = conv->window.in;
  hal_op_scratch_t scratch = {.block = NULL};
  int64_t weights;
  HAL_RETURN_IF_ERROR(hal_op_numel(context, image->weight, "`weight`", &weights));
  const size_t size = (size_t)weights * hal_op_dtype_size(image->weight->dtype);
  HAL_RETURN_IF_ERROR(hal_op_scratch(context, size, &scratch));
  hal_status_t status = HAL_OK;
  /* One after the other on one stream, so that classes can share the memory. */
  for (int64_t z = 0; z < step[0] && z < in[0] && !status; z++) {
    for (int64_t y = 0; y < step[1] && y < in[1] && !status; y++) {
      for (int64_t x = 0; x < step[2] && x < in[2] && !status; x++)
        status = make_class(context, conv, image, (const int64_t[3]){z, y, x}, scratch.address);
    }
  }
  hal_op_scratch_release(&scratch);
  return status;
}

/* Devices count positions in 32 bits: no window may exceed that. */
static hal_status_t check_reach(const hal_op_context_t *context, const pk_window_t *w) {
  if (hal_op_is_host(context)) return HAL_OK;
  for (int d = 0; d < 3; d++)
    if (w->in[d] >= 1 << 30 || w->pad[d] >= 1 << 29) return hal_op_too_large(context, (uint64_t)w->in[d]);
  return HAL_OK;
}

hal_status_t hal_op_conv_image(hal_op_context_t *context, const hal_op_conv_t *conv, const hal_op_conv_image_t *image) {
  int64_t numel;
  HAL_RETURN_IF_ERROR(hal_op_numel(context, image->result, "the result", &numel));
  if (numel == 0) return HAL_OK;
  HAL_RETURN_IF_ERROR(check_reach(context, &conv->window));
  return image->small ? make_small(context, conv, image) : make_large(context, conv, image);
}

/* ---- the gradient of the weight ---- */

/* Returns the number of windows of a part: few tiles are divided along the sum, so that there are as many units of work
 * as the target needs and at least 512 windows in each. */
static int64_t choose_part(const hal_op_context_t *context, const product_t *p, int64_t windows) {
  const int64_t tiles = p->groups * p->tiles.tiles_m * p->tiles.tiles_n,
                wanted = ((int64_t)hal_op_target(context)->wanted_groups + tiles - 1) / tiles;
  const int64_t most = windows / LEAST_PART > 1 ? windows / LEAST_PART : 1, parts = wanted < most ? wanted : most;
  return (windows + parts - 1) / parts;
}

static hal_status_t launch_slope(hal_op_context_t *context, const product_t *p, const hal_op_conv_operands_t *on,
                                 int64_t part, int64_t parts) {
  hal_plugin_kernel_t *kernel;
  uint64_t units, per_group;
  HAL_RETURN_IF_ERROR(hal_op_kernel(context, on->dtype, HAL_CONVOLUTION_VARIANT_SLOPE, &kernel));
  count_units(context, p, part, &units, &per_group);
  units *= (uint64_t)parts;
  return queue_conv_slope(context, kernel, (units + per_group - 1) / per_group, on->weight, on->image, on->grid, p,
                          part, units, per_group);
}

/* Computes `parts` parts (of `part` batches each for planes, else of windows) and adds them up. */
static hal_status_t add_parts(hal_op_context_t *context, const product_t *p, int planes, int64_t part, int64_t parts,
                              hal_op_conv_operands_t *on, const hal_tensor_t *result, int64_t numel) {
  hal_status_t (*const launch)(hal_op_context_t *, const product_t *, const hal_op_conv_operands_t *, int64_t,
                               int64_t) = planes ? hal_op_conv_planes_slope : launch_slope;
  hal_op_scratch_t scratch = {.block = NULL};
  size_t size;
  on->weight = result->data;
  if (parts == 1) return launch(context, p, on, part, 1);
  const hal_dtype_t sums = hal_op_accumulator(context, result->dtype);
  if (__builtin_mul_overflow((size_t)numel, (size_t)parts * hal_op_dtype_size(sums), &size))
    return hal_op_too_large(context, UINT64_MAX);
  HAL_RETURN_IF_ERROR(hal_op_scratch(context, size, &scratch));
  on->weight = scratch.address;
  hal_status_t status = launch(context, p, on, part, parts);
  if (!status) status = hal_op_add_rows(context, parts, on->weight, sums, result);
  hal_op_scratch_release(&scratch);
  return status;
}

hal_status_t hal_op_conv_weight(hal_op_context_t *context, const hal_op_conv_t *conv, const hal_tensor_t *result,
                                const hal_tensor_t *large, const hal_tensor_t *small) {
  product_t p = product_over_large(conv);
  hal_op_conv_operands_t on = {.dtype = result->dtype, .grid = small->data, .image = large->data};
  int64_t numel;
  HAL_RETURN_IF_ERROR(hal_op_numel(context, result, "the weight's gradient", &numel));
  if (numel == 0) return HAL_OK;
  HAL_RETURN_IF_ERROR(check_reach(context, &conv->window));
  const int planes = hal_op_conv_cut_planes(context, &p, result->dtype);
  int64_t all = conv->batches, part;
  if (planes) {
    const int64_t items = p.groups * p.rows * p.window.channels,
                  wanted = ((int64_t)hal_op_target(context)->wanted_groups + items - 1) / items;
    part = wanted < all ? (all + wanted - 1) / wanted : 1;
  } else {
    const int64_t rows = conv->large_per_group * product(conv->window.size);
    all *= product(conv->window.out);
    p.by_place = conv->weight.channel == 1; /* the gradient's order in memory */
    p.tiles = hal_op_gemm_tiles(context, rows, p.rows, 1, p.groups, hal_op_dtype_size(result->dtype),
                                most_rows(context, 1), 0);
    part = choose_part(context, &p, all);
  }
  return add_parts(context, &p, planes, part, part && all ? (all + part - 1) / part : 1, &on, result, numel);
}
