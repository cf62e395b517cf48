/* sort.h: sorting entries of a key and a position, for the launchers of sort and topk. */
#ifndef HAL_OPS_SORT_SORT_H_
#define HAL_OPS_SORT_SORT_H_

#include "op/dims.h"

/* Longer rows are sorted by radix: 4 to 8 passes instead of 7 or more merges. */
#define HAL_OP_SORT_SHORT 2048

/* Rows of n entries each, of elements along `dim`. */
typedef struct hal_op_sort_s {
  const hal_tensor_t *tensors[3]; /* values, self, indices */
  pk_rows_t kept;
  hal_op_dim_t dim;
  hal_dtype_t dtype;
  int64_t n, rows, chunk, chunks;
  uint64_t bias, invert;
  uint32_t bytes; /* of a key that matter */
  /* buffers on the device */
  hal_op_scratch_t scratch;
  void *keys[2], *places[2], *tallies;
} hal_op_sort_t;

/* Separates the dimension `dim`; operands are values, self and indices in self's shape. Sets n, rows, kept and dim. */
hal_status_t hal_op_sort_dims(hal_op_sort_t *s, const hal_tensor_t *const tensors[3], int64_t dim);

/* Makes the keys of a dtype unsigned and in the requested order; `bits` of integers. */
void hal_op_sort_keys(hal_op_sort_t *s, hal_dtype_t dtype, int descending, int64_t bits);

/* Allocates `scratch`: keys[0] and places[0], which the caller fills with the entries, and the memory for sorting. */
hal_status_t hal_op_sort_allocate(const hal_op_context_t *context, hal_op_sort_t *s);

/* Queues the sort of the entries of rows longer than HAL_OP_SORT_SHORT by `bytes` of their keys, with the kernels of
 * the operator sort of int64, whose context is passed. Returns the buffer that contains the entries afterwards. */
hal_status_t hal_op_sort_by_radix(hal_op_context_t *context, const hal_op_sort_t *s, int *out_buffer);

/* Queues the sort of the entries (not when `sorted` is 0), and writes values and indices. */
hal_status_t hal_op_sort_finish(hal_op_context_t *context, const hal_op_sort_t *s, int sorted);

/* The launcher of topk. */
hal_status_t hal_op_topk(hal_op_context_t *context, const hal_op_call_t *call);

#endif /* HAL_OPS_SORT_SORT_H_ */
