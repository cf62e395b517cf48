/* reduce.h: reductions over any set of dimensions, for the launchers that use them. Private to hal/ops. */
#ifndef HAL_SRC_OP_REDUCE_H_
#define HAL_SRC_OP_REDUCE_H_

#include "op/dims.h"

/* One reduction by the kernels of the context's operator. Tensors have been checked; `result` has keepdim shape. */
typedef struct hal_op_reduction_s {
  const hal_tensor_t *result, *a;
  const hal_tensor_t *b;  /* of a's shape and dtype, NULL for kernels of one tensor */
  const hal_tensor_t *c;  /* accumulators in keepdim shape, NULL = 0 */
  uint64_t mask;          /* bit d: dimension d is reduced */
  int with_accumulators;  /* the result holds accumulators, not elements */
  hal_op_scalar_t number; /* s0 of the kernels */
} hal_op_reduction_t;

/* Queues a reduction. Errors: HAL_UNIMPLEMENTED (no kernel, or too many dimensions), HAL_RESOURCE_EXHAUSTED. */
hal_status_t hal_op_reduce(hal_op_context_t *context, const hal_op_reduction_t *reduction);

/* Returns the dtype of accumulators for elements of `dtype`. */
hal_dtype_t hal_op_accumulator(const hal_op_context_t *context, hal_dtype_t dtype);

/* Adds up `rows` rows of scratch memory at `sums`, of `dtype`, into `result`, a contiguous tensor with as many elements
 * as a row. If the result has another dtype, the first row contains the sum afterwards. */
hal_status_t hal_op_add_rows(const hal_op_context_t *context, int64_t rows, void *sums, hal_dtype_t dtype,
                             const hal_tensor_t *result);

static inline hal_value_t hal_op_value(const hal_tensor_t *tensor) {
  return (hal_value_t){.tag = HAL_VALUE_TENSOR, .u.t = tensor};
}

#endif /* HAL_SRC_OP_REDUCE_H_ */
