/* convolution_op.c: the convolution operators: converts their arguments to those of the library. A transposed
 * convolution computes the large image from the small one, which is the gradient of the normal convolution. */
#include <string.h>

#include "dnn.h"
#include "op.h"

/* ---- arguments -------------------------------------------------------------------------------------------------- */

/* Reads a list with a number for each spatial dimension, or one number for all; `count` is the library's number of
 * dimensions, and an inserted first one has the value `usual`. */
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

/* Returns whether the three shapes match as the library requires. */
static int fits(const dnn_convolution_t *c) {
  if (c->large.ndim != c->small.ndim || c->large.ndim != c->filter.ndim) return 0;
  if (c->large.sizes[0] != c->small.sizes[0] || c->groups < 1) return 0;
  if (c->filter.sizes[0] != c->small.sizes[1] || c->small.sizes[1] % c->groups) return 0;
  if ((int64_t)c->filter.sizes[1] * c->groups != c->large.sizes[1]) return 0;
  for (int i = 0; i + 2 < c->large.ndim; i++)
    if (windows_over(c, i) != c->small.sizes[i + 2]) return 0;
  return 1;
}

/* Reads the numbers from argument `first` on: stride, padding, dilation, transposed, output_padding (implied by the
 * sizes), groups. */
static int read_numbers(const hal_op_call_t *call, uint32_t first, int spatial, dnn_convolution_t *out) {
  const int count = out->large.ndim - 2;
  double groups = 0;
  if (call->arg_count < first + 6 || !cuda_op_number(&call->args[first + 5], &groups)) return 0;
  out->groups = groups >= 1 && groups <= INT32_MAX ? (int)groups : 0;
  return read_list(&call->args[first], spatial, count, 1, 1, out->step) &&
         read_list(&call->args[first + 1], spatial, count, 0, 0, out->pad) &&
         read_list(&call->args[first + 2], spatial, count, 1, 1, out->dilation);
}

static void *data_of(const hal_tensor_t *tensor) { return tensor ? tensor->data : NULL; }

/* ---- memory formats --------------------------------------------------------------------------------------------- */

/* Returns the memory format of all results that most operands have, too. -1 = the results have none. */
static int choose_format(const hal_tensor_t *const *operands, size_t count, const hal_tensor_t *const *results,
                         size_t result_count) {
  static const cudnnTensorFormat_t formats[] = {CUDNN_TENSOR_NCHW, CUDNN_TENSOR_NHWC};
  int format = -1, best = -1;
  for (size_t f = 0; f < sizeof formats / sizeof *formats; f++) {
    int score = 0, fits_all = 1;
    for (size_t i = 0; i < result_count; i++) fits_all &= !results[i] || cuda_dnn_lies_in(results[i], formats[f]);
    for (size_t i = 0; i < count; i++) score += cuda_dnn_lies_in(operands[i], formats[f]);
    if (fits_all && score > best) best = score, format = (int)formats[f];
  }
  return format;
}

/* Returns whether no two elements overlap: each stride exceeds the extent of the smaller ones. */
static int is_apart(const dnn_copy_t *copy) {
  int64_t reach = 1; /* the extent of the previous dimensions */
  int done[DNN_DIMS] = {0};
  for (int round = 0; round < copy->of.ndim; round++) {
    int least = -1;
    for (int i = 0; i < copy->of.ndim; i++)
      if (!done[i] && (least < 0 || copy->strides[i] < copy->strides[least])) least = i;
    done[least] = 1;
    if (copy->of.sizes[least] == 1) continue;
    if (copy->strides[least] < reach) return 0;
    reach += (int64_t)copy->strides[least] * (copy->of.sizes[least] - 1);
    if (reach > INT32_MAX) return 0;
  }
  return 1;
}

/* Returns 0 if the library cannot express the operand's layout. */
static int add_copy(dnn_work_t *work, int place, const hal_tensor_t *operand) {
  dnn_copy_t *const copy = &work->copies[work->copy_count++];
  const int missing = operand->ndim < 4 ? 4 - operand->ndim : 0;
  copy->operand = place;
  if (!cuda_dnn_image(operand, &copy->image)) return 0;
  copy->of = copy->image;
  for (int i = 0; i < DNN_DIMS; i++) copy->strides[i] = 1;
  for (int i = 0; i < operand->ndim; i++) {
    const int at = i < 2 ? i : i + missing;
    if (operand->strides[i] < 0 || operand->strides[i] > INT32_MAX) return 0;
    if (operand->strides[i] == 0) copy->of.sizes[at] = 1;
    if (copy->of.sizes[at] > 1) copy->strides[at] = (int)operand->strides[i];
  }
  return is_apart(copy);
}

