/* random_args.h: the arguments of this folder's kernels, for the kernels and for their launchers (kernels/pk_args.h).
 * `state` is NULL, or two numbers in device memory that replace seed and offset (PK_RANDOM_STATE). */
#ifndef RANDOM_ARGS_H_
#define RANDOM_ARGS_H_

#include "kernels/pk_types.h"

#define DROPOUT_BLOCKS_ARGS(X)                                                                              \
  X(OUT, E, out), X(OUT, pk_bool, mask), X(IN, E, a), X(VALUE, pk_u64, count), X(VALUE, pk_u64, seed),      \
      X(VALUE, pk_u64, offset), X(IN, pk_u64, state), X(VALUE, pk_u64, units), X(VALUE, pk_u64, per_group), \
      X(VALUE, pk_u32, kept), X(NUMBER, T, scale)

#define PERMUTATION_SWAPS_ARGS(X) \
  X(OUT, T, out), X(VALUE, pk_u64, n), X(VALUE, pk_u64, seed), X(VALUE, pk_u64, offset), X(IN, pk_u64, state)

#define PERMUTATION_ROUNDS_ARGS(X)                                                                             \
  X(OUT, T, out), X(VALUE, pk_u64, n), X(VALUE, pk_u64, seed), X(VALUE, pk_u64, offset), X(IN, pk_u64, state), \
      X(VALUE, pk_i32, bits)

#define RANDOM_BLOCKS_ARGS(X)                                                                                         \
  X(OUT, E, result), X(VALUE, pk_u64, count), X(VALUE, pk_u64, seed), X(VALUE, pk_u64, offset), X(IN, pk_u64, state), \
      X(VALUE, pk_u64, units), X(VALUE, pk_u64, per_group), X(NUMBER, PK_PARAM, p0), X(NUMBER, PK_PARAM, p1),         \
      X(NUMBER, PK_PARAM, p2)

#endif /* RANDOM_ARGS_H_ */
