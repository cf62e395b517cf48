/* scan.c: launchers of the families `scan` (cumsum, cumprod, logcumsumexp) and `scan_index` (cummax, cummin).
 * args: self, dim. Results have self's shape and, values, its dtype. */
#include <string.h>

#include "hal_op_variants.h"
#include "op/dims.h"
#include "ops/scan/scan_args.h"

HAL_OP_LAUNCHER(queue_scan_rows, loops, SCAN_ROWS_ARGS)
HAL_OP_LAUNCHER(queue_scan_totals, loops, SCAN_TOTALS_ARGS)
HAL_OP_LAUNCHER(queue_scan_prefix, items, SCAN_PREFIX_ARGS)
HAL_OP_LAUNCHER(queue_scan_index_rows, loops, SCAN_INDEX_ROWS_ARGS)

#define STRIP PK_SCAN_STRIP
/* Units of a scan with few rows, and the minimum number of elements of each; more units on devices with many
 * threads. */
#define WANTED_UNITS 64
#define LEAST_CHUNK INT64_C(16384)
#define WANTED_SIMT_UNITS 1024
#define LEAST_SIMT_CHUNK INT64_C(64)

/* The kept dimensions, and separately the scanned one. */
typedef struct scan_s {
  hal_op_dims_t kept; /* operand 0: result, 1: self, 2: indices */
  pk_rows_t rows;
  hal_op_dim_t dim;
  int64_t outputs;
  const hal_tensor_t *tensors[3];
} scan_t;

static hal_status_t read_call(const hal_op_context_t *context, const hal_op_call_t *call, int32_t operands,
                              scan_t *out_scan) {
  int64_t dim = 0;
  HAL_RETURN_IF_ERROR(hal_op_tensor(context, call, 0, &out_scan->tensors[1]));
  HAL_RETURN_IF_ERROR(hal_op_result(context, call, 0, &out_scan->tensors[0]));
  const hal_tensor_t *self = out_scan->tensors[1];
  if (self->ndim > 0) HAL_RETURN_IF_ERROR(hal_op_read_dim(context, call, 1, self, &dim));
  HAL_RETURN_IF_ERROR(hal_op_check_same_shape(context, self, "self", out_scan->tensors[0], "the result"));
  if (out_scan->tensors[0]->dtype != self->dtype)
    return hal_op_invalid(context, "the result has dtype %s, self %s", hal_op_dtype_name(out_scan->tensors[0]->dtype),
                          hal_op_dtype_name(self->dtype));
  if (operands > 2) {
    HAL_RETURN_IF_ERROR(hal_op_result(context, call, 1, &out_scan->tensors[2]));
    HAL_RETURN_IF_ERROR(hal_op_check_same_shape(context, self, "self", out_scan->tensors[2], "the indices"));
    if (out_scan->tensors[2]->dtype != HAL_INT64)
      return hal_op_invalid(context, "the indices have dtype %s; expected int64",
                            hal_op_dtype_name(out_scan->tensors[2]->dtype));
  }
  hal_op_dims_init(out_scan->tensors, operands, self->ndim ? UINT64_C(1) << dim : 0, &out_scan->kept);
  out_scan->dim = (hal_op_dim_t){.size = 1};
  for (int32_t i = 0; i < out_scan->kept.count; i++)
    if (out_scan->kept.dim[i].reduced) {
      out_scan->dim = hal_op_dims_take(&out_scan->kept, i);
      break;
    }
  hal_op_dims_sort(&out_scan->kept);
  hal_op_dims_merge(&out_scan->kept);
  out_scan->outputs = hal_op_dims_numel(&out_scan->kept);
  HAL_RETURN_IF_ERROR(hal_op_dims_rows(&out_scan->kept, &out_scan->rows));
  if (out_scan->rows.ndim == 0) {
    out_scan->rows.ndim = 1;
    out_scan->rows.size[0] = 1;
  }
  return HAL_OK;
}

static int is_empty(const hal_tensor_t *tensor) {
  for (int32_t d = 0; d < tensor->ndim; d++)
    if (tensor->sizes[d] == 0) return 1;
  return 0;
}

