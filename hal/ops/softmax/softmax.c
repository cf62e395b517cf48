/* op_softmax.c: launchers of softmax, log_softmax and their gradients over one dimension. */
#include "hal_op_variants.h"
#include "op/dims.h"

#define SHORT_ROW 32 /* shorter rows are computed side by side, an item each */
#define STRIP 64     /* PK_LSIZE: columns of a unit */
#define EXP_COST 8   /* elements of memory traffic that an exponential is worth */

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

/* The kept dimension whose places are computed side by side: one with stride 1, else the longest. */
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

static hal_status_t launch_rows(hal_op_context_t *context, call_t *in, hal_arg_t *args, uint32_t count) {
  hal_plugin_kernel_t *kernel;
  hal_op_rows_t kept;
  HAL_RETURN_IF_ERROR(hal_op_dims_rows(&in->kept, &kept));
  HAL_RETURN_IF_ERROR(hal_op_kernel(context, in->tensors[0]->dtype, HAL_SOFTMAX_VARIANT_ROWS, &kernel));
  uint64_t rows = (uint64_t)hal_op_dims_numel(&in->kept);
  uint64_t per_group = hal_op_units_per_group(context, (uint64_t)in->dim.size * EXP_COST);
  const hal_arg_t more[] = {HAL_OP_ARG_VALUE(kept), HAL_OP_ARG_VALUE(rows), HAL_OP_ARG_VALUE(per_group),
                            HAL_OP_ARG_VALUE(in->dim.size)};
  for (uint32_t i = 0; i < 4; i++) args[count++] = more[i];
  return hal_op_launch_groups(context, kernel, (rows + per_group - 1) / per_group, args, count);
}

static hal_status_t launch_cols(hal_op_context_t *context, call_t *in, hal_arg_t *args, uint32_t count) {
  hal_plugin_kernel_t *kernel;
  hal_op_rows_t kept;
  hal_op_dim_t column = take_column(in);
  hal_op_dims_merge(&in->kept);
  HAL_RETURN_IF_ERROR(hal_op_dims_rows(&in->kept, &kept));
  HAL_RETURN_IF_ERROR(hal_op_kernel(context, in->tensors[0]->dtype, HAL_SOFTMAX_VARIANT_COLS, &kernel));
  uint64_t units = (uint64_t)hal_op_dims_numel(&in->kept) * (((uint64_t)column.size + STRIP - 1) / STRIP);
  uint64_t per_group = hal_op_units_per_group(context, (uint64_t)in->dim.size * STRIP * EXP_COST);
  const hal_arg_t more[] = {HAL_OP_ARG_VALUE(kept), HAL_OP_ARG_VALUE(units), HAL_OP_ARG_VALUE(per_group),
                            HAL_OP_ARG_VALUE(in->dim.size)};
  for (uint32_t i = 0; i < 4; i++) args[count++] = more[i];
  for (int32_t k = 0; k < in->operands; k++) args[count++] = (hal_arg_t)HAL_OP_ARG_VALUE(in->dim.stride[k]);
  args[count++] = (hal_arg_t)HAL_OP_ARG_VALUE(column.size);
  for (int32_t k = 0; k < in->operands; k++) args[count++] = (hal_arg_t)HAL_OP_ARG_VALUE(column.stride[k]);
  return hal_op_launch_groups(context, kernel, (units + per_group - 1) / per_group, args, count);
}

static hal_status_t launch(hal_op_context_t *context, const hal_op_call_t *call, int32_t operands) {
  call_t in = {.operands = operands};
  int64_t numel;
  HAL_RETURN_IF_ERROR(read_call(context, call, &in));
  HAL_RETURN_IF_ERROR(hal_op_numel(context, in.tensors[0], "the result", &numel));
  if (numel == 0) return HAL_OK;
  void *data[MOST_OPERANDS];
  hal_arg_t args[16];
  for (int32_t k = 0; k < operands; k++) {
    data[k] = in.tensors[k]->data;
    args[k] = (hal_arg_t)HAL_OP_ARG_POINTER(data[k]);
  }
  if (in.dim.size >= SHORT_ROW && has_unit_strides(&in.dim, operands))
    return launch_rows(context, &in, args, (uint32_t)operands);
  return launch_cols(context, &in, args, (uint32_t)operands);
}

hal_status_t hal_op_launch_softmax(hal_op_context_t *context, const hal_op_call_t *call) {
  return launch(context, call, 2);
}

hal_status_t hal_op_launch_softmax_backward(hal_op_context_t *context, const hal_op_call_t *call) {
  return launch(context, call, 3);
}
