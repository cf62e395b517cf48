/* scatter.c: launcher of the families `scatter` (elements are replaced) and `scatter_reduce` (combined): the result is
 * changed in place.
 *
 * args: dim, index, src[, reduce][, checked]. Index and src have one shape; the result has as many dimensions, and
 * except in `dim` at least their sizes. reduce: 0 sum, 1 prod, 2 amax, 3 amin, the numbers of the variants. */
#include <string.h>

#include "hal_op_ids.h"
#include "hal_op_variants.h"
#include "op/dims.h"
#include "ops/index/index_args.h"
#include "ops/index/scatter.h"

HAL_OP_LAUNCHER(queue_scatter_columns, loops, SCATTER_COLUMNS_ARGS)

_Static_assert(HAL_SCATTER_REDUCE_VARIANT_SUM == 0 && HAL_SCATTER_REDUCE_VARIANT_PROD == 1 &&
                   HAL_SCATTER_REDUCE_VARIANT_AMAX == 2 && HAL_SCATTER_REDUCE_VARIANT_AMIN == 3,
               "`reduce` is the number of a variant");

/* Adjacent positions that an item processes at once if that is the order of memory: a run of two pages of float32. */
#define STRIP 2048

/* Removes dimension `dim` of a tensor in the index's shape. */
static hal_tensor_t without_dim(const hal_tensor_t *tensor, const hal_tensor_t *index, int64_t dim, int64_t *sizes,
                                int64_t *strides) {
  hal_tensor_t result = *tensor;
  int32_t count = 0;
  for (int32_t d = 0; d < tensor->ndim; d++) {
    if (d == dim) continue;
    sizes[count] = index->sizes[d];
    strides[count++] = tensor->strides[d];
  }
  result.ndim = count;
  result.sizes = sizes;
  result.strides = strides;
  return result;
}

static hal_status_t check_shapes(const hal_op_context_t *context, const hal_tensor_t *result, const hal_tensor_t *src,
                                 const hal_tensor_t *index, int64_t dim) {
  if (src->ndim != index->ndim)
    return hal_op_invalid(context, "src has %d dimensions, the index %d", (int)src->ndim, (int)index->ndim);
  for (int32_t d = 0; d < index->ndim; d++) {
    if (src->sizes[d] != index->sizes[d])
      return hal_op_invalid(context, "src has size %lld in dimension %d, the index %lld", (long long)src->sizes[d],
                            (int)d, (long long)index->sizes[d]);
    if (d != dim && result->sizes[d] < index->sizes[d])
      return hal_op_invalid(context, "the result has size %lld in dimension %d, the index %lld",
                            (long long)result->sizes[d], (int)d, (long long)index->sizes[d]);
  }
  return HAL_OK;
}

/* Queues the kernel for the positions of the first PK_MAXD kept dimensions. */
static hal_status_t launch_one(hal_op_context_t *context, const hal_op_scatter_t *s, hal_plugin_kernel_t *kernel,
                               void *error, char *const *address) {
  pk_rows_t kept;
  memset(&kept, 0, sizeof kept);
  kept.ndim = s->kept.ndim < PK_MAXD ? s->kept.ndim : PK_MAXD;
  uint64_t rows = 1;
  for (int32_t d = 0; d < kept.ndim; d++) {
    kept.size[d] = s->kept.size[d];
    if (d > 0) rows *= (uint64_t)kept.size[d];
    for (int32_t k = 0; k < 3; k++) kept.stride[k][d] = s->kept.stride[k][d];
  }
  const int cpu = hal_op_target(context)->form != HAL_FORM_SIMT;
  int64_t strip = cpu && s->src_step != 1 && s->index_step != 1 ? STRIP : 1;
  if (s->n > 1 && kept.stride[2][0] == 0 && kept.stride[0][0] == 1 && cpu)
    strip = STRIP; /* rows by a list of indices */
  uint64_t units = rows * (uint64_t)((kept.size[0] + strip - 1) / strip);
  const int64_t width = strip < kept.size[0] ? strip : kept.size[0];
  uint64_t per_item = hal_op_units_per_group(context, (uint64_t)s->n * (uint64_t)width);
  return queue_scatter_columns(context, kernel, (units + per_item - 1) / per_item, address[0], address[1], address[2],
                               &s->limit, error, &kept, units, per_item, strip, s->n, s->src_step, s->index_step);
}

