/* packed_gemm_args.h: the arguments of this folder's kernel, for the kernel and for its launcher
 * (kernels/pk_args.h). */
#ifndef PACKED_GEMM_ARGS_H_
#define PACKED_GEMM_ARGS_H_

#include "kernels/pk_tiles.h"

/* What a weight is, from its integer q and the numbers of its group. */
#define PK_PACKED_EIGHT 0 /* q * scale, 8 bits with a sign */
#define PK_PACKED_PAIRS 1 /* (q - 8) * scale + zero, the first of two in the high bits; scale and zero are neighbors */
#define PK_PACKED_ZEROS 2 /* (q - zero) * scale, the first of two in the low bits */

/* The product of m x k elements and n rows of k weights: each `group` of weights of a row has its own numbers, which
 * are [k / group][n] in memory. */
typedef struct {
  pk_i64 m, n, k, group;
  pk_i64 form;      /* PK_PACKED_* */
  pk_i64 row_bytes; /* of a row of weights */
  pk_tiles_t tiles;
} pk_packed_t;

#define PACKED_GEMM_ARGS(X)                                                                                            \
  X(OUT, E, result), X(IN, E, a), X(IN, pk_u8, weights), X(IN, E, scales), X(IN, E, zeros), X(STRUCT, pk_packed_t, s), \
      X(VALUE, pk_u64, units), X(VALUE, pk_u64, per_group)

#endif /* PACKED_GEMM_ARGS_H_ */
