/* convolution.c: reads and checks convolutions and their gradients, and queues them. Tensors that are not contiguous
 * return HAL_UNIMPLEMENTED, except channels-last ones on devices other than the host (codegen/kernel_operands.py). */
#include <string.h>

#include "hal_op_variants.h"
#include "op/dims.h"
#include "ops/convolution/convolution.h"

/* Contiguous as (batch, spatial dimensions, channel), where a dimension of size 1 has any stride. */
static int is_channels_last(const hal_tensor_t *tensor) {
  if (tensor->ndim < 3) return 0;
  int64_t next = tensor->sizes[1];
  if (next != 1 && tensor->strides[1] != 1) return 0;
  for (int32_t d = tensor->ndim - 1; d >= 0; d--) {
    if (d == 1) continue;
    if (tensor->sizes[d] != 1 && tensor->strides[d] != next) return 0;
    next *= tensor->sizes[d];
  }
  return 1;
}

/* The strides of a tensor that passed check_tensor, also of dimensions of size 1. */
static pk_volume_t strides_of(const hal_tensor_t *tensor, const hal_op_volume_t *volume) {
  pk_volume_t strides = hal_op_conv_dense(volume->channels, volume->space);
  if (hal_op_is_contiguous(tensor)) return strides;
  strides.channel = 1;
  strides.space[2] = volume->channels;
  for (int d = 1; d >= 0; d--) strides.space[d] = strides.space[d + 1] * volume->space[d + 1];
  return strides;
}

static hal_status_t check_tensor(const hal_op_context_t *context, const hal_tensor_t *tensor,
                                 const hal_tensor_t *like) {
  HAL_RETURN_IF_ERROR(hal_op_check_same_dtype(context, tensor, "an operand", like, "the input"));
  const int last = !hal_op_is_host(context) && is_channels_last(tensor);
  return last || hal_op_is_contiguous(tensor) ? HAL_OK : HAL_UNIMPLEMENTED;
}

/* Reads the lists from argument `first` on: stride, padding, dilation, transposed, output_padding (implied by the
 * sizes), groups. `input` and `result` are the images of the forward. */
static hal_status_t read_conv(const hal_op_context_t *context, const hal_op_call_t *call, uint32_t first,
                              const hal_tensor_t *input, const hal_tensor_t *result, const hal_tensor_t *weight,
                              hal_op_conv_t *out) {
  hal_op_volume_t x, y, w;
  int64_t transposed, groups;
  HAL_RETURN_IF_ERROR(hal_op_volume(context, input, "the input", &x));
  HAL_RETURN_IF_ERROR(hal_op_volume(context, result, "the result", &y));
  HAL_RETURN_IF_ERROR(hal_op_volume(context, weight, "`weight`", &w));
  HAL_RETURN_IF_ERROR(hal_op_int(context, call, first + 3, &transposed));
  HAL_RETURN_IF_ERROR(hal_op_int(context, call, first + 5, &groups));
  const hal_op_volume_t *large = transposed ? &y : &x, *small = transposed ? &x : &y;
  memset(out, 0, sizeof *out);
  out->large = strides_of(transposed ? result : input, large);
  out->small = strides_of(transposed ? input : result, small);
  out->weight = strides_of(weight, &w);
  HAL_RETURN_IF_ERROR(hal_op_window_list(context, call, first, x.spatial, 1, 1, out->window.step));
  HAL_RETURN_IF_ERROR(hal_op_window_list(context, call, first + 1, x.spatial, 0, 0, out->window.pad));
  HAL_RETURN_IF_ERROR(hal_op_window_list(context, call, first + 2, x.spatial, 1, 1, out->window.dilation));
  if (groups < 1 || x.spatial != y.spatial || x.spatial != w.spatial || x.batch != y.batch ||
      small->channels % groups || large->channels % groups || w.batch != small->channels ||
      w.channels != large->channels / groups)
    return hal_op_invalid(
        context, "%lld groups do not match a weight of %lld x %lld channels and images of %lld and %lld",
        (long long)groups, (long long)w.batch, (long long)w.channels, (long long)x.channels, (long long)y.channels);
  out->window.channels = large->channels;
  memcpy(out->window.in, large->space, sizeof large->space);
  memcpy(out->window.out, small->space, sizeof small->space);
  memcpy(out->window.size, w.space, sizeof w.space);
  out->batches = x.batch;
  out->transposed = transposed != 0;
  out->groups = groups;
  out->small_per_group = small->channels / groups;
  out->large_per_group = large->channels / groups;
  return HAL_OK;
}

