/* nonzero.c: launcher of the family `nonzero`, whose result's size depends on the data: a first call counts, the caller
 * reads the total and allocates the result, a second call writes.
 *
 * _nonzero_count   args: self, contiguous bool. Result: contiguous int64, an element for each chunk and then one for
 *                  the total; the size of the result determines the number of chunks.
 * nonzero          args: self, the counts of the first call. Result: [total, columns], columns <= 6: with as many as
 *                  self has dimensions the coordinates, with one the index in the flattened tensor. */
#include <string.h>

#include "hal_op_variants.h"
#include "op/iterator.h"
#include "ops/index/index_args.h"

HAL_OP_LAUNCHER(queue_nonzero_tally, loops, NONZERO_TALLY_ARGS)
HAL_OP_LAUNCHER(queue_nonzero_offsets, items, NONZERO_OFFSETS_ARGS)
HAL_OP_LAUNCHER(queue_nonzero_write, loops, NONZERO_WRITE_ARGS)

static hal_status_t check(const hal_op_context_t *context, const hal_tensor_t *self, const hal_tensor_t *counts,
                          int64_t *out_n, int64_t *out_chunk) {
  HAL_RETURN_IF_ERROR(hal_op_numel(context, self, "self", out_n));
  if (self->dtype != HAL_BOOL || !hal_op_is_contiguous(self))
    return hal_op_invalid(context, "self is %s; expected a contiguous bool tensor", hal_op_dtype_name(self->dtype));
  if (counts->dtype != HAL_INT64 || counts->ndim != 1 || !hal_op_is_contiguous(counts) || counts->sizes[0] < 2)
    return hal_op_invalid(context, "the counts are not a contiguous int64 vector of at least 2 elements");
  const int64_t chunks = counts->sizes[0] - 1;
  *out_chunk = *out_n / chunks + (*out_n % chunks != 0);
  return HAL_OK;
}

static hal_status_t count(hal_op_context_t *context, const hal_tensor_t *self, const hal_tensor_t *counts) {
  hal_plugin_kernel_t *kernel, *sum;
  int64_t n = 0, chunk = 0;
  HAL_RETURN_IF_ERROR(check(context, self, counts, &n, &chunk));
  HAL_RETURN_IF_ERROR(hal_op_kernel(context, HAL_BOOL, HAL_NONZERO_VARIANT_TALLY, &kernel));
  HAL_RETURN_IF_ERROR(hal_op_kernel(context, HAL_BOOL, HAL_NONZERO_VARIANT_OFFSETS, &sum));
  uint64_t chunks = chunk ? (uint64_t)(n / chunk + (n % chunk != 0)) : 0;
  if (chunks != (uint64_t)counts->sizes[0] - 1)
    return hal_op_invalid(context, "%lld elements do not divide into %lld equal chunks", (long long)n,
                          (long long)counts->sizes[0] - 1);
  HAL_RETURN_IF_ERROR(queue_nonzero_tally(context, kernel, chunks, counts->data, self->data, n, chunk));
  return queue_nonzero_offsets(context, sum, 1, counts->data, chunks);
}

static hal_status_t write(hal_op_context_t *context, const hal_tensor_t *self, const hal_tensor_t *counts,
                          const hal_tensor_t *result) {
  hal_plugin_kernel_t *kernel;
  pk_rows_t shape;
  int64_t n = 0, chunk = 0;
  HAL_RETURN_IF_ERROR(check(context, self, counts, &n, &chunk));
  if (result->dtype != HAL_INT64 || result->ndim != 2)
    return hal_op_invalid(context, "the result is an int64 matrix, not %s with %d dimensions",
                          hal_op_dtype_name(result->dtype), (int)result->ndim);
  const int64_t columns = result->sizes[1];
  if (columns != 1 && columns != self->ndim)
    return hal_op_invalid(context, "the result has %lld columns for %d dimensions", (long long)columns,
                          (int)self->ndim);
  if (columns > PK_MAXD) return HAL_UNIMPLEMENTED;
  if (result->sizes[0] == 0 || columns == 0) return HAL_OK;
  memset(&shape, 0, sizeof shape);
  shape.ndim = (int32_t)columns;
  for (int32_t d = 0; d < shape.ndim; d++) shape.size[d] = columns == 1 ? n : self->sizes[self->ndim - 1 - d];
  HAL_RETURN_IF_ERROR(hal_op_kernel(context, HAL_BOOL, HAL_NONZERO_VARIANT_WRITE, &kernel));
  int64_t row = result->strides[0], column = result->strides[1];
  return queue_nonzero_write(context, kernel, (uint64_t)(counts->sizes[0] - 1), result->data, self->data, counts->data,
                             n, chunk, &shape, row, column);
}

hal_status_t hal_op_launch_nonzero(hal_op_context_t *context, const hal_op_call_t *call) {
  const hal_tensor_t *self, *counts, *result;
  HAL_RETURN_IF_ERROR(hal_op_tensor(context, call, 0, &self));
  HAL_RETURN_IF_ERROR(hal_op_result(context, call, 0, &result));
  if (context->info->argument_count == 1) return count(context, self, result);
  HAL_RETURN_IF_ERROR(hal_op_tensor(context, call, 1, &counts));
  return write(context, self, counts, result);
}
