/* op_columns.c: launchers of im2col and col2im: the windows of a convolution as columns of a matrix, and back. */
#include <string.h>

#include "op/dims.h"
#include "op/window.h"

#include "hal_op_variants.h"
#include "ops/columns/columns_args.h"

HAL_OP_LAUNCHER(queue_unfold, loops, COLUMNS_UNFOLD_ARGS)
HAL_OP_LAUNCHER(queue_fold, loops, COLUMNS_FOLD_ARGS)

/* The matrix (batch, channel x place, window) must fit the images and their windows; its columns have stride 1. */
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
  const hal_tensor_t *image = unfolds ? self : result, *matrix = unfolds ? result : self;
  const char *image_name = unfolds ? "`self`" : "the result", *matrix_name = unfolds ? "the result" : "`self`";
  memset(&window, 0, sizeof window);
  HAL_RETURN_IF_ERROR(hal_op_volume(context, image, image_name, &volume));
  HAL_RETURN_IF_ERROR(hal_op_window_list(context, call, 1, volume.spatial, 0, 1, window.out));
  HAL_RETURN_IF_ERROR(hal_op_window_read(context, call, 2, 5, 4, 3, volume.spatial, &window));
  window.channels = volume.channels;
  memcpy(window.in, volume.space, sizeof window.in);
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
  /* An item costs several divisions: on CPUs it makes as many runs as fill a thread's attention. */
  const uint64_t most = hal_op_units_per_group(context, (uint64_t)window.out[2]);
  const int64_t lines = most < (uint64_t)window.out[1] ? (int64_t)most : window.out[1];
  n = n / (uint64_t)window.out[1] * (uint64_t)((window.out[1] + lines - 1) / lines);
  return queue_unfold(context, kernel, n, out, a, n, &window, &volume.strides, matrix_batch, matrix_row, lines);
}
