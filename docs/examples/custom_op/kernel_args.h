/* kernel_args.h: the arguments of the kernels of rms_norm.pk and swish.pk, defined once for the kernels and for
 * ops.c, which launches them (pk_args.h). */
#ifndef KERNEL_ARGS_H_
#define KERNEL_ARGS_H_

#include <pk_args.h>

#define RMS_NORM_FORWARD_ARGS(X) \
  X(OUT, E, y), X(OUT, E, rstd), X(IN, E, x), X(IN, E, weight), X(VALUE, pk_i64, n), X(VALUE, double, eps)

#define RMS_NORM_BACKWARD_ARGS(X) \
  X(OUT, E, result), X(IN, E, grad), X(IN, E, x), X(IN, E, weight), X(IN, E, rstd), X(VALUE, pk_i64, n)

#define SWISH_FORWARD_ARGS(X) X(OUT, E, y), X(IN, E, x), X(VALUE, pk_u64, n)

#define SWISH_PRODUCT_ARGS(X) X(OUT, E, y), X(IN, E, x), X(IN, E, w), X(VALUE, pk_u64, n)

#endif /* KERNEL_ARGS_H_ */
