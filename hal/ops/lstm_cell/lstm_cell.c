/* lstm_cell.c: launchers of a step of an LSTM or of a GRU, and of their backwards. Matrices are contiguous with a row
 * for each sample: the state has `width` columns, gates and workspace of an LSTM four times as many, of a GRU three and
 * five times. */
#include "hal_op_variants.h"
#include "op/dims.h"
#include "ops/lstm_cell/gru_cell_args.h"
#include "ops/lstm_cell/lstm_cell_args.h"

HAL_OP_LAUNCHER(queue_lstm_cell_forward, loops, LSTM_CELL_FORWARD_ARGS)
HAL_OP_LAUNCHER(queue_lstm_cell_backward, loops, LSTM_CELL_BACKWARD_ARGS)
HAL_OP_LAUNCHER(queue_gru_cell_forward, loops, GRU_CELL_FORWARD_ARGS)
HAL_OP_LAUNCHER(queue_gru_cell_backward, loops, GRU_CELL_BACKWARD_ARGS)

#define COST 64 /* a column with its five functions takes the time of as many elements of memory traffic */

typedef struct samples_s {
  int64_t state, gates, width; /* elements of a state and of an LSTM's gates; columns of a state */
  hal_dtype_t dtype;
} samples_t;

/* Reads the state that determines the sizes of all other operands. */
static hal_status_t read_state(const hal_op_context_t *context, const hal_op_call_t *call, uint32_t index,
                               const hal_tensor_t **out_state, samples_t *out) {
  HAL_RETURN_IF_ERROR(hal_op_tensor(context, call, index, out_state));
  const hal_tensor_t *state = *out_state;
  if (state->ndim != 2 || !hal_op_is_contiguous(state))
    return hal_op_invalid(context, "%s has %d dimensions; expected a contiguous matrix",
                          context->info->arguments[index], (int)state->ndim);
  if (!hal_op_has_dtype(context, state->dtype)) return HAL_UNIMPLEMENTED;
  HAL_RETURN_IF_ERROR(hal_op_numel(context, state, context->info->arguments[index], &out->state));
  int64_t most; /* of a workspace */
  if (__builtin_mul_overflow(out->state, 4, &out->gates) || __builtin_mul_overflow(out->state, 5, &most))
    return hal_op_too_large(context, UINT64_MAX);
  out->width = state->sizes[1];
  out->dtype = state->dtype;
  return HAL_OK;
}

static hal_status_t read_dense(const hal_op_context_t *context, const hal_op_call_t *call, uint32_t index,
                               int64_t count, hal_dtype_t dtype, const hal_tensor_t **out) {
  HAL_RETURN_IF_ERROR(hal_op_tensor(context, call, index, out));
  return hal_op_check_dense(context, *out, context->info->arguments[index], count, dtype);
}

static hal_status_t result_dense(const hal_op_context_t *context, const hal_op_call_t *call, uint32_t index,
                                 int64_t count, hal_dtype_t dtype, void **out) {
  static const char *const names[] = {"the first result", "the second result", "the third result"};
  const hal_tensor_t *tensor;
  HAL_RETURN_IF_ERROR(hal_op_result(context, call, index, &tensor));
  *out = tensor->data;
  return hal_op_check_dense(context, tensor, names[index], count, dtype);
}

/* Divides the columns among items; returns their number. */
static uint64_t divide(const hal_op_context_t *context, const samples_t *in, pk_lstm_t *out) {
  const uint64_t most = hal_op_target(context)->row_block, width = (uint64_t)in->width;
  out->width = width;
  out->block = width < most ? width : most;
  out->blocks = (width + out->block - 1) / out->block;
  out->spans = (uint64_t)in->state / width * out->blocks;
  out->per_item = hal_op_units_per_group(context, COST * out->block);
  return (out->spans + out->per_item - 1) / out->per_item;
}

static hal_status_t read_biases(const hal_op_context_t *context, const hal_op_call_t *call, int64_t count,
                                hal_dtype_t dtype, const hal_tensor_t *out[2]) {
  for (uint32_t i = 0; i < 2; i++)
    HAL_RETURN_IF_ERROR(hal_op_optional_dense(context, call, 3 + i, count, dtype, &out[i]));
  if (!out[0] != !out[1]) return hal_op_invalid(context, "one bias is missing; pass both or none");
  return HAL_OK;
}

hal_status_t hal_op_launch_lstm_cell(hal_op_context_t *context, const hal_op_call_t *call) {
  const hal_tensor_t *cx, *input, *hidden, *bias[2];
  hal_plugin_kernel_t *kernel;
  pk_lstm_t how;
  samples_t in;
  void *hy, *cy, *work;
  HAL_RETURN_IF_ERROR(read_state(context, call, 2, &cx, &in));
  HAL_RETURN_IF_ERROR(read_dense(context, call, 0, in.gates, in.dtype, &input));
  HAL_RETURN_IF_ERROR(read_dense(context, call, 1, in.gates, in.dtype, &hidden));
  HAL_RETURN_IF_ERROR(read_biases(context, call, 4 * in.width, in.dtype, bias));
  HAL_RETURN_IF_ERROR(result_dense(context, call, 0, in.state, in.dtype, &hy));
  HAL_RETURN_IF_ERROR(result_dense(context, call, 1, in.state, in.dtype, &cy));
  HAL_RETURN_IF_ERROR(result_dense(context, call, 2, in.gates, in.dtype, &work));
  HAL_RETURN_IF_ERROR(hal_op_kernel(context, in.dtype, HAL_LSTM_CELL_VARIANT_FORWARD, &kernel));
  if (in.state == 0) return HAL_OK;

  uint64_t items = divide(context, &in, &how);
  int32_t with_bias = bias[0] != NULL;
  void *a = input->data, *b = hidden->data, *c = cx->data;
  void *bias_a = with_bias ? bias[0]->data : a, *bias_b = with_bias ? bias[1]->data : b; /* any valid address */
  return queue_lstm_cell_forward(context, kernel, items, hy, cy, work, a, b, c, bias_a, bias_b, items, &how, with_bias);
}

