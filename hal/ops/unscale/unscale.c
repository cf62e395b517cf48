/* unscale.c: launcher of the family `unscale`: unscales a gradient of torch.amp.GradScaler, in one launch.
 *
 * args: inv_scale. Results: the gradient and found_inf, which are read, too. inv_scale and found_inf are one float32
 * each. */
#include "hal_op_variants.h"
#include "op/iterator.h"
#include "ops/unscale/unscale_args.h"

HAL_OP_LAUNCHER(queue_rows, loops, UNSCALE_ROWS_ARGS)

typedef struct numbers_s {
  void *found;
  const void *factor;
} numbers_t;

static hal_status_t launch_line(hal_op_context_t *context, hal_plugin_kernel_t *kernel, const hal_op_line_t *line,
                                const void *given) {
  const numbers_t *const with = given;
  return queue_rows(context, kernel, line->items, line->address[0], with->found, with->factor, line->n, line->block,
                    &line->rows);
}

static hal_status_t check_number(const hal_op_context_t *context, const hal_tensor_t *tensor, const char *name) {
  int64_t numel;
  HAL_RETURN_IF_ERROR(hal_op_numel(context, tensor, name, &numel));
  if (tensor->dtype == HAL_FLOAT32 && numel == 1) return HAL_OK;
  return hal_op_invalid(context, "`%s` must be one float32 number; it has dtype %s and %lld elements", name,
                        hal_op_dtype_name(tensor->dtype), (long long)numel);
}

hal_status_t hal_op_launch_unscale(hal_op_context_t *context, const hal_op_call_t *call) {
  static const char *const names[] = {"the gradient"};
  const hal_tensor_t *factor, *found, *tensors[1];
  hal_plugin_kernel_t *kernel;
  hal_op_iterator_t it;
  HAL_RETURN_IF_ERROR(hal_op_tensor(context, call, 0, &factor));
  HAL_RETURN_IF_ERROR(hal_op_result(context, call, 0, &tensors[0]));
  HAL_RETURN_IF_ERROR(hal_op_result(context, call, 1, &found));
  HAL_RETURN_IF_ERROR(check_number(context, factor, "inv_scale"));
  HAL_RETURN_IF_ERROR(check_number(context, found, "found_inf"));
  if (!hal_op_has_dtype(context, tensors[0]->dtype)) return HAL_UNIMPLEMENTED;
  HAL_RETURN_IF_ERROR(hal_op_kernel(context, tensors[0]->dtype, HAL_UNSCALE_VARIANT_ROWS, &kernel));
  HAL_RETURN_IF_ERROR(hal_op_iterate(context, tensors, names, 1, &it));
  if (it.numel == 0) return HAL_OK;
  const numbers_t with = {.found = found->data, .factor = factor->data};
  const hal_op_rows_call_t rows = {
      .kernel = kernel, .queue = launch_line, .given = &with, .elements = {hal_op_dtype_size(tensors[0]->dtype)}};
  return hal_op_launch_lines(context, &it, &rows);
}
