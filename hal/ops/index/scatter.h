/* scatter.h: one launch of the families `scatter` and `scatter_reduce`, for their launchers. */
#ifndef HAL_OPS_INDEX_SCATTER_H_
#define HAL_OPS_INDEX_SCATTER_H_

#include "ops/index/index.h"

/* Sum, product, largest, smallest: the first variants of scatter_reduce. */
#define HAL_OP_SCATTER_REDUCTIONS 4

/* The kept dimensions, and separately the indexed one. */
typedef struct hal_op_scatter_s {
  hal_op_iterator_t kept; /* result, src, index */
  pk_index_limit_t limit;
  int64_t n, src_step, index_step;
  hal_dtype_t dtype;
  uint32_t variant;
  int moves; /* elements are replaced, not combined */
} hal_op_scatter_t;

/* Returns whether the indices are sorted first: on devices with many threads, if the kept dimensions have too few
 * positions to occupy them and the indexed one is long. */
int hal_op_scatter_sorts(const hal_op_context_t *context, const hal_op_scatter_t *s);

/* Queues such a launch. */
hal_status_t hal_op_scatter_sorted(hal_op_context_t *context, const hal_op_scatter_t *s, void *error);

#endif /* HAL_OPS_INDEX_SCATTER_H_ */
