/* op_conv_direct.c: launches of convolutions with few channels per group: depthwise ones above all. */
#include "op_convolution.h"

#include "hal_op_variants.h"

hal_status_t hal_op_conv_direct_image(hal_op_context_t *context, const hal_op_conv_t *conv,
                                      const hal_op_conv_image_t *image) {
  hal_plugin_kernel_t *kernel;
  int64_t numel;
  HAL_RETURN_IF_ERROR(hal_op_numel(context, image->result, "the result", &numel));
  HAL_RETURN_IF_ERROR(hal_op_kernel(context, image->result->dtype,
                                    image->small ? HAL_CONVOLUTION_VARIANT_SMALL : HAL_CONVOLUTION_VARIANT_LARGE,
                                    &kernel));
  if (numel == 0) return HAL_OK;
  void *to = image->result->data;
  const void *a = image->from->data, *w = image->weight->data, *b = image->bias ? image->bias->data : w;
  int32_t has_bias = image->bias != NULL;
  uint64_t n = (uint64_t)(numel / (image->small ? conv->window.out[2] : conv->window.in[2]));
  const hal_arg_t args[] = {HAL_OP_ARG_POINTER(to),
                            HAL_OP_ARG_POINTER(a),
                            HAL_OP_ARG_POINTER(w),
                            HAL_OP_ARG_POINTER(b),
                            HAL_OP_ARG_VALUE(has_bias),
                            HAL_OP_ARG_VALUE(n),
                            HAL_OP_ARG_VALUE(conv->window),
                            HAL_OP_ARG_VALUE(conv->small_per_group),
                            HAL_OP_ARG_VALUE(conv->large_per_group)};
  return hal_op_launch_items(context, kernel, n, args, 9);
}

hal_status_t hal_op_conv_direct_weight(hal_op_context_t *context, const hal_op_conv_t *conv, const hal_tensor_t *result,
                                       const hal_tensor_t *large, const hal_tensor_t *small) {
  hal_plugin_kernel_t *kernel;
  int64_t numel;
  HAL_RETURN_IF_ERROR(hal_op_numel(context, result, "the weight's gradient", &numel));
  HAL_RETURN_IF_ERROR(hal_op_kernel(context, result->dtype, HAL_CONVOLUTION_VARIANT_WEIGHT, &kernel));
  if (numel == 0) return HAL_OK;
  void *to = result->data;
  const void *a = large->data, *b = small->data;
  uint64_t n = (uint64_t)numel;
  const hal_arg_t args[] = {HAL_OP_ARG_POINTER(to),
                            HAL_OP_ARG_POINTER(a),
                            HAL_OP_ARG_POINTER(b),
                            HAL_OP_ARG_VALUE(n),
                            HAL_OP_ARG_VALUE(conv->window),
                            HAL_OP_ARG_VALUE(conv->batches),
                            HAL_OP_ARG_VALUE(conv->small_per_group),
                            HAL_OP_ARG_VALUE(conv->large_per_group)};
  return hal_op_launch_items(context, kernel, n, args, 8);
}
