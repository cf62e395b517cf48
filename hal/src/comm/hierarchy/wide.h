/* wide.h: the arithmetic of reductions over several hosts. Private to hal/src/comm/hierarchy.
 *
 * Sums, averages and products of float16 and bfloat16 are computed in float32 on both levels: the elements are
 * converted before the first reduction and rounded after the last. All other elements are reduced in their own type. */
#ifndef HAL_SRC_COMM_HIERARCHY_WIDE_H_
#define HAL_SRC_COMM_HIERARCHY_WIDE_H_

#include "comm/hierarchy/internal.h"

typedef struct hal_hier_wide_s {
  hal_dtype_t dtype;           /* type that is reduced */
  size_t size, wide;           /* bytes of the caller's element, and of one that is reduced */
  uint32_t within;             /* the reduction within a host */
  uint32_t is_average;         /* the result is divided by the number of ranks */
  const void *scale;           /* of this rank, for PREMUL_SUM */
  hal_shm_reducer_t between;   /* the reduction between hosts */
  hal_shm_arithmetic_t halves; /* conversions; no functions: none */
  hal_shm_arithmetic_t average;
} hal_hier_wide_t;

/* Returns the arithmetic of a checked call. */
hal_hier_wide_t hal_hier_wide(const hal_hier_call_t *call);

/* Converts `count` elements to the type that is reduced, in `buffer`, if necessary. Returns where they are. */
const void *hal_hier_widen(const hal_hier_wide_t *wide, const void *elements, uint64_t count, void *buffer);

/* Converts `count` results to the caller's elements; averages are divided. `results` is overwritten. */
void hal_hier_finish(const hal_hier_run_t *run, const hal_hier_wide_t *wide, void *results, uint64_t count, void *out);

/* Reduces the elements of all hosts, in the order of the hosts. `in` has them, one host after another. */
void hal_hier_reduce_hosts(const hal_hier_run_t *run, const hal_hier_wide_t *wide, const void *in, uint64_t count,
                           void *out);

/* Returns the elements of a part that the hosts divide: a multiple of their number, at least `count`. */
uint64_t hal_hier_divided(const hal_hier_run_t *run, uint64_t count);

/* Reduces `count` elements of this column. `part` has memory for hal_hier_divided(count) elements, and is overwritten.
 * `*out`: the result, on the host `root`, or on all for -1. */
hal_status_t hal_hier_reduce_column(hal_hier_run_t *run, const hal_hier_wide_t *wide, void *part, uint64_t count,
                                    int32_t root, void **out);

#endif /* HAL_SRC_COMM_HIERARCHY_WIDE_H_ */
