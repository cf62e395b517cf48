/* nll.c: launchers of the negative log likelihood of classes and its gradient. Inputs are N x classes x positions,
 * targets N x positions, all contiguous. */
#include "hal_op_variants.h"
#include "ops/nll/nll_args.h"
#include "ops/reduce/reduce.h"

HAL_OP_LAUNCHER(queue_nll_each, items, NLL_EACH_ARGS)
HAL_OP_LAUNCHER(queue_nll_sums, groups, NLL_SUMS_ARGS)
HAL_OP_LAUNCHER(queue_nll_finish, groups, NLL_FINISH_ARGS)
HAL_OP_LAUNCHER(queue_nll_backward, items, NLL_BACKWARD_ARGS)

#define CHUNK 4096 /* samples of a group: 64 in each accumulator */

enum { NONE = 0, MEAN = 1, SUM = 2 }; /* torch's numbers of reductions */

typedef struct loss_s {
  int64_t n, classes, places, ignore, reduction, site;
  void *error; /* the stream's record, for targets that are not a class */
  uint64_t samples;
  hal_dtype_t dtype;
  const hal_tensor_t *target, *weight; /* weight may be NULL */
} loss_t;

/* Reads the common arguments of both directions: target, weight at `first`, reduction, ignore_index at `numbers`. */
static hal_status_t read_loss(hal_op_context_t *context, const hal_op_call_t *call, const hal_tensor_t *input,
                              uint32_t first, uint32_t numbers, loss_t *out) {
  if (input->ndim != 3)
    return hal_op_invalid(context, "the input has %d dimensions; expected N x classes x positions", (int)input->ndim);
  if (!hal_op_has_dtype(context, input->dtype)) return HAL_UNIMPLEMENTED;
  out->n = input->sizes[0], out->classes = input->sizes[1], out->places = input->sizes[2];
  out->dtype = input->dtype;
  int64_t numel, samples;
  HAL_RETURN_IF_ERROR(hal_op_numel(context, input, "the input", &numel));
  HAL_RETURN_IF_ERROR(hal_op_tensor(context, call, first, &out->target));
  HAL_RETURN_IF_ERROR(hal_op_numel(context, out->target, "target", &samples));
  if (out->target->ndim != 2 || out->target->sizes[0] != out->n || out->target->sizes[1] != out->places)
    return hal_op_invalid(context, "target has %d dimensions and %lld elements; expected %lld x %lld",
                          (int)out->target->ndim, (long long)samples, (long long)out->n, (long long)out->places);
  HAL_RETURN_IF_ERROR(hal_op_check_dense(context, input, "the input", numel, out->dtype));
  HAL_RETURN_IF_ERROR(hal_op_check_dense(context, out->target, "target", samples, HAL_INT64));
  out->samples = (uint64_t)samples;
  out->weight = NULL;
  if (call->args[first + 1].tag != HAL_VALUE_NONE) {
    HAL_RETURN_IF_ERROR(hal_op_tensor(context, call, first + 1, &out->weight));
    HAL_RETURN_IF_ERROR(hal_op_check_dense(context, out->weight, "weight", out->classes, out->dtype));
  }
  HAL_RETURN_IF_ERROR(hal_op_int(context, call, numbers, &out->reduction));
  if (out->reduction < NONE || out->reduction > SUM)
    return hal_op_invalid(context, "unknown reduction %lld; expected 0 (none), 1 (mean) or 2 (sum)",
                          (long long)out->reduction);
  HAL_RETURN_IF_ERROR(hal_op_int(context, call, numbers + 1, &out->ignore));
  out->site = hal_op_site(context, 0);
  return hal_op_report_address(context, &out->error);
}

static hal_status_t launch_each(hal_op_context_t *context, loss_t *in, const hal_tensor_t *self,
                                const hal_tensor_t *result) {
  hal_plugin_kernel_t *kernel;
  HAL_RETURN_IF_ERROR(hal_op_check_dense(context, result, "the result", (int64_t)in->samples, in->dtype));
  HAL_RETURN_IF_ERROR(hal_op_kernel(context, in->dtype, HAL_NLL_VARIANT_EACH, &kernel));
  int32_t with_weight = in->weight != NULL;
  void *target = result->data, *a = self->data, *classes = in->target->data;
  void *weight = in->weight ? in->weight->data : a; /* any valid address */
  HAL_RETURN_IF_ERROR(queue_nll_each(context, kernel, in->samples, target, a, classes, weight, in->samples, in->classes,
                                     in->places, in->ignore, with_weight, in->site, in->error));
  return hal_op_report_launched(context);
}

