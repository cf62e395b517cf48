/* reduce_index.c: launcher of max.dim and min.dim (values and indices) and argmax and argmin (indices). Results have
 * keepdim shape; an empty list of dimensions means the flattened tensor.
 *
 * A long dimension with few outputs is divided into chunks, whose candidates are merged. A flattened tensor that is not
 * one run in memory is reduced over its innermost run, and the candidates of the runs, in C order, are merged. Chunks
 * depend only on the sizes. */
#include "hal_op_variants.h"
#include "op/dims.h"
#include "ops/reduce/reduce_args.h"

HAL_OP_LAUNCHER(queue_reduce_index_rows, groups, REDUCE_INDEX_ROWS_ARGS)
HAL_OP_LAUNCHER(queue_reduce_index_cols, groups, REDUCE_INDEX_COLS_ARGS)
HAL_OP_LAUNCHER(queue_reduce_index_merge, loops, REDUCE_INDEX_MERGE_ARGS)

#define SHORT_ROW 32                     /* shorter rows are compared in parallel, by one item each */
#define STRIP PK_LSIZE                   /* columns of a unit */
#define WANTED_UNITS 64                  /* of a reduction with few outputs */
#define LEAST_CHUNK 4096                 /* elements */
#define MERGE_CHUNK 1024                 /* candidates that an item of a merge compares */
#define LARGEST_CHUNK (INT64_C(1) << 30) /* the kernels count within a chunk in 32 bits */

/* The source or result of a stage: values (NULL: not computed) and indices. */
typedef struct place_s {
  void *values;
  int64_t *indices;
} place_t;

typedef struct stage_s {
  hal_op_dims_t kept; /* operand 0: values; 1: source; 2: indices */
  hal_op_dim_t dim;
  int64_t outputs, chunk, chunks;
} stage_t;

static int64_t divide_up(int64_t x, int64_t y) { return x / y + (x % y != 0); }

static void plan(stage_t *stage) {
  const int64_t n = stage->dim.size;
  stage->outputs = hal_op_dims_numel(&stage->kept);
  stage->chunk = n;
  if (stage->outputs < WANTED_UNITS && n >= 2 * LEAST_CHUNK) {
    const int64_t wanted = divide_up(n, WANTED_UNITS / stage->outputs);
    stage->chunk = divide_up(wanted > LEAST_CHUNK ? wanted : LEAST_CHUNK, 64) * 64;
  }
  if (stage->chunk > LARGEST_CHUNK) stage->chunk = LARGEST_CHUNK;
  stage->chunks = divide_up(n, stage->chunk);
}

/* Sets the strides of the kept dimensions to those of contiguous candidates, `chunks` for each output. */
static void lay_out_candidates(hal_op_dims_t *kept, int64_t chunks) {
  int64_t stride = chunks;
  for (int32_t i = 0; i < kept->count; i++) {
    kept->dim[i].stride[0] = kept->dim[i].stride[2] = stride;
    stride *= kept->dim[i].size;
  }
}

/* Allocates candidates: indices first, which need the stricter alignment. */
static hal_status_t allocate(const hal_op_context_t *context, hal_dtype_t dtype, int64_t count,
                             hal_op_scratch_t *out_scratch, place_t *out_place) {
  size_t size;
  if (__builtin_mul_overflow((size_t)count, sizeof(int64_t) + hal_op_dtype_size(dtype), &size))
    return hal_op_too_large(context, UINT64_MAX);
  HAL_RETURN_IF_ERROR(hal_op_scratch(context, size, out_scratch));
  out_place->indices = out_scratch->address;
  out_place->values = out_place->indices + count; /* addresses only: the host does not access the memory */
  return HAL_OK;
}

static hal_op_dim_t take_column(hal_op_dims_t *kept) {
  int32_t best = -1;
  for (int32_t i = 0; i < kept->count; i++) {
    if (kept->dim[i].stride[1] == 1) {
      best = i;
      break;
    }
    if (best < 0 || kept->dim[i].size > kept->dim[best].size) best = i;
  }
  if (best >= 0) return hal_op_dims_take(kept, best);
  return (hal_op_dim_t){.size = 1, .stride = {1, 1, 1}};
}

