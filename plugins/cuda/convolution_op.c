/* convolution_op.c: the operators that are convolutions: what their arguments are in the library's words. A transposed one computes the image that
 * windows slide over from that of their places, which is the gradient of the other. */
#include <string.h>

#include "dnn.h"
#include "op.h"

/* ---- arguments ---------------------------------------------------------------------------------------------------------------------- */

/* A list for each dimension of space, or one number for all; `count` of the library's dimensions, a first one that was put in has `usual`. */
static int read_list(const hal_value_t *value, int spatial, int count, int64_t least, int usual, int out[DNN_SPATIAL]) {
  if (value->tag != HAL_VALUE_INT_LIST || (value->count != 1 && value->count != (uint32_t)spatial)) return 0;
  for (int i = 0; i < count; i++) out[i] = usual;
  for (int i = 0; i < spatial; i++) {
    const int64_t number = value->u.il[value->count == 1 ? 0 : i];
    if (number < least || number > INT32_MAX / 2) return 0;
    out[count - spatial + i] = (int)number;
  }
  return 1;
}

static int64_t windows_over(const dnn_convolution_t *c, int i) {
  const int64_t reach = (int64_t)c->dilation[i] * (c->filter.sizes[i + 2] - 1) + 1;
  const int64_t room = c->large.sizes[i + 2] + 2 * (int64_t)c->pad[i] - reach;
  return room < 0 ? 0 : room / c->step[i] + 1;
}

/* Whether the three fit together as the library sees it. */
static int fits(const dnn_convolution_t *c) {
  if (c->large.ndim != c->small.ndim || c->large.ndim != c->filter.ndim) return 0;
  if (c->large.sizes[0] != c->small.sizes[0] || c->groups < 1) return 0;
  if (c->filter.sizes[0] != c->small.sizes[1] || c->small.sizes[1] % c->groups) return 0;
  if ((int64_t)c->filter.sizes[1] * c->groups != c->large.sizes[1]) return 0;
  for (int i = 0; i + 2 < c->large.ndim; i++)
    if (windows_over(c, i) != c->small.sizes[i + 2]) return 0;
  return 1;
}

/* Reads the numbers from argument `first` on: stride, padding, dilation, transposed, output_padding (told by the sizes), groups. */
static int read_numbers(const hal_op_call_t *call, uint32_t first, int spatial, dnn_convolution_t *out) {
  const int count = out->large.ndim - 2;
  double groups = 0;
  if (call->arg_count < first + 6 || !cuda_op_number(&call->args[first + 5], &groups)) return 0;
  out->groups = groups >= 1 && groups <= INT32_MAX ? (int)groups : 0;
  return read_list(&call->args[first], spatial, count, 1, 1, out->step) &&
         read_list(&call->args[first + 1], spatial, count, 0, 0, out->pad) &&
         read_list(&call->args[first + 2], spatial, count, 1, 1, out->dilation);
}

/* Whether the tensors that a call has are of one dtype, and lie in one of the library's orders. */
static int take_tensors(const hal_tensor_t *const *tensors, size_t count, dnn_convolution_t *out) {
  dnn_image_t image;
  for (size_t i = 0; i < count; i++)
    if (tensors[i] && (tensors[i]->dtype != tensors[0]->dtype || !cuda_dnn_image(tensors[i], &image))) return 0;
  out->dtype = (int)tensors[0]->dtype;
  out->format = cuda_dnn_format(tensors, count);
  return out->format >= 0;
}

/* One number for each channel. */
static int is_bias(const hal_tensor_t *bias, hal_dtype_t dtype, int64_t channels) {
  return bias->dtype == dtype && bias->ndim == 1 && bias->sizes[0] == channels &&
         (channels == 1 || bias->strides[0] == 1);
}

static int has_shape(const hal_tensor_t *tensor, const hal_tensor_t *like) {
  return !tensor || (tensor->ndim == like->ndim &&
                     memcmp(tensor->sizes, like->sizes, (size_t)like->ndim * sizeof *like->sizes) == 0);
}

/* ---- operators ---------------------------------------------------------------------------------------------------------------------- */

static void *data_of(const hal_tensor_t *tensor) { return tensor ? tensor->data : NULL; }

