/* resample.c: launcher of resample, a sparse linear map along one dimension. */
#include "op/dims.h"
#include "op/iterator.h"

#include "hal_op_variants.h"
#include "ops/resample/resample.h"

HAL_OP_LAUNCHER(queue_lines, loops, RESAMPLE_LINES_ARGS)
HAL_OP_LAUNCHER(queue_planes, loops, RESAMPLE_PLANES_ARGS)

#define STRIP PK_LSIZE   /* positions that an item of the form `planes` computes */
#define FEWEST_COLUMNS 8 /* minimum size of a kept dimension that is processed as columns */

static hal_status_t read_vector(const hal_op_context_t *context, const hal_op_call_t *call, uint32_t index,
                                hal_dtype_t dtype, const hal_tensor_t **out_vector) {
  HAL_RETURN_IF_ERROR(hal_op_tensor(context, call, index, out_vector));
  if ((*out_vector)->ndim == 1 && (*out_vector)->dtype == dtype && hal_op_is_contiguous(*out_vector)) return HAL_OK;
  return hal_op_invalid(context, "`%s` must be a contiguous vector of %s", context->info->arguments[index],
                        hal_op_dtype_name(dtype));
}

/* The dimensions that are not mapped, ordered by the strides of the result. */
static hal_status_t kept_dims(const hal_op_context_t *context, const hal_tensor_t *self, const hal_tensor_t *result,
                              int32_t dim, hal_op_dims_t *out_dims) {
  out_dims->count = 0;
  out_dims->operands = 2;
  for (int32_t d = self->ndim - 1; d >= 0; d--) {
    if (d == dim) continue;
    if (self->sizes[d] != result->sizes[d])
      return hal_op_invalid(context, "`self` has size %lld in dimension %d, the result has %lld",
                            (long long)self->sizes[d], (int)d, (long long)result->sizes[d]);
    if (self->sizes[d] == 1) continue;
    out_dims->dim[out_dims->count++] =
        (hal_op_dim_t){.size = self->sizes[d], .stride = {result->strides[d], self->strides[d]}};
  }
  hal_op_dims_sort(out_dims);
  return HAL_OK;
}

/* Returns a kept dimension along which both operands are contiguous; -1 if the mapped dimension is contiguous, or if
 * there is none. */
static int32_t column_of(const hal_op_dims_t *kept) {
  for (int32_t i = 0; i < kept->count; i++)
    if (kept->dim[i].stride[0] == 1 && kept->dim[i].size >= FEWEST_COLUMNS) return i;
  return -1;
}

hal_status_t hal_op_resample_along(hal_op_context_t *context, const hal_tensor_t *self, const hal_tensor_t *result,
                                   int32_t dim, const hal_op_map_t *map) {
  hal_op_dims_t kept;
  pk_rows_t rows;
  hal_plugin_kernel_t *kernel;
  int64_t numel;
  HAL_RETURN_IF_ERROR(hal_op_numel(context, result, "the result", &numel));
  HAL_RETURN_IF_ERROR(kept_dims(context, self, result, dim, &kept));
  const int32_t at = column_of(&kept);
  const uint32_t variant = at < 0 ? HAL_RESAMPLE_VARIANT_LINES : HAL_RESAMPLE_VARIANT_PLANES;
  HAL_RETURN_IF_ERROR(hal_op_kernel(context, self->dtype, variant, &kernel));
  if (numel == 0) return HAL_OK;
  hal_op_dim_t column = {0};
  if (at >= 0) column = hal_op_dims_take(&kept, at);
  hal_op_dims_merge(&kept);
  HAL_RETURN_IF_ERROR(hal_op_dims_rows(&kept, &rows));

  void *out = result->data;
  const void *a = self->data, *s = map->starts, *e = map->ends, *i = map->indices, *w = map->weights;
  int64_t length = result->sizes[dim], so = result->strides[dim], sa = self->strides[dim];
  uint64_t n = (uint64_t)hal_op_dims_numel(&kept);
  if (at >= 0) n *= (uint64_t)length * (uint64_t)((column.size + STRIP - 1) / STRIP);
  if (at < 0) return queue_lines(context, kernel, n, out, a, s, e, i, w, map->step, &rows, n, length, so, sa);
  return queue_planes(context, kernel, n, out, a, s, e, i, w, map->step, &rows, n, length, so, sa, column.size,
                      column.stride[0], column.stride[1]);
}

hal_status_t hal_op_launch_resample(hal_op_context_t *context, const hal_op_call_t *call) {
  const hal_tensor_t *self, *starts, *indices, *weights, *result;
  int64_t dim;
  HAL_RETURN_IF_ERROR(hal_op_tensor(context, call, 0, &self));
  HAL_RETURN_IF_ERROR(hal_op_result(context, call, 0, &result));
  HAL_RETURN_IF_ERROR(hal_op_check_same_dtype(context, self, "`self`", result, "the result"));
  HAL_RETURN_IF_ERROR(read_vector(context, call, 1, HAL_INT64, &starts));
  HAL_RETURN_IF_ERROR(read_vector(context, call, 2, HAL_INT64, &indices));
  HAL_RETURN_IF_ERROR(read_vector(context, call, 3, self->dtype == HAL_FLOAT64 ? HAL_FLOAT64 : HAL_FLOAT32, &weights));
  HAL_RETURN_IF_ERROR(hal_op_int(context, call, 4, &dim));
  if (self->ndim != result->ndim || dim < 0 || dim >= self->ndim || starts->sizes[0] != result->sizes[dim] + 1 ||
      indices->sizes[0] != weights->sizes[0])
    return hal_op_invalid(context, "dim = %lld, %lld starts, %lld indices and %lld weights do not match the operands",
                          (long long)dim, (long long)starts->sizes[0], (long long)indices->sizes[0],
                          (long long)weights->sizes[0]);
  const hal_op_map_t map = {starts->data, (const char *)starts->data + sizeof(int64_t), indices->data, weights->data,
                            1};
  return hal_op_resample_along(context, self, result, (int32_t)dim, &map);
}
