/* columns.c: launchers of im2col and col2im: the windows of a convolution as columns of a matrix, and back. */
#include <string.h>

#include "op/dims.h"
#include "op/window.h"

#include "hal_op_variants.h"
#include "ops/columns/columns_args.h"

HAL_OP_LAUNCHER(queue_unfold, loops, COLUMNS_UNFOLD_ARGS)
HAL_OP_LAUNCHER(queue_fold, loops, COLUMNS_FOLD_ARGS)

/* The matrix (batch, channel x position, window) must match the images and their windows; its columns have stride 1. */
static hal_status_t check_matrix(const hal_op_context_t *context, const hal_tensor_t *matrix, const char *what,
                                 const hal_op_volume_t *image, const pk_window_t *w) {
  int64_t rows = image->channels, columns = 1;
  int overflow = 0;
  for (int d = 0; d < 3; d++) {
    overflow |= __builtin_mul_overflow(rows, w->size[d], &rows);
    overflow |= __builtin_mul_overflow(columns, w->out[d], &columns);
  }
  if (overflow || matrix->ndim != 3 || matrix->sizes[0] != image->batch || matrix->sizes[1] != rows ||
      matrix->sizes[2] != columns)
    return hal_op_invalid(context, "%s must have the shape %lld x %lld x %lld", what, (long long)image->batch,
                          (long long)rows, (long long)columns);
  return matrix->strides[2] == 1 || columns <= 1 ? HAL_OK : HAL_UNIMPLEMENTED;
}

/* Returns the tensor with an additional batch dimension of size 1 if it has one dimension less; borrows from `sizes`
 * and `strides`. */
static hal_tensor_t batched(const hal_tensor_t *tensor, int32_t ndim, int64_t *sizes, int64_t *strides) {
  hal_tensor_t batch = *tensor;
  if (tensor->ndim != ndim - 1) return batch;
  sizes[0] = 1, strides[0] = 0;
  memcpy(sizes + 1, tensor->sizes, (size_t)tensor->ndim * sizeof *sizes);
  memcpy(strides + 1, tensor->strides, (size_t)tensor->ndim * sizeof *strides);
  batch.ndim = ndim, batch.sizes = sizes, batch.strides = strides;
  return batch;
}

/* Reads the windows. The operators with ATen's arguments do not pass their number: windows have two dimensions. */
static hal_status_t read_windows(const hal_op_context_t *context, const hal_op_call_t *call,
                                 const hal_op_volume_t *image, pk_window_t *w) {
  const int32_t windows = hal_op_named(context, "windows");
  const uint32_t size = (uint32_t)hal_op_named(context, "kernel_size");
  HAL_RETURN_IF_ERROR(hal_op_window_read(context, call, size, size + 3, size + 2, size + 1, image->spatial, w));
  w->channels = image->channels;
  memcpy(w->in, image->space, sizeof w->in);
  if (windows >= 0) return hal_op_window_list(context, call, (uint32_t)windows, image->spatial, 0, 1, w->out);
  for (int d = 0; d < 3; d++) {
    const int64_t room = w->in[d] + 2 * w->pad[d] - w->dilation[d] * (w->size[d] - 1) - 1;
    w->out[d] = room < 0 ? 0 : room / w->step[d] + 1;
  }
  return HAL_OK;
}

hal_status_t hal_op_launch_columns(hal_op_context_t *context, const hal_op_call_t *call) {
  const int unfolds = context->info->name[0] == 'i'; /* im2col */
  const hal_tensor_t *self, *result;
  hal_op_volume_t volume;
  pk_window_t window;
  hal_plugin_kernel_t *kernel;
  int64_t numel;
  HAL_RETURN_IF_ERROR(hal_op_tensor(context, call, 0, &self));
  HAL_RETURN_IF_ERROR(hal_op_result(context, call, 0, &result));
  HAL_RETURN_IF_ERROR(hal_op_check_same_dtype(context, self, "`self`", result, "the result"));
  int64_t dims[4][4];
  const int is_aten = hal_op_named(context, "windows") < 0;
  const hal_tensor_t images = batched(unfolds ? self : result, is_aten ? 4 : 0, dims[0], dims[1]);
  const hal_tensor_t rows = batched(unfolds ? result : self, is_aten ? 3 : 0, dims[2], dims[3]);
  const hal_tensor_t *const image = &images, *const matrix = &rows;
  const char *image_name = unfolds ? "`self`" : "the result", *matrix_name = unfolds ? "the result" : "`self`";
  memset(&window, 0, sizeof window);
  HAL_RETURN_IF_ERROR(hal_op_volume(context, image, image_name, &volume));
  HAL_RETURN_IF_ERROR(read_windows(context, call, &volume, &window));
  HAL_RETURN_IF_ERROR(check_matrix(context, matrix, matrix_name, &volume, &window));
  HAL_RETURN_IF_ERROR(hal_op_numel(context, result, "the result", &numel));
  HAL_RETURN_IF_ERROR(
      hal_op_kernel(context, self->dtype, unfolds ? HAL_COLUMNS_VARIANT_UNFOLD : HAL_COLUMNS_VARIANT_FOLD, &kernel));
  if (numel == 0) return HAL_OK;

  void *out = result->data;
  const void *a = self->data;
  int64_t matrix_batch = matrix->strides[0], matrix_row = matrix->strides[1];
  uint64_t n = (uint64_t)(numel / (unfolds ? window.out[2] : volume.space[2]));
  if (!unfolds) return queue_fold(context, kernel, n, out, a, n, &window, &volume.strides, matrix_batch, matrix_row);
  /* An item costs several divisions: on CPUs it computes as many runs as one thread should. */
  const uint64_t most = hal_op_units_per_group(context, (uint64_t)window.out[2]);
  const int64_t lines = most < (uint64_t)window.out[1] ? (int64_t)most : window.out[1];
  n = n / (uint64_t)window.out[1] * (uint64_t)((window.out[1] + lines - 1) / lines);
  return queue_unfold(context, kernel, n, out, a, n, &window, &volume.strides, matrix_batch, matrix_row, lines);
}
