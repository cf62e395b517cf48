/* index.c: see index.h; and the launcher of the family `index_offset`. */
#include "ops/index/index.h"

#include "hal_op_variants.h"
#include "ops/index/index_args.h"

HAL_OP_LAUNCHER(queue_index_offset, loops, INDEX_OFFSET_ROWS_ARGS)

pk_index_limit_t hal_op_index_limit(const hal_op_context_t *context, const hal_tensor_t *tensor, int64_t dim, int wraps,
                                    int checked) {
  const int64_t bound = tensor->sizes[dim];
  return (pk_index_limit_t){.bound = bound,
                            .wrap = wraps ? bound : 0,
                            .step = tensor->strides[dim],
                            .site = checked ? 0 : hal_op_site(context, dim)};
}

hal_status_t hal_op_index_tensor(const hal_op_context_t *context, const hal_op_call_t *call, uint32_t index,
                                 const hal_tensor_t *like, const hal_tensor_t **out_tensor) {
  HAL_RETURN_IF_ERROR(hal_op_tensor(context, call, index, out_tensor));
  if ((*out_tensor)->dtype != HAL_INT64)
    return hal_op_invalid(context, "the index has dtype %s; expected int64", hal_op_dtype_name((*out_tensor)->dtype));
  if ((*out_tensor)->ndim != like->ndim)
    return hal_op_invalid(context, "the index has %d dimensions, expected %d", (int)(*out_tensor)->ndim,
                          (int)like->ndim);
  return HAL_OK;
}

hal_status_t hal_op_moved_dtype(hal_dtype_t dtype, hal_dtype_t *out_dtype) {
  switch (hal_op_dtype_size(dtype)) {
    case 1:
      *out_dtype = HAL_UINT8;
      return HAL_OK;
    case 2:
      *out_dtype = HAL_INT16;
      return HAL_OK;
    case 4:
      *out_dtype = HAL_INT32;
      return HAL_OK;
    case 8:
      *out_dtype = HAL_INT64;
      return HAL_OK;
    case 16:
      *out_dtype = HAL_COMPLEX128;
      return HAL_OK;
    default:
      return HAL_UNIMPLEMENTED;
  }
}

/* Arguments of the kernel of index_offset in addition to its operands. */
typedef struct offsets_s {
  pk_index_limit_t limit;
  void *error;
  int32_t first;
} offsets_t;

static hal_status_t launch_offsets(hal_op_context_t *context, hal_plugin_kernel_t *kernel, const hal_op_line_t *line,
                                   const void *given) {
  const offsets_t *const to = given;
  return queue_index_offset(context, kernel, line->items, line->address[0], line->address[1], &to->limit, to->error,
                            to->first, line->n, line->block, &line->rows);
}

/* args: index, then size and stride (elements) of the dimension it indexes, the dimension's number for messages, and
 * whether the result is written rather than added to. */
hal_status_t hal_op_launch_index_offset(hal_op_context_t *context, const hal_op_call_t *call) {
  static const char *const names[] = {"the result", "the index"};
  const hal_tensor_t *tensors[2];
  offsets_t to = {.error = NULL};
  int64_t dim, writes;
  HAL_RETURN_IF_ERROR(hal_op_result(context, call, 0, &tensors[0]));
  HAL_RETURN_IF_ERROR(hal_op_index_tensor(context, call, 0, tensors[0], &tensors[1]));
  HAL_RETURN_IF_ERROR(hal_op_int(context, call, 1, &to.limit.bound));
  HAL_RETURN_IF_ERROR(hal_op_int(context, call, 2, &to.limit.step));
  HAL_RETURN_IF_ERROR(hal_op_int(context, call, 3, &dim));
  HAL_RETURN_IF_ERROR(hal_op_int(context, call, 4, &writes));
  if (tensors[0]->dtype != HAL_INT64)
    return hal_op_invalid(context, "the result has dtype %s; expected int64", hal_op_dtype_name(tensors[0]->dtype));
  to.limit.wrap = to.limit.bound;
  to.limit.site = hal_op_site(context, dim & 255);

  hal_op_iterator_t it;
  HAL_RETURN_IF_ERROR(hal_op_iterate(context, tensors, names, 2, &it));
  if (it.numel == 0) return HAL_OK;
  to.first = writes != 0;
  hal_plugin_kernel_t *kernel;
  HAL_RETURN_IF_ERROR(hal_op_kernel(context, HAL_INT64, HAL_INDEX_OFFSET_VARIANT_ROWS, &kernel));
  HAL_RETURN_IF_ERROR(hal_op_report_address(context, &to.error));
  const hal_op_rows_call_t rows = {.kernel = kernel, .queue = launch_offsets, .given = &to, .elements = {8, 8}};
  HAL_RETURN_IF_ERROR(hal_op_launch_rows(context, &it, &rows));
  return hal_op_report_launched(context);
}
