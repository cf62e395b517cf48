/* dims.h: the dimensions of an operator that processes some of them differently (reductions, softmax): which are
 * reduced, their sizes and strides, sorted and merged. Private to hal/src. */
#ifndef HAL_SRC_OP_DIMS_H_
#define HAL_SRC_OP_DIMS_H_

#include "op/iterator.h"

typedef struct hal_op_dim_s {
  int64_t size;
  int64_t stride[HAL_OP_MAX_OPERANDS]; /* elements; operand 0 is the result, operand 1 the reduced tensor */
  int32_t reduced;
} hal_op_dim_t;

typedef struct hal_op_dims_s {
  int32_t count, operands;
  hal_op_dim_t dim[HAL_OP_MAX_DIMS];
} hal_op_dims_t;

/* Reads a list of dimensions of a tensor with `ndim` dimensions into a mask. Negative ones count from the end; an empty
 * list means all. Errors: HAL_INVALID_ARGUMENT = out of range, or specified twice. */
hal_status_t hal_op_dim_mask(const hal_op_context_t *context, int32_t ndim, const int64_t *list, uint32_t count,
                             uint64_t *out_mask);

/* Reads argument `index` as a dimension of `tensor`, 0 to ndim - 1. Errors: HAL_INVALID_ARGUMENT. */
hal_status_t hal_op_read_dim(const hal_op_context_t *context, const hal_op_call_t *call, uint32_t index,
                             const hal_tensor_t *tensor, int64_t *out_dim);

/* Checks that `result` has the shape of `tensor` with size 1 in the dimensions of `mask` (keepdim). */
hal_status_t hal_op_check_keepdim(const hal_op_context_t *context, const hal_tensor_t *tensor,
                                  const hal_tensor_t *result, uint64_t mask);

/* Checks that two tensors have one shape. */
hal_status_t hal_op_check_same_shape(const hal_op_context_t *context, const hal_tensor_t *tensor, const char *what,
                                     const hal_tensor_t *other, const char *other_what);

/* Returns an error for operands of different dtypes. */
hal_status_t hal_op_check_same_dtype(const hal_op_context_t *context, const hal_tensor_t *tensor, const char *what,
                                     const hal_tensor_t *other, const char *other_what);

/* Adds the dimensions of operands of one shape, innermost first and without those of size 1. An operand with size 1 in
 * a dimension has stride 0 there. */
void hal_op_dims_init(const hal_tensor_t *const *tensors, int32_t operands, uint64_t mask, hal_op_dims_t *out_dims);

/* Sorts by the strides of operand 1, smallest first; broadcast dimensions (stride 0) last. For operators whose result
 * does not depend on the order of the elements. */
void hal_op_dims_sort(hal_op_dims_t *dims);

/* Merges adjacent dimensions of the same kind whose strides match in every operand. */
void hal_op_dims_merge(hal_op_dims_t *dims);

/* Removes dimension `index` and returns it. */
hal_op_dim_t hal_op_dims_take(hal_op_dims_t *dims, int32_t index);

/* Returns the number of elements of all dimensions. Saturates: hal_op_numel has checked the sizes. */
int64_t hal_op_dims_numel(const hal_op_dims_t *dims);

/* Returns the dimensions as a kernel's argument. Errors: HAL_UNIMPLEMENTED = there are more than PK_MAXD. */
hal_status_t hal_op_dims_rows(const hal_op_dims_t *dims, pk_rows_t *out_rows);

/* Returns the number of units of work, of `cost` elements each, for one group or item: 1 on devices with many threads,
 * about HAL_OP_ATTENTION elements in host C. It does not change results, because units are computed one by one. */
#define HAL_OP_ATTENTION 16384
uint64_t hal_op_units_per_group(const hal_op_context_t *context, uint64_t cost);

#endif /* HAL_SRC_OP_DIMS_H_ */
