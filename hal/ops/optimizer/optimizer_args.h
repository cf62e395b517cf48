/* optimizer_args.h: the arguments of this folder's kernels, for the kernels and for their launchers
 * (kernels/pk_args.h). */
#ifndef OPTIMIZER_ARGS_H_
#define OPTIMIZER_ARGS_H_

#include "kernels/pk_types.h"

/* The numbers of a step. */
typedef struct {
  pk_double lr; /* unless it is in device memory (flag LR) */
  pk_double number
      [4]; /* adam: beta1 beta2 eps weight_decay; sgd: weight_decay momentum dampening; adagrad: lr_decay weight_decay
            * eps */
  pk_i32 flags, pad;
} pk_optimizer_t;

/* Bits of the flags. */
#define PK_OPTIMIZER_LR 0
#define PK_OPTIMIZER_GRAD_SCALE 1
#define PK_OPTIMIZER_FOUND_INF 2
#define PK_OPTIMIZER_MAXIMIZE 3
#define PK_OPTIMIZER_AMSGRAD 4
#define PK_OPTIMIZER_DECOUPLED 5
#define PK_OPTIMIZER_MOMENTUM 6
#define PK_OPTIMIZER_FIRST 7
#define PK_OPTIMIZER_NESTEROV 8

#define OPTIMIZER_ADAM_ARGS(X)                                                                      \
  X(BOTH, E, self), X(BOTH, E, grad), X(BOTH, E, average), X(BOTH, E, square), X(BOTH, E, largest), \
      X(IN, float, step), X(IN, float, lr), X(IN, float, grad_scale), X(IN, float, found_inf),      \
      X(STRUCT, pk_optimizer_t, how), X(VALUE, pk_u64, n), X(VALUE, pk_u64, per_group)

#define OPTIMIZER_SGD_ARGS(X)                                                                           \
  X(BOTH, E, self), X(BOTH, E, grad), X(BOTH, E, momentum), X(IN, float, lr), X(IN, float, grad_scale), \
      X(IN, float, found_inf), X(STRUCT, pk_optimizer_t, how), X(VALUE, pk_u64, n), X(VALUE, pk_u64, per_group)

#define OPTIMIZER_ADAGRAD_ARGS(X)                                                                                      \
  X(BOTH, E, self), X(BOTH, E, grad), X(BOTH, E, sum), X(IN, float, step), X(IN, float, lr), X(IN, float, grad_scale), \
      X(IN, float, found_inf), X(STRUCT, pk_optimizer_t, how), X(VALUE, pk_u64, n), X(VALUE, pk_u64, per_group)

#endif /* OPTIMIZER_ARGS_H_ */
