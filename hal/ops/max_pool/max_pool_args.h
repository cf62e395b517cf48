/* max_pool_args.h: the arguments of this folder's kernels, for the kernels and for their launchers
 * (kernels/pk_args.h). */
#ifndef MAX_POOL_ARGS_H_
#define MAX_POOL_ARGS_H_

#include "kernels/pk_window.h"

#define MAX_POOL_ROWS_ARGS(X)                                                                              \
  X(OUT, E, values), X(OUT, pk_i64, indices), X(IN, E, a), X(VALUE, pk_u64, n), X(STRUCT, pk_window_t, w), \
      X(STRUCT, pk_volume_t, of_values), X(STRUCT, pk_volume_t, of_indices), X(STRUCT, pk_volume_t, of_a), \
      X(VALUE, pk_i64, lanes)

#define MAX_POOL_BACKWARD_ROWS_ARGS(X)                                                                     \
  X(OUT, E, out), X(IN, E, grad), X(IN, pk_i64, indices), X(VALUE, pk_u64, n), X(STRUCT, pk_window_t, w),  \
      X(STRUCT, pk_volume_t, of_out), X(STRUCT, pk_volume_t, of_grad), X(STRUCT, pk_volume_t, of_indices), \
      X(VALUE, pk_i64, rows), X(VALUE, pk_i64, band), X(VALUE, pk_i64, lanes)

#endif /* MAX_POOL_ARGS_H_ */
