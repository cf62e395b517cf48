/* window.h: windows over spatial dimensions, for pooling and convolution. Private to hal/src. */
#ifndef HAL_SRC_OP_WINDOW_H_
#define HAL_SRC_OP_WINDOW_H_

#include "kernels/pk_window.h"
#include "op/launch.h"

/* A tensor (batch, channel, one to three spatial dimensions), whose spatial dimensions are the last of three. The batch
 * may be missing if the operator's name contains the number of spatial dimensions. */
typedef struct hal_op_volume_s {
  int64_t batch, channels, space[3];
  pk_volume_t strides;
  int32_t spatial;
} hal_op_volume_t;

/* Reads a tensor as a volume. Errors: HAL_INVALID_ARGUMENT. */
hal_status_t hal_op_volume(const hal_op_context_t *context, const hal_tensor_t *tensor, const char *what,
                           hal_op_volume_t *out_volume);

/* Reads argument `index`, one number per spatial dimension or one for all, each at least `least`; `missing` is the
 * value for dimensions that the volume lacks. */
hal_status_t hal_op_window_list(const hal_op_context_t *context, const hal_op_call_t *call, uint32_t index,
                                int32_t spatial, int64_t least, int64_t missing, int64_t out_list[3]);

/* Reads the four lists from argument `first` on: sizes, and at the given positions of the list steps, pads, dilations.
 * Rejects windows that overflow. */
hal_status_t hal_op_window_read(const hal_op_context_t *context, const hal_op_call_t *call, uint32_t size,
                                uint32_t step, uint32_t pad, uint32_t dilation, int32_t spatial,
                                pk_window_t *out_window);

/* Reads the first three lists: missing steps equal the sizes, and there are no dilations. */
hal_status_t hal_op_window_steps(const hal_op_context_t *context, const hal_op_call_t *call, uint32_t size,
                                 uint32_t step, uint32_t pad, int32_t spatial, pk_window_t *out_window);

/* Returns the number of spatial dimensions in the operator's name: 2 for "avg_pool2d", 0 if there is none. */
int32_t hal_op_spatial(const hal_op_context_t *context);

/* Returns the first argument whose name begins with a text; -1 = there is none. */
int32_t hal_op_named(const hal_op_context_t *context, const char *name);

/* Rejects volumes with different batch or channels. */
hal_status_t hal_op_volume_matches(const hal_op_context_t *context, const hal_op_volume_t *volume, const char *what,
                                   const hal_op_volume_t *other, const char *other_what);

#endif /* HAL_SRC_OP_WINDOW_H_ */
