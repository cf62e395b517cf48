/* layer_norm_args.h: the arguments of this folder's kernels, for the kernels and for their launchers
 * (kernels/pk_args.h). */
#ifndef LAYER_NORM_ARGS_H_
#define LAYER_NORM_ARGS_H_

#include "kernels/pk_types.h"

#define LAYER_NORM_FORWARD_ARGS(X)                                                                    \
  X(OUT, E, result), X(OUT, T, mean), X(OUT, T, rstd), X(IN, E, a), X(IN, E, weight), X(IN, E, bias), \
      X(VALUE, pk_u64, rows), X(VALUE, pk_u64, per_group), X(VALUE, pk_i64, n), X(NUMBER, T, eps),    \
      X(VALUE, pk_i32, with_weight), X(VALUE, pk_i32, with_bias), X(VALUE, pk_i32, wide)

#define LAYER_NORM_BACKWARD_ARGS(X)                                                                            \
  X(OUT, E, result), X(IN, E, grad), X(IN, E, a), X(IN, T, mean), X(IN, T, rstd), X(IN, E, weight),            \
      X(VALUE, pk_u64, rows), X(VALUE, pk_u64, per_group), X(VALUE, pk_i64, n), X(VALUE, pk_i32, with_weight), \
      X(VALUE, pk_i32, wide)

#define LAYER_NORM_COLUMNS_ARGS(X)                                                                           \
  X(OUT, T, weight_sums), X(OUT, T, bias_sums), X(IN, E, grad), X(IN, E, a), X(IN, T, mean), X(IN, T, rstd), \
      X(VALUE, pk_u64, units), X(VALUE, pk_u64, per_group), X(VALUE, pk_i64, rows), X(VALUE, pk_i64, n),     \
      X(VALUE, pk_i64, chunk), X(VALUE, pk_i32, with_weight)

#endif /* LAYER_NORM_ARGS_H_ */
