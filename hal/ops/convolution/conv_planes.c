/* op_conv_planes.c: launches of convolutions with one or two products per place (hal/ops/convolution/conv_planes.h). */
#include "op/dims.h"
#include "ops/convolution/convolution.h"

#include "hal_op_variants.h"

/* Products per place of a window above which a matrix product is faster: with 4 x 4 channels per group in a third of the time. The
 * others are PK_CONV_ROOM and PK_CONV_PLACES. */
enum { MOST_PRODUCTS = 2, ROOM = 4096, MOST_PLACES = 128, VECTOR = 64 };

static int64_t reach(const hal_op_window_t *w, int d) { return w->size[d] > 1 ? (w->size[d] - 1) * w->dilation[d] : 0; }

/* Places of a phase that a band of `windows` sees along dimension d, and phases. */
static int64_t seen(const hal_op_window_t *w, int d, int64_t windows) { return windows + reach(w, d) / w->step[d]; }
static int64_t phases(const hal_op_window_t *w, int d) {
  return reach(w, d) < w->step[d] ? reach(w, d) + 1 : w->step[d];
}

/* In double: no product overflows. */
static int fits(const hal_op_window_t *w, int64_t height, int64_t width, int64_t lanes) {
  const double room =
      (double)phases(w, 1) * (double)phases(w, 2) * (double)seen(w, 1, height) * (double)seen(w, 2, width);
  return room <= ROOM && (double)height * (double)((width + lanes - 1) / lanes * lanes) <= ROOM;
}

int hal_op_conv_cut_planes(const hal_op_context_t *context, hal_op_conv_product_t *p, hal_dtype_t dtype) {
  const hal_op_window_t *const w = &p->window;
  const int64_t lanes = VECTOR / hal_op_dtype_size(dtype);
  if (p->rows * w->channels > MOST_PRODUCTS || w->size[1] > MOST_PLACES || w->size[2] > MOST_PLACES ||
      w->size[1] * w->size[2] > MOST_PLACES || !fits(w, 1, 1, lanes))
    return 0;
  int64_t height = 1, width = 1; /* one place a thread, where there are many */
  if (hal_op_units_per_group(context, 1) > 1) {
    width = w->out[2] > 0 ? w->out[2] : 1;
    while (!fits(w, 1, width, lanes)) width = (width + 1) / 2;
    while (height < w->out[1] && fits(w, height + 1, width, lanes)) height++;
  }
  p->tiles = (hal_op_tiles_t){.tile_m = height,
                              .tile_n = width,
                              .tiles_m = (w->out[1] + height - 1) / height,
                              .tiles_n = (w->out[2] + width - 1) / width};
  return 1;
}

hal_status_t hal_op_conv_planes(hal_op_context_t *context, const hal_op_conv_product_t *p,
                                const hal_op_conv_operands_t *on) {
  hal_plugin_kernel_t *kernel;
  HAL_RETURN_IF_ERROR(hal_op_kernel(context, on->dtype, HAL_CONVOLUTION_VARIANT_PLANES, &kernel));
  uint64_t n = (uint64_t)p->batches * (uint64_t)p->groups * (uint64_t)p->rows * (uint64_t)p->window.out[0] *
               (uint64_t)p->tiles.tiles_m * (uint64_t)p->tiles.tiles_n;
  const hal_arg_t args[] = {
      HAL_OP_ARG_POINTER(on->grid), HAL_OP_ARG_POINTER(on->image),  HAL_OP_ARG_POINTER(on->weight),
      HAL_OP_ARG_POINTER(on->bias), HAL_OP_ARG_VALUE(on->has_bias), HAL_OP_ARG_VALUE(*p),
      HAL_OP_ARG_VALUE(n)};
  return hal_op_launch_items(context, kernel, n, args, 7);
}

hal_status_t hal_op_conv_planes_slope(hal_op_context_t *context, const hal_op_conv_product_t *p,
                                      const hal_op_conv_operands_t *on, int64_t part, int64_t parts) {
  hal_plugin_kernel_t *kernel;
  HAL_RETURN_IF_ERROR(hal_op_kernel(context, on->dtype, HAL_CONVOLUTION_VARIANT_PLANES_SLOPE, &kernel));
  uint64_t n = (uint64_t)parts * (uint64_t)p->groups * (uint64_t)p->rows * (uint64_t)p->window.channels *
               (uint64_t)p->window.size[0];
  const hal_arg_t args[] = {HAL_OP_ARG_POINTER(on->weight), HAL_OP_ARG_POINTER(on->image), HAL_OP_ARG_POINTER(on->grid),
                            HAL_OP_ARG_VALUE(*p),           HAL_OP_ARG_VALUE(part),        HAL_OP_ARG_VALUE(n)};
  return hal_op_launch_items(context, kernel, n, args, 6);
}
