/* op_elementwise.c: reads the operands of an element-wise call and queues the contiguous or the row form of its kernel.
 */
#include "ops/elementwise/elementwise.h"

static const char *operand_name(const hal_op_context_t *context, int32_t k) {
  return k == 0 ? "the result" : context->info->arguments[k - 1];
}

/* The short way of a call flagged HAL_CALL_DENSE: 1 when the operands are taken. */
static inline int read_dense(const hal_op_call_t *call, int32_t inputs, hal_op_elementwise_t *operands) {
  const hal_tensor_t *result = call->results[0];
  uint64_t numel;
  if (!hal_op_is_plain(result) || !hal_op_dense_numel(result, &numel)) return 0;
  operands->tensors[0] = result;
  for (int32_t k = 0; k < inputs; k++) {
    if (call->args[k].tag != HAL_VALUE_TENSOR || !hal_op_is_plain(call->args[k].u.t)) return 0;
    operands->tensors[k + 1] = call->args[k].u.t;
  }
  operands->numel = (int64_t)numel;
  operands->dense = 1;
  return 1;
}

static hal_status_t read_any(const hal_op_context_t *context, const hal_op_call_t *call, int32_t inputs,
                             hal_op_elementwise_t *operands) {
  const char *names[HAL_OP_MAX_OPERANDS];
  HAL_RETURN_IF_ERROR(hal_op_result(context, call, 0, &operands->tensors[0]));
  for (int32_t k = 0; k < inputs; k++)
    HAL_RETURN_IF_ERROR(hal_op_tensor(context, call, (uint32_t)k, &operands->tensors[k + 1]));
  for (int32_t k = 0; k <= inputs; k++) names[k] = operand_name(context, k);
  HAL_RETURN_IF_ERROR(hal_op_iterate(context, operands->tensors, names, inputs + 1, &operands->iterator));
  operands->numel = operands->iterator.numel;
  operands->dense = operands->numel == 0 || hal_op_iterator_is_dense(&operands->iterator);
  return HAL_OK;
}

hal_status_t hal_op_elementwise_read(const hal_op_context_t *context, const hal_op_call_t *call, int32_t inputs,
                                     hal_op_elementwise_t *out_operands) {
  out_operands->operands = inputs + 1;
  if (HAL_LIKELY(call->flags & HAL_CALL_DENSE && read_dense(call, inputs, out_operands))) return HAL_OK;
  return read_any(context, call, inputs, out_operands);
}

hal_status_t hal_op_elementwise_numbers(const hal_op_context_t *context, const hal_op_call_t *call, hal_dtype_t dtype,
                                        hal_op_numbers_t *out_numbers) {
  static const hal_value_t zero = {.tag = HAL_VALUE_INT};
  const hal_op_info_t *info = context->info;
  const uint32_t count = info->scalars > 1 ? HAL_OP_ELEMENTWISE_NUMBERS : 1;
  hal_op_scalar_t number;
  memset(out_numbers->bytes, 0, sizeof out_numbers->bytes);
  for (uint32_t i = 0; i < count; i++) {
    const uint32_t place = info->operands + i;
    const int given = i < info->scalars;
    HAL_RETURN_IF_ERROR(hal_op_scalar(context, given ? &call->args[place] : &zero, dtype,
                                      given ? info->arguments[place] : "", &number));
    memcpy(out_numbers->bytes + i * number.size, &number.u, number.size);
  }
  out_numbers->size = count * number.size;
  return HAL_OK;
}

hal_status_t hal_op_elementwise_wrong_dtype(const hal_op_context_t *context, const hal_op_elementwise_t *operands,
                                            int32_t k, hal_dtype_t wanted) {
  return hal_op_invalid(context, "%s has dtype %s; %s is needed (cast it before the call)", operand_name(context, k),
                        hal_op_dtype_name(operands->tensors[k]->dtype), hal_op_dtype_name(wanted));
}

/* Queues a row form over operands that are one run. */
static hal_status_t launch_run(hal_op_context_t *context, const hal_op_elementwise_t *operands,
                               hal_plugin_kernel_t *kernel, hal_arg_t *args, uint32_t count) {
  const uint64_t n = (uint64_t)operands->numel, block = hal_op_row_block(context);
  hal_op_rows_t rows = {.ndim = 1, .size = {operands->numel}};
  for (int32_t k = 0; k < operands->operands; k++) rows.stride[k][0] = 1;
  args[count] = (hal_arg_t)HAL_OP_ARG_VALUE(n);
  args[count + 1] = (hal_arg_t)HAL_OP_ARG_VALUE(block);
  args[count + 2] = (hal_arg_t)HAL_OP_ARG_VALUE(rows);
  return hal_op_launch_items(context, kernel, n / block + (n % block != 0), args, count + 3);
}

hal_status_t hal_op_elementwise_launch(hal_op_context_t *context, const hal_op_elementwise_t *operands,
                                       hal_dtype_t dtype, uint32_t contig, uint32_t rows, hal_arg_t *args,
                                       uint32_t numbers) {
  hal_plugin_kernel_t *kernel;
  int dense = operands->dense;
  hal_status_t status = hal_op_kernel(context, dtype, dense ? contig : rows, &kernel);
  if (HAL_UNLIKELY(status == HAL_UNIMPLEMENTED && dense)) {
    status = hal_op_kernel(context, dtype, rows, &kernel);
    dense = 0;
  }
  if (HAL_UNLIKELY(status || operands->numel == 0)) return status;
  const uint32_t count = (uint32_t)operands->operands + numbers;
  for (int32_t k = 0; operands->dense && k < operands->operands; k++)
    args[k] = (hal_arg_t){&operands->tensors[k]->data, (uint32_t)sizeof(void *), HAL_ARG_POINTER};
  if (HAL_LIKELY(dense)) {
    const uint64_t n = (uint64_t)operands->numel;
    args[count] = (hal_arg_t)HAL_OP_ARG_VALUE(n);
    return hal_op_launch_items(context, kernel, n, args, count + 1);
  }
  if (operands->dense) return launch_run(context, operands, kernel, args, count);
  hal_op_rows_call_t call = {.kernel = kernel, .args = args, .arg_count = count};
  for (int32_t k = 0; k < operands->operands; k++) call.elements[k] = hal_op_dtype_size(operands->tensors[k]->dtype);
  return hal_op_launch_rows(context, &operands->iterator, &call);
}
