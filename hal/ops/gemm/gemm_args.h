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
  pk_i64 parts,
      /* the sum along k is divided into `parts` of `part`, each with a separate result: only gemm_simt.h reads them */
      part;
  pk_i64 a_block,
      b_panel; /* from one block of rows of a, or panel of columns of b, to the next: only gemm_cpu.h reads them */
  pk_tiles_t tiles;
} pk_gemm_t;

/* Writes `panels` panels of `batch` matrices, of `depth` rows of `width` elements, in n blocks of PK_CPU_N rows of a
 * panel: element (k, e) of a panel is k * row + e * step in `from`, where elements e below `extent` exist. */
#define GEMM_PACK_ARGS(X)                                                                                       \
  X(OUT, T, to), X(IN, E, from), X(VALUE, pk_u64, n), X(VALUE, pk_i64, depth), X(VALUE, pk_i64, panels),        \
      X(VALUE, pk_i64, extent), X(VALUE, pk_i64, width), X(VALUE, pk_i64, batch_stride), X(VALUE, pk_i64, row), \
      X(VALUE, pk_i64, step)

/* Of the other kernels. */
#define GEMM_ARGS(X)                                                                                         \
  X(OUT, E, result), X(IN, E, a), X(IN, E, b), X(IN, E, self), X(STRUCT, pk_gemm_t, s), X(NUMBER, T, alpha), \
      X(NUMBER, T, beta), X(VALUE, pk_u64, units), X(VALUE, pk_u64, per_group)

#endif /* GEMM_ARGS_H_ */
