/* reduce.c: the stages of a reduction. Results have keepdim shape.
 *
 * Each stage reduces one dimension, the one with the smallest stride first, into scratch memory; the last one writes
 * the result. A long dimension with few outputs is divided into chunks, whose partial results are one more dimension to
 * reduce. Stages and chunks depend only on sizes, strides and the kind of device, so the results do not depend on its
 * threads. */
#include "ops/reduce/reduce.h"

#include "hal_op_variants.h"
#include "op/form.h"
#include "ops/reduce/reduce_args.h"

/* An item of `strided` computes an output; the other kernels have groups. */
HAL_OP_LAUNCHER(queue, groups, REDUCE_STAGE_ARGS)
HAL_OP_LAUNCHER(queue_items, loops, REDUCE_STAGE_ARGS)
HAL_OP_LAUNCHER(queue_pair, groups, REDUCE_PAIR_STAGE_ARGS)
HAL_OP_LAUNCHER(queue_pair_items, loops, REDUCE_PAIR_STAGE_ARGS)

#define LEAST_CHUNK 4096 /* elements, of a chunk of a row; in columns: elements of a strip of columns */
#define WANTED_UNITS 64  /* units of work of a long reduction; more if the device needs more groups */
#define STRIP PK_STRIP   /* columns of a unit */
#define SHORT_ROW 32     /* shorter rows are reduced sequentially, by one item each */

_Static_assert((int)HAL_REDUCE_VARIANT_ROWS == (int)HAL_REDUCE_PAIR_VARIANT_ROWS &&
                   (int)HAL_REDUCE_VARIANT_COUNT == (int)HAL_REDUCE_PAIR_VARIANT_COUNT,
               "both families have the same variants");
enum { MORE = HAL_REDUCE_VARIANT_ROWS_MORE - HAL_REDUCE_VARIANT_ROWS };

typedef pk_reduce_t shape_t;

/* The common data of the stages of a call. */
typedef struct work_s {
  hal_dtype_t dtype;
  size_t accumulator; /* bytes */
  int paired;         /* of the current stage */
  const void *b, *c;
  hal_op_scalar_t number;
} work_t;

typedef struct stage_s {
  hal_op_dims_t kept; /* operand 0: the stage's result; 1: its source; 2, 3: b and c of a pair */
  hal_op_dim_t dim;   /* the reduced dimension */
  int32_t column;     /* of `kept`: the dimension with stride 1, -1 = none */
  int64_t outputs, chunk, chunks;
  uint32_t variant;
} stage_t;

static int64_t divide_up(int64_t x, int64_t y) { return x / y + (x % y != 0); }

static int64_t round_up(int64_t x, int64_t to) { return divide_up(x, to) * to; }

/* Divides the stage's dimension so that there are about as many units as requested, of at least LEAST_CHUNK elements.
 * `unit` is the number of elements of a unit per index of the dimension; a chunk is a multiple of `granule`. */
static void cut(const hal_op_target_t *target, stage_t *stage, int64_t units, int64_t unit, int64_t granule) {
  const int64_t n = stage->dim.size, groups = (int64_t)target->wanted_groups;
  const int64_t enough = target->form == HAL_FORM_SIMT && groups > WANTED_UNITS ? groups : WANTED_UNITS;
  stage->chunk = n > 0 ? n : 1;
  stage->chunks = 1;
  if (units >= enough || n * unit < 2 * LEAST_CHUNK) return;
  const int64_t wanted = divide_up(n, divide_up(enough, units));
  const int64_t least = divide_up(LEAST_CHUNK, unit);
  stage->chunk = round_up(wanted > least ? wanted : least, granule);
  stage->chunks = divide_up(n, stage->chunk);
}

static int has_unit_stride(const work_t *work, const hal_op_dim_t *dim) {
  return dim->stride[1] == 1 && (!work->paired || dim->stride[2] == 1);
}

