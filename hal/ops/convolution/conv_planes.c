/* conv_planes.c: launches of convolutions with one or two products per position (hal/ops/convolution/conv_planes.h). */
#include "op/dims.h"
#include "ops/convolution/convolution.h"

#include "hal_op_variants.h"
#include "ops/convolution/convolution_args.h"

HAL_OP_LAUNCHER(queue_conv_planes, items, CONV_PLANES_ARGS)
HAL_OP_LAUNCHER(queue_conv_planes_slope, items, CONV_PLANES_SLOPE_ARGS)

/* Products per position of a window above which a matrix product is faster: with 4 x 4 channels per group it takes a
 * third of the time. If one of both numbers of channels is 1, the host's matrix product takes longer, because it
 * unfolds an image that few rows read. */
enum { MOST_PRODUCTS = 2, MOST_PRODUCTS_OF_ONE = 16 };
enum { ROOM = PK_CONV_ROOM, MOST_PLACES = PK_CONV_PLACES, VECTOR = 64 };

static int64_t reach(const pk_window_t *w, int d) { return w->size[d] > 1 ? (w->size[d] - 1) * w->dilation[d] : 0; }

/* Returns the positions of a phase that a band of `windows` reads along dimension d, and the phases. */
static int64_t seen(const pk_window_t *w, int d, int64_t windows) { return windows + reach(w, d) / w->step[d]; }
static int64_t phases(const pk_window_t *w, int d) { return reach(w, d) < w->step[d] ? reach(w, d) + 1 : w->step[d]; }

/* In double, where no product overflows. */
static int fits(const pk_window_t *w, int64_t height, int64_t width, int64_t lanes) {
  const double room =
      (double)phases(w, 1) * (double)phases(w, 2) * (double)seen(w, 1, height) * (double)seen(w, 2, width);
  return room <= ROOM && (double)height * (double)((width + lanes - 1) / lanes * lanes) <= ROOM;
}

int hal_op_conv_cut_planes(const hal_op_context_t *context, pk_conv_t *p, hal_dtype_t dtype) {
  const pk_window_t *const w = &p->window;
  const int64_t lanes = VECTOR / hal_op_dtype_size(dtype);
  const int is_one = hal_op_is_host(context) && (p->rows == 1 || w->channels == 1);
  if (p->rows * w->channels > (is_one ? MOST_PRODUCTS_OF_ONE : MOST_PRODUCTS) || w->size[1] > MOST_PLACES ||
      w->size[2] > MOST_PLACES || w->size[1] * w->size[2] > MOST_PLACES || !fits(w, 1, 1, lanes))
    return 0;
  int64_t height = 1, width = 1; /* one position per thread on devices with many threads */
  if (hal_op_units_per_group(context, 1) > 1) {
    width = w->out[2] > 0 ? w->out[2] : 1;
    while (!fits(w, 1, width, lanes)) width = (width + 1) / 2;
    while (height < w->out[1] && fits(w, height + 1, width, lanes)) height++;
  }
  p->tiles = (pk_tiles_t){.tile_m = height,
                          .tile_n = width,
                          .tiles_m = (w->out[1] + height - 1) / height,
                          .tiles_n = (w->out[2] + width - 1) / width};
  return 1;
}

hal_status_t hal_op_conv_planes(hal_op_context_t *context, const pk_conv_t *p, const hal_op_conv_operands_t *on) {
  hal_plugin_kernel_t *kernel;
  HAL_RETURN_IF_ERROR(hal_op_kernel(context, on->dtype, HAL_CONVOLUTION_VARIANT_PLANES, &kernel));
  uint64_t n = (uint64_t)p->batches * (uint64_t)p->groups * (uint64_t)p->rows * (uint64_t)p->window.out[0] *
               (uint64_t)p->tiles.tiles_m * (uint64_t)p->tiles.tiles_n;
  return queue_conv_planes(context, kernel, n, on->grid, on->image, on->weight, on->bias, on->has_bias, p, n);
}

hal_status_t hal_op_conv_planes_slope(hal_op_context_t *context, const pk_conv_t *p, const hal_op_conv_operands_t *on,
                                      int64_t part, int64_t parts) {
  hal_plugin_kernel_t *kernel;
  HAL_RETURN_IF_ERROR(hal_op_kernel(context, on->dtype, HAL_CONVOLUTION_VARIANT_PLANES_SLOPE, &kernel));
  uint64_t n = (uint64_t)parts * (uint64_t)p->groups * (uint64_t)p->rows * (uint64_t)p->window.channels *
               (uint64_t)p->window.size[0];
  return queue_conv_planes_slope(context, kernel, n, on->weight, on->image, on->grid, p, part, n);
}
