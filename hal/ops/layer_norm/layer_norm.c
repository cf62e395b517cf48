/* layer_norm.c: launchers of the normalization of rows and its gradients. Matrices are rows x n and contiguous; the
 * mean and 1 / sqrt(variance + eps) of the rows are contiguous and of the accumulators' dtype. */
#include "hal_op_ids.h"
#include "hal_op_variants.h"
#include "ops/layer_norm/layer_norm_args.h"
#include "ops/reduce/reduce.h"

HAL_OP_LAUNCHER(queue_layer_norm_forward, groups, LAYER_NORM_FORWARD_ARGS)
HAL_OP_LAUNCHER(queue_layer_norm_backward, groups, LAYER_NORM_BACKWARD_ARGS)
HAL_OP_LAUNCHER(queue_layer_norm_columns, groups, LAYER_NORM_COLUMNS_ARGS)

#define ROWS_CHUNK 512 /* rows of a unit of the gradients of weight and bias */
#define STRIP PK_LSIZE /* columns of such a unit */

typedef struct matrix_s {
  int64_t rows, n;
  hal_dtype_t dtype, accumulator;
} matrix_t;

/* Reads the matrix that determines the sizes of all other operands. */
static hal_status_t read_matrix(const hal_op_context_t *context, const hal_tensor_t *tensor, matrix_t *out) {
  if (tensor->ndim != 2 || !hal_op_is_contiguous(tensor))
    return hal_op_invalid(context, "the input has %d dimensions; expected a contiguous matrix", (int)tensor->ndim);
  if (!hal_op_has_dtype(context, tensor->dtype)) return HAL_UNIMPLEMENTED;
  *out = (matrix_t){.rows = tensor->sizes[0], .n = tensor->sizes[1], .dtype = tensor->dtype};
  out->accumulator = hal_op_accumulator(context, tensor->dtype);
  return HAL_OK;
}

/* The dtype of weight and bias: that of the input or of the accumulators, determined by the first one that exists. */
static hal_dtype_t parameter_dtype(const hal_op_call_t *call, uint32_t first, uint32_t last, const matrix_t *m) {
  for (uint32_t i = first; i <= last; i++)
    if (call->args[i].tag == HAL_VALUE_TENSOR && call->args[i].u.t)
      return call->args[i].u.t->dtype == m->accumulator ? m->accumulator : m->dtype;
  return m->dtype;
}

hal_status_t hal_op_launch_layer_norm(hal_op_context_t *context, const hal_op_call_t *call) {
  const hal_tensor_t *input, *weight, *bias, *results[3];
  matrix_t m = {.rows = 0};
  hal_op_scalar_t eps;
  hal_plugin_kernel_t *kernel;
  HAL_RETURN_IF_ERROR(hal_op_tensor(context, call, 0, &input));
  HAL_RETURN_IF_ERROR(read_matrix(context, input, &m));
  const hal_dtype_t dtype = parameter_dtype(call, 1, 2, &m);
  HAL_RETURN_IF_ERROR(hal_op_optional_dense(context, call, 1, m.n, dtype, &weight));
  HAL_RETURN_IF_ERROR(hal_op_optional_dense(context, call, 2, m.n, dtype, &bias));
  HAL_RETURN_IF_ERROR(hal_op_scalar(context, &call->args[3], m.accumulator, "eps", &eps));
  for (uint32_t i = 0; i < 3; i++) HAL_RETURN_IF_ERROR(hal_op_result(context, call, i, &results[i]));
  HAL_RETURN_IF_ERROR(hal_op_check_dense(context, results[0], "the result", m.rows * m.n, m.dtype));
  HAL_RETURN_IF_ERROR(hal_op_check_dense(context, results[1], "the mean", m.rows, m.accumulator));
  HAL_RETURN_IF_ERROR(hal_op_check_dense(context, results[2], "rstd", m.rows, m.accumulator));
  HAL_RETURN_IF_ERROR(hal_op_kernel(context, m.dtype, HAL_LAYER_NORM_VARIANT_FORWARD, &kernel));
  uint64_t rows = (uint64_t)m.rows, per_group = hal_op_units_per_group(context, 4 * (uint64_t)m.n);
  int32_t with_weight = weight != NULL, with_bias = bias != NULL;
  const int32_t wide = dtype != m.dtype;
  void *result = results[0]->data, *mean = results[1]->data, *rstd = results[2]->data, *a = input->data;
  void *w = weight ? weight->data : a, *b = bias ? bias->data : a; /* any valid address */
  return queue_layer_norm_forward(context, kernel, (rows + per_group - 1) / per_group, result, mean, rstd, a, w, b,
                                  rows, per_group, m.n, hal_op_number(&eps), with_weight, with_bias, wide);
}

/* The operands of the gradients. */
typedef struct backward_s {
  matrix_t m;
  hal_dtype_t parameters; /* dtype of the weight and of the gradients of weight and bias */
  const hal_tensor_t *grad, *input, *mean, *rstd, *weight;
} backward_t;

