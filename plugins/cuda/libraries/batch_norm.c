/* batch_norm.c: normalization of the channels of a batch by cuDNN. It supports calls with weight and bias, and,
 * backward, with the batch's own statistics; parameters and statistics of the short types are float32. The portable
 * kernels run all other calls. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "dnn.h"
#include "op.h"

enum { MOST_BATCH = 65535, MOST_CHANNELS = 65535 }; /* the library is known to have no kernels for more */

typedef struct norm_s {
  const char *op; /* string literal */
  int32_t device;
  int backward, training;
  hal_dtype_t dtype;
  cudnnTensorFormat_t format;
  dnn_image_t image;
  const void *input, *grad, *weight, *bias, *mean, *scale; /* the given statistics: running ones, or the batch's */
  void *result, *running_mean, *running_var, *saved_mean, *saved_rstd; /* forward; NULL: not requested */
  void *of_input, *of_weight, *of_bias;                                /* backward; NULL: not requested */
  double momentum, eps;
} norm_t;

/* ---- arguments -------------------------------------------------------------------------------------------------- */

/* Reads one number per channel; *out = NULL if there is no tensor. Returns 0 if it is something else. */
static int take_channels(const norm_t *norm, const hal_tensor_t *tensor, void **out) {
  *out = NULL;
  if (!tensor || (tensor->ndim == 1 && tensor->sizes[0] == 0)) return 1; /* not saved in evaluation */
  if (tensor->dtype != (norm->dtype == HAL_FLOAT64 ? HAL_FLOAT64 : HAL_FLOAT32)) return 0;
  if (tensor->ndim != 1 || tensor->sizes[0] != norm->image.sizes[1]) return 0;
  *out = tensor->data;
  return tensor->sizes[0] == 1 || tensor->strides[0] == 1;
}

static int read_channels(const norm_t *norm, const hal_op_call_t *call, uint32_t index, const void **out) {
  void *data = NULL;
  const int good = take_channels(norm, cuda_op_tensor(call, index), &data);
  *out = data;
  return good;
}

static int take_images(const hal_tensor_t *const *tensors, size_t count, norm_t *out) {
  for (size_t i = 0; i < count; i++) {
    dnn_image_t image;
    if (!tensors[i]) continue;
    if (tensors[i]->dtype != tensors[0]->dtype || !cuda_dnn_image(tensors[i], &image)) return 0;
    if (i == 0) out->image = image;
    if (memcmp(&image, &out->image, sizeof image) != 0) return 0;
  }
  const int format = cuda_dnn_format(tensors, count);
  out->dtype = tensors[0]->dtype;
  out->format = (cudnnTensorFormat_t)format;
  return format >= 0 && out->image.sizes[0] <= MOST_BATCH && out->image.sizes[1] <= MOST_CHANNELS;
}

/* Returns the number of values per channel; a single one has no variance. */
static int64_t numbers_of_channel(const dnn_image_t *image) {
  int64_t numbers = 1;
  for (int i = 0; i < image->ndim; i++) numbers *= i == 1 ? 1 : image->sizes[i];
  return numbers;
}

/* New running statistics overwrite the old ones, both or none. */
static int take_training(const hal_op_call_t *call, norm_t *out) {
  const hal_tensor_t *const new_mean = cuda_op_result(call, 3), *const new_var = cuda_op_result(call, 4);
  if (!take_channels(out, cuda_op_result(call, 1), &out->saved_mean) ||
      !take_channels(out, cuda_op_result(call, 2), &out->saved_rstd) ||
      !take_channels(out, new_mean, &out->running_mean) || !take_channels(out, new_var, &out->running_var))
    return 0;
  if (!out->saved_mean != !out->saved_rstd || !out->running_mean != !out->running_var) return 0;
  if (out->running_mean && (out->running_mean != out->mean || out->running_var != out->scale)) return 0;
  return numbers_of_channel(&out->image) > 1;
}

