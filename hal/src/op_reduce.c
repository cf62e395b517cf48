/* op_reduce.c: launcher of sum, mean, amax and amin. Results arrive in keepdim shape.
 *
 * Stages: each reduces one dimension, the one with the smallest stride first, into scratch memory; the last one writes
 * the result. A dimension that is long where there are few outputs is cut into chunks, whose partial results are one
 * more dimension to reduce. Stages and chunks depend on sizes and strides alone, so the bits do not depend on the
 * device's threads. */
#include "hal_op_variants.h"
#include "op_dims.h"

#define LEAST_CHUNK 4096 /* elements, of a chunk of a row; in columns: elements of a strip of columns */
#define WANTED_UNITS 64  /* units of work that a long reduction is cut into */
#define STRIP 256        /* PK_STRIP: columns of a unit */
#define SHORT_ROW 32     /* shorter rows are reduced one after the other by an item each */

typedef struct stage_s {
  hal_op_dims_t kept; /* operand 0: the stage's result; 1: its source */
  hal_op_dim_t dim;   /* the reduced dimension */
  int32_t column;     /* of `kept`: the dimension with stride 1, -1 = none */
  int64_t outputs, chunk, chunks;
  uint32_t variant;
} stage_t;

static int64_t divide_up(int64_t x, int64_t y) { return x / y + (x % y != 0); }

static int64_t round_up(int64_t x, int64_t to) { return divide_up(x, to) * to; }

/* Cuts the stage's dimension so that there are about WANTED_UNITS units of at least LEAST_CHUNK elements. `unit` is the
 * number of elements of a unit per place of the dimension, `granule` what a chunk is a multiple of. */
static void cut(stage_t *stage, int64_t units, int64_t unit, int64_t granule) {
  const int64_t n = stage->dim.size;
  stage->chunk = n > 0 ? n : 1;
  stage->chunks = 1;
  if (units >= WANTED_UNITS || n * unit < 2 * LEAST_CHUNK) return;
  const int64_t wanted = divide_up(n, divide_up(WANTED_UNITS, units));
  const int64_t least = divide_up(LEAST_CHUNK, unit);
  stage->chunk = round_up(wanted > least ? wanted : least, granule);
  stage->chunks = divide_up(n, stage->chunk);
}

/* Chooses the stage's kernel and chunks. */
static void plan(stage_t *stage) {
  const int64_t n = stage->dim.size;
  stage->column = -1;
  for (int32_t i = 0; i < stage->kept.count && stage->column < 0; i++)
    if (stage->kept.dim[i].stride[1] == 1 && stage->kept.dim[i].size >= 8) stage->column = i;
  stage->outputs = hal_op_dims_numel(&stage->kept);
  stage->chunk = n > 0 ? n : 1;
  stage->chunks = 1;
  stage->variant = HAL_REDUCE_VARIANT_STRIDED;
  if (stage->outputs == 0 || n == 0) return;
  if (stage->dim.stride[1] == 1 && n >= SHORT_ROW) {
    stage->variant = HAL_REDUCE_VARIANT_ROWS;
    cut(stage, stage->outputs, 1, 64);
  } else if (stage->column >= 0) {
    const int64_t columns = stage->kept.dim[stage->column].size;
    const int64_t width = columns < STRIP ? columns : STRIP;
    stage->variant = HAL_REDUCE_VARIANT_COLS;
    cut(stage, stage->outputs / columns * divide_up(columns, STRIP), width, 64);
  }
}

static hal_status_t launch_rows(hal_op_context_t *context, hal_plugin_kernel_t *kernel, const stage_t *stage,
                                const hal_op_rows_t *kept, void *result, const void *source, int64_t divisor) {
  uint64_t units = (uint64_t)stage->outputs * (uint64_t)stage->chunks;
  uint64_t per_group = hal_op_units_per_group(context, (uint64_t)stage->chunk);
  int64_t n = stage->dim.size, chunk = stage->chunk, chunks = stage->chunks;
  hal_op_rows_t rows = *kept;
  const hal_arg_t args[] = {HAL_OP_ARG_POINTER(result), HAL_OP_ARG_POINTER(source),  HAL_OP_ARG_VALUE(rows),
                            HAL_OP_ARG_VALUE(units),    HAL_OP_ARG_VALUE(per_group), HAL_OP_ARG_VALUE(n),
                            HAL_OP_ARG_VALUE(chunk),    HAL_OP_ARG_VALUE(chunks),    HAL_OP_ARG_VALUE(divisor)};
  return hal_op_launch_groups(context, kernel, (units + per_group - 1) / per_group, args, 9);
}

