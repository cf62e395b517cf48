/* matmul.c: step 4, the matrix product of the driver. */
#include <string.h>

#include "acme.h"

/* The arguments are those of the operator entry: self, mat2. */
static hal_status_t mm(void *state, const hal_op_call_t *call) {
  (void)state;
  const hal_tensor_t *const a = call->args[0].u.t, *const b = call->args[1].u.t, *const c = call->results[0];
  if (driver_matmul(acme_queue(call->stream), a->data, b->data, c->data, a->sizes[0], a->sizes[1], b->sizes[1]))
    return HAL_OK;
  return hal_host->error_set(HAL_RESOURCE_EXHAUSTED, 0, "acme: no host memory for a matrix product");
}

hal_status_t hal_plugin_op_find(int32_t device, const char *name, hal_op_own_t *out_op) {
  (void)device;
  if (strcmp(name, "mm")) return HAL_NOT_FOUND;
  HAL_SET_FIELD(out_op, fn, mm);
  HAL_SET_FIELD(out_op, dtypes, HAL_DTYPE_BIT(HAL_FLOAT32));
#ifdef ACME_WRONG_LAYOUT /* tutorial "Find a wrong result": the driver needs dense matrices */
  HAL_SET_FIELD(out_op, layouts, HAL_TAKES_CONTIGUOUS | HAL_TAKES_STRIDED);
#else
  HAL_SET_FIELD(out_op, layouts, HAL_TAKES_CONTIGUOUS);
#endif
  HAL_SET_FIELD(out_op, flags, HAL_OP_NEVER_DECLINES);
  return HAL_OK;
}
