/* triangle_args.h: the arguments of this folder's kernels, for the kernels and for their launchers
 * (kernels/pk_args.h). */
#ifndef TRIANGLE_ARGS_H_
#define TRIANGLE_ARGS_H_

#include "kernels/pk_types.h"

#define TRIANGLE_ROWS_ARGS(X)                                                                        \
  X(OUT, T, out), X(IN, T, a), X(VALUE, pk_u64, n), X(VALUE, pk_i64, columns), X(VALUE, pk_i64, so), \
      X(VALUE, pk_i64, sa), X(VALUE, pk_i64, diagonal), X(STRUCT, pk_rows_t, rows)

#define TRIANGLE_INDICES_ROWS_ARGS(X) \
  X(OUT, T, out), X(VALUE, pk_u64, height), X(VALUE, pk_i64, columns), X(VALUE, pk_i64, offset), X(VALUE, pk_i64, n)

#endif /* TRIANGLE_ARGS_H_ */