static hal_status_t launch_cols(hal_op_context_t *context, hal_plugin_kernel_t *kernel, const stage_t *stage,
                                const hal_op_rows_t *kept, void *result, const void *source, int64_t divisor,
                                const hal_op_dim_t *column) {
  int64_t columns = column->size, result_stride = column->stride[0];
  const int64_t strips = divide_up(columns, STRIP);
  uint64_t units = (uint64_t)(stage->outputs / columns) * (uint64_t)(stage->chunks * strips);
  uint64_t per_group = hal_op_units_per_group(context, (uint64_t)stage->chunk * (columns < STRIP ? 64 : STRIP));
  int64_t n = stage->dim.size, stride = stage->dim.stride[1], chunk = stage->chunk, chunks = stage->chunks;
  hal_op_rows_t rows = *kept;
  const hal_arg_t args[] = {HAL_OP_ARG_POINTER(result), HAL_OP_ARG_POINTER(source),      HAL_OP_ARG_VALUE(rows),
                            HAL_OP_ARG_VALUE(units),    HAL_OP_ARG_VALUE(per_group),     HAL_OP_ARG_VALUE(n),
                            HAL_OP_ARG_VALUE(stride),   HAL_OP_ARG_VALUE(chunk),         HAL_OP_ARG_VALUE(chunks),
                            HAL_OP_ARG_VALUE(columns),  HAL_OP_ARG_VALUE(result_stride), HAL_OP_ARG_VALUE(divisor)};
  return hal_op_launch_groups(context, kernel, (units + per_group - 1) / per_group, args, 12);
}

static hal_status_t launch_strided(hal_op_context_t *context, hal_plugin_kernel_t *kernel, const stage_t *stage,
                                   const hal_op_rows_t *kept, void *result, const void *source, int64_t divisor) {
  uint64_t outputs = (uint64_t)stage->outputs;
  uint64_t per_item = hal_op_units_per_group(context, (uint64_t)stage->chunk + 16);
  int64_t n = stage->dim.size, stride = stage->dim.stride[1];
  hal_op_rows_t rows = *kept;
  const hal_arg_t args[] = {HAL_OP_ARG_POINTER(result), HAL_OP_ARG_POINTER(source), HAL_OP_ARG_VALUE(rows),
                            HAL_OP_ARG_VALUE(outputs),  HAL_OP_ARG_VALUE(per_item), HAL_OP_ARG_VALUE(n),
                            HAL_OP_ARG_VALUE(stride),   HAL_OP_ARG_VALUE(divisor)};
  return hal_op_launch_items(context, kernel, (outputs + per_item - 1) / per_item, args, 8);
}

/* Queues one stage. */
static hal_status_t launch_stage(hal_op_context_t *context, hal_dtype_t dtype, stage_t *stage, void *result,
                                 const void *source, int64_t divisor) {
  hal_op_dims_t kept = stage->kept;
  hal_op_dim_t column = {0};
  if (stage->variant == HAL_REDUCE_VARIANT_COLS) column = hal_op_dims_take(&kept, stage->column);
  hal_op_dims_merge(&kept);
  hal_op_rows_t rows;
  hal_plugin_kernel_t *kernel;
  hal_status_t status = hal_op_dims_rows(&kept, &rows);
  if (!status) status = hal_op_kernel(context, dtype, stage->variant, &kernel);
  if (status) return status;
  if (stage->variant == HAL_REDUCE_VARIANT_ROWS)
    return launch_rows(context, kernel, stage, &rows, result, source, divisor);
  if (stage->variant == HAL_REDUCE_VARIANT_COLS)
    return launch_cols(context, kernel, stage, &rows, result, source, divisor, &column);
  return launch_strided(context, kernel, stage, &rows, result, source, divisor);
}

