/* op_define.h: operators that a library defined (hal_op_define), numbered behind those of codegen/ops.yaml. `number` counts
 * from the first of them. Private to hal/src. */
#ifndef HAL_SRC_OP_DEFINE_H_
#define HAL_SRC_OP_DEFINE_H_

#include "device/runtime.h"
#include "hal/op.h"

#define HAL_OP_MAX_DEFINED 1024 /* of one process: as many as a large library of operators has */

uint32_t hal_op_defined_count(void);
/* NULL past the end. */
const char *hal_op_defined_name(uint32_t number);
/* Errors: HAL_NOT_FOUND. */
hal_status_t hal_op_defined_find(const char *name, uint32_t *out_number);
/* All dtypes when there is a function for the device, else 0. */
uint64_t hal_op_defined_dtypes(hal_device_t *device, uint32_t number);
/* hal_op_run for one of them. */
hal_status_t hal_op_defined_run(hal_device_t *device, uint32_t number, hal_stream_t *stream, hal_op_call_t *call);
/* Fills the counts, all but the size; 0 past the end, else 1. */
int hal_op_defined_counts(uint32_t number, hal_op_counts_t *out_counts);
void hal_op_defined_reset_counts(void);

#endif /* HAL_SRC_OP_DEFINE_H_ */
