/* op_unary.c: launcher of the family `unary`: result = f(a, s0, s1, s2). */
#include "hal_op_variants.h"
#include "ops/elementwise/elementwise.h"

/* The short way: 1 when the device answered, 0 when the call must go the long way. */
static inline int launch_dense(hal_op_context_t *context, const hal_op_call_t *call, hal_status_t *out_status) {
  const hal_op_info_t *info = context->info;
  const hal_value_t *self = &call->args[0];
  const hal_tensor_t *result = call->results[0];
  hal_op_numbers_t numbers;
  uint64_t n;
  if (self->tag != HAL_VALUE_TENSOR || !hal_op_is_plain(self->u.t) || !hal_op_is_plain(result)) return 0;
  const hal_dtype_t dtype = self->u.t->dtype;
  if (result->dtype != hal_op_result_dtype(info, dtype) || !hal_op_dense_numel(result, &n)) return 0;
  if (!hal_op_dense_numbers(context, call, dtype, &numbers)) return 0;
  hal_plugin_kernel_t *kernel = hal_op_kernel_cached(context, dtype, HAL_UNARY_VARIANT_CONTIG);
  if (!kernel) return 0;
  const hal_arg_t args[] = {HAL_OP_ARG_POINTER(result->data), HAL_OP_ARG_POINTER(self->u.t->data),
                            HAL_OP_ARG_NUMBERS(numbers), HAL_OP_ARG_VALUE(n)};
  *out_status = hal_op_launch_items(context, kernel, n, args, 4);
  return 1;
}

/* The long way: every check and every layout. */
static __attribute__((noinline)) hal_status_t launch_any(hal_op_context_t *context, const hal_op_call_t *call) {
  hal_op_elementwise_t operands;
  hal_op_numbers_t numbers;
  hal_arg_t args[HAL_OP_ELEMENTWISE_ARGS];
  hal_dtype_t dtype;
  HAL_RETURN_IF_ERROR(hal_op_elementwise_read(context, call, 1, &operands));
  HAL_RETURN_IF_ERROR(hal_op_elementwise_dtype(context, &operands, &dtype));
  if (!hal_op_has_dtype(context, dtype)) return HAL_UNIMPLEMENTED;
  HAL_RETURN_IF_ERROR(hal_op_elementwise_numbers(context, call, dtype, &numbers));
  args[2] = (hal_arg_t)HAL_OP_ARG_NUMBERS(numbers);
  return hal_op_elementwise_launch(context, &operands, dtype, HAL_UNARY_VARIANT_CONTIG, HAL_UNARY_VARIANT_ROWS, args,
                                   1);
}

hal_status_t hal_op_launch_unary(hal_op_context_t *context, const hal_op_call_t *call) {
  hal_status_t status;
  if (HAL_LIKELY(call->flags & HAL_CALL_DENSE && launch_dense(context, call, &status))) return status;
  return launch_any(context, call);
}
