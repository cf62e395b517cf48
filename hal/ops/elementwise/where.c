/* op_where.c: launcher of the family `where`: result = condition ? a : b, for elements of any dtype. */
#include "ops/elementwise/elementwise.h"

#include "hal_op_variants.h"

hal_status_t hal_op_launch_where(hal_op_context_t *context, const hal_op_call_t *call) {
  hal_op_elementwise_t operands;
  hal_arg_t args[HAL_OP_ELEMENTWISE_ARGS];
  HAL_RETURN_IF_ERROR(hal_op_elementwise_read(context, call, 3, &operands));
  const hal_dtype_t dtype = operands.tensors[2]->dtype;
  HAL_RETURN_IF_ERROR(hal_op_elementwise_check(context, &operands, 1, HAL_BOOL));
  HAL_RETURN_IF_ERROR(hal_op_elementwise_check(context, &operands, 3, dtype));
  HAL_RETURN_IF_ERROR(hal_op_elementwise_check(context, &operands, 0, dtype));
  if (hal_op_dtype_size(dtype) == 0) return HAL_UNIMPLEMENTED;
  return hal_op_elementwise_launch(context, &operands, hal_op_dtype_moved(dtype), HAL_WHERE_VARIANT_CONTIG,
                                   HAL_WHERE_VARIANT_ROWS, args, 0);
}
