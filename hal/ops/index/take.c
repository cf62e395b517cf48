/* take.c: launcher of the family `take`: gather, index_select and indexing by one tensor.
 *
 * args: self, dim, index[, checked]. Index and result have one shape; where the index does not vary its stride is 0.
 * self has as many dimensions; except in `dim` its sizes are at least the result's, or its stride is 0. */
#include <stdint.h>
#include <string.h>

#include "hal_op_ids.h"
#include "hal_op_variants.h"
#include "op/dims.h"
#include "ops/index/index.h"
#include "ops/index/index_args.h"

HAL_OP_LAUNCHER(queue_take, loops, TAKE_ROWS_ARGS)

/* Returns `self` in the result's shape, with stride 0 in the indexed dimension. */
static hal_status_t spread(const hal_op_context_t *context, const hal_tensor_t *self, const hal_tensor_t *result,
                           int64_t dim, int64_t *strides, hal_tensor_t *out) {
  if (self->ndim != result->ndim)
    return hal_op_invalid(context, "self has %d dimensions, the result %d", (int)self->ndim, (int)result->ndim);
  for (int32_t d = 0; d < self->ndim; d++) {
    strides[d] = d == dim ? 0 : self->strides[d];
    if (d != dim && self->strides[d] != 0 && self->sizes[d] < result->sizes[d])
      return hal_op_invalid(context, "self has size %lld in dimension %d, the result %lld", (long long)self->sizes[d],
                            (int)d, (long long)result->sizes[d]);
  }
  *out = *self;
  out->sizes = result->sizes;
  out->strides = strides;
  return HAL_OK;
}

/* Arguments of the kernel in addition to its operands. */
typedef struct reader_s {
  pk_index_limit_t limit;
  void *error;
} reader_t;

static hal_status_t launch_line(hal_op_context_t *context, hal_plugin_kernel_t *kernel, const hal_op_line_t *line,
                                const void *given) {
  const reader_t *const by = given;
  return queue_take(context, kernel, line->items, line->address[0], line->address[1], line->address[2], &by->limit,
                    by->error, line->n, line->block, &line->rows);
}

static hal_status_t launch(hal_op_context_t *context, hal_dtype_t dtype, const hal_op_iterator_t *it,
                           pk_index_limit_t limit) {
  reader_t by = {.limit = limit};
  const uint32_t size = hal_op_dtype_size(dtype);
  hal_op_rows_call_t call = {.queue = launch_line, .given = &by, .elements = {size, size, 8}};
  HAL_RETURN_IF_ERROR(hal_op_kernel(context, dtype, HAL_TAKE_VARIANT_ROWS, &call.kernel));
  if (it->numel == 0) return HAL_OK;
  HAL_RETURN_IF_ERROR(hal_op_report_address(context, &by.error));
  HAL_RETURN_IF_ERROR(hal_op_launch_rows(context, it, &call));
  return hal_op_report_launched(context);
}

/* Returns whether elements of `by` bytes move the same bytes: operands are dense and aligned in runs with one index. */
static int fits(const hal_op_iterator_t *it, const pk_index_limit_t *limit, int64_t size, int64_t by) {
  const int64_t times = by / size;
  if (it->ndim < 1 || it->size[0] % times || it->stride[2][0] || limit->step % times) return 0;
  for (int32_t k = 0; k < 2; k++) {
    if (it->stride[k][0] != 1 || it->start[k] % times || (uintptr_t)it->tensors[k]->data % (uintptr_t)by) return 0;
    for (int32_t d = 1; d < it->ndim; d++)
      if (it->stride[k][d] % times) return 0;
  }
  return 1;
}

/* Devices with many threads move the widest elements that fit: a quarter of the accesses and of the index
 * computations. */
static hal_dtype_t widen(const hal_op_context_t *context, hal_dtype_t dtype, hal_op_iterator_t *it,
                         pk_index_limit_t *limit) {
  static const hal_dtype_t wider[] = {HAL_COMPLEX128, HAL_INT64, HAL_INT32};
  const int64_t size = hal_op_dtype_size(dtype);
  if (hal_op_target(context)->form != HAL_FORM_SIMT) return dtype;
  for (size_t i = 0; i < sizeof wider / sizeof *wider; i++) {
    const int64_t by = hal_op_dtype_size(wider[i]), times = by / size;
    if (times < 2 || !fits(it, limit, size, by)) continue;
    it->numel /= times;
    it->size[0] /= times;
    limit->step /= times;
    for (int32_t k = 0; k < 2; k++) {
      it->start[k] /= times;
      for (int32_t d = 1; d < it->ndim; d++) it->stride[k][d] /= times;
    }
    return wider[i];
  }
  return dtype;
}

hal_status_t hal_op_launch_take(hal_op_context_t *context, const hal_op_call_t *call) {
  static const char *const names[] = {"the result", "self", "the index"};
  const hal_tensor_t *self, *tensors[3];
  hal_tensor_t source;
  int64_t dim, checked = 0, strides[HAL_OP_MAX_DIMS];
  hal_dtype_t dtype;
  HAL_RETURN_IF_ERROR(hal_op_tensor(context, call, 0, &self));
  HAL_RETURN_IF_ERROR(hal_op_read_dim(context, call, 1, self, &dim));
  HAL_RETURN_IF_ERROR(hal_op_result(context, call, 0, &tensors[0]));
  HAL_RETURN_IF_ERROR(hal_op_index_tensor(context, call, 2, tensors[0], &tensors[2]));
  if (context->info->argument_count > 3) HAL_RETURN_IF_ERROR(hal_op_int(context, call, 3, &checked));
  if (tensors[0]->dtype != self->dtype)
    return hal_op_invalid(context, "the result has dtype %s, self %s", hal_op_dtype_name(tensors[0]->dtype),
                          hal_op_dtype_name(self->dtype));
  HAL_RETURN_IF_ERROR(hal_op_moved_dtype(self->dtype, &dtype));
  HAL_RETURN_IF_ERROR(spread(context, self, tensors[0], dim, strides, &source));
  tensors[1] = &source;
  hal_op_iterator_t it;
  HAL_RETURN_IF_ERROR(hal_op_iterate(context, tensors, names, 3, &it));
  const int wraps = context->op == HAL_OP_ID_INDEX_LINES;
  pk_index_limit_t limit = hal_op_index_limit(context, self, dim, wraps, checked != 0);
  dtype = widen(context, dtype, &it, &limit);
  return launch(context, dtype, &it, limit);
}
