/* ops.c: the functions of the operators for test_custom_ops.py. */
#include <string.h>

#include "fill_args.h"
#include "kinds_ops.h"

PK_LAUNCHER(launch_set, items, FILL_SET_ARGS)

static hal_status_t fill(int32_t device, hal_stream_t *stream, const hal_tensor_t *tensor, double number) {
  uint64_t n = 1;
  hal_kernel_t *kernel = NULL;
  for (int32_t d = 0; d < tensor->ndim; d++) n *= (uint64_t)tensor->sizes[d];
  HAL_RETURN_IF_ERROR(kinds_kernel(device, "fill", tensor->dtype, "set", &kernel));
  return launch_set(kernel, stream, n, tensor->data, number, n);
}

/* The numbers by their tags; for a wrong tag, the failure is the number of the argument. */
hal_status_t kinds_weigh(void *state, int32_t device, hal_stream_t *stream, const hal_op_call_t *call) {
  (void)state;
  static const uint32_t tags[] = {HAL_VALUE_TENSOR,      HAL_VALUE_NONE, HAL_VALUE_TENSOR_LIST, HAL_VALUE_INT,
                                  HAL_VALUE_DOUBLE,      HAL_VALUE_BOOL, HAL_VALUE_STRING,      HAL_VALUE_INT_LIST,
                                  HAL_VALUE_DOUBLE_LIST, HAL_VALUE_NONE, HAL_VALUE_NONE,        HAL_VALUE_INT,
                                  HAL_VALUE_NONE};
  const hal_value_t *args = call->args;
  for (uint32_t i = 0; i < call->arg_count; i++)
    if (tags[i] != HAL_VALUE_NONE && args[i].tag != tags[i])
      return hal_error_set(HAL_INVALID_ARGUMENT, "argument %u has the tag %u", (unsigned)i, (unsigned)args[i].tag);
  double sum = (double)args[KINDS_WEIGH_I].u.i + args[KINDS_WEIGH_F].u.d + (args[KINDS_WEIGH_B].u.i ? 100 : 0);
  sum += args[KINDS_WEIGH_Y].tag == HAL_VALUE_TENSOR ? 1000 : 0;
  sum += 10000.0 * args[KINDS_WEIGH_MORE].count + (double)strlen(args[KINDS_WEIGH_S].u.s);
  for (uint32_t i = 0; i < args[KINDS_WEIGH_IL].count; i++) sum += (double)args[KINDS_WEIGH_IL].u.il[i];
  for (uint32_t i = 0; i < args[KINDS_WEIGH_FL].count; i++) sum += args[KINDS_WEIGH_FL].u.dl[i];
  const hal_value_t *number = &args[KINDS_WEIGH_NUMBER];
  sum += number->tag == HAL_VALUE_COMPLEX  ? number->u.dl[1]
         : number->tag == HAL_VALUE_DOUBLE ? number->u.d
                                           : (double)number->u.i;
  if (args[KINDS_WEIGH_OI].tag == HAL_VALUE_INT) sum += (double)args[KINDS_WEIGH_OI].u.i;
  if (args[KINDS_WEIGH_OF].tag == HAL_VALUE_DOUBLE) sum += args[KINDS_WEIGH_OF].u.d;
  return fill(device, stream, call->results[0], sum + (double)args[KINDS_WEIGH_SI].u.i);
}

/* The inner stride of `b` in the first result, that of `a` in the second. */
hal_status_t kinds_shapes(void *state, int32_t device, hal_stream_t *stream, const hal_op_call_t *call) {
  (void)state;
  const hal_tensor_t *a = call->args[KINDS_SHAPES_A].u.t, *b = call->args[KINDS_SHAPES_B].u.t;
  HAL_RETURN_IF_ERROR(fill(device, stream, call->results[KINDS_SHAPES_OUT_ROWS], (double)b->strides[b->ndim - 1]));
  return fill(device, stream, call->results[KINDS_SHAPES_OUT_FOLDED], (double)a->strides[a->ndim - 1]);
}

hal_status_t kinds_seven(void *state, int32_t device, hal_stream_t *stream, const hal_op_call_t *call) {
  (void)state;
  return fill(device, stream, call->results[0], 7);
}

hal_status_t kinds_never(void *state, int32_t device, hal_stream_t *stream, const hal_op_call_t *call) {
  (void)state, (void)device, (void)stream, (void)call;
  return HAL_UNIMPLEMENTED;
}
