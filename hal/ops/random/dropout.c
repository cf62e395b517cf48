/* dropout.c: launcher of native_dropout: the result and the mask of what was kept, from contiguous operands. A call
 * uses ceil(count / 4) Philox blocks. */
#include <math.h>

#include "hal_op_variants.h"
#include "op/dims.h"
#include "ops/random/random_args.h"

HAL_OP_LAUNCHER(queue_dropout_blocks, groups, DROPOUT_BLOCKS_ARGS)

#define UNIT 256  /* elements of a unit of work: four for each of PK_LSIZE items */
#define COST 1024 /* elements of memory traffic that a unit is worth */

hal_status_t hal_op_launch_dropout(hal_op_context_t *context, const hal_op_call_t *call) {
  const hal_tensor_t *input, *result, *mask;
  hal_plugin_kernel_t *kernel;
  hal_op_scalar_t scale;
  int64_t numel;
  double p;
  HAL_RETURN_IF_ERROR(hal_op_tensor(context, call, 0, &input));
  HAL_RETURN_IF_ERROR(hal_op_double(context, call, 1, &p));
  HAL_RETURN_IF_ERROR(hal_op_result(context, call, 0, &result));
  HAL_RETURN_IF_ERROR(hal_op_result(context, call, 1, &mask));
  if (!(p >= 0 && p <= 1)) return hal_op_invalid(context, "invalid p = %g; expected a probability from 0 to 1", p);
  HAL_RETURN_IF_ERROR(hal_op_check_same_dtype(context, input, "`input`", result, "the result"));
  if (mask->dtype != HAL_BOOL)
    return hal_op_invalid(context, "the mask has dtype %s; expected bool", hal_op_dtype_name(mask->dtype));
  HAL_RETURN_IF_ERROR(hal_op_check_same_shape(context, input, "`input`", result, "the result"));
  HAL_RETURN_IF_ERROR(hal_op_check_same_shape(context, input, "`input`", mask, "the mask"));
  HAL_RETURN_IF_ERROR(hal_op_numel(context, input, "`input`", &numel));
  HAL_RETURN_IF_ERROR(hal_op_kernel(context, input->dtype, HAL_DROPOUT_VARIANT_BLOCKS, &kernel));
  if (numel == 0) return HAL_OK;
  if (!hal_op_is_contiguous(input) || !hal_op_is_contiguous(result) || !hal_op_is_contiguous(mask))
    return HAL_UNIMPLEMENTED;
  const hal_value_t factor = {.tag = HAL_VALUE_DOUBLE, .u.d = p < 1 ? 1 / (1 - p) : 0};
  HAL_RETURN_IF_ERROR(hal_op_scalar(context, &factor, input->dtype, "p", &scale));

  void *out = result->data, *bits = mask->data;
  const void *a = input->data;
  uint64_t count = (uint64_t)numel;
  uint64_t units = (count + UNIT - 1) / UNIT, per_group = hal_op_units_per_group(context, COST);
  uint32_t kept = (uint32_t)ceil((1 - p) * 0x1p24);
  return queue_dropout_blocks(context, kernel, (units + per_group - 1) / per_group, out, bits, a, count, call->seed,
                              call->offset, hal_op_random_state(call), units, per_group, kept, hal_op_number(&scale));
}
