/* max_pool.c: launchers of max pooling, with windows of a size and adaptive ones, and of its backward. Operators
 * without a `kernel_size` are the adaptive ones. */
#include <string.h>

#include "op/dims.h"
#include "op/window.h"

#include "hal_op_variants.h"
#include "ops/max_pool/max_pool_args.h"

HAL_OP_LAUNCHER(queue_max_pool_rows, loops, MAX_POOL_ROWS_ARGS)
HAL_OP_LAUNCHER(queue_max_pool_backward_rows, loops, MAX_POOL_BACKWARD_ROWS_ARGS)

#define LEAST_BAND 8   /* rows */
#define FEWEST_LANES 4 /* channels */

/* Reads the lists from argument `first` on, or computes adaptive windows. */
static hal_status_t read_window(const hal_op_context_t *context, const hal_op_call_t *call, uint32_t first,
                                const hal_op_volume_t *input, const hal_op_volume_t *windows, pk_window_t *out) {
  memset(out, 0, sizeof *out);
  out->adaptive = context->info->argument_count == first;
  if (!out->adaptive)
    HAL_RETURN_IF_ERROR(hal_op_window_read(context, call, first, first + 1, first + 2, first + 3, input->spatial, out));
  out->adaptive = context->info->argument_count == first;
  out->channels = input->channels;
  for (int d = 0; d < 3; d++) {
    out->in[d] = input->space[d];
    out->out[d] = windows->space[d];
    if (out->adaptive) out->dilation[d] = 1;
    if (out->in[d] > INT32_MAX || out->out[d] > INT32_MAX) /* products of two of them must not overflow */
      return hal_op_invalid(context, "%lld windows over %lld positions: a dimension exceeds 2^31 - 1",
                            (long long)out->out[d], (long long)out->in[d]);
  }
  return HAL_OK;
}

static hal_status_t check_indices(const hal_op_context_t *context, const hal_tensor_t *indices) {
  if (indices->dtype == HAL_INT64) return HAL_OK;
  return hal_op_invalid(context, "the indices have dtype %s; expected int64", hal_op_dtype_name(indices->dtype));
}

/* Returns the number of adjacent channels that an item computes: all on devices with few cores if channels are last.
 * The kernel counts their positions in 32 bits. */
static int64_t forward_lanes(const hal_op_context_t *context, const hal_op_volume_t *input,
                             const hal_op_volume_t *output, const hal_op_volume_t *places) {
  const int last = input->strides.channel == 1 && output->strides.channel == 1 && places->strides.channel == 1;
  int64_t plane;
  if (hal_op_target(context)->form == HAL_FORM_SIMT || !last || input->channels < FEWEST_LANES) return 1;
  if (__builtin_mul_overflow(input->space[0] * input->space[1], input->space[2], &plane) || plane > INT32_MAX) return 1;
  return input->channels;
}

hal_status_t hal_op_launch_max_pool(hal_op_context_t *context, const hal_op_call_t *call) {
  const hal_tensor_t *self, *values, *indices;
  hal_op_volume_t input, output, places;
  pk_window_t window;
  hal_plugin_kernel_t *kernel;
  int64_t numel;
  HAL_RETURN_IF_ERROR(hal_op_tensor(context, call, 0, &self));
  HAL_RETURN_IF_ERROR(hal_op_result(context, call, 0, &values));
  HAL_RETURN_IF_ERROR(hal_op_result(context, call, 1, &indices));
  HAL_RETURN_IF_ERROR(check_indices(context, indices));
  HAL_RETURN_IF_ERROR(hal_op_check_same_dtype(context, self, "`self`", values, "the values"));
  HAL_RETURN_IF_ERROR(hal_op_check_same_shape(context, values, "the values", indices, "the places"));
  HAL_RETURN_IF_ERROR(hal_op_volume(context, self, "`self`", &input));
  HAL_RETURN_IF_ERROR(hal_op_volume(context, values, "the values", &output));
  HAL_RETURN_IF_ERROR(hal_op_volume(context, indices, "the places", &places));
  HAL_RETURN_IF_ERROR(hal_op_volume_matches(context, &output, "the result", &input, "`self`"));
  HAL_RETURN_IF_ERROR(read_window(context, call, 1, &input, &output, &window));
  HAL_RETURN_IF_ERROR(hal_op_numel(context, values, "the values", &numel));
  HAL_RETURN_IF_ERROR(hal_op_kernel(context, self->dtype, HAL_MAX_POOL_VARIANT_ROWS, &kernel));
  if (numel == 0) return HAL_OK;

  void *v = values->data, *q = indices->data;
  const void *a = self->data;
  int64_t lanes = forward_lanes(context, &input, &output, &places);
  uint64_t n = (uint64_t)(numel / output.space[2] / lanes);
  return queue_max_pool_rows(context, kernel, n, v, q, a, n, &window, &output.strides, &places.strides, &input.strides,
                             lanes);
}

