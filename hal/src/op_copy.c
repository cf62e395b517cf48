/* op_copy.c: launcher of the family `copy`: the result becomes the source, converted to the result's dtype. */
#include "op_elementwise.h"

#include "hal_op_variants.h"

/* Variants are numbered by the source's dtype, then contiguous and row form. */
_Static_assert(HAL_COPY_VARIANT_COUNT == 2 * HAL_OP_DTYPE_SLOTS && HAL_COPY_VARIANT_U8_CONTIG == 0 &&
                   HAL_COPY_VARIANT_U8_ROWS == 1 && HAL_COPY_VARIANT_C128_ROWS == HAL_COPY_VARIANT_COUNT - 1,
               "numbering of the copy kernels");

hal_status_t hal_op_launch_copy(hal_op_context_t *context, const hal_op_call_t *call) {
  hal_op_elementwise_t operands;
  hal_arg_t args[HAL_OP_ELEMENTWISE_ARGS];
  HAL_RETURN_IF_ERROR(hal_op_elementwise_read(context, call, 1, &operands));
  const hal_dtype_t to = operands.tensors[0]->dtype, from = operands.tensors[1]->dtype;
  const uint32_t slot = (uint32_t)from < 32u ? hal_op_dtype_slots[from] : 0xffu;
  if (slot >= HAL_OP_DTYPE_SLOTS || hal_op_dtype_size(to) == 0) return HAL_UNIMPLEMENTED;
  if (operands.numel == 0) return HAL_OK;
  if (to == from && operands.dense) {
    size_t size;
    if (__builtin_mul_overflow((size_t)operands.numel, (size_t)hal_op_dtype_size(to), &size))
      return hal_op_invalid(context, "the result has more than 2^64 - 1 bytes");
    if (operands.tensors[0]->data == operands.tensors[1]->data) return HAL_OK;
    hal_device_t *device = context->device;
    const hal_status_t status = hal_call_memory_copy(device->plugin, context->stream->handle, operands.tensors[0]->data,
                                                     device->ordinal, operands.tensors[1]->data, device->ordinal, size);
    return hal_error_plugin(device->plugin, HAL_SLOT_memory_copy, status);
  }
  return hal_op_elementwise_launch(context, &operands, to, 2 * slot, 2 * slot + 1, args, 0);
}