static hal_status_t launch_rows(hal_op_context_t *context, hal_dtype_t dtype, const scan_t *scan, const void *before,
                                int64_t chunk, int64_t chunks) {
  hal_plugin_kernel_t *kernel;
  HAL_RETURN_IF_ERROR(hal_op_kernel(context, dtype, HAL_SCAN_VARIANT_ROWS, &kernel));
  const int side_by_side =
      chunks == 1 && hal_op_is_host(context) && scan->dim.stride[1] != 1 && scan->rows.stride[1][0] == 1;
  int64_t strip = side_by_side ? STRIP : 1;
  uint64_t units = (uint64_t)(scan->outputs / scan->rows.size[0]) *
                   (uint64_t)((scan->rows.size[0] + strip - 1) / strip) * (uint64_t)chunks;
  uint64_t per_item = hal_op_units_per_group(context, (uint64_t)chunk * (uint64_t)strip);
  return queue_scan_rows(context, kernel, (units + per_item - 1) / per_item, scan->tensors[0]->data,
                         scan->tensors[1]->data, before, &scan->rows, units, per_item, scan->dim.size, chunk, chunks,
                         strip, scan->dim.stride[0], scan->dim.stride[1]);
}

/* Few, long rows: chunk by chunk, after the sums of the earlier chunks. */
static hal_status_t launch_chunks(hal_op_context_t *context, hal_dtype_t dtype, const scan_t *scan, int64_t chunk,
                                  int64_t chunks) {
  hal_plugin_kernel_t *totals, *prefix;
  hal_op_scratch_t scratch = {.block = NULL};
  HAL_RETURN_IF_ERROR(hal_op_kernel(context, dtype, HAL_SCAN_VARIANT_TOTALS, &totals));
  HAL_RETURN_IF_ERROR(hal_op_kernel(context, dtype, HAL_SCAN_VARIANT_PREFIX, &prefix));
  uint64_t rows = (uint64_t)scan->outputs, units = rows * (uint64_t)chunks, per_item = 1;
  HAL_RETURN_IF_ERROR(
      hal_op_scratch(context, units * 2 * sizeof(double), &scratch)); /* at most: a value and its remainder */
  void *sums = scratch.address;
  hal_status_t status = queue_scan_totals(context, totals, units, sums, scan->tensors[1]->data, &scan->rows, units,
                                          per_item, scan->dim.size, chunk, chunks, scan->dim.stride[1]);
  if (!status) status = queue_scan_prefix(context, prefix, rows, sums, rows, chunks);
  if (!status) status = launch_rows(context, dtype, scan, sums, chunk, chunks);
  hal_op_scratch_release(&scratch);
  return status;
}

hal_status_t hal_op_launch_scan(hal_op_context_t *context, const hal_op_call_t *call) {
  scan_t scan;
  HAL_RETURN_IF_ERROR(read_call(context, call, 2, &scan));
  const hal_dtype_t dtype = scan.tensors[1]->dtype;
  if (!hal_op_has_dtype(context, dtype)) return HAL_UNIMPLEMENTED;
  if (is_empty(scan.tensors[1])) return HAL_OK;
  const int simt = hal_op_target(context)->form == HAL_FORM_SIMT;
  const int64_t n = scan.dim.size, units = simt ? WANTED_SIMT_UNITS : WANTED_UNITS;
  const int64_t least = simt ? LEAST_SIMT_CHUNK : LEAST_CHUNK;
  if (scan.outputs < units && n >= 2 * least) {
    const int64_t wanted = n / (units / scan.outputs) + 1, chunk = wanted > least ? wanted : least;
    return launch_chunks(context, dtype, &scan, chunk, n / chunk + (n % chunk != 0));
  }
  return launch_rows(context, dtype, &scan, scan.tensors[1]->data, n, 1);
}

hal_status_t hal_op_launch_scan_index(hal_op_context_t *context, const hal_op_call_t *call) {
  scan_t scan;
  hal_plugin_kernel_t *kernel;
  HAL_RETURN_IF_ERROR(read_call(context, call, 3, &scan));
  if (!hal_op_has_dtype(context, scan.tensors[1]->dtype)) return HAL_UNIMPLEMENTED;
  if (is_empty(scan.tensors[1])) return HAL_OK;
  HAL_RETURN_IF_ERROR(hal_op_kernel(context, scan.tensors[1]->dtype, HAL_SCAN_INDEX_VARIANT_ROWS, &kernel));
  uint64_t rows = (uint64_t)scan.outputs;
  return queue_scan_index_rows(context, kernel, rows, scan.tensors[0]->data, scan.tensors[2]->data,
                               scan.tensors[1]->data, &scan.rows, rows, scan.dim.size, scan.dim.stride[0],
                               scan.dim.stride[2], scan.dim.stride[1]);
}
