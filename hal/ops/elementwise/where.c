/* where.c: launcher of the family `where`: result = condition ? a : b, for elements of any dtype. */
#include "ops/elementwise/elementwise.h"

#include "hal_op_variants.h"

HAL_OP_LAUNCHER(queue_contig, items, WHERE_CONTIG_ARGS)
HAL_OP_LAUNCHER(queue_rows, loops, WHERE_ROWS_ARGS)

static hal_status_t contig_line(hal_op_context_t *context, hal_plugin_kernel_t *kernel, const hal_op_line_t *line,
                                const void *given) {
  (void)given;
  return queue_contig(context, kernel, line->items, line->address[0], line->address[1], line->address[2],
                      line->address[3], line->n);
}

static hal_status_t rows_line(hal_op_context_t *context, hal_plugin_kernel_t *kernel, const hal_op_line_t *line,
                              const void *given) {
  (void)given;
  return queue_rows(context, kernel, line->items, line->address[0], line->address[1], line->address[2],
                    line->address[3], line->n, line->block, &line->rows);
}

static const hal_op_forms_t forms = {HAL_WHERE_VARIANT_CONTIG, HAL_WHERE_VARIANT_ROWS, contig_line, rows_line};

hal_status_t hal_op_launch_where(hal_op_context_t *context, const hal_op_call_t *call) {
  hal_op_elementwise_t operands;
  HAL_RETURN_IF_ERROR(hal_op_elementwise_read(context, call, 3, &operands));
  const hal_dtype_t dtype = operands.tensors[2]->dtype;
  HAL_RETURN_IF_ERROR(hal_op_elementwise_check(context, &operands, 1, HAL_BOOL));
  HAL_RETURN_IF_ERROR(hal_op_elementwise_check(context, &operands, 3, dtype));
  HAL_RETURN_IF_ERROR(hal_op_elementwise_check(context, &operands, 0, dtype));
  if (hal_op_dtype_size(dtype) == 0) return HAL_UNIMPLEMENTED;
  return hal_op_elementwise_launch(context, &operands, hal_op_dtype_moved(dtype), &forms, NULL);
}
