/* batch_norm_args.h: the arguments of this folder's kernels, for the kernels and for their launchers
 * (kernels/pk_args.h). */
#ifndef BATCH_NORM_ARGS_H_
#define BATCH_NORM_ARGS_H_

#include "ops/batch_norm/batch_walk.h"

#define BATCH_NORM_MOMENTS_ARGS(X)                                                                      \
  X(OUT, T, means), X(OUT, T, squares), X(IN, E, a), X(STRUCT, pk_batch_t, b), X(VALUE, pk_u64, units), \
      X(VALUE, pk_u64, per_group)

#define BATCH_NORM_STATISTICS_ARGS(X)                                                                    \
  X(OUT, T, mean), X(OUT, T, rstd), X(OUT, T, running_mean), X(OUT, T, running_var), X(IN, T, old_mean), \
      X(IN, T, old_var), X(IN, T, means), X(IN, T, squares), X(IN, E, a), X(STRUCT, pk_batch_t, b),      \
      X(VALUE, pk_u64, units), X(NUMBER, T, eps), X(NUMBER, T, momentum), X(VALUE, pk_i32, with_mean),   \
      X(VALUE, pk_i32, with_var)

#define BATCH_NORM_NORMALISE_ARGS(X)                                                                               \
  X(OUT, E, result), X(OUT, T, saved_mean), X(OUT, T, saved_rstd), X(IN, E, a), X(IN, T, mean), X(IN, T, scale),   \
      X(IN, T, weight), X(IN, T, bias), X(STRUCT, pk_batch_t, b), X(VALUE, pk_u64, units),                         \
      X(VALUE, pk_u64, per_group), X(NUMBER, T, eps), X(VALUE, pk_i32, evaluation), X(VALUE, pk_i32, with_weight), \
      X(VALUE, pk_i32, with_bias), X(VALUE, pk_i32, saves)

#define BATCH_NORM_SUMS_ARGS(X)                                                                                \
  X(OUT, T, sums), X(OUT, T, products), X(IN, E, grad), X(IN, E, a), X(IN, T, mean), X(STRUCT, pk_batch_t, b), \
      X(VALUE, pk_u64, units), X(VALUE, pk_u64, per_group)

#define BATCH_NORM_GRADIENTS_ARGS(X)                                                                                \
  X(OUT, T, of_weight), X(OUT, T, of_bias), X(OUT, T, shift), X(OUT, T, slope), X(IN, T, sums), X(IN, T, products), \
      X(IN, T, scale), X(STRUCT, pk_batch_t, b), X(VALUE, pk_u64, units), X(NUMBER, T, eps),                        \
      X(VALUE, pk_i32, evaluation), X(VALUE, pk_i32, wanted)

#define BATCH_NORM_BACKWARD_ARGS(X)                                                                                    \
  X(OUT, E, result), X(IN, E, grad), X(IN, E, a), X(IN, T, mean), X(IN, T, scale), X(IN, T, weight), X(IN, T, shifts), \
      X(IN, T, slopes), X(STRUCT, pk_batch_t, b), X(VALUE, pk_u64, units), X(VALUE, pk_u64, per_group),                \
      X(NUMBER, T, eps), X(VALUE, pk_i32, evaluation), X(VALUE, pk_i32, with_weight)

#endif /* BATCH_NORM_ARGS_H_ */