/* Queues the first stage. */
static hal_status_t launch_stage(hal_op_context_t *context, hal_dtype_t dtype, const stage_t *stage, place_t target,
                                 const void *source) {
  const int by_rows = stage->dim.stride[1] == 1 && stage->dim.size >= SHORT_ROW;
  hal_op_dims_t dims = stage->kept;
  hal_op_dim_t column = {.size = 1};
  if (!by_rows) column = take_column(&dims);
  hal_op_dims_merge(&dims);
  pk_rows_t kept;
  hal_plugin_kernel_t *kernel;
  HAL_RETURN_IF_ERROR(hal_op_dims_rows(&dims, &kept));
  HAL_RETURN_IF_ERROR(
      hal_op_kernel(context, dtype, by_rows ? HAL_REDUCE_INDEX_VARIANT_ROWS : HAL_REDUCE_INDEX_VARIANT_COLS, &kernel));
  int64_t n = stage->dim.size, stride = stage->dim.stride[1], chunk = stage->chunk, chunks = stage->chunks;
  uint64_t units = (uint64_t)(stage->outputs / column.size) * (uint64_t)chunks;
  if (!by_rows) units *= (uint64_t)divide_up(column.size, STRIP);
  uint64_t per_group = hal_op_units_per_group(context, (uint64_t)chunk * (by_rows ? 1 : STRIP));
  int32_t with_values = target.values != NULL;
  if (!with_values) target.values = target.indices; /* a valid address; not written */
  const uint64_t groups = (units + per_group - 1) / per_group;
  if (by_rows)
    return queue_reduce_index_rows(context, kernel, groups, target.values, target.indices, source, &kept, units,
                                   per_group, n, chunk, chunks, with_values);
  return queue_reduce_index_cols(context, kernel, groups, target.values, target.indices, source, &kept, units,
                                 per_group, n, chunk, chunks, with_values, stride, column.size, column.stride[0],
                                 column.stride[1], column.stride[2]);
}

/* Queues one merge of `count` candidates for each of `outputs` outputs into `chunks` candidates each. */
static hal_status_t launch_merge(hal_op_context_t *context, hal_dtype_t dtype, const hal_op_dims_t *dims,
                                 int64_t outputs, int64_t count, int64_t step, int64_t chunk, place_t target,
                                 place_t source) {
  pk_rows_t kept;
  hal_plugin_kernel_t *kernel;
  HAL_RETURN_IF_ERROR(hal_op_dims_rows(dims, &kept));
  HAL_RETURN_IF_ERROR(hal_op_kernel(context, dtype, HAL_REDUCE_INDEX_VARIANT_MERGE, &kernel));
  int64_t chunks = divide_up(count, chunk);
  uint64_t units = (uint64_t)(outputs * chunks);
  int32_t with_values = target.values != NULL;
  if (!with_values) target.values = target.indices;
  return queue_reduce_index_merge(context, kernel, units, target.values, target.indices, source.values, source.indices,
                                  &kept, units, count, step, chunk, chunks, with_values);
}

/* Merges candidates until each output has one, which is the result. Releases `source_scratch`. */
static hal_status_t merge(hal_op_context_t *context, hal_dtype_t dtype, const hal_op_dims_t *results, int64_t outputs,
                          int64_t count, int64_t step, place_t result, place_t source,
                          hal_op_scratch_t source_scratch) {
  hal_status_t status = HAL_OK;
  for (int last = 0; !last && !status;) {
    const int64_t chunk = count > 2 * MERGE_CHUNK ? MERGE_CHUNK : count, chunks = divide_up(count, chunk);
    hal_op_dims_t dims = *results;
    hal_op_scratch_t scratch = {.block = NULL};
    place_t target = result;
    last = chunks == 1;
    if (!last) {
      lay_out_candidates(&dims, chunks);
      status = allocate(context, dtype, outputs * chunks, &scratch, &target);
    }
    if (!status) status = launch_merge(context, dtype, &dims, outputs, count, step, chunk, target, source);
    hal_op_scratch_release(&source_scratch);
    source_scratch = scratch;
    source = target;
    count = chunks;
    step = 0; /* indices are final from now on */
  }
  hal_op_scratch_release(&source_scratch);
  return status;
}

/* Reduces `dim`; `kept` has the results' strides. */
static hal_status_t reduce_dim(hal_op_context_t *context, hal_dtype_t dtype, const hal_op_dims_t *kept,
                               hal_op_dim_t dim, const void *source, place_t result) {
  stage_t stage = {.kept = *kept, .dim = dim};
  plan(&stage);
  if (stage.chunks == 1) return launch_stage(context, dtype, &stage, result, source);
  hal_op_scratch_t scratch = {.block = NULL};
  place_t candidates;
  HAL_RETURN_IF_ERROR(allocate(context, dtype, stage.outputs * stage.chunks, &scratch, &candidates));
  lay_out_candidates(&stage.kept, stage.chunks);
  const hal_status_t status = launch_stage(context, dtype, &stage, candidates, source);
  if (status) {
    hal_op_scratch_release(&scratch);
    return status;
  }
  return merge(context, dtype, kept, stage.outputs, stage.chunks, 0, result, candidates, scratch);
}