/* HAL_UNIMPLEMENTED = the library cannot express it. */
static hal_status_t describe_forward(const hal_op_call_t *call, norm_t *out) {
  const hal_tensor_t *const tensors[] = {cuda_op_tensor(call, 0), cuda_op_result(call, 0)};
  double training = 0;
  if (call->arg_count < 8 || !tensors[0] || !tensors[1] || !take_images(tensors, 2, out)) return HAL_UNIMPLEMENTED;
  if (!read_channels(out, call, 1, &out->weight) || !read_channels(out, call, 2, &out->bias) ||
      !read_channels(out, call, 3, &out->mean) || !read_channels(out, call, 4, &out->scale) ||
      !cuda_op_number(&call->args[5], &training) || !cuda_op_number(&call->args[6], &out->momentum) ||
      !cuda_op_number(&call->args[7], &out->eps))
    return HAL_UNIMPLEMENTED;
  out->training = training != 0;
  out->input = tensors[0]->data;
  out->result = tensors[1]->data;
  if (!out->weight || !out->bias || !(out->eps >= 0) || !isfinite(out->eps)) return HAL_UNIMPLEMENTED;
  if (out->training) return take_training(call, out) ? HAL_OK : HAL_UNIMPLEMENTED;
  return out->mean && out->scale ? HAL_OK : HAL_UNIMPLEMENTED;
}

static hal_status_t describe_backward(const hal_op_call_t *call, norm_t *out) {
  const hal_tensor_t *const tensors[] = {cuda_op_tensor(call, 1), cuda_op_tensor(call, 0), cuda_op_result(call, 0)};
  double training = 0;
  if (call->arg_count < 9 || !tensors[0] || !tensors[1] || !take_images(tensors, 3, out)) return HAL_UNIMPLEMENTED;
  if (!read_channels(out, call, 2, &out->weight) || !read_channels(out, call, 5, &out->mean) ||
      !read_channels(out, call, 6, &out->scale) || !cuda_op_number(&call->args[7], &training) ||
      !cuda_op_number(&call->args[8], &out->eps) || !take_channels(out, cuda_op_result(call, 1), &out->of_weight) ||
      !take_channels(out, cuda_op_result(call, 2), &out->of_bias))
    return HAL_UNIMPLEMENTED;
  out->input = tensors[0]->data;
  out->grad = tensors[1]->data;
  out->of_input = tensors[2] ? tensors[2]->data : NULL;
  return training != 0 && out->weight && out->mean && out->scale && out->eps >= 0 && isfinite(out->eps)
             ? HAL_OK
             : HAL_UNIMPLEMENTED;
}

static hal_status_t describe(const cuda_op_state_t *own, const hal_op_call_t *call, norm_t *out) {
  memset(out, 0, sizeof *out);
  out->op = own->op->name;
  out->device = own->device;
  out->backward = own->op->kind & CUDA_OP_BACKWARD;
  return out->backward ? describe_backward(call, out) : describe_forward(call, out);
}

/* ---- calls ------------------------------------------------------------------------------------------------------ */

typedef struct plan_s {
  cudnnHandle_t handle;
  cudnnTensorDescriptor_t image, channels;
} plan_t;

static void drop_plan(const norm_t *norm, plan_t *plan) {
  if (plan->image) dnn.cudnnDestroyTensorDescriptor(plan->image);
  if (plan->channels) dnn.cudnnDestroyTensorDescriptor(plan->channels);
  if (plan->handle) cuda_dnn_give(norm->device, plan->handle);
}

static cudnnStatus_t make_plan(const norm_t *norm, plan_t *plan) {
  const dnn_image_t channels = cuda_dnn_channels(&norm->image);
  const hal_dtype_t wide = norm->dtype == HAL_FLOAT64 ? HAL_FLOAT64 : HAL_FLOAT32;
  *plan = (plan_t){NULL, NULL, NULL};
  cudnnStatus_t code = cuda_dnn_take(norm->device, &plan->handle);
  if (!code) code = cuda_dnn_describe(norm->dtype, norm->format, &norm->image, &plan->image);
  if (!code) code = cuda_dnn_describe(wide, norm->format, &channels, &plan->channels);
  return code;
}