static hal_status_t launch_input(hal_op_context_t *context, const backward_t *in, const hal_tensor_t *result) {
  hal_plugin_kernel_t *kernel;
  HAL_RETURN_IF_ERROR(
      hal_op_check_dense(context, result, "the gradient of the input", in->m.rows * in->m.n, in->m.dtype));
  HAL_RETURN_IF_ERROR(hal_op_kernel(context, in->m.dtype, HAL_LAYER_NORM_VARIANT_BACKWARD, &kernel));
  uint64_t rows = (uint64_t)in->m.rows, per_group = hal_op_units_per_group(context, 4 * (uint64_t)in->m.n);
  int64_t n = in->m.n;
  int32_t with_weight = in->weight != NULL, wide = in->parameters != in->m.dtype;
  void *target = result->data, *grad = in->grad->data, *a = in->input->data, *mean = in->mean->data;
  void *rstd = in->rstd->data, *weight = in->weight ? in->weight->data : a;
  return queue_layer_norm_backward(context, kernel, (rows + per_group - 1) / per_group, target, grad, a, mean, rstd,
                                   weight, rows, per_group, n, with_weight, wide);
}

/* Gradients of weight and bias, either of which may be NULL. */
static hal_status_t launch_parameters(hal_op_context_t *context, const backward_t *in, const hal_tensor_t *weight,
                                      const hal_tensor_t *bias) {
  int64_t rows = in->m.rows, n = in->m.n, chunk = ROWS_CHUNK;
  const int64_t chunks = rows ? (rows + chunk - 1) / chunk : 1;
  const uint64_t strips = (uint64_t)((n + STRIP - 1) / STRIP);
  hal_plugin_kernel_t *kernel;
  hal_op_scratch_t scratch = {.block = NULL};
  size_t size;
  if (weight) HAL_RETURN_IF_ERROR(hal_op_check_dense(context, weight, "the gradient of the weight", n, in->parameters));
  if (bias) HAL_RETURN_IF_ERROR(hal_op_check_dense(context, bias, "the gradient of the bias", n, in->parameters));
  HAL_RETURN_IF_ERROR(hal_op_kernel(context, in->m.dtype, HAL_LAYER_NORM_VARIANT_COLUMNS, &kernel));
  const uint32_t element = hal_op_dtype_size(in->m.accumulator);
  if (__builtin_mul_overflow((size_t)chunks * 2 * element, (size_t)n, &size))
    return hal_op_too_large(context, UINT64_MAX);
  HAL_RETURN_IF_ERROR(hal_op_scratch(context, size, &scratch));
  char *const sums = scratch.address;
  void *weight_sums = sums, *bias_sums = sums + size / 2;
  void *grad = in->grad->data, *a = in->input->data, *mean = in->mean->data, *rstd = in->rstd->data;
  uint64_t units = strips * (uint64_t)chunks,
           per_group = hal_op_units_per_group(context, (uint64_t)(rows < chunk ? rows : chunk) * STRIP);
  int32_t with_weight = weight != NULL;
  hal_status_t status =
      queue_layer_norm_columns(context, kernel, (units + per_group - 1) / per_group, weight_sums, bias_sums, grad, a,
                               mean, rstd, units, per_group, rows, n, chunk, with_weight);
  if (!status && weight) status = hal_op_add_rows(context, chunks, weight_sums, in->m.accumulator, weight);
  if (!status && bias) status = hal_op_add_rows(context, chunks, bias_sums, in->m.accumulator, bias);
  hal_op_scratch_release(&scratch);
  return status;
}

/* Results: gradients of the input, the weight and the bias; those that are NULL are not computed. */
hal_status_t hal_op_launch_layer_norm_backward(hal_op_context_t *context, const hal_op_call_t *call) {
  backward_t in;
  HAL_RETURN_IF_ERROR(hal_op_tensor(context, call, 0, &in.grad));
  HAL_RETURN_IF_ERROR(hal_op_tensor(context, call, 1, &in.input));
  HAL_RETURN_IF_ERROR(hal_op_tensor(context, call, 2, &in.mean));
  HAL_RETURN_IF_ERROR(hal_op_tensor(context, call, 3, &in.rstd));
  HAL_RETURN_IF_ERROR(read_matrix(context, in.input, &in.m));
  in.parameters = parameter_dtype(call, 4, 4, &in.m);
  HAL_RETURN_IF_ERROR(hal_op_optional_dense(context, call, 4, in.m.n, in.parameters, &in.weight));
  HAL_RETURN_IF_ERROR(hal_op_check_dense(context, in.grad, "grad_out", in.m.rows * in.m.n, in.m.dtype));
  HAL_RETURN_IF_ERROR(hal_op_check_dense(context, in.mean, "mean", in.m.rows, in.m.accumulator));
  HAL_RETURN_IF_ERROR(hal_op_check_dense(context, in.rstd, "rstd", in.m.rows, in.m.accumulator));
  if (call->result_count != 3)
    return hal_op_invalid(context, "the call has %u results; expected three, NULL if not requested",
                          (unsigned)call->result_count);
  for (uint32_t i = 0; i < 3; i++)
    if (call->results[i]) HAL_RETURN_IF_ERROR(hal_op_check_tensor(context, call->results[i], "the result"));
  if (call->results[0]) HAL_RETURN_IF_ERROR(launch_input(context, &in, call->results[0]));
  if (!call->results[1] && !call->results[2]) return HAL_OK;
  return launch_parameters(context, &in, call->results[1], call->results[2]);
}
