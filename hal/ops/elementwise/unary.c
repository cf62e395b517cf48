/* unary.c: launcher of the family `unary`: result = f(a, s0, s1, s2). */
#include "hal_op_variants.h"
#include "ops/elementwise/elementwise.h"

HAL_OP_LAUNCHER(queue_contig, items, UNARY_CONTIG_ARGS)
HAL_OP_LAUNCHER(queue_rows, loops, UNARY_ROWS_ARGS)

static hal_status_t contig_line(hal_op_context_t *context, hal_plugin_kernel_t *kernel, const hal_op_line_t *line,
                                const void *given) {
  return queue_contig(context, kernel, line->items, line->address[0], line->address[1], *(const pk_number_t *)given,
                      line->n);
}

static hal_status_t rows_line(hal_op_context_t *context, hal_plugin_kernel_t *kernel, const hal_op_line_t *line,
                              const void *given) {
  return queue_rows(context, kernel, line->items, line->address[0], line->address[1], *(const pk_number_t *)given,
                    line->n, line->block, &line->rows);
}

static const hal_op_forms_t forms = {HAL_UNARY_VARIANT_CONTIG, HAL_UNARY_VARIANT_ROWS, contig_line, rows_line};

/* The fast path: 1 = the call was launched, 0 = it needs the general path. */
static inline __attribute__((always_inline)) int launch_dense(hal_op_context_t *context, const hal_op_call_t *call,
                                                              hal_status_t *out_status) {
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
  *out_status = queue_contig(context, kernel, hal_op_dense_items(context, n, dtype, result->dtype), result->data,
                             self->u.t->data, hal_op_all_numbers(&numbers), n);
  return 1;
}

/* The general path: every check and every layout. */
static __attribute__((noinline)) hal_status_t launch_any(hal_op_context_t *context, const hal_op_call_t *call) {
  hal_op_elementwise_t operands;
  hal_op_numbers_t numbers;
  hal_dtype_t dtype;
  HAL_RETURN_IF_ERROR(hal_op_elementwise_read(context, call, 1, &operands));
  HAL_RETURN_IF_ERROR(hal_op_elementwise_dtype(context, &operands, &dtype));
  if (!hal_op_has_dtype(context, dtype)) return HAL_UNIMPLEMENTED;
  HAL_RETURN_IF_ERROR(hal_op_elementwise_numbers(context, call, dtype, &numbers));
  const pk_number_t number = hal_op_all_numbers(&numbers);
  return hal_op_elementwise_launch(context, &operands, dtype, &forms, &number);
}

hal_status_t hal_op_launch_unary(hal_op_context_t *context, const hal_op_call_t *call) {
  hal_status_t status;
  if (HAL_LIKELY(call->flags & HAL_CALL_DENSE && launch_dense(context, call, &status))) return status;
  return launch_any(context, call);
}
