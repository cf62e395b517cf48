/* index_args.h: the arguments of this folder's kernels, for the kernels and for their launchers (kernels/pk_args.h). */
#ifndef INDEX_ARGS_H_
#define INDEX_ARGS_H_

#include "kernels/pk_error.h"

#define INDEX_OFFSET_ROWS_ARGS(X)                                                                  \
  X(OUT, E, out), X(IN, E, index), X(STRUCT, pk_index_limit_t, limit), X(BOTH, pk_error_t, error), \
      X(VALUE, pk_i32, first), X(VALUE, pk_u64, n), X(VALUE, pk_u64, block), X(STRUCT, pk_rows_t, rows)

#define NONZERO_TALLY_ARGS(X) X(OUT, pk_i64, counts), X(IN, E, a), X(VALUE, pk_u64, n), X(VALUE, pk_u64, chunk)

#define NONZERO_OFFSETS_ARGS(X) X(BOTH, pk_i64, counts), X(VALUE, pk_u64, chunks)

#define NONZERO_WRITE_ARGS(X)                                                                             \
  X(OUT, pk_i64, out), X(IN, E, a), X(IN, pk_i64, offsets), X(VALUE, pk_u64, n), X(VALUE, pk_u64, chunk), \
      X(STRUCT, pk_rows_t, shape), X(VALUE, pk_i64, row), X(VALUE, pk_i64, column)

#define TAKE_ROWS_ARGS(X)                                                                                            \
  X(OUT, E, out), X(IN, E, a), X(IN, pk_i64, index), X(STRUCT, pk_index_limit_t, limit), X(BOTH, pk_error_t, error), \
      X(VALUE, pk_u64, n), X(VALUE, pk_u64, block), X(STRUCT, pk_rows_t, rows)

#define SCATTER_COLUMNS_ARGS(X)                                                                                      \
  X(OUT, E, out), X(IN, E, b), X(IN, pk_i64, index), X(STRUCT, pk_index_limit_t, limit), X(BOTH, pk_error_t, error), \
      X(STRUCT, pk_rows_t, kept), X(VALUE, pk_u64, units), X(VALUE, pk_u64, per_item), X(VALUE, pk_i64, strip),      \
      X(VALUE, pk_i64, n), X(VALUE, pk_i64, b_step), X(VALUE, pk_i64, index_step)

/* The indices of `lists` of n each as keys that are sorted, with their positions; kept position l * shared has list
 * l. */
#define INDEX_KEYS_ARGS(X)                                                                                  \
  X(OUT, pk_u64, keys), X(OUT, pk_u32, places), X(IN, E, index), X(STRUCT, pk_index_limit_t, limit),        \
      X(BOTH, pk_error_t, error), X(STRUCT, pk_rows_t, kept), X(VALUE, pk_u64, lists), X(VALUE, pk_i64, n), \
      X(VALUE, pk_i64, shared), X(VALUE, pk_i64, index_step)

/* Scatter by sorted indices: `places` positions of the kept dimensions, of which `shared` adjacent ones have the same
 * list of n entries, divided into `chunks` of `chunk`; b_step and step are the indexed dimension of b and of out, whose
 * size is `bound`. */
typedef struct {
  pk_i64 places, shared, n, chunk, chunks, b_step, bound, step;
} pk_scatter_t;

#define SCATTER_LAST_ARGS(X)                                                                             \
  X(OUT, E, out), X(IN, E, b), X(IN, pk_u64, keys), X(IN, pk_u32, places), X(STRUCT, pk_scatter_t, how), \
      X(STRUCT, pk_rows_t, kept)

#define SCATTER_RUNS_ARGS(X)                                                                     \
  X(BOTH, E, out), X(BOTH, E, partial), X(IN, E, b), X(IN, pk_u64, keys), X(IN, pk_u32, places), \
      X(STRUCT, pk_scatter_t, how), X(STRUCT, pk_rows_t, kept)

#endif /* INDEX_ARGS_H_ */
