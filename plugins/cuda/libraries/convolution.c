/* convolution.c: convolutions and their gradients by cuDNN: descriptors, their algorithms, the calls. */
#include <stdio.h>
#include <string.h>

#include "dnn.h"

static void drop_plan(const dnn_work_t *work, dnn_plan_t *plan) {
  cudnnTensorDescriptor_t const images[] = {plan->large, plan->small, plan->channels};
  for (size_t i = 0; i < sizeof images / sizeof *images; i++)
    if (images[i]) dnn.cudnnDestroyTensorDescriptor(images[i]);
  if (plan->filter) dnn.cudnnDestroyFilterDescriptor(plan->filter);
  if (plan->convolution) dnn.cudnnDestroyConvolutionDescriptor(plan->convolution);
  if (plan->handle) cuda_dnn_give(work->convolution.device, plan->handle);
}

/* The short types are accumulated in float32. */
static cudnnStatus_t make_convolution(const dnn_convolution_t *from, cudnnConvolutionDescriptor_t *out) {
  const cudnnDataType_t compute = from->dtype == HAL_FLOAT64 ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
  const int is_short = from->dtype == HAL_FLOAT16 || from->dtype == HAL_BFLOAT16;
  cudnnStatus_t code = dnn.cudnnCreateConvolutionDescriptor(out);
  if (!code)
    code = dnn.cudnnSetConvolutionNdDescriptor(*out, from->large.ndim - 2, from->pad, from->step, from->dilation,
                                               CUDNN_CROSS_CORRELATION, compute);
  if (!code) code = dnn.cudnnSetConvolutionGroupCount(*out, from->groups);
  if (!code) code = dnn.cudnnSetConvolutionMathType(*out, is_short ? CUDNN_TENSOR_OP_MATH : CUDNN_FMA_MATH);
  return code;
}

static cudnnStatus_t make_filter(const dnn_convolution_t *from, cudnnFilterDescriptor_t *out) {
  const cudnnStatus_t code = dnn.cudnnCreateFilterDescriptor(out);
  if (code) return code;
  return dnn.cudnnSetFilterNdDescriptor(*out, cuda_dnn_type((hal_dtype_t)from->dtype),
                                        (cudnnTensorFormat_t)from->format, from->filter.ndim, from->filter.sizes);
}

/* Returns the image to which a bias is added, or which is summed for the bias's gradient. */
static const dnn_image_t *biased_image(const dnn_work_t *work) {
  const int large = work->bias_gradient ? work->gradient_is_large : work->passes[0].direction == DNN_LARGE;
  return large ? &work->convolution.large : &work->convolution.small;
}

/* CUDNN_STATUS_NOT_SUPPORTED = the library cannot compute it. */
static cudnnStatus_t make_plan(const dnn_work_t *work, dnn_plan_t *plan) {
  const dnn_convolution_t *const of = &work->convolution;
  const hal_dtype_t dtype = (hal_dtype_t)of->dtype;
  const cudnnTensorFormat_t format = (cudnnTensorFormat_t)of->format;
  const dnn_image_t channels = cuda_dnn_channels(biased_image(work));
  memset(plan, 0, sizeof *plan);
  cudnnStatus_t code = cuda_dnn_take(of->device, &plan->handle);
  if (!code) code = cuda_dnn_describe(dtype, format, &of->large, &plan->large);
  if (!code) code = cuda_dnn_describe(dtype, format, &of->small, &plan->small);
  if (!code && (work->bias || work->bias_gradient)) code = cuda_dnn_describe(dtype, format, &channels, &plan->channels);
  if (!code) code = make_filter(of, &plan->filter);
  if (!code) code = make_convolution(of, &plan->convolution);
  for (int i = 0; i < work->pass_count && !code; i++)
    code = cuda_dnn_choose(plan, of, work->passes[i].direction, &plan->choices[i]);
  return code;
}

/* Out of memory is a failure. If the library refuses for another reason, the portable kernels may support the call. */
static hal_status_t refuse_plan(const dnn_work_t *work, cudnnStatus_t code) {
  return cuda_dnn_has_no_memory(code) ? cuda_library_no_memory(&cuda_dnn, work->op, (int)code) : HAL_UNIMPLEMENTED;
}

