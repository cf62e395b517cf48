/* fill.c: launcher of the family `fill`: sets every element of the result to a number. */
#include "ops/elementwise/elementwise.h"

#include "hal_op_variants.h"

HAL_OP_LAUNCHER(queue_contig, items, FILL_CONTIG_ARGS)
HAL_OP_LAUNCHER(queue_rows, loops, FILL_ROWS_ARGS)

static hal_status_t contig_line(hal_op_context_t *context, hal_plugin_kernel_t *kernel, const hal_op_line_t *line,
                                const void *given) {
  return queue_contig(context, kernel, line->items, line->address[0], *(const pk_number_t *)given, line->n);
}

static hal_status_t rows_line(hal_op_context_t *context, hal_plugin_kernel_t *kernel, const hal_op_line_t *line,
                              const void *given) {
  return queue_rows(context, kernel, line->items, line->address[0], *(const pk_number_t *)given, line->n, line->block,
                    &line->rows);
}

static const hal_op_forms_t forms = {HAL_FILL_VARIANT_CONTIG, HAL_FILL_VARIANT_ROWS, contig_line, rows_line};

hal_status_t hal_op_launch_fill(hal_op_context_t *context, const hal_op_call_t *call) {
  hal_op_elementwise_t operands;
  hal_op_scalar_t value;
  HAL_RETURN_IF_ERROR(hal_op_elementwise_read(context, call, 0, &operands));
  const hal_dtype_t dtype = operands.tensors[0]->dtype;
  if (!hal_op_has_dtype(context, dtype)) return HAL_UNIMPLEMENTED;
  HAL_RETURN_IF_ERROR(hal_op_scalar(context, &call->args[0], dtype, context->info->arguments[0], &value));
  const pk_number_t number = hal_op_number(&value);
  return hal_op_elementwise_launch(context, &operands, dtype, &forms, &number);
}
