/* collective.h: the operators of collectives and their properties. Private to hal/src/comm. */
#ifndef HAL_SRC_COMM_COLLECTIVE_H_
#define HAL_SRC_COMM_COLLECTIVE_H_

#include "hal/comm.h"

/* What a rank sends or receives: nothing, `count` elements, or for each rank `count` elements or the number in an
 * array. */
enum { HAL_COMM_NONE, HAL_COMM_ONE, HAL_COMM_EACH };

typedef struct hal_comm_op_s {
  const char *name;                       /* "all_reduce" */
  int send, recv;                         /* HAL_COMM_NONE, ONE, EACH */
  int root_sends, root_receives, reduces; /* only the root sends; only the root receives; has a reduction */
} hal_comm_op_t;

enum { HAL_COMM_OPS = HAL_COMM_SCATTER + 1 };

/* Indexed by HAL_COMM_*. */
extern const hal_comm_op_t hal_comm_ops[HAL_COMM_OPS];

/* Returns the operator's name, also for an unknown number. */
static inline const char *hal_comm_op_name(uint32_t op) {
  return op < HAL_COMM_OPS ? hal_comm_ops[op].name : "an unknown operator";
}

/* The following return 0 for an unknown number. */
static inline int hal_comm_op_reduces(uint32_t op) { return op < HAL_COMM_OPS && hal_comm_ops[op].reduces; }
static inline int hal_comm_op_has_root(uint32_t op) {
  return op < HAL_COMM_OPS && (hal_comm_ops[op].root_sends || hal_comm_ops[op].root_receives);
}
static inline int hal_comm_op_is_message(uint32_t op) { return op == HAL_COMM_SEND || op == HAL_COMM_RECV; }

#endif /* HAL_SRC_COMM_COLLECTIVE_H_ */
