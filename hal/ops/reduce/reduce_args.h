/* reduce_args.h: the arguments of this folder's kernels, for the kernels and for their launchers
 * (kernels/pk_args.h). */
#ifndef REDUCE_ARGS_H_
#define REDUCE_ARGS_H_

#include "kernels/pk_types.h"

#define PK_STRIP (4 * PK_LSIZE)

/* Stages of the kernels of one tensor, and of those of two tensors and a number for each output. */
#define REDUCE_STAGE_ARGS(X)                                                                 \
  X(OUT, PK_R, result), X(IN, PK_S, a), X(STRUCT, pk_rows_t, kept), X(VALUE, pk_u64, units), \
      X(VALUE, pk_u64, per_group), X(STRUCT, pk_reduce_t, s), X(NUMBER, T, s0)

#define REDUCE_PAIR_STAGE_ARGS(X)                                                                   \
  X(OUT, PK_R, result), X(IN, PK_S, a), X(IN, PK_S, b), X(IN, PK_A, c), X(STRUCT, pk_rows_t, kept), \
      X(VALUE, pk_u64, units), X(VALUE, pk_u64, per_group), X(STRUCT, pk_reduce_t, s), X(NUMBER, T, s0)

#define REDUCE_INDEX_ROWS_ARGS(X)                                                                               \
  X(OUT, E, values), X(OUT, pk_i64, indices), X(IN, E, a), X(STRUCT, pk_rows_t, kept), X(VALUE, pk_u64, units), \
      X(VALUE, pk_u64, per_group), X(VALUE, pk_i64, n), X(VALUE, pk_i64, chunk), X(VALUE, pk_i64, chunks),      \
      X(VALUE, pk_i32, with_values)

#define REDUCE_INDEX_COLS_ARGS(X)                                                                               \
  X(OUT, E, values), X(OUT, pk_i64, indices), X(IN, E, a), X(STRUCT, pk_rows_t, kept), X(VALUE, pk_u64, units), \
      X(VALUE, pk_u64, per_group), X(VALUE, pk_i64, n), X(VALUE, pk_i64, chunk), X(VALUE, pk_i64, chunks),      \
      X(VALUE, pk_i32, with_values), X(VALUE, pk_i64, stride), X(VALUE, pk_i64, columns),                       \
      X(VALUE, pk_i64, value_column), X(VALUE, pk_i64, a_column), X(VALUE, pk_i64, index_column)

#define REDUCE_INDEX_MERGE_ARGS(X)                                                                          \
  X(OUT, E, values), X(OUT, pk_i64, indices), X(IN, E, source_values), X(IN, pk_i64, source_indices),       \
      X(STRUCT, pk_rows_t, kept), X(VALUE, pk_u64, units), X(VALUE, pk_i64, count), X(VALUE, pk_i64, step), \
      X(VALUE, pk_i64, chunk), X(VALUE, pk_i64, chunks), X(VALUE, pk_i32, with_values)

#endif /* REDUCE_ARGS_H_ */
