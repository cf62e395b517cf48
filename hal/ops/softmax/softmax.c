/* softmax.c: launchers of softmax, log_softmax and their gradients over one dimension. */
#include "hal_op_variants.h"
#include "op/dims.h"
#include "ops/softmax/softmax_args.h"

HAL_OP_LAUNCHER(queue_rows, groups, SOFTMAX_ROWS_ARGS)
HAL_OP_LAUNCHER(queue_cols, groups, SOFTMAX_COLS_ARGS)
HAL_OP_LAUNCHER(queue_backward_rows, groups, SOFTMAX_BACKWARD_ROWS_ARGS)
HAL_OP_LAUNCHER(queue_backward_cols, groups, SOFTMAX_BACKWARD_COLS_ARGS)

#define SHORT_ROW 32 /* shorter rows are computed in parallel, by one item each */
/* on the host, forward: 8 to 16 float32 elements take half of the time as a separate row, 5 the same time */
#define SHORT_HOST_ROW 8
#define STRIP PK_LSIZE /* columns of a unit */
#define EXP_COST 8     /* an exponential takes the time of as many elements of memory traffic */

enum { MOST_OPERANDS = 3 };
_Static_assert((int)HAL_SOFTMAX_VARIANT_ROWS == (int)HAL_SOFTMAX_BACKWARD_VARIANT_ROWS &&
                   (int)HAL_SOFTMAX_VARIANT_COLS == (int)HAL_SOFTMAX_BACKWARD_VARIANT_COLS,
               "both families have the variants rows and cols");

typedef struct call_s {
  const hal_tensor_t *tensors[MOST_OPERANDS]; /* the result first */
  int32_t operands;
  hal_op_dims_t kept;
  hal_op_dim_t dim;
} call_t;

/* Reads the tensors, which are the first arguments, and the dimension, which follows them. */
static hal_status_t read_call(const hal_op_context_t *context, const hal_op_call_t *call, call_t *out) {
  int64_t dim;
  uint64_t mask;
  HAL_RETURN_IF_ERROR(hal_op_result(context, call, 0, &out->tensors[0]));
  for (int32_t k = 1; k < out->operands; k++) {
    const char *const name = context->info->arguments[k - 1];
    HAL_RETURN_IF_ERROR(hal_op_tensor(context, call, (uint32_t)k - 1, &out->tensors[k]));
    HAL_RETURN_IF_ERROR(hal_op_check_same_shape(context, out->tensors[k], name, out->tensors[0], "the result"));
    if (out->tensors[k]->dtype != out->tensors[0]->dtype)
      return hal_op_invalid(context, "%s has dtype %s, the result %s; both must be the same", name,
                            hal_op_dtype_name(out->tensors[k]->dtype), hal_op_dtype_name(out->tensors[0]->dtype));
  }
  HAL_RETURN_IF_ERROR(hal_op_int(context, call, (uint32_t)out->operands - 1, &dim));
  HAL_RETURN_IF_ERROR(hal_op_dim_mask(context, out->tensors[0]->ndim, &dim, 1, &mask));
  hal_op_dims_init(out->tensors, out->operands, mask, &out->kept);
  hal_op_dims_merge(&out->kept);
  out->dim = (hal_op_dim_t){.size = 1, .stride = {1, 1, 1}, .reduced = 1}; /* when its size is 1 */
  for (int32_t i = 0; i < out->kept.count; i++) {
    if (!out->kept.dim[i].reduced) continue;
    out->dim = hal_op_dims_take(&out->kept, i);
    hal_op_dims_merge(&out->kept);
    break;
  }
  return HAL_OK;
}

static int has_unit_strides(const hal_op_dim_t *dim, int32_t operands) {
  for (int32_t k = 0; k < operands; k++)
    if (dim->stride[k] != 1) return 0;
  return 1;
}

