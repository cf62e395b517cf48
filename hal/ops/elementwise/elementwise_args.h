/* elementwise_args.h: the arguments of this folder's kernels, for the kernels and for their launchers
 * (kernels/pk_args.h). */
#ifndef ELEMENTWISE_ARGS_H_
#define ELEMENTWISE_ARGS_H_

#include "kernels/pk_types.h"

#define BINARY_CONTIG_ARGS(X) X(OUT, R, out), X(IN, E, a), X(IN, E, b), X(NUMBER, PK_S, s), X(VALUE, pk_u64, n)

#define BINARY_CONTIG_S_ARGS(X) X(OUT, R, out), X(IN, E, a), X(NUMBER, T, b), X(NUMBER, PK_S, s), X(VALUE, pk_u64, n)

#define BINARY_ROWS_ARGS(X)                                                                                   \
  X(OUT, R, out), X(IN, E, a), X(IN, E, b), X(NUMBER, PK_S, s), X(VALUE, pk_u64, n), X(VALUE, pk_u64, block), \
      X(STRUCT, pk_rows_t, rows)

#define BINARY_ROWS_S_ARGS(X)                                                                                     \
  X(OUT, R, out), X(IN, E, a), X(NUMBER, T, b), X(NUMBER, PK_S, s), X(VALUE, pk_u64, n), X(VALUE, pk_u64, block), \
      X(STRUCT, pk_rows_t, rows)

#define FILL_CONTIG_ARGS(X) X(OUT, E, out), X(NUMBER, T, value), X(VALUE, pk_u64, n)

#define FILL_ROWS_ARGS(X) \
  X(OUT, E, out), X(NUMBER, T, value), X(VALUE, pk_u64, n), X(VALUE, pk_u64, block), X(STRUCT, pk_rows_t, rows)

#define TERNARY_CONTIG_ARGS(X) \
  X(OUT, R, out), X(IN, E, a), X(IN, E, b), X(IN, E, c), X(NUMBER, PK_S, s), X(VALUE, pk_u64, n)

#define TERNARY_ROWS_ARGS(X)                                                                      \
  X(OUT, R, out), X(IN, E, a), X(IN, E, b), X(IN, E, c), X(NUMBER, PK_S, s), X(VALUE, pk_u64, n), \
      X(VALUE, pk_u64, block), X(STRUCT, pk_rows_t, rows)

#define UNARY_CONTIG_ARGS(X) X(OUT, R, out), X(IN, E, a), X(NUMBER, PK_S, s), X(VALUE, pk_u64, n)

#define UNARY_ROWS_ARGS(X)                                                                       \
  X(OUT, R, out), X(IN, E, a), X(NUMBER, PK_S, s), X(VALUE, pk_u64, n), X(VALUE, pk_u64, block), \
      X(STRUCT, pk_rows_t, rows)

#define WHERE_CONTIG_ARGS(X) X(OUT, E, out), X(IN, pk_bool, cond), X(IN, E, a), X(IN, E, b), X(VALUE, pk_u64, n)

#define WHERE_ROWS_ARGS(X)                                                                                      \
  X(OUT, E, out), X(IN, pk_bool, cond), X(IN, E, a), X(IN, E, b), X(VALUE, pk_u64, n), X(VALUE, pk_u64, block), \
      X(STRUCT, pk_rows_t, rows)

#endif /* ELEMENTWISE_ARGS_H_ */