static hal_status_t launch_forward(hal_op_context_t *context, const hal_op_call_t *call) {
  const hal_tensor_t *input, *weight, *bias = NULL, *result;
  hal_op_conv_t conv;
  HAL_RETURN_IF_ERROR(hal_op_tensor(context, call, 0, &input));
  HAL_RETURN_IF_ERROR(hal_op_tensor(context, call, 1, &weight));
  if (call->args[2].tag != HAL_VALUE_NONE) HAL_RETURN_IF_ERROR(hal_op_tensor(context, call, 2, &bias));
  HAL_RETURN_IF_ERROR(hal_op_result(context, call, 0, &result));
  HAL_RETURN_IF_ERROR(read_conv(context, call, 3, input, result, weight, &conv));
  HAL_RETURN_IF_ERROR(check_tensor(context, input, input));
  HAL_RETURN_IF_ERROR(check_tensor(context, weight, input));
  HAL_RETURN_IF_ERROR(check_tensor(context, result, input));
  if (bias) {
    HAL_RETURN_IF_ERROR(check_tensor(context, bias, input));
    if (bias->ndim != 1 || bias->sizes[0] != result->sizes[1])
      return hal_op_invalid(context, "`bias` must be a vector of %lld", (long long)result->sizes[1]);
  }
  const hal_op_conv_image_t image = {!conv.transposed, result, input, weight, bias};
  return hal_op_conv_image(context, &conv, &image);
}

static hal_status_t launch_backward(hal_op_context_t *context, const hal_op_call_t *call) {
  const hal_tensor_t *grad, *input, *weight;
  hal_op_volume_t made;
  hal_op_conv_t conv;
  HAL_RETURN_IF_ERROR(hal_op_tensor(context, call, 0, &grad));
  HAL_RETURN_IF_ERROR(hal_op_tensor(context, call, 1, &input));
  HAL_RETURN_IF_ERROR(hal_op_tensor(context, call, 2, &weight));
  HAL_RETURN_IF_ERROR(read_conv(context, call, 3, input, grad, weight, &conv));
  if (call->result_count < 2)
    return hal_op_invalid(context, "the call has %u results; expected 2", (unsigned)call->result_count);
  const hal_tensor_t *tensors[] = {grad, input, weight, call->results[0], call->results[1]};
  for (int i = 0; i < 5; i++)
    if (tensors[i]) {
      HAL_RETURN_IF_ERROR(hal_op_check_tensor(context, tensors[i], "an operand"));
      HAL_RETURN_IF_ERROR(check_tensor(context, tensors[i], input));
    }
  const hal_tensor_t *grad_input = call->results[0], *grad_weight = call->results[1];
  if (grad_input) {
    HAL_RETURN_IF_ERROR(hal_op_check_same_shape(context, grad_input, "the input's gradient", input, "`input`"));
    const hal_op_conv_image_t image = {conv.transposed, grad_input, grad, weight, NULL};
    hal_op_conv_t to_input = conv;
    HAL_RETURN_IF_ERROR(hal_op_volume(context, grad_input, "the input's gradient", &made));
    *(conv.transposed ? &to_input.small : &to_input.large) = strides_of(grad_input, &made);
    HAL_RETURN_IF_ERROR(hal_op_conv_image(context, &to_input, &image));
  }
  if (!grad_weight) return HAL_OK;
  HAL_RETURN_IF_ERROR(hal_op_check_same_shape(context, grad_weight, "the weight's gradient", weight, "`weight`"));
  HAL_RETURN_IF_ERROR(hal_op_volume(context, grad_weight, "the weight's gradient", &made));
  conv.weight = strides_of(grad_weight, &made);
  return conv.transposed ? hal_op_conv_weight(context, &conv, grad_weight, grad, input)
                         : hal_op_conv_weight(context, &conv, grad_weight, input, grad);
}

hal_status_t hal_op_launch_convolution(hal_op_context_t *context, const hal_op_call_t *call) {
  return strstr(context->info->name, "backward") ? launch_backward(context, call) : launch_forward(context, call);
}