hal_status_t cuda_convolution_query(const dnn_work_t *work) {
  dnn_plan_t plan;
  cuda_scope_t scope;
  const hal_status_t status = cuda_enter(work->convolution.device, &scope);
  if (status) return status;
  const cudnnStatus_t code = make_plan(work, &plan);
  drop_plan(work, &plan);
  cuda_leave(&scope);
  return code ? refuse_plan(work, code) : HAL_OK;
}

/* ---- calls ------------------------------------------------------------------------------------------------------ */

static cudnnStatus_t call_pass(const dnn_work_t *work, const dnn_plan_t *plan, int index, void *workspace) {
  const dnn_pass_t *const pass = &work->passes[index];
  const dnn_choice_t *const choice = &plan->choices[index];
  const hal_dtype_t dtype = (hal_dtype_t)work->convolution.dtype;
  const void *const one = cuda_dnn_factor(dtype, 1), *const zero = cuda_dnn_factor(dtype, 0);
  void *const room = choice->workspace ? workspace : NULL;
  void *const large = work->memory[pass->large], *const small = work->memory[pass->small],
              *const filter = work->memory[pass->filter];
  const cudnnStatus_t code = dnn.cudnnSetConvolutionMathType(plan->convolution, choice->math);
  if (code) return code;
  switch (pass->direction) {
    case DNN_SMALL:
      return dnn.cudnnConvolutionForward(plan->handle, one, plan->large, large, plan->filter, filter, plan->convolution,
                                         choice->algorithm, room, choice->workspace, zero, plan->small, small);
    case DNN_LARGE:
      return dnn.cudnnConvolutionBackwardData(plan->handle, one, plan->filter, filter, plan->small, small,
                                              plan->convolution, choice->algorithm, room, choice->workspace, zero,
                                              plan->large, large);
    default:
      return dnn.cudnnConvolutionBackwardFilter(plan->handle, one, plan->large, large, plan->small, small,
                                                plan->convolution, choice->algorithm, room, choice->workspace, zero,
                                                plan->filter, filter);
  }
}

static cudnnStatus_t call_bias(const dnn_work_t *work, const dnn_plan_t *plan) {
  const hal_dtype_t dtype = (hal_dtype_t)work->convolution.dtype;
  const void *const one = cuda_dnn_factor(dtype, 1), *const zero = cuda_dnn_factor(dtype, 0);
  const dnn_pass_t *const first = &work->passes[0];
  const int large = biased_image(work) == &work->convolution.large;
  const cudnnTensorDescriptor_t image = large ? plan->large : plan->small;
  if (work->bias)
    return dnn.cudnnAddTensor(plan->handle, one, plan->channels, work->bias, one, image,
                              work->memory[large ? first->large : first->small]);
  if (work->bias_gradient)
    return dnn.cudnnConvolutionBackwardBias(plan->handle, one, image, work->memory[0], zero, plan->channels,
                                            work->bias_gradient);
  return CUDNN_STATUS_SUCCESS;
}

/* A source with repeated dimensions is expanded by cudnnAddTensor, with beta = 0 for the memory's old contents. */
static cudnnStatus_t call_copy(const dnn_work_t *work, const dnn_plan_t *plan, const dnn_copy_t *copy, void *to) {
  const hal_dtype_t dtype = (hal_dtype_t)work->convolution.dtype;
  const void *const one = cuda_dnn_factor(dtype, 1), *const zero = cuda_dnn_factor(dtype, 0);
  const void *const from = work->memory[copy->operand];
  cudnnTensorDescriptor_t here = NULL, there = NULL;
  cudnnStatus_t code = cuda_dnn_describe_strided(dtype, &copy->of, copy->strides, &here);
  if (!code) code = cuda_dnn_describe(dtype, (cudnnTensorFormat_t)work->convolution.format, &copy->image, &there);
  if (!code)
    code = memcmp(&copy->of, &copy->image, sizeof copy->of) == 0
               ? dnn.cudnnTransformTensor(plan->handle, one, here, from, zero, there, to)
               : dnn.cudnnAddTensor(plan->handle, one, here, from, zero, there, to);
  if (here) dnn.cudnnDestroyTensorDescriptor(here);
  if (there) dnn.cudnnDestroyTensorDescriptor(there);
  return code;
}

