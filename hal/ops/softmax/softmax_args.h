/* softmax_args.h: the arguments of this folder's kernels, for the kernels and for their launchers
 * (kernels/pk_args.h). */
#ifndef SOFTMAX_ARGS_H_
#define SOFTMAX_ARGS_H_

#include "kernels/pk_types.h"

#define SOFTMAX_ROWS_ARGS(X)                                                                                       \
  X(OUT, E, result), X(IN, E, a), X(STRUCT, pk_rows_t, kept), X(VALUE, pk_u64, rows), X(VALUE, pk_u64, per_group), \
      X(VALUE, pk_i64, n)

#define SOFTMAX_COLS_ARGS(X)                                                                                        \
  X(OUT, E, result), X(IN, E, a), X(STRUCT, pk_rows_t, kept), X(VALUE, pk_u64, units), X(VALUE, pk_u64, per_group), \
      X(VALUE, pk_i64, n), X(VALUE, pk_i64, result_stride), X(VALUE, pk_i64, a_stride), X(VALUE, pk_i64, columns),  \
      X(VALUE, pk_i64, result_column), X(VALUE, pk_i64, a_column)

#define SOFTMAX_BACKWARD_ROWS_ARGS(X)                                                                          \
  X(OUT, E, result), X(IN, E, gradient), X(IN, E, output), X(STRUCT, pk_rows_t, kept), X(VALUE, pk_u64, rows), \
      X(VALUE, pk_u64, per_group), X(VALUE, pk_i64, n)

#define SOFTMAX_BACKWARD_COLS_ARGS(X)                                                                           \
  X(OUT, E, result), X(IN, E, gradient), X(IN, E, output), X(STRUCT, pk_rows_t, kept), X(VALUE, pk_u64, units), \
      X(VALUE, pk_u64, per_group), X(VALUE, pk_i64, n), X(VALUE, pk_i64, result_stride),                        \
      X(VALUE, pk_i64, gradient_stride), X(VALUE, pk_i64, output_stride), X(VALUE, pk_i64, columns),            \
      X(VALUE, pk_i64, result_column), X(VALUE, pk_i64, gradient_column), X(VALUE, pk_i64, output_column)

#endif /* SOFTMAX_ARGS_H_ */
