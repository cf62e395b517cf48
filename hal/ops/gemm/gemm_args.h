/* gemm_args.h: the arguments of this folder's kernels, for the kernels and for their launchers (kernels/pk_args.h). */
#ifndef GEMM_ARGS_H_
#define GEMM_ARGS_H_

#include "kernels/pk_tiles.h"

/* Sizes and strides in elements; tiles are tile_m x tile_n, tiles_m x tiles_n per matrix, the last ones smaller. */
typedef struct {
  pk_i64 m, n, k;
  pk_i64 a_batch, a_row, a_col;
  pk_i64 b_batch, b_row, b_col;
  pk_i64 self_batch, self_row, self_col;
  pk_i64 result_batch, result_row, result_col;
  pk_tiles_t tiles;
} pk_gemm_t;

/* Of both kernels. */
#define GEMM_ARGS(X)                                                                                         \
  X(OUT, E, result), X(IN, E, a), X(IN, E, b), X(IN, E, self), X(STRUCT, pk_gemm_t, s), X(NUMBER, T, alpha), \
      X(NUMBER, T, beta), X(VALUE, pk_u64, units), X(VALUE, pk_u64, per_group)

#endif /* GEMM_ARGS_H_ */
