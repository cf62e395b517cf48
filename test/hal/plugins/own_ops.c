/* own_ops.c: five.c with its own operators: one that runs, one that runs for float64 only, one that fails. */
#include "five.c"

static const hal_tensor_t *operand(const hal_op_call_t *call) { return call->args[0].u.t; }

/* The first element of the result becomes the state, with the ordinal of the device after the decimal point. */
static hal_status_t sign(void *state, const hal_op_call_t *call) {
  const hal_tensor_t *result = call->results[0];
  if (result->device != call->device || operand(call)->device != call->device)
    return hal_host->error_set(HAL_INVALID_ARGUMENT, 0, "own_ops: a tensor is on another device than the call");
  *(float *)result->data = *(const float *)state + (float)call->device / 10;
  return HAL_OK;
}

static hal_status_t only_double(void *state, const hal_op_call_t *call) {
  return operand(call)->dtype == HAL_FLOAT64 ? sign(state, call) : HAL_UNIMPLEMENTED;
}

static hal_status_t fail(void *state, const hal_op_call_t *call) {
  (void)state, (void)call;
  return hal_host->error_set(HAL_INTERNAL, 0, "own_ops: out of order");
}

hal_status_t hal_plugin_op_find(int32_t device, const char *name, hal_op_own_t *out_op) {
  static float number = 7;
  static const struct {
    const char *name;
    hal_op_fn_t fn;
  } ops[] = {{"test::sign", sign}, {"test::only_double", only_double}, {"test::fail", fail}};
  if (!known(device)) return hal_host->error_set(HAL_INVALID_ARGUMENT, 0, "own_ops: bad device in op_find");
  for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++)
    if (strcmp(ops[i].name, name) == 0) {
      out_op->fn = ops[i].fn;
      out_op->state = &number;
      out_op->dtypes = HAL_ALL_DTYPES;
      out_op->layouts = HAL_TAKES_ALL;
      return HAL_OK;
    }
  return HAL_NOT_FOUND;
}