/* Chooses the stage's kernel and chunks. */
static void plan(const hal_op_target_t *target, const work_t *work, stage_t *stage) {
  const int64_t n = stage->dim.size;
  stage->column = -1;
  for (int32_t i = 0; i < stage->kept.count && stage->column < 0; i++)
    if (has_unit_stride(work, &stage->kept.dim[i]) && stage->kept.dim[i].size >= 8) stage->column = i;
  stage->outputs = hal_op_dims_numel(&stage->kept);
  stage->chunk = n > 0 ? n : 1;
  stage->chunks = 1;
  stage->variant = HAL_REDUCE_VARIANT_STRIDED;
  if (stage->outputs == 0 || n == 0) return;
  if (has_unit_stride(work, &stage->dim) && n >= SHORT_ROW) {
    stage->variant = HAL_REDUCE_VARIANT_ROWS;
    cut(target, stage, stage->outputs, 1, 64);
  } else if (stage->column >= 0) {
    const int64_t columns = stage->kept.dim[stage->column].size;
    const int64_t width = columns < STRIP ? columns : STRIP;
    stage->variant = HAL_REDUCE_VARIANT_COLS;
    cut(target, stage, stage->outputs / columns * divide_up(columns, STRIP), width, 64);
  }
}

/* Returns the units of the stage's work, and how many of them a group or item computes. */
static uint64_t count_units(const hal_op_context_t *context, const stage_t *stage, const shape_t *shape,
                            uint64_t *out_per_group) {
  const uint64_t outputs = (uint64_t)stage->outputs;
  if (stage->variant == HAL_REDUCE_VARIANT_ROWS) {
    *out_per_group = hal_op_units_per_group(context, (uint64_t)stage->chunk);
    return outputs * (uint64_t)stage->chunks;
  }
  if (stage->variant == HAL_REDUCE_VARIANT_STRIDED) {
    *out_per_group = hal_op_units_per_group(context, (uint64_t)stage->chunk + 16);
    return outputs;
  }
  *out_per_group = hal_op_units_per_group(context, (uint64_t)stage->chunk * (shape->columns < STRIP ? 64 : STRIP));
  return outputs / (uint64_t)shape->columns * (uint64_t)(stage->chunks * divide_up(shape->columns, STRIP));
}

/* Queues one stage, a later one with `later`. */
static hal_status_t launch_stage(hal_op_context_t *context, const work_t *work, const stage_t *stage, int later,
                                 void *result, const void *source, int64_t divisor, int final) {
  hal_op_dims_t kept = stage->kept;
  hal_op_dim_t column = {0};
  if (stage->variant == HAL_REDUCE_VARIANT_COLS) column = hal_op_dims_take(&kept, stage->column);
  hal_op_dims_merge(&kept);
  pk_rows_t rows;
  hal_plugin_kernel_t *kernel;
  HAL_RETURN_IF_ERROR(hal_op_dims_rows(&kept, &rows));
  HAL_RETURN_IF_ERROR(hal_op_kernel(context, work->dtype, stage->variant + (later ? MORE : 0), &kernel));
  shape_t shape = {.n = stage->dim.size,
                   .stride = stage->dim.stride[1],
                   .b_stride = stage->dim.stride[2],
                   .chunk = stage->chunk,
                   .chunks = stage->chunks,
                   .columns = column.size,
                   .result_column = column.stride[0],
                   .c_column = column.stride[3],
                   .divisor = divisor,
                   .final = final,
                   .with_c = work->c != NULL};
  uint64_t per_group, units = count_units(context, stage, &shape, &per_group);
  const pk_number_t number = hal_op_number(&work->number);
  const uint64_t groups = (units + per_group - 1) / per_group;
  const void *const c = work->c ? work->c : source; /* any valid address */
  const int strided = stage->variant == HAL_REDUCE_VARIANT_STRIDED;
  if (work->paired)
    return (strided ? queue_pair_items : queue_pair)(context, kernel, groups, result, source, work->b, c, &rows, units,
                                                     per_group, &shape, number);
  return (strided ? queue_items : queue)(context, kernel, groups, result, source, &rows, units, per_group, &shape,
                                         number);
}