/* How many rows of the input's gradient an item of the backward computes, for how many adjacent channels. Results do
 * not depend on it. */
typedef struct share_s {
  int64_t rows, band, lanes;
} share_t;

/* Few items with many rows on devices with few cores, if positions along the spatial dimensions have equal distances.
 * Adjacent items read the windows that overlap both, so a band must not be small. */
static share_t share_rows(const hal_op_context_t *context, const hal_op_volume_t *input) {
  const int64_t *const size = input->space, *const stride = input->strides.space;
  share_t share = {.rows = input->batch * input->channels * size[0] * size[1], .band = 0, .lanes = 1};
  const int even = (size[1] == 1 || stride[1] == stride[2] * size[2]) &&
                   (size[0] == 1 || stride[0] == stride[2] * size[2] * size[1]);
  if (hal_op_target(context)->form == HAL_FORM_SIMT || !even) return share;
  if (input->strides.channel == 1 && stride[2] == input->channels) share.lanes = input->channels;
  share.rows /= share.lanes;
  share.band = (int64_t)hal_op_units_per_group(context, (uint64_t)(size[2] * share.lanes));
  if (share.band < LEAST_BAND) share.band = LEAST_BAND;
  return share;
}

hal_status_t hal_op_launch_max_pool_backward(hal_op_context_t *context, const hal_op_call_t *call) {
  const hal_tensor_t *grad, *indices, *result;
  hal_op_volume_t input, output, places;
  pk_window_t window;
  hal_plugin_kernel_t *kernel;
  int64_t numel;
  HAL_RETURN_IF_ERROR(hal_op_tensor(context, call, 0, &grad));
  HAL_RETURN_IF_ERROR(hal_op_tensor(context, call, 1, &indices));
  HAL_RETURN_IF_ERROR(hal_op_result(context, call, 0, &result));
  HAL_RETURN_IF_ERROR(check_indices(context, indices));
  HAL_RETURN_IF_ERROR(hal_op_check_same_dtype(context, grad, "`grad_output`", result, "the result"));
  HAL_RETURN_IF_ERROR(hal_op_check_same_shape(context, grad, "`grad_output`", indices, "`indices`"));
  HAL_RETURN_IF_ERROR(hal_op_volume(context, result, "the result", &input));
  HAL_RETURN_IF_ERROR(hal_op_volume(context, grad, "`grad_output`", &output));
  HAL_RETURN_IF_ERROR(hal_op_volume(context, indices, "`indices`", &places));
  HAL_RETURN_IF_ERROR(hal_op_volume_matches(context, &input, "the result", &output, "`grad_output`"));
  HAL_RETURN_IF_ERROR(read_window(context, call, 2, &input, &output, &window));
  HAL_RETURN_IF_ERROR(hal_op_numel(context, result, "the result", &numel));
  HAL_RETURN_IF_ERROR(hal_op_kernel(context, grad->dtype, HAL_MAX_POOL_BACKWARD_VARIANT_ROWS, &kernel));
  if (numel == 0) return HAL_OK;

  void *x = result->data;
  const void *g = grad->data, *q = indices->data;
  share_t share = share_rows(context, &input);
  uint64_t n = (uint64_t)(share.band ? (share.rows + share.band - 1) / share.band : share.rows);
  return queue_max_pool_backward_rows(context, kernel, n, x, g, q, n, &window, &input.strides, &output.strides,
                                      &places.strides, share.rows, share.band, share.lanes);
}
