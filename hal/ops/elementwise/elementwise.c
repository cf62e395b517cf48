/* elementwise.c: reads the operands of an element-wise call and queues the contiguous or the row form of its kernel.
 */
#include "ops/elementwise/elementwise.h"

static const char *operand_name(const hal_op_context_t *context, int32_t k) {
  return k == 0 ? "the result" : context->info->arguments[k - 1];
}

/* The fast path of a call flagged HAL_CALL_DENSE: returns 1 if the operands are accepted. */
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
  return hal_op_invalid(context, "%s has dtype %s; expected %s (cast it before the call)", operand_name(context, k),
                        hal_op_dtype_name(operands->tensors[k]->dtype), hal_op_dtype_name(wanted));
}

/* Queues a form over contiguous operands. */
static hal_status_t launch_run(hal_op_context_t *context, const hal_op_elementwise_t *operands,
                               hal_plugin_kernel_t *kernel, const hal_op_forms_t *forms, int contig,
                               const void *given) {
  hal_op_line_t line;
  uint32_t widest = 1;
  line.n = (uint64_t)operands->numel;
  for (int32_t k = 0; k < operands->operands; k++) {
    const uint32_t size = (uint32_t)hal_op_dtype_size(operands->tensors[k]->dtype);
    widest = size > widest ? size : widest;
    line.address[k] = operands->tensors[k]->data;
  }
  line.items = hal_op_run_items(context, line.n, widest);
  if (contig) return forms->queue_contig(context, kernel, &line, given);
  line.block = hal_op_target(context)->row_block;
  line.items = line.n / line.block + (line.n % line.block != 0);
  line.rows = (pk_rows_t){.ndim = 1, .size = {operands->numel}};
  for (int32_t k = 0; k < operands->operands; k++) line.rows.stride[k][0] = 1;
  return forms->queue_rows(context, kernel, &line, given);
}

hal_status_t hal_op_elementwise_launch(hal_op_context_t *context, const hal_op_elementwise_t *operands,
                                       hal_dtype_t dtype, const hal_op_forms_t *forms, const void *given) {
  hal_plugin_kernel_t *kernel;
  int contig = operands->dense;
  /* Compilers for CPUs (a group is one item there) vectorize a row's loop better than adjacent threads, especially in
   * half precision. */
  if (HAL_UNLIKELY(context->group_threads == 1) && (dtype == HAL_FLOAT16 || dtype == HAL_BFLOAT16)) contig = 0;
  hal_status_t status = hal_op_kernel(context, dtype, contig ? forms->contig : forms->rows, &kernel);
  if (HAL_UNLIKELY(status == HAL_UNIMPLEMENTED && contig)) {
    status = hal_op_kernel(context, dtype, forms->rows, &kernel);
    contig = 0;
  }
  if (HAL_UNLIKELY(status || operands->numel == 0)) return status;
  if (HAL_LIKELY(operands->dense)) return launch_run(context, operands, kernel, forms, contig, given);
  hal_op_rows_call_t call = {.kernel = kernel, .queue = forms->queue_rows, .given = given};
  for (int32_t k = 0; k < operands->operands; k++) call.elements[k] = hal_op_dtype_size(operands->tensors[k]->dtype);
  return hal_op_launch_rows(context, &operands->iterator, &call);
}
