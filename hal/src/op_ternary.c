/* op_ternary.c: launcher of the family `ternary`: result = f(a, b, c, s0). */
#include "op_elementwise.h"

#include "hal_op_variants.h"

hal_status_t hal_op_launch_ternary(hal_op_context_t *context, const hal_op_call_t *call) {
  static const hal_value_t none = {.tag = HAL_VALUE_INT}; /* an operator without numbers does not read s0 */
  hal_op_elementwise_t operands;
  hal_op_scalar_t s0;
  hal_arg_t args[HAL_OP_ELEMENTWISE_ARGS];
  hal_dtype_t dtype;
  HAL_RETURN_IF_ERROR(hal_op_elementwise_read(context, call, 3, &operands));
  HAL_RETURN_IF_ERROR(hal_op_elementwise_dtype(context, &operands, &dtype));
  if (!hal_op_has_dtype(context, dtype)) return HAL_UNIMPLEMENTED;
  const int given = context->info->scalars > 0;
  HAL_RETURN_IF_ERROR(
      hal_op_scalar(context, given ? &call->args[3] : &none, dtype, given ? context->info->arguments[3] : "", &s0));
  args[4] = (hal_arg_t)HAL_OP_ARG_SCALAR(s0);
  return hal_op_elementwise_launch(context, &operands, dtype, HAL_TERNARY_VARIANT_CONTIG, HAL_TERNARY_VARIANT_ROWS,
                                   args, 1);
}