static hal_status_t launch_sums(hal_op_context_t *context, loss_t *in, const hal_tensor_t *self,
                                const hal_tensor_t *result, const hal_tensor_t *total_weight) {
  hal_plugin_kernel_t *kernel, *finish;
  hal_op_scratch_t scratch = {.block = NULL};
  uint64_t chunk = CHUNK, chunks = in->samples ? (in->samples + chunk - 1) / chunk : 1;
  HAL_RETURN_IF_ERROR(hal_op_check_dense(context, result, "the result", 1, in->dtype));
  HAL_RETURN_IF_ERROR(hal_op_check_dense(context, total_weight, "total_weight", 1, in->dtype));
  HAL_RETURN_IF_ERROR(hal_op_kernel(context, in->dtype, HAL_NLL_VARIANT_SUMS, &kernel));
  HAL_RETURN_IF_ERROR(hal_op_kernel(context, in->dtype, HAL_NLL_VARIANT_FINISH, &finish));
  int32_t with_weight = in->weight != NULL, mean = in->reduction == MEAN, final = chunks == 1;
  void *target = result->data, *total = total_weight->data, *sums = target, *a = self->data;
  void *classes = in->target->data, *weight = in->weight ? in->weight->data : a;
  if (!final) {
    const size_t size = (size_t)chunks * 2 * hal_op_dtype_size(hal_op_accumulator(context, in->dtype));
    HAL_RETURN_IF_ERROR(hal_op_scratch(context, size, &scratch));
    sums = scratch.address;
  }
  hal_status_t status =
      queue_nll_sums(context, kernel, chunks, target, total, sums, a, classes, weight, in->samples, chunk, in->classes,
                     in->places, in->ignore, with_weight, mean, final, in->site, in->error);
  if (!status && !final) {
    status = queue_nll_finish(context, finish, 1, target, total, sums, chunks, mean);
  }
  hal_op_scratch_release(&scratch);
  return status ? status : hal_op_report_launched(context);
}

/* Arguments: self, target, weight, reduction, ignore_index. Results: the losses or their sum or mean; the total weight
 * unless there is a loss per sample. */
hal_status_t hal_op_launch_nll(hal_op_context_t *context, const hal_op_call_t *call) {
  const hal_tensor_t *self, *result, *total_weight;
  loss_t in;
  HAL_RETURN_IF_ERROR(hal_op_tensor(context, call, 0, &self));
  HAL_RETURN_IF_ERROR(read_loss(context, call, self, 1, 3, &in));
  HAL_RETURN_IF_ERROR(hal_op_result(context, call, 0, &result));
  if (in.reduction == NONE) return launch_each(context, &in, self, result);
  HAL_RETURN_IF_ERROR(hal_op_result(context, call, 1, &total_weight));
  return launch_sums(context, &in, self, result, total_weight);
}

/* Arguments: grad_output, target, weight, total_weight, reduction, ignore_index. Result: the gradient of the input. */
hal_status_t hal_op_launch_nll_backward(hal_op_context_t *context, const hal_op_call_t *call) {
  const hal_tensor_t *grad, *total_weight, *result;
  loss_t in;
  hal_plugin_kernel_t *kernel;
  HAL_RETURN_IF_ERROR(hal_op_result(context, call, 0, &result));
  HAL_RETURN_IF_ERROR(hal_op_tensor(context, call, 0, &grad));
  HAL_RETURN_IF_ERROR(read_loss(context, call, result, 1, 4, &in));
  HAL_RETURN_IF_ERROR(hal_op_tensor(context, call, 3, &total_weight));
  int32_t with_weight = in.weight != NULL, each = in.reduction == NONE, mean = in.reduction == MEAN;
  HAL_RETURN_IF_ERROR(hal_op_check_dense(context, grad, "grad_output", each ? (int64_t)in.samples : 1, in.dtype));
  HAL_RETURN_IF_ERROR(hal_op_check_dense(context, total_weight, "total_weight", 1, in.dtype));
  HAL_RETURN_IF_ERROR(hal_op_kernel(context, in.dtype, HAL_NLL_BACKWARD_VARIANT_BACKWARD, &kernel));
  uint64_t lines = (uint64_t)in.n * (uint64_t)(in.places == 1 ? 1 : in.classes);
  if (in.classes == 0 || in.places == 0) return HAL_OK;
  void *target = result->data, *dy = grad->data, *classes = in.target->data, *total = total_weight->data;
  void *weight = in.weight ? in.weight->data : dy;
  HAL_RETURN_IF_ERROR(queue_nll_backward(context, kernel, lines, target, dy, classes, weight, total, lines, in.classes,
                                         in.places, in.ignore, with_weight, each, mean, in.site, in.error));
  return hal_op_report_launched(context);
}