static hal_status_t launch(hal_op_context_t *context, const hal_op_scatter_t *s) {
  const uint32_t sizes[3] = {hal_op_dtype_size(s->dtype), hal_op_dtype_size(s->dtype), 8};
  hal_plugin_kernel_t *kernel;
  void *error = NULL;
  uint64_t launches = 1;
  if (hal_op_scatter_sorts(context, s)) {
    HAL_RETURN_IF_ERROR(hal_op_report_address(context, &error));
    HAL_RETURN_IF_ERROR(hal_op_scatter_sorted(context, s, error));
    return hal_op_report_launched(context);
  }
  HAL_RETURN_IF_ERROR(hal_op_kernel(context, s->dtype, s->variant, &kernel));
  if (s->kept.numel == 0 || s->n == 0) return HAL_OK;
  HAL_RETURN_IF_ERROR(hal_op_report_address(context, &error));
  for (int32_t d = PK_MAXD; d < s->kept.ndim; d++) launches *= (uint64_t)s->kept.size[d];
  for (uint64_t i = 0; i < launches; i++) {
    uint64_t rest = i;
    char *address[3];
    for (int32_t k = 0; k < 3; k++) address[k] = s->kept.tensors[k]->data;
    for (int32_t d = PK_MAXD; d < s->kept.ndim; d++) {
      const int64_t at = (int64_t)(rest % (uint64_t)s->kept.size[d]);
      rest /= (uint64_t)s->kept.size[d];
      for (int32_t k = 0; k < 3; k++) address[k] += at * s->kept.stride[k][d] * (int64_t)sizes[k];
    }
    const hal_status_t status = launch_one(context, s, kernel, error, address);
    if (status) return status == HAL_UNIMPLEMENTED && i > 0 ? HAL_INTERNAL : status;
  }
  return hal_op_report_launched(context);
}

/* Reads the common arguments of both families; `checked` is the argument after `optional`. */
static hal_status_t run(hal_op_context_t *context, const hal_op_call_t *call, int moves, uint32_t variant,
                        uint32_t checked_at) {
  static const char *const names[] = {"the result", "src", "the index"};
  const hal_tensor_t *result, *index, *src;
  hal_tensor_t views[3];
  const hal_tensor_t *const tensors[3] = {&views[0], &views[1], &views[2]};
  int64_t dim, checked = 0, sizes[HAL_OP_MAX_DIMS], strides[3][HAL_OP_MAX_DIMS];
  hal_op_scatter_t s = {.variant = variant, .moves = moves};
  HAL_RETURN_IF_ERROR(hal_op_result(context, call, 0, &result));
  HAL_RETURN_IF_ERROR(hal_op_read_dim(context, call, 0, result, &dim));
  HAL_RETURN_IF_ERROR(hal_op_index_tensor(context, call, 1, result, &index));
  HAL_RETURN_IF_ERROR(hal_op_tensor(context, call, 2, &src));
  if (context->info->argument_count > checked_at) HAL_RETURN_IF_ERROR(hal_op_int(context, call, checked_at, &checked));
  HAL_RETURN_IF_ERROR(check_shapes(context, result, src, index, dim));
  if (result->dtype != src->dtype)
    return hal_op_invalid(context, "src has dtype %s, the result %s", hal_op_dtype_name(src->dtype),
                          hal_op_dtype_name(result->dtype));
  s.dtype = result->dtype;
  if (moves) HAL_RETURN_IF_ERROR(hal_op_moved_dtype(result->dtype, &s.dtype));
  const int wraps = context->op == HAL_OP_ID_INDEX_PUT || context->op == HAL_OP_ID__INDEX_PUT_IMPL__LINES;
  s.limit = hal_op_index_limit(context, result, dim, wraps, checked != 0);
  s.n = index->sizes[dim];
  s.src_step = src->strides[dim];
  s.index_step = index->strides[dim];
  views[0] = without_dim(result, index, dim, sizes, strides[0]);
  views[1] = without_dim(src, index, dim, sizes, strides[1]);
  views[2] = without_dim(index, index, dim, sizes, strides[2]);
  HAL_RETURN_IF_ERROR(hal_op_iterate(context, tensors, names, 3, &s.kept));
  return launch(context, &s);
}

hal_status_t hal_op_launch_scatter(hal_op_context_t *context, const hal_op_call_t *call) {
  return run(context, call, 1, HAL_SCATTER_VARIANT_COLUMNS, 3);
}

hal_status_t hal_op_launch_scatter_reduce(hal_op_context_t *context, const hal_op_call_t *call) {
  int64_t reduce;
  HAL_RETURN_IF_ERROR(hal_op_int(context, call, 3, &reduce));
  if (reduce < 0 || reduce >= HAL_OP_SCATTER_REDUCTIONS)
    return hal_op_invalid(context, "unknown reduction %lld; expected 0 (sum), 1 (prod), 2 (amax) or 3 (amin)",
                          (long long)reduce);
  return run(context, call, 0, (uint32_t)reduce, 4);
}