hal_status_t hal_op_launch_lstm_cell_backward(hal_op_context_t *context, const hal_op_call_t *call) {
  const hal_tensor_t *grad[2], *cx, *cy, *work;
  hal_plugin_kernel_t *kernel;
  pk_lstm_t how;
  samples_t in;
  void *gates, *before;
  HAL_RETURN_IF_ERROR(read_state(context, call, 2, &cx, &in));
  for (uint32_t i = 0; i < 2; i++)
    HAL_RETURN_IF_ERROR(hal_op_optional_dense(context, call, i, in.state, in.dtype, &grad[i]));
  if (!grad[0] && !grad[1]) return hal_op_invalid(context, "grad_hy and grad_cy are missing; pass at least one");
  HAL_RETURN_IF_ERROR(read_dense(context, call, 3, in.state, in.dtype, &cy));
  HAL_RETURN_IF_ERROR(read_dense(context, call, 4, in.gates, in.dtype, &work));
  HAL_RETURN_IF_ERROR(result_dense(context, call, 0, in.gates, in.dtype, &gates));
  HAL_RETURN_IF_ERROR(result_dense(context, call, 1, in.state, in.dtype, &before));
  HAL_RETURN_IF_ERROR(hal_op_kernel(context, in.dtype, HAL_LSTM_CELL_BACKWARD_VARIANT_BACKWARD, &kernel));
  if (in.state == 0) return HAL_OK;

  uint64_t items = divide(context, &in, &how);
  int32_t with_hy = grad[0] != NULL, with_cy = grad[1] != NULL;
  void *c = cx->data, *d = cy->data, *w = work->data;
  void *grad_hy = with_hy ? grad[0]->data : c, *grad_cy = with_cy ? grad[1]->data : c; /* any valid address */
  return queue_lstm_cell_backward(context, kernel, items, gates, before, grad_hy, grad_cy, c, d, w, items, &how,
                                  with_hy, with_cy);
}

hal_status_t hal_op_launch_gru_cell(hal_op_context_t *context, const hal_op_call_t *call) {
  const hal_tensor_t *hx, *input, *hidden, *bias[2];
  hal_plugin_kernel_t *kernel;
  pk_lstm_t how;
  samples_t in;
  void *hy, *work;
  HAL_RETURN_IF_ERROR(read_state(context, call, 2, &hx, &in));
  HAL_RETURN_IF_ERROR(read_dense(context, call, 0, 3 * in.state, in.dtype, &input));
  HAL_RETURN_IF_ERROR(read_dense(context, call, 1, 3 * in.state, in.dtype, &hidden));
  HAL_RETURN_IF_ERROR(read_biases(context, call, 3 * in.width, in.dtype, bias));
  HAL_RETURN_IF_ERROR(result_dense(context, call, 0, in.state, in.dtype, &hy));
  HAL_RETURN_IF_ERROR(result_dense(context, call, 1, 5 * in.state, in.dtype, &work));
  HAL_RETURN_IF_ERROR(hal_op_kernel(context, in.dtype, HAL_GRU_CELL_VARIANT_FORWARD, &kernel));
  if (in.state == 0) return HAL_OK;

  uint64_t items = divide(context, &in, &how);
  int32_t with_bias = bias[0] != NULL;
  void *a = input->data, *b = hidden->data;
  void *bias_a = with_bias ? bias[0]->data : a, *bias_b = with_bias ? bias[1]->data : b; /* any valid address */
  return queue_gru_cell_forward(context, kernel, items, hy, work, a, b, hx->data, bias_a, bias_b, items, &how,
                                with_bias);
}

hal_status_t hal_op_launch_gru_cell_backward(hal_op_context_t *context, const hal_op_call_t *call) {
  const hal_tensor_t *grad, *work;
  hal_plugin_kernel_t *kernel;
  pk_lstm_t how;
  samples_t in;
  void *input, *hidden, *before;
  HAL_RETURN_IF_ERROR(read_state(context, call, 0, &grad, &in));
  HAL_RETURN_IF_ERROR(read_dense(context, call, 1, 5 * in.state, in.dtype, &work));
  HAL_RETURN_IF_ERROR(result_dense(context, call, 0, 3 * in.state, in.dtype, &input));
  HAL_RETURN_IF_ERROR(result_dense(context, call, 1, 3 * in.state, in.dtype, &hidden));
  HAL_RETURN_IF_ERROR(result_dense(context, call, 2, in.state, in.dtype, &before));
  HAL_RETURN_IF_ERROR(hal_op_kernel(context, in.dtype, HAL_GRU_CELL_BACKWARD_VARIANT_BACKWARD, &kernel));
  if (in.state == 0) return HAL_OK;

  uint64_t items = divide(context, &in, &how);
  return queue_gru_cell_backward(context, kernel, items, input, hidden, before, grad->data, work->data, items, &how);
}