/* Takes the reduced dimension with the smallest stride out of `dims`; one of size 1 when there is none. */
static hal_op_dim_t take_reduced(hal_op_dims_t *dims) {
  for (int32_t i = 0; i < dims->count; i++)
    if (dims->dim[i].reduced) return hal_op_dims_take(dims, i);
  return (hal_op_dim_t){.size = 1, .stride = {0, 1}, .reduced = 1};
}

static int has_reduced(const hal_op_dims_t *dims) {
  for (int32_t i = 0; i < dims->count; i++)
    if (dims->dim[i].reduced) return 1;
  return 0;
}

/* Lays the stage's result out in scratch memory, chunks innermost, and gives what the next stage reads: the same
 * dimensions with those strides, the final result's strides beside them. */
static void lay_out_scratch(stage_t *stage, hal_op_dims_t *out_next) {
  hal_op_dims_t next = {.count = 0, .operands = 2};
  int64_t stride = stage->chunks;
  if (stage->chunks > 1) next.dim[next.count++] = (hal_op_dim_t){.size = stage->chunks, .stride = {0, 1}, .reduced = 1};
  for (int32_t i = 0; i < stage->kept.count; i++) {
    hal_op_dim_t *dim = &next.dim[next.count++];
    *dim = stage->kept.dim[i];
    dim->stride[1] = stride;
    stage->kept.dim[i].stride[0] = stride;
    stride *= dim->size;
  }
  *out_next = next;
}

hal_status_t hal_op_launch_reduce(hal_op_context_t *context, const hal_op_call_t *call) {
  const hal_tensor_t *self, *result;
  const int64_t *list;
  uint32_t list_count;
  uint64_t mask;
  int64_t numel, outputs;
  hal_status_t status = hal_op_tensor(context, call, 0, &self);
  if (!status) status = hal_op_result(context, call, 0, &result);
  if (!status) status = hal_op_int_list(context, call, 1, &list, &list_count);
  if (!status) status = hal_op_dim_mask(context, self->ndim, list, list_count, &mask);
  if (!status) status = hal_op_check_keepdim(context, self, result, mask);
  if (!status) status = hal_op_numel(context, self, "self", &numel);
  if (!status) status = hal_op_numel(context, result, "the result", &outputs);
  if (status) return status;
  if (result->dtype != self->dtype)
    return hal_op_invalid(context, "the result has dtype %s; %s is needed (cast self before the call)",
                          hal_op_dtype_name(result->dtype), hal_op_dtype_name(self->dtype));
  if (outputs == 0) return HAL_OK;
  const int64_t divisor = numel / outputs; /* elements per output */
  if (divisor == 0 && context->info->kernel[0] == 'a')
    return hal_op_invalid(context,
                          "the reduced dimensions are empty and the operation has no neutral element; reduce over "
                          "dimensions with at least one element");

  const hal_tensor_t *const tensors[2] = {result, self};
  hal_op_dims_t dims;
  hal_op_dims_init(tensors, 2, mask, &dims);
  hal_op_dims_sort(&dims);
  hal_op_dims_merge(&dims);
  hal_op_rows_t rows; /* of the first stage, which has the most dimensions: later ones fit when it does */
  if (dims.count > HAL_OP_ROW_DIMS && hal_op_dims_rows(&dims, &rows)) return HAL_UNIMPLEMENTED;

  hal_block_t *held = NULL;
  const void *source = self->data;
  for (int last = 0; !last && !status;) {
    stage_t stage;
    stage.dim = take_reduced(&dims);
    stage.kept = dims;
    hal_block_t *scratch = NULL;
    void *target = result->data;
    plan(&stage);
    last = stage.chunks == 1 && !has_reduced(&stage.kept);
    if (!last) {
      const size_t size = (size_t)stage.outputs * (size_t)stage.chunks * hal_op_dtype_size(self->dtype);
      lay_out_scratch(&stage, &dims);
      status = hal_memory_allocate(context->device->index, context->stream, size, &scratch);
      if (!status) target = hal_memory_block_address(scratch);
    }
    if (!status) status = launch_stage(context, self->dtype, &stage, target, source, last ? divisor : -1);
    hal_memory_release(held); /* work queued on its stream may still use it */
    held = scratch;
    source = target;
  }
  hal_memory_release(held);
  return status;
}
