/* define.h: operators that a library defined (hal_op_define), numbered after those of codegen/operators. They use the
 * common dispatch (dispatch.c): an entry per device, whose launcher calls the library's function. Private to
 * hal/src/op. */
#ifndef HAL_SRC_OP_DEFINE_H_
#define HAL_SRC_OP_DEFINE_H_

#include "op/table.h"

#define HAL_OP_MAX_DEFINED 1024 /* per process: the number of operators of a large library */

typedef struct hal_op_defined_s {
  hal_op_info_t info;
  hal_op_own_fn_t fn; /* NULL: plugins only */
  void *state;
  hal_op_counter_t counter;
  hal_op_entry_t entries[HAL_MAX_DEVICES];
} hal_op_defined_t;

uint32_t hal_op_defined_count(void);

/* Returns a definition by the operator's number; NULL if there is none. */
hal_op_defined_t *hal_op_defined(uint32_t op);

/* Returns a ready device's query result for the operator; NULL if there is no definition. */
const hal_op_entry_t *hal_op_defined_entry(hal_device_t *device, uint32_t op);

/* Finds a definition by name. Returns 1 and the operator's number, or 0. */
int hal_op_defined_find(const char *name, uint32_t *out_op);

#endif /* HAL_SRC_OP_DEFINE_H_ */
