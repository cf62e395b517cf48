/* op.h: operators. A call takes the plugin's own op, else the portable kernel, else HAL_UNIMPLEMENTED.
 *
 * Operators are numbered by codegen/ops.yaml; the numbers are for one build (hal_op_id finds one by name). */
#ifndef HAL_OP_H_
#define HAL_OP_H_

#include "hal/stream.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Counts the operators this build knows. Since 0.1. */
HAL_API uint32_t hal_op_count(void);

/* Gives the operator's name, "name.overload"; NULL past the end. Since 0.1. */
HAL_API const char *hal_op_name(uint32_t op);

/* Finds an operator by name. Errors: HAL_NOT_FOUND. Since 0.1. */
HAL_API hal_status_t hal_op_id(const char *name, uint32_t *out_op);

/* Gives a mask of dtypes (bit d = dtype number d) for which the operator may run natively on the device when its computing
 * dtype is d: the plugin's op (all bits) or a portable kernel. 0 when neither exists or the device cannot be used. Cached:
 * costs an array look-up. Since 0.1. */
HAL_API uint64_t hal_op_dtypes(int32_t device, uint32_t op);

/* Queues an operator on a stream (NULL: current). `call->stream`, `call->device` and the tensors' `device` are filled by the
 * HAL; arguments follow the operator's frozen list. Shapes, dtypes and broadcast strides must be right already.
 * Errors: HAL_UNIMPLEMENTED = nothing was touched, take a fallback; HAL_INVALID_ARGUMENT; the plugin's own. Since 0.1. */
HAL_API hal_status_t hal_op_run(int32_t device, uint32_t op, hal_stream_t *stream, hal_op_call_t *call);

/* How often an operator ran, since the start or hal_op_reset_counts. */
typedef struct hal_op_counts_s {
  size_t struct_size;
  uint64_t plugin, portable, unimplemented;
} hal_op_counts_t;

/* Gives the counts of an operator over all devices. The caller sets `out_counts->struct_size`. Errors: HAL_OUT_OF_RANGE.
 * Since 0.1. */
HAL_API hal_status_t hal_op_counts(uint32_t op, hal_op_counts_t *out_counts);

/* Sets all counts to zero. Since 0.1. */
HAL_API void hal_op_reset_counts(void);

#ifdef __cplusplus
}
#endif
#endif /* HAL_OP_H_ */