/* Returns the kept dimension whose positions are computed in parallel: one with stride 1, else the longest. */
static hal_op_dim_t take_column(call_t *in) {
  int32_t best = -1;
  for (int32_t i = 0; i < in->kept.count; i++) {
    if (has_unit_strides(&in->kept.dim[i], in->operands)) {
      best = i;
      break;
    }
    if (best < 0 || in->kept.dim[i].size > in->kept.dim[best].size) best = i;
  }
  if (best >= 0) return hal_op_dims_take(&in->kept, best);
  return (hal_op_dim_t){.size = 1, .stride = {1, 1, 1}};
}

static hal_status_t launch_rows(hal_op_context_t *context, call_t *in, void *const data[]) {
  hal_plugin_kernel_t *kernel;
  pk_rows_t kept;
  HAL_RETURN_IF_ERROR(hal_op_dims_rows(&in->kept, &kept));
  HAL_RETURN_IF_ERROR(hal_op_kernel(context, in->tensors[0]->dtype, HAL_SOFTMAX_VARIANT_ROWS, &kernel));
  const int64_t n = in->dim.size;
  const uint64_t rows = (uint64_t)hal_op_dims_numel(&in->kept);
  const uint64_t per_group = hal_op_units_per_group(context, (uint64_t)n * EXP_COST);
  const uint64_t groups = (rows + per_group - 1) / per_group;
  if (in->operands == 2) return queue_rows(context, kernel, groups, data[0], data[1], &kept, rows, per_group, n);
  return queue_backward_rows(context, kernel, groups, data[0], data[1], data[2], &kept, rows, per_group, n);
}

static hal_status_t launch_cols(hal_op_context_t *context, call_t *in, void *const data[]) {
  hal_plugin_kernel_t *kernel;
  pk_rows_t kept;
  const hal_op_dim_t column = take_column(in);
  hal_op_dims_merge(&in->kept);
  HAL_RETURN_IF_ERROR(hal_op_dims_rows(&in->kept, &kept));
  HAL_RETURN_IF_ERROR(hal_op_kernel(context, in->tensors[0]->dtype, HAL_SOFTMAX_VARIANT_COLS, &kernel));
  const int64_t n = in->dim.size, *const stride = in->dim.stride, *const by_column = column.stride;
  const uint64_t units = (uint64_t)hal_op_dims_numel(&in->kept) * (((uint64_t)column.size + STRIP - 1) / STRIP);
  const uint64_t per_group = hal_op_units_per_group(context, (uint64_t)n * STRIP * EXP_COST);
  const uint64_t groups = (units + per_group - 1) / per_group;
  if (in->operands == 2)
    return queue_cols(context, kernel, groups, data[0], data[1], &kept, units, per_group, n, stride[0], stride[1],
                      column.size, by_column[0], by_column[1]);
  return queue_backward_cols(context, kernel, groups, data[0], data[1], data[2], &kept, units, per_group, n, stride[0],
                             stride[1], stride[2], column.size, by_column[0], by_column[1], by_column[2]);
}

/* Returns the number of elements of the shortest row that is computed separately. */
static int64_t short_row(const hal_op_context_t *context, int32_t operands) {
  return hal_op_is_host(context) && operands == 2 ? SHORT_HOST_ROW : SHORT_ROW;
}

static hal_status_t launch(hal_op_context_t *context, const hal_op_call_t *call, int32_t operands) {
  call_t in = {.operands = operands};
  int64_t numel;
  HAL_RETURN_IF_ERROR(read_call(context, call, &in));
  HAL_RETURN_IF_ERROR(hal_op_numel(context, in.tensors[0], "the result", &numel));
  if (numel == 0) return HAL_OK;
  void *data[MOST_OPERANDS];
  for (int32_t k = 0; k < operands; k++) data[k] = in.tensors[k]->data;
  const int by_rows = in.dim.size >= short_row(context, operands) && has_unit_strides(&in.dim, operands);
  return by_rows ? launch_rows(context, &in, data) : launch_cols(context, &in, data);
}

hal_status_t hal_op_launch_softmax(hal_op_context_t *context, const hal_op_call_t *call) {
  return launch(context, call, 2);
}

hal_status_t hal_op_launch_softmax_backward(hal_op_context_t *context, const hal_op_call_t *call) {
  return launch(context, call, 3);
}