/* Returns whether operands and results have one dtype and one memory format, or can be copied to it. */
static int take_tensors(const hal_tensor_t *const *operands, size_t count, const hal_tensor_t *const *results,
                        size_t result_count, dnn_work_t *out) {
  for (size_t i = 0; i < count; i++)
    if (operands[i]->dtype != operands[0]->dtype) return 0;
  for (size_t i = 0; i < result_count; i++)
    if (results[i] && results[i]->dtype != operands[0]->dtype) return 0;
  out->convolution.dtype = (int)operands[0]->dtype;
  out->convolution.format = choose_format(operands, count, results, result_count);
  if (out->convolution.format < 0) return 0;
  for (size_t i = 0; i < count; i++) {
    out->memory[i] = operands[i]->data;
    if (!cuda_dnn_lies_in(operands[i], (cudnnTensorFormat_t)out->convolution.format) &&
        !add_copy(out, (int)i, operands[i]))
      return 0;
  }
  for (size_t i = 0; i < result_count; i++) out->memory[DNN_OPERANDS + i] = data_of(results[i]);
  return 1;
}

/* ---- operators -------------------------------------------------------------------------------------------------- */

/* Returns whether the bias has one number per channel. */
static int is_bias(const hal_tensor_t *bias, hal_dtype_t dtype, int64_t channels) {
  return bias->dtype == dtype && bias->ndim == 1 && bias->sizes[0] == channels &&
         (channels == 1 || bias->strides[0] == 1);
}

static int has_shape(const hal_tensor_t *tensor, const hal_tensor_t *like) {
  return !tensor || (tensor->ndim == like->ndim &&
                     memcmp(tensor->sizes, like->sizes, (size_t)like->ndim * sizeof *like->sizes) == 0);
}

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

/* Indices of memory. Operands: input, weight; backward the gradient, input, weight. */
enum { FIRST_RESULT = DNN_OPERANDS, SECOND_RESULT };

static void add_pass(dnn_work_t *work, dnn_direction_t direction, int large, int small, int filter) {
  work->passes[work->pass_count++] = (dnn_pass_t){direction, large, small, filter};
}

/* HAL_UNIMPLEMENTED = the library cannot express it. */
static hal_status_t describe_forward(const hal_op_call_t *call, dnn_work_t *out) {
  const hal_tensor_t *const input = cuda_op_tensor(call, 0), *const weight = cuda_op_tensor(call, 1),
                            *const bias = cuda_op_tensor(call, 2), *const result = cuda_op_result(call, 0);
  const hal_tensor_t *const operands[] = {input, weight};
  int transposed = 0;
  if (!input || !weight || !result || (!bias && call->args[2].tag != HAL_VALUE_NONE)) return HAL_UNIMPLEMENTED;
  if (!take_tensors(operands, 2, &result, 1, out) ||
      !take_shapes(call, 3, input, result, weight, &transposed, &out->convolution) ||
      (bias && !is_bias(bias, input->dtype, result->sizes[1])))
    return HAL_UNIMPLEMENTED;
  out->bias = data_of(bias);
  if (transposed)
    add_pass(out, DNN_LARGE, FIRST_RESULT, 0, 1);
  else
    add_pass(out, DNN_SMALL, 0, FIRST_RESULT, 1);
  return HAL_OK;
}

static int reads(const dnn_work_t *work, int place) {
  int found = work->bias_gradient && place == 0;
  for (int i = 0; i < work->pass_count; i++)
    found |= work->passes[i].large == place || work->passes[i].small == place || work->passes[i].filter == place;
  return found;
}

/* If only one gradient is requested, only the shape of some operands is used. */
static void drop_unread_copies(dnn_work_t *work) {
  int kept = 0;
  for (int i = 0; i < work->copy_count; i++)
    if (reads(work, work->copies[i].operand)) work->copies[kept++] = work->copies[i];
  work->copy_count = kept;
}

static hal_status_t describe_backward(const hal_op_call_t *call, dnn_work_t *out) {
  const hal_tensor_t *const grad = cuda_op_tensor(call, 0), *const input = cuda_op_tensor(call, 1),
                            *const weight = cuda_op_tensor(call, 2), *const of_input = cuda_op_result(call, 0),
                            *const of_weight = cuda_op_result(call, 1), *const of_bias = cuda_op_result(call, 2);
  const hal_tensor_t *const operands[] = {grad, input, weight}, *const results[] = {of_input, of_weight};
  int transposed = 0;
  if (!grad || !input || !weight || !take_tensors(operands, 3, results, 2, out) ||
      !take_shapes(call, 3, input, grad, weight, &transposed, &out->convolution))
    return HAL_UNIMPLEMENTED;
  if (!has_shape(of_input, input) || !has_shape(of_weight, weight) ||
      (of_bias && !is_bias(of_bias, grad->dtype, grad->sizes[1])))
    return HAL_UNIMPLEMENTED;
  const int large = transposed ? 0 : 1, small = transposed ? 1 : 0;
  if (of_input && transposed) add_pass(out, DNN_SMALL, large, FIRST_RESULT, 2);
  if (of_input && !transposed) add_pass(out, DNN_LARGE, FIRST_RESULT, small, 2);
  if (of_weight) add_pass(out, DNN_FILTER, large, small, SECOND_RESULT);
  out->gradient_is_large = transposed;
  out->bias_gradient = data_of(of_bias);
  drop_unread_copies(out);
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
