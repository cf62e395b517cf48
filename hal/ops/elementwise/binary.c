/* binary.c: launcher of the family `binary`: result = f(a, b, s0, s1, s2), where b may be a number. */
#include "hal_op_variants.h"
#include "ops/elementwise/elementwise.h"

HAL_OP_LAUNCHER(queue_contig, items, BINARY_CONTIG_ARGS)
HAL_OP_LAUNCHER(queue_rows, loops, BINARY_ROWS_ARGS)

static hal_status_t contig_line(hal_op_context_t *context, hal_plugin_kernel_t *kernel, const hal_op_line_t *line,
                                const void *given) {
  return queue_contig(context, kernel, line->items, line->address[0], line->address[1], line->address[2],
                      *(const pk_number_t *)given, line->n);
}

static hal_status_t rows_line(hal_op_context_t *context, hal_plugin_kernel_t *kernel, const hal_op_line_t *line,
                              const void *given) {
  return queue_rows(context, kernel, line->items, line->address[0], line->address[1], line->address[2],
                    *(const pk_number_t *)given, line->n, line->block, &line->rows);
}

/* Kernels whose second operand is a number. */
HAL_OP_LAUNCHER(queue_contig_s, items, BINARY_CONTIG_S_ARGS)
HAL_OP_LAUNCHER(queue_rows_s, loops, BINARY_ROWS_S_ARGS)

static hal_status_t contig_line_s(hal_op_context_t *context, hal_plugin_kernel_t *kernel, const hal_op_line_t *line,
                                  const void *given) {
  return queue_contig_s(context, kernel, line->items, line->address[0], line->address[1],
                        ((const pk_number_t *)given)[0], ((const pk_number_t *)given)[1], line->n);
}

static hal_status_t rows_line_s(hal_op_context_t *context, hal_plugin_kernel_t *kernel, const hal_op_line_t *line,
                                const void *given) {
  return queue_rows_s(context, kernel, line->items, line->address[0], line->address[1], ((const pk_number_t *)given)[0],
                      ((const pk_number_t *)given)[1], line->n, line->block, &line->rows);
}

static const hal_op_forms_t forms = {HAL_BINARY_VARIANT_CONTIG, HAL_BINARY_VARIANT_ROWS, contig_line, rows_line};
static const hal_op_forms_t forms_s = {HAL_BINARY_VARIANT_CONTIG_S, HAL_BINARY_VARIANT_ROWS_S, contig_line_s,
                                       rows_line_s};

/* The fast path: 1 = the call was launched, 0 = it needs the general path. */
static inline __attribute__((always_inline)) int launch_dense(hal_op_context_t *context, const hal_op_call_t *call,
                                                              hal_status_t *out_status) {
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
  const pk_number_t all = hal_op_all_numbers(&numbers);
  void *const out = result->data, *const a = left->u.t->data;
  const uint64_t items = hal_op_dense_items(context, n, dtype, result->dtype);
  *out_status = number ? queue_contig_s(context, kernel, items, out, a, hal_op_number(&b), all, n)
                       : queue_contig(context, kernel, items, out, a, right->u.t->data, all, n);
  return 1;
}

/* The general path: every check and every layout. */
static __attribute__((noinline)) hal_status_t launch_any(hal_op_context_t *context, const hal_op_call_t *call) {
  const hal_op_info_t *info = context->info;
  hal_op_elementwise_t operands;
  hal_op_numbers_t numbers;
  hal_op_scalar_t b;
  hal_dtype_t dtype;
  const int number = call->args[1].tag != HAL_VALUE_TENSOR;
  if (number && !(info->numbers >> 1 & 1))
    return hal_op_invalid(context, "argument `%s` has the value tag %u; expected a tensor", info->arguments[1],
                          (unsigned)call->args[1].tag);
  HAL_RETURN_IF_ERROR(hal_op_elementwise_read(context, call, number ? 1 : 2, &operands));
  HAL_RETURN_IF_ERROR(hal_op_elementwise_dtype(context, &operands, &dtype));
  if (!hal_op_has_dtype(context, dtype)) return HAL_UNIMPLEMENTED;
  HAL_RETURN_IF_ERROR(hal_op_elementwise_numbers(context, call, dtype, &numbers));
  if (!number) {
    const pk_number_t all = hal_op_all_numbers(&numbers);
    return hal_op_elementwise_launch(context, &operands, dtype, &forms, &all);
  }
  HAL_RETURN_IF_ERROR(hal_op_scalar(context, &call->args[1], dtype, info->arguments[1], &b));
  const pk_number_t given[] = {hal_op_number(&b), hal_op_all_numbers(&numbers)};
  return hal_op_elementwise_launch(context, &operands, dtype, &forms_s, given);
}

hal_status_t hal_op_launch_binary(hal_op_context_t *context, const hal_op_call_t *call) {
  hal_status_t status;
  if (HAL_LIKELY(call->flags & HAL_CALL_DENSE && launch_dense(context, call, &status))) return status;
  return launch_any(context, call);
}