static cudnnStatus_t call_forward(const norm_t *norm, const plan_t *plan) {
  const void *const one = cuda_dnn_factor(norm->dtype, 1), *const zero = cuda_dnn_factor(norm->dtype, 0);
  if (!norm->training)
    return dnn.cudnnBatchNormalizationForwardInference(plan->handle, CUDNN_BATCHNORM_SPATIAL, one, zero, plan->image,
                                                       norm->input, plan->image, norm->result, plan->channels,
                                                       norm->weight, norm->bias, norm->mean, norm->scale, norm->eps);
  return dnn.cudnnBatchNormalizationForwardTraining(plan->handle, CUDNN_BATCHNORM_SPATIAL, one, zero, plan->image,
                                                    norm->input, plan->image, norm->result, plan->channels,
                                                    norm->weight, norm->bias, norm->momentum, norm->running_mean,
                                                    norm->running_var, norm->eps, norm->saved_mean, norm->saved_rstd);
}

static cudnnStatus_t call_backward(const norm_t *norm, const plan_t *plan) {
  const void *const one = cuda_dnn_factor(norm->dtype, 1), *const zero = cuda_dnn_factor(norm->dtype, 0);
  return dnn.cudnnBatchNormalizationBackward(plan->handle, CUDNN_BATCHNORM_SPATIAL, one, zero, one, zero, plan->image,
                                             norm->input, plan->image, norm->grad, plan->image, norm->of_input,
                                             plan->channels, norm->weight, norm->of_weight, norm->of_bias, norm->eps,
                                             norm->mean, norm->scale);
}

/* The library computes all three gradients. Those that are not requested are written to scratch memory. */
static hal_status_t take_rooms(const hal_op_call_t *call, norm_t *norm) {
  const size_t column = (size_t)norm->image.sizes[1] * (norm->dtype == HAL_FLOAT64 ? 8 : 4);
  const size_t image = cuda_dnn_bytes(norm->dtype, &norm->image);
  hal_status_t status = HAL_OK;
  if (!norm->backward) return HAL_OK;
  if (!norm->of_input) status = hal_host->scratch_alloc(call, image, &norm->of_input);
  if (!status && !norm->of_weight) status = hal_host->scratch_alloc(call, column, &norm->of_weight);
  if (!status && !norm->of_bias) status = hal_host->scratch_alloc(call, column, &norm->of_bias);
  return status;
}

/* The library has no query for its kernels. It refuses unsupported calls, and then nothing was queued. */
static hal_status_t queue_plan(const hal_op_call_t *call, norm_t *norm, const plan_t *plan) {
  char what[128] = "";
  cuda_submit_t submit;
  hal_status_t status = take_rooms(call, norm);
  if (!status) status = cuda_submit_begin(&submit, call->stream, call->device, norm->op);
  if (status) return status;
  submit.work.kernel = norm->backward   ? "cudnnBatchNormalizationBackward"
                       : norm->training ? "cudnnBatchNormalizationForwardTraining"
                                        : "cudnnBatchNormalizationForwardInference";
  cudnnStatus_t code = dnn.cudnnSetStream(plan->handle, submit.handle);
  if (!code) code = norm->backward ? call_backward(norm, plan) : call_forward(norm, plan);
  if (CUDA_UNLIKELY(code))
    snprintf(what, sizeof what, "%s of %d images of %d channels", norm->op, norm->image.sizes[0], norm->image.sizes[1]);
  status = cuda_library_submitted(&cuda_dnn, &submit, (int)code, what);
  return status == HAL_INTERNAL && cuda_dnn_is_unsupported(code) ? HAL_UNIMPLEMENTED : status;
}

hal_status_t cuda_batch_norm_run(void *state, const hal_op_call_t *call) {
  norm_t norm;
  plan_t plan;
  cuda_scope_t scope;
  hal_status_t status = describe(state, call, &norm);
  if (!status) status = cuda_enter(norm.device, &scope);
  if (status) return status;
  const cudnnStatus_t code = make_plan(&norm, &plan);
  if (cuda_dnn_has_no_memory(code))
    status = cuda_library_no_memory(&cuda_dnn, norm.op, (int)code);
  else
    status = code ? HAL_UNIMPLEMENTED : queue_plan(call, &norm, &plan);
  drop_plan(&norm, &plan);
  cuda_leave(&scope);
  return status;
}

hal_status_t cuda_batch_norm_ask(void *state, const hal_op_call_t *call) {
  norm_t norm;
  return describe(state, call, &norm);
}
