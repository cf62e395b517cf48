/* op_ternary.c: launcher of the family `ternary`: result = f(a, b, c, s0, s1, s2). */
#include "ops/elementwise/elementwise.h"

#include "hal_op_variants.h"

hal_status_t hal_op_launch_ternary(hal_op_context_t *context, const hal_op_call_t *call) {
  hal_op_elementwise_t operands;
  hal_op_numbers_t numbers;
  hal_arg_t args[HAL_OP_ELEMENTWISE_ARGS];
  hal_dtype_t dtype;
  HAL_RETURN_IF_ERROR(hal_op_elementwise_read(context, call, 3, &operands));
  HAL_RETURN_IF_ERROR(hal_op_elementwise_dtype(context, &operands, &dtype));
  if (!hal_op_has_dtype(context, dtype)) return HAL_UNIMPLEMENTED;
  HAL_RETURN_IF_ERROR(hal_op_elementwise_numbers(context, call, dtype, &numbers));
  args[4] = (hal_arg_t)HAL_OP_ARG_NUMBERS(numbers);
  return hal_op_elementwise_launch(context, &operands, dtype, HAL_TERNARY_VARIANT_CONTIG, HAL_TERNARY_VARIANT_ROWS,
                                   args, 1);
}
