/* op_binary.c: launcher of the family `binary`: result = f(a, b, s0, s1, s2), where b may be a number. */
#include "hal_op_variants.h"
#include "ops/elementwise/elementwise.h"

/* The short way: 1 when the device answered, 0 when the call must go the long way. */
static inline int launch_dense(hal_op_context_t *context, const hal_op_call_t *call, hal_status_t *out_status) {
  const hal_op_info_t *info = context->info;
  const hal_value_t *left = &call->args[0], *right = &call->args[1];
  const hal_tensor_t *result = call->results[0];
  const int number = right->tag != HAL_VALUE_TENSOR;
  hal_op_numbers_t numbers;
  hal_op_scalar_t b;
  uint64_t n;
  if (left->tag != HAL_VALUE_TENSOR || !hal_op_is_plain(left->u.t) || !hal_op_is_plain(result)) return 0;
  const hal_dtype_t dtype = left->u.t->dtype;
  if (result->dtype != hal_op_result_dtype(info, dtype) || !hal_op_dense_numel(result, &n)) return 0;
  if (!hal_op_dense_numbers(context, call, dtype, &numbers)) return 0;
  if (number && (!(info->numbers >> 1 & 1) || !hal_op_dense_scalar(context, right, dtype, &b))) return 0;
  if (!number && (!hal_op_is_plain(right->u.t) || right->u.t->dtype != dtype)) return 0;
  hal_plugin_kernel_t *kernel =
      hal_op_kernel_cached(context, dtype, number ? HAL_BINARY_VARIANT_CONTIG_S : HAL_BINARY_VARIANT_CONTIG);
  if (!kernel) return 0;
  const hal_arg_t args[] = {HAL_OP_ARG_POINTER(result->data), HAL_OP_ARG_POINTER(left->u.t->data),
                            number ? (hal_arg_t)HAL_OP_ARG_SCALAR(b) : (hal_arg_t)HAL_OP_ARG_POINTER(right->u.t->data),
                            HAL_OP_ARG_NUMBERS(numbers), HAL_OP_ARG_VALUE(n)};
  *out_status = hal_op_launch_items(context, kernel, n, args, 5);
  return 1;
}

/* The long way: every check and every layout. */
static __attribute__((noinline)) hal_status_t launch_any(hal_op_context_t *context, const hal_op_call_t *call) {
  const hal_op_info_t *info = context->info;
  hal_op_elementwise_t operands;
  hal_op_numbers_t numbers;
  hal_op_scalar_t b;
  hal_arg_t args[HAL_OP_ELEMENTWISE_ARGS];
  hal_dtype_t dtype;
  const int number = call->args[1].tag != HAL_VALUE_TENSOR;
  if (number && !(info->numbers >> 1 & 1))
    return hal_op_invalid(context, "argument `%s` has the value tag %u; a tensor is needed", info->arguments[1],
                          (unsigned)call->args[1].tag);
  HAL_RETURN_IF_ERROR(hal_op_elementwise_read(context, call, number ? 1 : 2, &operands));
  HAL_RETURN_IF_ERROR(hal_op_elementwise_dtype(context, &operands, &dtype));
  if (!hal_op_has_dtype(context, dtype)) return HAL_UNIMPLEMENTED;
  HAL_RETURN_IF_ERROR(hal_op_elementwise_numbers(context, call, dtype, &numbers));
  if (!number) {
    args[3] = (hal_arg_t)HAL_OP_ARG_NUMBERS(numbers);
    return hal_op_elementwise_launch(context, &operands, dtype, HAL_BINARY_VARIANT_CONTIG, HAL_BINARY_VARIANT_ROWS,
                                     args, 1);
  }
  HAL_RETURN_IF_ERROR(hal_op_scalar(context, &call->args[1], dtype, info->arguments[1], &b));
  args[2] = (hal_arg_t)HAL_OP_ARG_SCALAR(b);
  args[3] = (hal_arg_t)HAL_OP_ARG_NUMBERS(numbers);
  return hal_op_elementwise_launch(context, &operands, dtype, HAL_BINARY_VARIANT_CONTIG_S, HAL_BINARY_VARIANT_ROWS_S,
                                   args, 2);
}

hal_status_t hal_op_launch_binary(hal_op_context_t *context, const hal_op_call_t *call) {
  hal_status_t status;
  if (HAL_LIKELY(call->flags & HAL_CALL_DENSE && launch_dense(context, call, &status))) return status;
  return launch_any(context, call);
}