/* Runs before anything is written to a result: if the library cannot make a copy, the portable kernels run. */
static cudnnStatus_t call_copies(dnn_work_t *work, const dnn_plan_t *plan, void *const rooms[DNN_OPERANDS]) {
  cudnnStatus_t code = CUDNN_STATUS_SUCCESS;
  for (int i = 0; i < work->copy_count && !code; i++) {
    code = call_copy(work, plan, &work->copies[i], rooms[i]);
    work->memory[work->copies[i].operand] = rooms[i];
  }
  return code;
}

static cudnnStatus_t call_library(const dnn_work_t *work, const dnn_plan_t *plan, void *workspace) {
  cudnnStatus_t code = CUDNN_STATUS_SUCCESS;
  for (int i = 0; i < work->pass_count && !code; i++) code = call_pass(work, plan, i, workspace);
  return code ? code : call_bias(work, plan);
}

/* Returns the name of the profile's record. */
static const char *name_of(const dnn_work_t *work) {
  static const char *const names[] = {"cudnnConvolutionForward", "cudnnConvolutionBackwardData",
                                      "cudnnConvolutionBackwardFilter"};
  return work->pass_count ? names[work->passes[0].direction] : "cudnnConvolutionBackwardBias";
}

/* Reserves scratch memory: the larger of the passes' workspaces, and memory for each copy. */
static hal_status_t take_scratch(const hal_op_call_t *call, const dnn_work_t *work, const dnn_plan_t *plan,
                                 void **out_workspace, void *out_rooms[DNN_OPERANDS]) {
  size_t bytes = 0;
  for (int i = 0; i < work->pass_count; i++)
    if (plan->choices[i].workspace > bytes) bytes = plan->choices[i].workspace;
  hal_status_t status = bytes ? hal_host->scratch_alloc(call, bytes, out_workspace) : HAL_OK;
  for (int i = 0; i < work->copy_count && !status; i++)
    status = hal_host->scratch_alloc(call, cuda_dnn_bytes((hal_dtype_t)work->convolution.dtype, &work->copies[i].image),
                                     &out_rooms[i]);
  return status;
}

static hal_status_t queue_plan(const hal_op_call_t *call, dnn_work_t *work, const dnn_plan_t *plan) {
  const dnn_image_t *const large = &work->convolution.large;
  char what[160] = "";
  cuda_submit_t submit;
  void *workspace = NULL, *rooms[DNN_OPERANDS] = {NULL};
  hal_status_t status = take_scratch(call, work, plan, &workspace, rooms);
  if (!status) status = cuda_submit_begin(&submit, call->stream, call->device, work->op);
  if (status) return status;
  submit.work.kernel = name_of(work);
  cudnnStatus_t code = dnn.cudnnSetStream(plan->handle, submit.handle);
  if (!code) code = call_copies(work, plan, rooms);
  const int untouched = cuda_dnn_is_unsupported(code);
  if (!code) code = call_library(work, plan, workspace);
  if (CUDA_UNLIKELY(code))
    snprintf(what, sizeof what, "%s of %d images of %d channels and %d x %d elements", work->op, large->sizes[0],
             large->sizes[1], large->sizes[large->ndim - 2], large->sizes[large->ndim - 1]);
  status = cuda_library_submitted(&cuda_dnn, &submit, (int)code, what);
  return untouched && status == HAL_INTERNAL ? HAL_UNIMPLEMENTED : status;
}

hal_status_t cuda_convolution_queue(const hal_op_call_t *call, dnn_work_t *work) {
  dnn_plan_t plan;
  cuda_scope_t scope;
  hal_status_t status = cuda_enter(call->device, &scope);
  if (status) return status;
  const cudnnStatus_t code = make_plan(work, &plan);
  status = code ? refuse_plan(work, code) : queue_plan(call, work, &plan);
  drop_plan(work, &plan);
  cuda_leave(&scope);
  return status;
}
