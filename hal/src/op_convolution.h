/* op_convolution.h: a convolution as its launchers see it. Private to hal/src.
 *
 * It connects a large image, on which windows slide, with a small one, which has a place per window. The weight is (small channel, large
 * channel of its group, window). A plain convolution makes the small image of the large one, a transposed one the large of the small. */
#ifndef HAL_SRC_OP_CONVOLUTION_H_
#define HAL_SRC_OP_CONVOLUTION_H_

#include "op_window.h"

typedef struct hal_op_conv_s {
  hal_op_window_t window; /* channels and in of the large image, out of the small one */
  int64_t batches, groups, small_per_group, large_per_group;
  int transposed;
} hal_op_conv_t;

/* One of the two images that a call makes, from the other; `bias` may be NULL. All tensors are contiguous and fit the convolution. */
typedef struct hal_op_conv_image_s {
  int small; /* which of the two */
  const hal_tensor_t *result, *from, *weight, *bias;
} hal_op_conv_image_t;

/* Queue the image, and the gradient of the weight: row by row, for few channels per group (op_conv_direct.c), and as products of
 * matrices (op_conv_tiles.c). */
hal_status_t hal_op_conv_direct_image(hal_op_context_t *context, const hal_op_conv_t *conv,
                                      const hal_op_conv_image_t *image);
hal_status_t hal_op_conv_direct_weight(hal_op_context_t *context, const hal_op_conv_t *conv, const hal_tensor_t *result,
                                       const hal_tensor_t *large, const hal_tensor_t *small);
hal_status_t hal_op_conv_tiles_image(hal_op_context_t *context, const hal_op_conv_t *conv,
                                     const hal_op_conv_image_t *image);
hal_status_t hal_op_conv_tiles_weight(hal_op_context_t *context, const hal_op_conv_t *conv, const hal_tensor_t *result,
                                      const hal_tensor_t *large, const hal_tensor_t *small);

#endif /* HAL_SRC_OP_CONVOLUTION_H_ */
