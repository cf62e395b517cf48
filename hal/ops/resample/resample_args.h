/* resample_args.h: the arguments of this folder's kernels, for the kernels and for their launchers
 * (kernels/pk_args.h). */
#ifndef RESAMPLE_ARGS_H_
#define RESAMPLE_ARGS_H_

#include "kernels/pk_types.h"

/* Element o of the result is the sum over t = starts[o], starts[o] + step ... before ends[o]. */
#define RESAMPLE_TABLES(X) \
  X(IN, pk_i64, starts), X(IN, pk_i64, ends), X(IN, pk_i64, indices), X(IN, T, weights), X(VALUE, pk_i64, step)

#define RESAMPLE_LINES_ARGS(X)                                                                      \
  X(OUT, E, out), X(IN, E, a), RESAMPLE_TABLES(X), X(STRUCT, pk_rows_t, kept), X(VALUE, pk_u64, n), \
      X(VALUE, pk_i64, length), X(VALUE, pk_i64, so), X(VALUE, pk_i64, sa)

#define RESAMPLE_PLANES_ARGS(X)                                                                        \
  X(OUT, E, out), X(IN, E, a), RESAMPLE_TABLES(X), X(STRUCT, pk_rows_t, kept), X(VALUE, pk_u64, n),    \
      X(VALUE, pk_i64, length), X(VALUE, pk_i64, so), X(VALUE, pk_i64, sa), X(VALUE, pk_i64, columns), \
      X(VALUE, pk_i64, column_out), X(VALUE, pk_i64, column_a)

/* Maps along one dimension that a few numbers determine. */
enum {
  RESAMPLE_NEAREST,
  RESAMPLE_NEAREST_EXACT,
  RESAMPLE_LINEAR,
  RESAMPLE_CUBIC,
  RESAMPLE_LINEAR_WIDE, /* antialiased: the filter is as wide as the input positions per element of the result */
  RESAMPLE_CUBIC_WIDE,
  RESAMPLE_WINDOWS, /* averages */
  RESAMPLE_ADAPTIVE
};

typedef struct {
  pk_i64 kind, in, out;
  pk_i64 taps;     /* maximum number of positions that an element of the result sums */
  pk_i64 backward; /* the map from `out` elements to `in` that is the transposed one */
  pk_i64 align_corners;
  pk_i64 size, step, pad, count_padding, divisor; /* of windows; 0 = the number of positions */
} pk_resample_t;

#define RESAMPLE_MAP_TABLES_ARGS(X)                                                                               \
  X(OUT, pk_i64, starts), X(OUT, pk_i64, ends), X(OUT, pk_i64, indices), X(OUT, T, weights), X(VALUE, pk_u64, n), \
      X(STRUCT, pk_resample_t, map), X(NUMBER, T, ratio)

#endif /* RESAMPLE_ARGS_H_ */
