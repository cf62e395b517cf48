/* convolution.h: a convolution in the form that its launchers use. Private to hal/ops.
 *
 * It connects a large image, over which windows slide, with a small one, which has a position per window. The weight is
 * (small channel, large channel of its group, window). A plain convolution computes the small image from the large one,
 * a transposed one the large image from the small one. */
#ifndef HAL_SRC_OP_CONVOLUTION_H_
#define HAL_SRC_OP_CONVOLUTION_H_

#include "op/window.h"
#include "ops/convolution/convolution_args.h"
#include "ops/gemm/gemm.h"

typedef struct hal_op_conv_s {
  pk_window_t window;               /* channels and in of the large image, out of the small one */
  pk_volume_t large, small, weight; /* strides */
  int64_t batches, groups, small_per_group, large_per_group;
  int transposed;
} hal_op_conv_t;

/* One of the two images that a call computes from the other; `bias` may be NULL. All tensors match the convolution,
 * whose strides are theirs. */
typedef struct hal_op_conv_image_s {
  int small; /* which of the two */
  const hal_tensor_t *result, *from, *weight, *bias;
} hal_op_conv_image_t;

/* Returns the strides of contiguous images with a number of channels. */
pk_volume_t hal_op_conv_dense(int64_t channels, const int64_t space[3]);

/* Queue the image, and the gradient of the weight. */
hal_status_t hal_op_conv_image(hal_op_context_t *context, const hal_op_conv_t *conv, const hal_op_conv_image_t *image);
hal_status_t hal_op_conv_weight(hal_op_context_t *context, const hal_op_conv_t *conv, const hal_tensor_t *result,
                                const hal_tensor_t *large, const hal_tensor_t *small);

/* ---- the product of the weight and the unfolded image, which computes both (conv_product.c) ---- */

/* Addresses; `weight` is the gradient if that is computed; `bias` is read only with has_bias. */
typedef struct hal_op_conv_operands_s {
  hal_dtype_t dtype;
  void *grid, *image, *weight, *bias;
  int32_t has_bias;
} hal_op_conv_operands_t;

/* Returns whether the kernels for planes support a product (conv_planes.c), and divides it into bands. */
int hal_op_conv_cut_planes(const hal_op_context_t *context, pk_conv_t *product, hal_dtype_t dtype);
/* Queue those kernels; the gradient in `parts` parts of `part` batches each. */
hal_status_t hal_op_conv_planes(hal_op_context_t *context, const pk_conv_t *product, const hal_op_conv_operands_t *on);
hal_status_t hal_op_conv_planes_slope(hal_op_context_t *context, const pk_conv_t *product,
                                      const hal_op_conv_operands_t *on, int64_t part, int64_t parts);

#endif /* HAL_SRC_OP_CONVOLUTION_H_ */
