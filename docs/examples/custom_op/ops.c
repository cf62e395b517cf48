/* ops.c: the operators of ops.yaml: each finds its kernel and queues it on the stream. Shapes, dtypes and devices were
 * checked, and the results allocated, before we are called. */
#include "example_ops_ops.h"
#include "kernel_args.h"

PK_LAUNCHER(launch_rms_norm, groups, RMS_NORM_FORWARD_ARGS)
PK_LAUNCHER(launch_rms_norm_backward, groups, RMS_NORM_BACKWARD_ARGS)
PK_LAUNCHER(launch_swish, items, SWISH_FORWARD_ARGS)
PK_LAUNCHER(launch_swish_mul, items, SWISH_PRODUCT_ARGS)

static uint64_t elements(const hal_tensor_t *tensor) {
  uint64_t count = 1;
  for (int32_t d = 0; d < tensor->ndim; d++) count *= (uint64_t)tensor->sizes[d];
  return count;
}

hal_status_t example_rms_norm(void *state, int32_t device, hal_stream_t *stream, const hal_op_call_t *call) {
  (void)state;
  const hal_tensor_t *x = call->args[EXAMPLE_RMS_NORM_X].u.t, *weight = call->args[EXAMPLE_RMS_NORM_WEIGHT].u.t;
  const hal_tensor_t *y = call->results[EXAMPLE_RMS_NORM_OUT_Y], *rstd = call->results[EXAMPLE_RMS_NORM_OUT_RSTD];
  const double eps = call->args[EXAMPLE_RMS_NORM_EPS].u.d;
  const int64_t n = weight->sizes[0];
  hal_kernel_t *kernel = NULL;
  HAL_RETURN_IF_ERROR(example_ops_kernel(device, "rms_norm", x->dtype, "forward", &kernel));
  return launch_rms_norm(kernel, stream, elements(rstd), y->data, rstd->data, x->data, weight->data, n, eps);
}

hal_status_t example_rms_norm_backward(void *state, int32_t device, hal_stream_t *stream, const hal_op_call_t *call) {
  (void)state;
  const hal_tensor_t *grad = call->args[EXAMPLE_RMS_NORM_BACKWARD_GRAD].u.t;
  const hal_tensor_t *x = call->args[EXAMPLE_RMS_NORM_BACKWARD_X].u.t;
  const hal_tensor_t *weight = call->args[EXAMPLE_RMS_NORM_BACKWARD_WEIGHT].u.t;
  const hal_tensor_t *rstd = call->args[EXAMPLE_RMS_NORM_BACKWARD_RSTD].u.t;
  const hal_tensor_t *result = call->results[EXAMPLE_RMS_NORM_BACKWARD_OUT_RESULT];
  const int64_t n = weight->sizes[0];
  hal_kernel_t *kernel = NULL;
  HAL_RETURN_IF_ERROR(example_ops_kernel(device, "rms_norm", x->dtype, "backward", &kernel));
  return launch_rms_norm_backward(kernel, stream, elements(rstd), result->data, grad->data, x->data, weight->data,
                                  rstd->data, n);
}

hal_status_t example_swish(void *state, int32_t device, hal_stream_t *stream, const hal_op_call_t *call) {
  (void)state;
  const hal_tensor_t *x = call->args[EXAMPLE_SWISH_X].u.t, *y = call->results[EXAMPLE_SWISH_OUT_RESULT];
  const uint64_t n = elements(x);
  hal_kernel_t *kernel = NULL;
  HAL_RETURN_IF_ERROR(example_ops_kernel(device, "swish", x->dtype, "forward", &kernel));
  return launch_swish(kernel, stream, n, y->data, x->data, n);
}

hal_status_t example_swish_mul(void *state, int32_t device, hal_stream_t *stream, const hal_op_call_t *call) {
  (void)state;
  const hal_tensor_t *x = call->args[EXAMPLE_SWISH_MUL_X].u.t, *w = call->args[EXAMPLE_SWISH_MUL_W].u.t;
  const hal_tensor_t *y = call->results[EXAMPLE_SWISH_MUL_OUT_RESULT];
  const uint64_t n = elements(x);
  hal_kernel_t *kernel = NULL;
  HAL_RETURN_IF_ERROR(example_ops_kernel(device, "swish", x->dtype, "product", &kernel));
  return launch_swish_mul(kernel, stream, n, y->data, x->data, w->data, n);
}
