/* op_fill.c: launcher of the family `fill`: every element of the result becomes a number. */
#include "ops/elementwise/elementwise.h"

#include "hal_op_variants.h"

hal_status_t hal_op_launch_fill(hal_op_context_t *context, const hal_op_call_t *call) {
  hal_op_elementwise_t operands;
  hal_op_scalar_t value;
  hal_arg_t args[HAL_OP_ELEMENTWISE_ARGS];
  HAL_RETURN_IF_ERROR(hal_op_elementwise_read(context, call, 0, &operands));
  const hal_dtype_t dtype = operands.tensors[0]->dtype;
  if (!hal_op_has_dtype(context, dtype)) return HAL_UNIMPLEMENTED;
  HAL_RETURN_IF_ERROR(hal_op_scalar(context, &call->args[0], dtype, context->info->arguments[0], &value));
  args[1] = (hal_arg_t)HAL_OP_ARG_SCALAR(value);
  return hal_op_elementwise_launch(context, &operands, dtype, HAL_FILL_VARIANT_CONTIG, HAL_FILL_VARIANT_ROWS, args, 1);
}
