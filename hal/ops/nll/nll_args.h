/* nll_args.h: the arguments of this folder's kernels, for the kernels and for their launchers (kernels/pk_args.h). */
#ifndef NLL_ARGS_H_
#define NLL_ARGS_H_

#include "kernels/pk_types.h"

#define NLL_EACH_ARGS(X)                                                                                            \
  X(OUT, E, result), X(IN, E, a), X(IN, pk_i64, target), X(IN, E, weight), X(VALUE, pk_u64, samples),               \
      X(VALUE, pk_i64, classes), X(VALUE, pk_i64, places), X(VALUE, pk_i64, ignore), X(VALUE, pk_i32, with_weight), \
      X(VALUE, pk_i64, site), X(BOTH, pk_error_t, error)

#define NLL_SUMS_ARGS(X)                                                                                        \
  X(OUT, E, result), X(OUT, E, total), X(OUT, T, sums), X(IN, E, a), X(IN, pk_i64, target), X(IN, E, weight),   \
      X(VALUE, pk_u64, samples), X(VALUE, pk_u64, chunk), X(VALUE, pk_i64, classes), X(VALUE, pk_i64, places),  \
      X(VALUE, pk_i64, ignore), X(VALUE, pk_i32, with_weight), X(VALUE, pk_i32, mean), X(VALUE, pk_i32, final), \
      X(VALUE, pk_i64, site), X(BOTH, pk_error_t, error)

#define NLL_FINISH_ARGS(X) \
  X(OUT, E, result), X(OUT, E, total), X(BOTH, T, sums), X(VALUE, pk_u64, chunks), X(VALUE, pk_i32, mean)

#define NLL_BACKWARD_ARGS(X)                                                                                  \
  X(OUT, E, result), X(IN, E, grad), X(IN, pk_i64, target), X(IN, E, weight), X(IN, E, total),                \
      X(VALUE, pk_u64, lines), X(VALUE, pk_i64, classes), X(VALUE, pk_i64, places), X(VALUE, pk_i64, ignore), \
      X(VALUE, pk_i32, with_weight), X(VALUE, pk_i32, each), X(VALUE, pk_i32, mean), X(VALUE, pk_i64, site),  \
      X(BOTH, pk_error_t, error)

#endif /* NLL_ARGS_H_ */
