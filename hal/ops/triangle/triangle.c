/* triangle.c: launchers of tril and triu, and of the lists of their indices. */
#include "op/dims.h"
#include "op/iterator.h"

#include "hal_op_variants.h"
#include "ops/triangle/triangle_args.h"

HAL_OP_LAUNCHER(queue_triangle_rows, loops, TRIANGLE_ROWS_ARGS)
HAL_OP_LAUNCHER(queue_triangle_indices_rows, loops, TRIANGLE_INDICES_ROWS_ARGS)

/* Returns the iteration over all rows: dimension 0 is the rows of a matrix, the others are the matrices, merged. */
static hal_status_t walk_rows(const hal_tensor_t *result, const hal_tensor_t *self, pk_rows_t *out_rows) {
  const hal_tensor_t *const tensors[] = {result, self};
  const int32_t ndim = result->ndim;
  hal_tensor_t batch[2] = {*result, *self};
  const hal_tensor_t *const batches[] = {&batch[0], &batch[1]};
  hal_op_dims_t dims;
  pk_rows_t rows;
  batch[0].ndim = batch[1].ndim = ndim - 2;
  hal_op_dims_init(batches, 2, 0, &dims);
  hal_op_dims_merge(&dims);
  if (dims.count > PK_MAXD - 1) return HAL_UNIMPLEMENTED;
  HAL_RETURN_IF_ERROR(hal_op_dims_rows(&dims, &rows));
  *out_rows = rows;
  out_rows->ndim = rows.ndim + 1;
  out_rows->size[0] = result->sizes[ndim - 2];
  for (int32_t d = 0; d < rows.ndim; d++) out_rows->size[d + 1] = rows.size[d];
  for (int32_t k = 0; k < 2; k++) {
    out_rows->stride[k][0] = tensors[k]->strides[ndim - 2];
    for (int32_t d = 0; d < rows.ndim; d++) out_rows->stride[k][d + 1] = rows.stride[k][d];
  }
  return HAL_OK;
}

hal_status_t hal_op_launch_triangle(hal_op_context_t *context, const hal_op_call_t *call) {
  const hal_tensor_t *self, *result;
  hal_plugin_kernel_t *kernel;
  pk_rows_t rows;
  int64_t diagonal, numel;
  HAL_RETURN_IF_ERROR(hal_op_tensor(context, call, 0, &self));
  HAL_RETURN_IF_ERROR(hal_op_int(context, call, 1, &diagonal));
  HAL_RETURN_IF_ERROR(hal_op_result(context, call, 0, &result));
  HAL_RETURN_IF_ERROR(hal_op_check_same_shape(context, self, "`self`", result, "the result"));
  HAL_RETURN_IF_ERROR(hal_op_check_same_dtype(context, self, "`self`", result, "the result"));
  if (self->ndim < 2) return hal_op_invalid(context, "`self` has %d dimensions; expected at least 2", (int)self->ndim);
  HAL_RETURN_IF_ERROR(hal_op_numel(context, result, "the result", &numel));
  HAL_RETURN_IF_ERROR(hal_op_kernel(context, self->dtype, HAL_TRIANGLE_VARIANT_ROWS, &kernel));
  if (numel == 0) return HAL_OK;
  HAL_RETURN_IF_ERROR(walk_rows(result, self, &rows));

  const int32_t last = self->ndim - 1;
  int64_t columns = self->sizes[last], so = result->strides[last], sa = self->strides[last];
  /* outside the matrix all diagonals are equivalent; no sum may overflow */
  const int64_t height = self->sizes[last - 1];
  diagonal = diagonal > columns ? columns : diagonal < -height - 1 ? -height - 1 : diagonal;
  uint64_t n = (uint64_t)(numel / columns);
  void *to = result->data;
  const void *from = self->data;
  return queue_triangle_rows(context, kernel, n, to, from, n, columns, so, sa, diagonal, &rows);
}

/* Returns the number of elements of a triangle: the sum over i = 1 .. last of min(i, columns). Exact for every size. */
static __int128 count_rows(int64_t last, int64_t columns) {
  if (last <= 0) return 0;
  const __int128 rising = last < columns ? last : columns;
  return rising * (rising + 1) / 2 + (last - rising) * columns;
}

static __int128 count_places(int lower, int64_t row, int64_t columns, int64_t offset) {
  const __int128 before = count_rows(row + offset + lower - 1, columns) - count_rows(offset + lower - 1, columns);
  return lower ? before : (__int128)row * columns - before;
}

hal_status_t hal_op_launch_triangle_indices(hal_op_context_t *context, const hal_op_call_t *call) {
  const hal_tensor_t *result;
  hal_plugin_kernel_t *kernel;
  int64_t row, columns, offset, n;
  HAL_RETURN_IF_ERROR(hal_op_int(context, call, 0, &row));
  HAL_RETURN_IF_ERROR(hal_op_int(context, call, 1, &columns));
  HAL_RETURN_IF_ERROR(hal_op_int(context, call, 2, &offset));
  HAL_RETURN_IF_ERROR(hal_op_result(context, call, 0, &result));
  if (row < 0 || columns < 0)
    return hal_op_invalid(context, "row = %lld, col = %lld", (long long)row, (long long)columns);
  if (result->ndim != 2 || result->sizes[0] != 2 || !hal_op_is_contiguous(result))
    return hal_op_invalid(context, "the result must be contiguous, of shape 2 x n");
  HAL_RETURN_IF_ERROR(hal_op_kernel(context, result->dtype, HAL_TRIANGLE_INDICES_VARIANT_ROWS, &kernel));
  n = result->sizes[1];
  offset = offset > columns ? columns : offset < -row - 1 ? -row - 1 : offset;
  const int lower = context->info->kernel[3] == 'l'; /* tril_indices */
  if (count_places(lower, row, columns, offset) != n)
    return hal_op_invalid(context, "the result has %lld columns, the triangle has %lld elements", (long long)n,
                          (long long)count_places(lower, row, columns, offset));
  if (n == 0) return HAL_OK;
  void *to = result->data;
  uint64_t height = (uint64_t)row;
  return queue_triangle_indices_rows(context, kernel, height, to, height, columns, offset, n);
}
