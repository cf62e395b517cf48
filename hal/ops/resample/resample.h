/* resample.h: sparse linear maps along a dimension, for this folder's launchers. */
#ifndef HAL_OPS_RESAMPLE_RESAMPLE_H_
#define HAL_OPS_RESAMPLE_RESAMPLE_H_

#include "op/iterator.h"
#include "ops/resample/resample_args.h"

/* The tables of a map, in device memory (RESAMPLE_TABLES). */
typedef struct hal_op_map_s {
  const void *starts, *ends, *indices, *weights;
  int64_t step;
} hal_op_map_t;

/* Maps dimension `dim` of `self` to that of `result`, by the kernels of `resample`, whose context it takes. */
hal_status_t hal_op_resample_along(hal_op_context_t *context, const hal_tensor_t *self, const hal_tensor_t *result,
                                   int32_t dim, const hal_op_map_t *map);

#endif /* HAL_OPS_RESAMPLE_RESAMPLE_H_ */
