/* check.c: launcher of the family `check`: searches a tensor for values that are an error, before the operator that
 * reads them. `context->called` is that operator; the arguments are the tensor and its number among that operator's. */
#include "hal_op_variants.h"
#include "op/iterator.h"
#include "ops/check/check_args.h"

HAL_OP_LAUNCHER(queue_rows, loops, CHECK_ROWS_ARGS)

typedef struct place_s {
  int64_t site;
  void *error;
} place_t;

static hal_status_t launch_line(hal_op_context_t *context, hal_plugin_kernel_t *kernel, const hal_op_line_t *line,
                                const void *given) {
  const place_t *const to = given;
  return queue_rows(context, kernel, line->items, line->address[0], to->site, to->error, line->n, line->block,
                    &line->rows);
}

hal_status_t hal_op_launch_check(hal_op_context_t *context, const hal_op_call_t *call) {
  static const char *const names[] = {"the operand"};
  const hal_tensor_t *operand;
  hal_plugin_kernel_t *kernel;
  int64_t sizes[HAL_OP_MAX_DIMS], argument;
  place_t to = {.error = NULL};
  HAL_RETURN_IF_ERROR(hal_op_tensor(context, call, 0, &operand));
  HAL_RETURN_IF_ERROR(hal_op_int(context, call, 1, &argument));
  HAL_RETURN_IF_ERROR(hal_op_kernel(context, operand->dtype, HAL_CHECK_VARIANT_ROWS, &kernel));
  for (int32_t d = 0; d < operand->ndim; d++) /* an element that is read several times is checked once */
    sizes[d] = operand->strides[d] == 0 && operand->sizes[d] > 1 ? 1 : operand->sizes[d];
  hal_tensor_t once = *operand;
  once.sizes = sizes;
  const hal_tensor_t *const tensors[] = {&once};
  hal_op_iterator_t it;
  HAL_RETURN_IF_ERROR(hal_op_iterate(context, tensors, names, 1, &it));
  if (it.numel == 0) return HAL_OK;
  HAL_RETURN_IF_ERROR(hal_op_report_address(context, &to.error));
  to.site = hal_op_site(context, argument);
  const hal_op_rows_call_t rows = {
      .kernel = kernel, .queue = launch_line, .given = &to, .elements = {hal_op_dtype_size(operand->dtype)}};
  HAL_RETURN_IF_ERROR(hal_op_launch_lines(context, &it, &rows));
  return hal_op_report_launched(context);
}
