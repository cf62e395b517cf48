/* ternary.c: launcher of the family `ternary`: result = f(a, b, c, s0, s1, s2). */
#include "ops/elementwise/elementwise.h"

#include "hal_op_variants.h"

HAL_OP_LAUNCHER(queue_contig, items, TERNARY_CONTIG_ARGS)
HAL_OP_LAUNCHER(queue_rows, loops, TERNARY_ROWS_ARGS)

static hal_status_t contig_line(hal_op_context_t *context, hal_plugin_kernel_t *kernel, const hal_op_line_t *line,
                                const void *given) {
  return queue_contig(context, kernel, line->items, line->address[0], line->address[1], line->address[2],
                      line->address[3], *(const pk_number_t *)given, line->n);
}

static hal_status_t rows_line(hal_op_context_t *context, hal_plugin_kernel_t *kernel, const hal_op_line_t *line,
                              const void *given) {
  return queue_rows(context, kernel, line->items, line->address[0], line->address[1], line->address[2],
                    line->address[3], *(const pk_number_t *)given, line->n, line->block, &line->rows);
}

static const hal_op_forms_t forms = {HAL_TERNARY_VARIANT_CONTIG, HAL_TERNARY_VARIANT_ROWS, contig_line, rows_line};

hal_status_t hal_op_launch_ternary(hal_op_context_t *context, const hal_op_call_t *call) {
  hal_op_elementwise_t operands;
  hal_op_numbers_t numbers;
  hal_dtype_t dtype;
  HAL_RETURN_IF_ERROR(hal_op_elementwise_read(context, call, 3, &operands));
  HAL_RETURN_IF_ERROR(hal_op_elementwise_dtype(context, &operands, &dtype));
  if (!hal_op_has_dtype(context, dtype)) return HAL_UNIMPLEMENTED;
  HAL_RETURN_IF_ERROR(hal_op_elementwise_numbers(context, call, dtype, &numbers));
  const pk_number_t number = hal_op_all_numbers(&numbers);
  return hal_op_elementwise_launch(context, &operands, dtype, &forms, &number);
}
