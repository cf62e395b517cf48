/* int_gemm_args.h: the arguments of this folder's kernel, for the kernel and for its launcher (kernels/pk_args.h). */
#ifndef INT_GEMM_ARGS_H_
#define INT_GEMM_ARGS_H_

#include "kernels/pk_tiles.h"

/* The product of m x k and k x n bytes, with any strides; the result is contiguous. */
typedef struct {
  pk_i64 m, n, k;
  pk_i64 a_row, a_col, b_row, b_col;
  pk_tiles_t tiles;
} pk_int_gemm_t;

#define PK_INT_FEW 4 /* rows that the host multiplies without packing b, if its columns are contiguous */

#define INT_GEMM_ARGS(X)                                                                                      \
  X(OUT, pk_i32, result), X(IN, E, a), X(IN, pk_i8, b), X(STRUCT, pk_int_gemm_t, s), X(VALUE, pk_u64, units), \
      X(VALUE, pk_u64, per_group)

#endif /* INT_GEMM_ARGS_H_ */