/* Reduces a flattened tensor of several runs: dimension 0 of `dims` is the innermost run, the others count the runs. */
static hal_status_t reduce_runs(hal_op_context_t *context, hal_dtype_t dtype, hal_op_dims_t *dims, const void *source,
                                place_t result) {
  const hal_op_dim_t run = hal_op_dims_take(dims, 0);
  const int64_t runs = hal_op_dims_numel(dims);
  const hal_op_dims_t one = {.count = 0, .operands = 3};
  hal_op_scratch_t scratch = {.block = NULL};
  place_t candidates;
  HAL_RETURN_IF_ERROR(allocate(context, dtype, runs, &scratch, &candidates));
  lay_out_candidates(dims, 1);
  const hal_status_t status = reduce_dim(context, dtype, dims, run, source, candidates);
  if (status) {
    hal_op_scratch_release(&scratch);
    return status;
  }
  return merge(context, dtype, &one, 1, runs, run.size, result, candidates, scratch);
}

/* Reads the operands: `tensors` are values (indices if there are no values), self and indices. */
static hal_status_t read_call(const hal_op_context_t *context, const hal_op_call_t *call, const hal_tensor_t **tensors,
                              int *out_with_values, uint64_t *out_mask) {
  const int with_values = context->info->kernel[0] == 'm'; /* max, min; not argmax, argmin */
  const hal_tensor_t *self;
  const int64_t *list;
  uint32_t count;
  HAL_RETURN_IF_ERROR(hal_op_tensor(context, call, 0, &self));
  HAL_RETURN_IF_ERROR(hal_op_result(context, call, 0, &tensors[0]));
  HAL_RETURN_IF_ERROR(hal_op_result(context, call, with_values ? 1 : 0, &tensors[2]));
  HAL_RETURN_IF_ERROR(hal_op_int_list(context, call, 1, &list, &count));
  if (count > 1) return hal_op_invalid(context, "the call has %u dimensions; expected one, or none for all", count);
  HAL_RETURN_IF_ERROR(hal_op_dim_mask(context, self->ndim, list, count, out_mask));
  HAL_RETURN_IF_ERROR(hal_op_check_keepdim(context, self, tensors[0], *out_mask));
  HAL_RETURN_IF_ERROR(hal_op_check_keepdim(context, self, tensors[2], *out_mask));
  if (with_values && tensors[0]->dtype != self->dtype)
    return hal_op_invalid(context, "the values have dtype %s; expected %s", hal_op_dtype_name(tensors[0]->dtype),
                          hal_op_dtype_name(self->dtype));
  if (tensors[2]->dtype != HAL_INT64)
    return hal_op_invalid(context, "the indices have dtype %s; expected int64", hal_op_dtype_name(tensors[2]->dtype));
  tensors[1] = self;
  *out_with_values = with_values;
  return HAL_OK;
}

hal_status_t hal_op_launch_reduce_index(hal_op_context_t *context, const hal_op_call_t *call) {
  const hal_tensor_t *tensors[3];
  int with_values = 0;
  uint64_t mask = 0;
  int64_t numel, outputs;
  HAL_RETURN_IF_ERROR(read_call(context, call, tensors, &with_values, &mask));
  HAL_RETURN_IF_ERROR(hal_op_numel(context, tensors[1], "self", &numel));
  HAL_RETURN_IF_ERROR(hal_op_numel(context, tensors[2], "the result", &outputs));
  if (outputs == 0) return HAL_OK;
  if (numel == 0)
    return hal_op_invalid(context, "the reduced dimension is empty and has no extreme; reduce over one with elements");
  if (!hal_op_has_dtype(context, tensors[1]->dtype)) return HAL_UNIMPLEMENTED;

  hal_op_dims_t dims;
  hal_op_dims_init(tensors, 3, mask, &dims);
  hal_op_dims_merge(&dims);
  const place_t result = {with_values ? tensors[0]->data : NULL, tensors[2]->data};
  int32_t reduced = -1, reduced_count = 0;
  for (int32_t i = dims.count - 1; i >= 0; i--) {
    if (!dims.dim[i].reduced) continue;
    reduced = i;
    reduced_count++;
  }
  if (reduced_count > 1) return reduce_runs(context, tensors[1]->dtype, &dims, tensors[1]->data, result);
  hal_op_dim_t dim = {.size = 1, .stride = {0, 1, 0}, .reduced = 1};
  if (reduced >= 0) dim = hal_op_dims_take(&dims, reduced);
  hal_op_dims_merge(&dims);
  return reduce_dim(context, tensors[1]->dtype, &dims, dim, tensors[1]->data, result);
}