/* `input` and `result` are the images of the forward pass. */
static int take_shapes(const hal_op_call_t *call, uint32_t first, const hal_tensor_t *input, const hal_tensor_t *result,
                       const hal_tensor_t *weight, int *out_transposed, dnn_convolution_t *out) {
  double transposed = 0;
  if (call->arg_count < first + 6 || !cuda_op_number(&call->args[first + 3], &transposed)) return 0;
  *out_transposed = transposed != 0;
  if (input->ndim < 3 || input->ndim != result->ndim || input->ndim != weight->ndim) return 0;
  return cuda_dnn_image(transposed != 0 ? result : input, &out->large) &&
         cuda_dnn_image(transposed != 0 ? input : result, &out->small) && cuda_dnn_image(weight, &out->filter) &&
         read_numbers(call, first, input->ndim - 2, out) && fits(out);
}

/* HAL_UNIMPLEMENTED = the library has no words for it. */
static hal_status_t describe_forward(const hal_op_call_t *call, dnn_work_t *out) {
  const hal_tensor_t *const input = cuda_op_tensor(call, 0), *const weight = cuda_op_tensor(call, 1),
                            *const bias = cuda_op_tensor(call, 2), *const result = cuda_op_result(call, 0);
  const hal_tensor_t *const tensors[] = {input, weight, result};
  int transposed = 0;
  if (!input || !weight || !result || (!bias && call->args[2].tag != HAL_VALUE_NONE)) return HAL_UNIMPLEMENTED;
  if (!take_tensors(tensors, 3, &out->convolution) ||
      !take_shapes(call, 3, input, result, weight, &transposed, &out->convolution) ||
      (bias && !is_bias(bias, input->dtype, result->sizes[1])))
    return HAL_UNIMPLEMENTED;
  out->bias = data_of(bias);
  out->pass_count = 1;
  out->passes[0] = (dnn_pass_t){transposed ? DNN_LARGE : DNN_SMALL, transposed ? result->data : input->data,
                                transposed ? input->data : result->data, weight->data};
  return HAL_OK;
}

static void add_pass(dnn_work_t *work, dnn_direction_t direction, void *large, void *small, void *filter) {
  work->passes[work->pass_count++] = (dnn_pass_t){direction, large, small, filter};
}

static hal_status_t describe_backward(const hal_op_call_t *call, dnn_work_t *out) {
  const hal_tensor_t *const grad = cuda_op_tensor(call, 0), *const input = cuda_op_tensor(call, 1),
                            *const weight = cuda_op_tensor(call, 2), *const of_input = cuda_op_result(call, 0),
                            *const of_weight = cuda_op_result(call, 1), *const of_bias = cuda_op_result(call, 2);
  const hal_tensor_t *const tensors[] = {grad, input, weight, of_input, of_weight};
  int transposed = 0;
  if (!grad || !input || !weight || !take_tensors(tensors, 5, &out->convolution) ||
      !take_shapes(call, 3, input, grad, weight, &transposed, &out->convolution))
    return HAL_UNIMPLEMENTED;
  if (!has_shape(of_input, input) || !has_shape(of_weight, weight) ||
      (of_bias && !is_bias(of_bias, grad->dtype, grad->sizes[1])))
    return HAL_UNIMPLEMENTED;
  void *const large = transposed ? grad->data : input->data, *const small = transposed ? input->data : grad->data;
  if (of_input && transposed) add_pass(out, DNN_SMALL, large, of_input->data, weight->data);
  if (of_input && !transposed) add_pass(out, DNN_LARGE, of_input->data, small, weight->data);
  if (of_weight) add_pass(out, DNN_FILTER, large, small, of_weight->data);
  out->gradient = grad->data;
  out->gradient_is_large = transposed;
  out->bias_gradient = data_of(of_bias);
  return out->pass_count || of_bias ? HAL_OK : HAL_UNIMPLEMENTED;
}

static hal_status_t describe(const cuda_op_state_t *own, const hal_op_call_t *call, dnn_work_t *out) {
  memset(out, 0, sizeof *out);
  out->op = own->op->name;
  out->convolution.device = own->device;
  return own->op->kind & CUDA_OP_BACKWARD ? describe_backward(call, out) : describe_forward(call, out);
}

hal_status_t cuda_convolution_run(void *state, const hal_op_call_t *call) {
  dnn_work_t work;
  const hal_status_t status = describe(state, call, &work);
  return status ? status : cuda_convolution_queue(call, &work);
}

hal_status_t cuda_convolution_ask(void *state, const hal_op_call_t *call) {
  dnn_work_t work;
  const hal_status_t status = describe(state, call, &work);
  return status ? status : cuda_convolution_query(&work);
}
