/* columns_args.h: the arguments of this folder's kernels, for the kernels and for their launchers
 * (kernels/pk_args.h). */
#ifndef COLUMNS_ARGS_H_
#define COLUMNS_ARGS_H_

#include "kernels/pk_window.h"

#define COLUMNS_UNFOLD_ARGS(X)                                                                                  \
  X(OUT, E, matrix), X(IN, E, a), X(VALUE, pk_u64, n), X(STRUCT, pk_window_t, w), X(STRUCT, pk_volume_t, of_a), \
      X(VALUE, pk_i64, matrix_batch), X(VALUE, pk_i64, matrix_row), X(VALUE, pk_i64, lines)

#define COLUMNS_FOLD_ARGS(X)                                                                                        \
  X(OUT, E, out), X(IN, E, matrix), X(VALUE, pk_u64, n), X(STRUCT, pk_window_t, w), X(STRUCT, pk_volume_t, of_out), \
      X(VALUE, pk_i64, matrix_batch), X(VALUE, pk_i64, matrix_row)

#endif /* COLUMNS_ARGS_H_ */
