/* sort_args.h: the arguments of this folder's kernels, for the kernels and for their launchers (kernels/pk_args.h). */
#ifndef SORT_ARGS_H_
#define SORT_ARGS_H_

#include "kernels/pk_types.h"

#define PK_SORT_RUN 16 /* elements of the runs that insertion sorts for merge */

#define SEARCH_ROWS_ARGS(X)                                                                             \
  X(OUT, pk_i64, out), X(IN, E, sorted), X(IN, E, values), X(VALUE, pk_i64, n), X(VALUE, pk_i64, step), \
      X(VALUE, pk_i32, right), X(VALUE, pk_u64, count), X(VALUE, pk_u64, block), X(STRUCT, pk_rows_t, rows)

#define SORT_KEYS_ARGS(X)                                                                                         \
  X(OUT, pk_u64, keys), X(OUT, pk_u32, places), X(IN, E, a), X(STRUCT, pk_rows_t, kept), X(VALUE, pk_u64, units), \
      X(VALUE, pk_u64, per_item), X(VALUE, pk_i64, n), X(VALUE, pk_i64, chunk), X(VALUE, pk_i64, chunks),         \
      X(VALUE, pk_i64, a_step), X(VALUE, pk_u64, bias), X(VALUE, pk_u64, invert)

#define SORT_TALLY_ARGS(X)                                                                                             \
  X(OUT, pk_u32, tallies), X(IN, pk_u64, keys), X(VALUE, pk_u64, units), X(VALUE, pk_i64, n), X(VALUE, pk_i64, chunk), \
      X(VALUE, pk_i64, chunks), X(VALUE, pk_u32, shift)

#define SORT_OFFSETS_ARGS(X) X(BOTH, pk_u32, tallies), X(VALUE, pk_i64, chunks)

#define SORT_MOVE_ARGS(X)                                                                            \
  X(OUT, pk_u64, to_keys), X(OUT, pk_u32, to_places), X(IN, pk_u64, keys), X(IN, pk_u32, places),    \
      X(IN, pk_u32, offsets), X(VALUE, pk_u64, units), X(VALUE, pk_i64, n), X(VALUE, pk_i64, chunk), \
      X(VALUE, pk_i64, chunks), X(VALUE, pk_u32, shift)

#define SORT_MERGE_ARGS(X)                                                                                    \
  X(BOTH, pk_u64, keys), X(BOTH, pk_u32, places), X(BOTH, pk_u64, other_keys), X(BOTH, pk_u32, other_places), \
      X(VALUE, pk_u64, rows), X(VALUE, pk_u64, per_item), X(VALUE, pk_i64, n), X(VALUE, pk_i32, passes)

#define SORT_VALUES_ARGS(X)                                                                                   \
  X(OUT, E, values), X(OUT, pk_i64, indices), X(IN, E, a), X(IN, pk_u32, places), X(STRUCT, pk_rows_t, kept), \
      X(VALUE, pk_u64, units), X(VALUE, pk_u64, per_item), X(VALUE, pk_i64, n), X(VALUE, pk_i64, chunk),      \
      X(VALUE, pk_i64, chunks), X(VALUE, pk_i64, value_step), X(VALUE, pk_i64, a_step), X(VALUE, pk_i64, index_step)

#define TOPK_SELECT_ARGS(X)                                                                                            \
  X(OUT, pk_u64, keys), X(OUT, pk_u32, places), X(BOTH, pk_u64, room_keys), X(BOTH, pk_u32, room_places), X(IN, E, a), \
      X(STRUCT, pk_rows_t, kept), X(VALUE, pk_u64, units), X(VALUE, pk_u64, per_item), X(VALUE, pk_i64, n),            \
      X(VALUE, pk_i64, k), X(VALUE, pk_i64, room), X(VALUE, pk_i64, chunk), X(VALUE, pk_i64, chunks),                  \
      X(VALUE, pk_i64, a_step), X(VALUE, pk_u64, bias), X(VALUE, pk_u64, invert)

#define TOPK_CHOOSE_ARGS(X)                                                                               \
  X(OUT, pk_u64, keys), X(OUT, pk_u32, places), X(BOTH, pk_u64, from_keys), X(BOTH, pk_u32, from_places), \
      X(VALUE, pk_u64, rows), X(VALUE, pk_i64, count), X(VALUE, pk_i64, k)

#endif /* SORT_ARGS_H_ */
