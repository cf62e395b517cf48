/* index.h: declarations that the launchers of kernels that read indices share. Private to hal/ops. */
#ifndef HAL_SRC_OP_INDEX_H_
#define HAL_SRC_OP_INDEX_H_

#include "kernels/pk_error.h"
#include "op/iterator.h"

/* Returns the limit of indices of dimension `dim` of `tensor`: `wraps` = negative ones count from the end, `checked` =
 * an earlier launch has reported invalid ones and made them negative. */
pk_index_limit_t hal_op_index_limit(const hal_op_context_t *context, const hal_tensor_t *tensor, int64_t dim, int wraps,
                                    int checked);

/* Reads argument `index` as an int64 tensor with as many dimensions as `like`. Errors: HAL_INVALID_ARGUMENT. */
hal_status_t hal_op_index_tensor(const hal_op_context_t *context, const hal_op_call_t *call, uint32_t index,
                                 const hal_tensor_t *like, const hal_tensor_t **out_tensor);

/* Returns the dtype whose kernels move elements of the size of `dtype`: uint8, int16, int32, int64 or complex128; or
 * HAL_UNIMPLEMENTED. */
hal_status_t hal_op_moved_dtype(hal_dtype_t dtype, hal_dtype_t *out_dtype);

#endif /* HAL_SRC_OP_INDEX_H_ */