/* Removes the reduced dimension with the smallest stride from `dims`; returns one of size 1 if there is none. */
static hal_op_dim_t take_reduced(hal_op_dims_t *dims) {
  for (int32_t i = 0; i < dims->count; i++)
    if (dims->dim[i].reduced) return hal_op_dims_take(dims, i);
  return (hal_op_dim_t){.size = 1, .stride = {0, 1, 1}, .reduced = 1};
}

static int has_reduced(const hal_op_dims_t *dims) {
  for (int32_t i = 0; i < dims->count; i++)
    if (dims->dim[i].reduced) return 1;
  return 0;
}

/* Arranges the stage's result in scratch memory, chunks innermost, and returns the source of the next stage: the same
 * dimensions with those strides, and the final result's strides. */
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

/* Allocates the stage's partial results. */
static hal_status_t allocate_scratch(const hal_op_context_t *context, const work_t *work, const stage_t *stage,
                                     hal_op_scratch_t *out_scratch) {
  size_t size;
  if (__builtin_mul_overflow((size_t)stage->outputs, (size_t)stage->chunks, &size) ||
      __builtin_mul_overflow(size, work->accumulator, &size))
    return hal_op_too_large(context, UINT64_MAX);
  return hal_op_scratch(context, size, out_scratch);
}

/* Queues the stages over `dims`; `divisor` elements are reduced to one output. */
static hal_status_t run_stages(hal_op_context_t *context, work_t *work, hal_op_dims_t *dims, void *result,
                               const void *source, int64_t divisor, int final) {
  hal_status_t status = HAL_OK;
  hal_op_scratch_t held = {.block = NULL};
  for (int last = 0, later = 0; !last && !status; later = 1) {
    stage_t stage;
    stage.dim = take_reduced(dims);
    stage.kept = *dims;
    hal_op_scratch_t scratch = {.block = NULL};
    void *target = result;
    plan(hal_op_target(context), work, &stage);
    last = stage.chunks == 1 && !has_reduced(&stage.kept);
    if (!last) {
      lay_out_scratch(&stage, dims);
      status = allocate_scratch(context, work, &stage, &scratch);
      if (!status) target = scratch.address;
    }
    if (!status)
      status = launch_stage(context, work, &stage, later, target, source, last ? divisor : -1, last && final);
    hal_op_scratch_release(&held); /* work queued on its stream may still use it */
    held = scratch;
    source = target;
    work->paired = 0;
  }
  hal_op_scratch_release(&held);
  return status;
}

hal_dtype_t hal_op_accumulator(const hal_op_context_t *context, hal_dtype_t dtype) {
  return hal_op_form_accumulator(context->info, dtype);
}

hal_status_t hal_op_reduce(hal_op_context_t *context, const hal_op_reduction_t *reduction) {
  const hal_tensor_t *a = reduction->a, *result = reduction->result;
  int64_t numel, outputs;
  HAL_RETURN_IF_ERROR(hal_op_numel(context, a, "self", &numel));
  HAL_RETURN_IF_ERROR(hal_op_numel(context, result, "the result", &outputs));
  if (outputs == 0) return HAL_OK;
  const hal_tensor_t *const tensors[4] = {result, a, reduction->b, reduction->c ? reduction->c : result};
  work_t work = {.dtype = a->dtype, .paired = reduction->b != NULL, .number = reduction->number};
  work.accumulator = hal_op_dtype_size(hal_op_accumulator(context, a->dtype));
  work.b = reduction->b ? reduction->b->data : NULL;
  work.c = reduction->c ? reduction->c->data : NULL;
  hal_op_dims_t dims;
  hal_op_dims_init(tensors, work.paired ? 4 : 2, reduction->mask, &dims);
  hal_op_dims_sort(&dims);
  hal_op_dims_merge(&dims);
  return run_stages(context, &work, &dims, result->data, a->data, numel / outputs, !reduction->with_accumulators);
}
