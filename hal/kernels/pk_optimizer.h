/* pk_optimizer.h: the numbers of an optimizer's step, as hal/ops/optimizer/optimizer.c passes them. */
#ifndef PK_OPTIMIZER_H_
#define PK_OPTIMIZER_H_

typedef struct {
  double lr; /* unless the flag LR says that it is in device memory */
  double number
      [4]; /* adam: beta1 beta2 eps weight_decay; sgd: weight_decay momentum dampening; adagrad: lr_decay weight_decay eps */
  pk_i32 flags, pad;
} pk_optimizer_t;

/* Bits of the flags; the order of hal/ops/optimizer/optimizer.c. */
#define PK_OPTIMIZER_LR 0
#define PK_OPTIMIZER_GRAD_SCALE 1
#define PK_OPTIMIZER_FOUND_INF 2
#define PK_OPTIMIZER_MAXIMIZE 3
#define PK_OPTIMIZER_AMSGRAD 4
#define PK_OPTIMIZER_DECOUPLED 5
#define PK_OPTIMIZER_MOMENTUM 6
#define PK_OPTIMIZER_FIRST 7
#define PK_OPTIMIZER_NESTEROV 8

#endif /* PK_OPTIMIZER_H_ */
