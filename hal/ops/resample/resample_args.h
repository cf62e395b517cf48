/* resample_args.h: the arguments of this folder's kernels, for the kernels and for their launchers (kernels/pk_args.h). */
#ifndef RESAMPLE_ARGS_H_
#define RESAMPLE_ARGS_H_

#include "kernels/pk_types.h"

#define RESAMPLE_LINES_ARGS(X)                                                                         \
  X(OUT, E, out), X(IN, E, a), X(IN, pk_i64, starts), X(IN, pk_i64, indices), X(IN, T, weights),       \
      X(STRUCT, pk_rows_t, kept), X(VALUE, pk_u64, n), X(VALUE, pk_i64, length), X(VALUE, pk_i64, so), \
      X(VALUE, pk_i64, sa)

#define RESAMPLE_PLANES_ARGS(X)                                                                        \
  X(OUT, E, out), X(IN, E, a), X(IN, pk_i64, starts), X(IN, pk_i64, indices), X(IN, T, weights),       \
      X(STRUCT, pk_rows_t, kept), X(VALUE, pk_u64, n), X(VALUE, pk_i64, length), X(VALUE, pk_i64, so), \
      X(VALUE, pk_i64, sa), X(VALUE, pk_i64, columns), X(VALUE, pk_i64, column_out), X(VALUE, pk_i64, column_a)

#endif /* RESAMPLE_ARGS_H_ */
