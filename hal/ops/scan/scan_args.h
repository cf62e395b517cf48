/* scan_args.h: the arguments of this folder's kernels, for the kernels and for their launchers (kernels/pk_args.h). */
#ifndef SCAN_ARGS_H_
#define SCAN_ARGS_H_

#include "kernels/pk_types.h"

#define PK_SCAN_STRIP 64 /* rows that an item scans in parallel */

#define SCAN_TOTALS_ARGS(X)                                                                                           \
  X(OUT, PK_W, totals), X(IN, E, a), X(STRUCT, pk_rows_t, kept), X(VALUE, pk_u64, units), X(VALUE, pk_u64, per_item), \
      X(VALUE, pk_i64, n), X(VALUE, pk_i64, chunk), X(VALUE, pk_i64, chunks), X(VALUE, pk_i64, a_step)

#define SCAN_PREFIX_ARGS(X) X(BOTH, PK_W, totals), X(VALUE, pk_u64, rows), X(VALUE, pk_i64, chunks)

#define SCAN_ROWS_ARGS(X)                                                                                 \
  X(OUT, E, out), X(IN, E, a), X(IN, PK_W, before), X(STRUCT, pk_rows_t, kept), X(VALUE, pk_u64, units),  \
      X(VALUE, pk_u64, per_item), X(VALUE, pk_i64, n), X(VALUE, pk_i64, chunk), X(VALUE, pk_i64, chunks), \
      X(VALUE, pk_i64, strip), X(VALUE, pk_i64, out_step), X(VALUE, pk_i64, a_step)

#define SCAN_INDEX_ROWS_ARGS(X)                                                                                \
  X(OUT, E, values), X(OUT, pk_i64, indices), X(IN, E, a), X(STRUCT, pk_rows_t, kept), X(VALUE, pk_u64, rows), \
      X(VALUE, pk_i64, n), X(VALUE, pk_i64, value_step), X(VALUE, pk_i64, index_step), X(VALUE, pk_i64, a_step)

#endif /* SCAN_ARGS_H_ */
