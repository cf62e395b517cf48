/* batch_norm.c: launchers of the normalization of the channels of a batch and its gradients. Images are contiguous or
 * channels-last; parameters and statistics are contiguous and of the accumulators' dtype. */
#include "hal_op_variants.h"
#include "ops/batch_norm/batch_norm_args.h"
#include "ops/reduce/reduce.h"

HAL_OP_LAUNCHER(queue_batch_norm_moments, groups, BATCH_NORM_MOMENTS_ARGS)
HAL_OP_LAUNCHER(queue_batch_norm_statistics, groups, BATCH_NORM_STATISTICS_ARGS)
HAL_OP_LAUNCHER(queue_batch_norm_normalise, groups, BATCH_NORM_NORMALISE_ARGS)
HAL_OP_LAUNCHER(queue_batch_norm_sums, groups, BATCH_NORM_SUMS_ARGS)
HAL_OP_LAUNCHER(queue_batch_norm_gradients, groups, BATCH_NORM_GRADIENTS_ARGS)
HAL_OP_LAUNCHER(queue_batch_norm_backward, groups, BATCH_NORM_BACKWARD_ARGS)

#define RUN 4096       /* elements of a chunk of a plane: two inputs of float32 fit into a first-level cache */
#define ROWS 128       /* rows of a chunk of columns */
#define STRIP PK_LSIZE /* columns or channels that a group processes together */
#define COLUMNS 1      /* difference between the variant for planes and that for columns */

/* The tensor that determines the layout of all others, and how kernels iterate over it. */
typedef struct batch_s {
  pk_batch_t walk;
  const hal_tensor_t *tensor;
  int64_t numel;
  hal_dtype_t dtype, accumulator;
  uint32_t by_columns; /* 0 or COLUMNS */
} batch_t;

/* One number per channel each; data is NULL if there is none. */
typedef struct channels_s {
  void *weight, *bias, *running_mean, *running_var;
} channels_t;

/* Returns whether memory has the order of the dimensions except for dimension 1, which is last. */
static int has_channels_last(const hal_tensor_t *tensor) {
  int64_t expected = 1;
  for (int32_t i = 0; i < tensor->ndim; i++) {
    const int32_t d = i == 0 ? 1 : i < tensor->ndim - 1 ? tensor->ndim - i : 0;
    if (tensor->sizes[d] != 1 && tensor->strides[d] != expected) return 0;
    expected *= tensor->sizes[d];
  }
  return 1;
}

/* Chooses runs of planes, or columns if planes are too small to be processed one by one. */
static void choose_walk(pk_batch_t *w, uint32_t *out_by_columns) {
  const int by_columns = w->inner < STRIP && w->inner < 4 * w->outer;
  *out_by_columns = by_columns ? COLUMNS : 0;
  w->run = w->runs = w->group = w->spread = 1;
  int64_t steps;
  if (by_columns) {
    w->spread = w->inner;
    const int64_t most = STRIP / (w->channels * w->inner);
    for (int64_t group = 2; group <= most; group++)
      if (w->outer % group == 0) w->group = group;
    w->chunk = ROWS;
    steps = w->outer / w->group;
  } else {
    w->runs = w->inner > RUN ? (w->inner + RUN - 1) / RUN : 1;
    w->run = w->runs > 1 ? ((w->inner + w->runs - 1) / w->runs + STRIP - 1) / STRIP * STRIP : w->inner;
    w->runs = w->inner ? (w->inner + w->run - 1) / w->run : 1;
    w->chunk = w->runs > 1 || w->run > RUN / 2 ? 1 : RUN / (w->run ? w->run : 1);
    steps = w->outer * w->runs;
  }
  w->chunks = (steps + w->chunk - 1) / w->chunk;
}

static hal_status_t read_batch(const hal_op_context_t *context, const hal_tensor_t *tensor, batch_t *out) {
  if (!hal_op_has_dtype(context, tensor->dtype)) return HAL_UNIMPLEMENTED;
  if (tensor->ndim < 2)
    return hal_op_invalid(context, "the input has %d dimensions; expected at least batch and channels",
                          (int)tensor->ndim);
  const int contiguous = hal_op_is_contiguous(tensor);
  if (!contiguous && !has_channels_last(tensor))
    return hal_op_invalid(context, "the input is neither contiguous nor has its channels last");
  *out = (batch_t){.tensor = tensor, .dtype = tensor->dtype};
  out->accumulator = hal_op_accumulator(context, tensor->dtype);
  HAL_RETURN_IF_ERROR(hal_op_numel(context, tensor, "the input", &out->numel));
  pk_batch_t *const w = &out->walk;
  w->outer = tensor->sizes[0], w->channels = tensor->sizes[1], w->inner = 1;
  for (int32_t d = 2; d < tensor->ndim; d++) {
    if (contiguous)
      w->inner *= tensor->sizes[d];
    else
      w->outer *= tensor->sizes[d];
  }
  if (out->numel == 0) w->outer = w->inner = 0;
  choose_walk(w, &out->by_columns);
  return HAL_OK;
}

/* Checks a tensor that has the memory layout of the input. */
static hal_status_t check_like(const hal_op_context_t *context, const batch_t *batch, const hal_tensor_t *tensor,
                               const char *what) {
  HAL_RETURN_IF_ERROR(hal_op_check_same_dtype(context, batch->tensor, "the input", tensor, what));
  HAL_RETURN_IF_ERROR(hal_op_check_same_shape(context, batch->tensor, "the input", tensor, what));
  const int contiguous = hal_op_is_contiguous(batch->tensor);
  if (contiguous ? !hal_op_is_contiguous(tensor) : !has_channels_last(tensor))
    return hal_op_invalid(context, "%s does not have the memory layout of the input, %s", what,
                          contiguous ? "contiguous" : "with its channels last");
  return HAL_OK;
}

/* Reads argument `index`, a number per channel; *out is NULL if it is missing, which is an error with `needed`. */
static hal_status_t read_channels(const hal_op_context_t *context, const hal_op_call_t *call, const batch_t *batch,
                                  uint32_t index, int needed, void **out) {
  const hal_tensor_t *tensor;
  if (needed) HAL_RETURN_IF_ERROR(hal_op_tensor(context, call, index, &tensor));
  HAL_RETURN_IF_ERROR(hal_op_optional_dense(context, call, index, batch->walk.channels, batch->accumulator, &tensor));
  *out = tensor ? tensor->data : NULL;
  return HAL_OK;
}

/* As read_channels, for a result. */
static hal_status_t result_channels(const hal_op_context_t *context, const hal_op_call_t *call, const batch_t *batch,
                                    uint32_t index, const char *what, void **out) {
  const hal_tensor_t *const tensor = call->results[index];
  *out = NULL;
  if (!tensor) return HAL_OK;
  HAL_RETURN_IF_ERROR(hal_op_check_tensor(context, tensor, what));
  HAL_RETURN_IF_ERROR(hal_op_check_dense(context, tensor, what, batch->walk.channels, batch->accumulator));
  *out = tensor->data;
  return HAL_OK;
}

static hal_status_t check_results(const hal_op_context_t *context, const hal_op_call_t *call, uint32_t count) {
  if (call->result_count == count) return HAL_OK;
  return hal_op_invalid(context, "the call has %u results; expected %u, NULL if not requested",
                        (unsigned)call->result_count, (unsigned)count);
}

static uint64_t strips_of(int64_t n) { return (uint64_t)((n + STRIP - 1) / STRIP); }
static int64_t columns_of(const pk_batch_t *w) { return w->group * w->channels * w->spread; }

/* Returns the units of the kernels that reduce chunks, and how many of them a group processes if each element costs
 * `cost`. */
static uint64_t chunk_units(const hal_op_context_t *context, const batch_t *batch, uint64_t cost,
                            uint64_t *out_per_group) {
  const pk_batch_t *const w = &batch->walk;
  const uint64_t lanes = batch->by_columns ? STRIP : (uint64_t)w->run;
  const int64_t steps = w->outer / w->group * w->runs;
  *out_per_group = hal_op_units_per_group(context, (uint64_t)(steps < w->chunk ? steps : w->chunk) * lanes * cost);
  return (uint64_t)w->chunks * (batch->by_columns ? strips_of(columns_of(w)) : (uint64_t)w->channels);
}

/* Returns the units of the kernels that iterate over memory. */
static uint64_t walk_units(const hal_op_context_t *context, const batch_t *batch, uint64_t *out_per_group) {
  const pk_batch_t *const w = &batch->walk;
  if (batch->by_columns) return chunk_units(context, batch, 1, out_per_group);
  *out_per_group = hal_op_units_per_group(context, (uint64_t)w->run);
  return (uint64_t)(w->outer * w->channels * w->runs);
}

static uint64_t groups_of(uint64_t units, uint64_t per_group) { return (units + per_group - 1) / per_group; }

/* Memory for two partial results of each chunk (or column of it) followed by two numbers of each channel. */
typedef struct scratch_s {
  hal_op_scratch_t memory;
  void *part[2], *channel[2];
} scratch_t;

static hal_status_t scratch_allocate(const hal_op_context_t *context, const batch_t *batch, scratch_t *out) {
  const size_t element = hal_op_dtype_size(batch->accumulator), channels = (size_t)batch->walk.channels;
  const size_t parts = (size_t)(batch->walk.chunks * columns_of(&batch->walk)); /* at most a number per element */
  HAL_RETURN_IF_ERROR(hal_op_scratch(context, 2 * (parts + channels) * element, &out->memory));
  char *const base = out->memory.address;
  for (size_t i = 0; i < 2; i++) {
    out->part[i] = base + i * parts * element;
    out->channel[i] = base + (2 * parts + i * channels) * element;
  }
  return HAL_OK;
}

/* Returns the address of an operand, or that of another operand if it is missing: it is not read, but a kernel needs an
 * address. */
static void *address_or(void *address, void *other) { return address ? address : other; }

/* ---- forward ---- */
typedef struct forward_s {
  batch_t batch;
  channels_t in;                                   /* of the arguments */
  void *result, *mean, *rstd, *new_mean, *new_var; /* of the results; in evaluation `rstd` is the variance */
  void *saved_mean, *saved_rstd;                   /* results of an evaluation */
  hal_op_scalar_t eps, momentum;
  int32_t evaluation;
} forward_t;

static hal_status_t launch_moments(hal_op_context_t *context, const forward_t *f, const scratch_t *scratch) {
  hal_plugin_kernel_t *kernel;
  HAL_RETURN_IF_ERROR(
      hal_op_kernel(context, f->batch.dtype, HAL_BATCH_NORM_VARIANT_PLANES_MOMENTS + f->batch.by_columns, &kernel));
  uint64_t per_group, units = chunk_units(context, &f->batch, 2, &per_group);
  return queue_batch_norm_moments(context, kernel, groups_of(units, per_group), scratch->part[0], scratch->part[1],
                                  f->batch.tensor->data, &f->batch.walk, units, per_group);
}

static hal_status_t launch_statistics(hal_op_context_t *context, const forward_t *f, const scratch_t *scratch) {
  hal_plugin_kernel_t *kernel;
  HAL_RETURN_IF_ERROR(hal_op_kernel(context, f->batch.dtype, HAL_BATCH_NORM_VARIANT_STATISTICS, &kernel));
  uint64_t units = strips_of(f->batch.walk.channels);
  int32_t with_mean = f->new_mean != NULL, with_var = f->new_var != NULL;
  void *const any = f->batch.tensor->data;
  void *new_mean = address_or(f->new_mean, any), *new_var = address_or(f->new_var, any);
  void *old_mean = address_or(f->in.running_mean, any), *old_var = address_or(f->in.running_var, any);
  return queue_batch_norm_statistics(context, kernel, units, f->mean, f->rstd, new_mean, new_var, old_mean, old_var,
                                     scratch->part[0], scratch->part[1], f->batch.tensor->data, &f->batch.walk, units,
                                     hal_op_number(&f->eps), hal_op_number(&f->momentum), with_mean, with_var);
}

static hal_status_t launch_normalise(hal_op_context_t *context, const forward_t *f) {
  hal_plugin_kernel_t *kernel;
  HAL_RETURN_IF_ERROR(
      hal_op_kernel(context, f->batch.dtype, HAL_BATCH_NORM_VARIANT_PLANES_NORMALISE + f->batch.by_columns, &kernel));
  uint64_t per_group, units = walk_units(context, &f->batch, &per_group);
  int32_t with_weight = f->in.weight != NULL, with_bias = f->in.bias != NULL;
  void *weight = address_or(f->in.weight, f->batch.tensor->data), *bias = address_or(f->in.bias, f->batch.tensor->data);
  int32_t saves = (f->saved_mean != NULL) | (f->saved_rstd != NULL) << 1;
  void *saved_mean = address_or(f->saved_mean, f->result), *saved_rstd = address_or(f->saved_rstd, f->result);
  return queue_batch_norm_normalise(context, kernel, groups_of(units, per_group), f->result, saved_mean, saved_rstd,
                                    f->batch.tensor->data, f->mean, f->rstd, weight, bias, &f->batch.walk, units,
                                    per_group, hal_op_number(&f->eps), f->evaluation, with_weight, with_bias, saves);
}

/* Finds all kernels of a training pass before the first one is queued, because the second one changes the running
 * statistics. */
static hal_status_t find_kernels(hal_op_context_t *context, const batch_t *batch) {
  const uint32_t variants[] = {HAL_BATCH_NORM_VARIANT_PLANES_MOMENTS + batch->by_columns,
                               HAL_BATCH_NORM_VARIANT_STATISTICS,
                               HAL_BATCH_NORM_VARIANT_PLANES_NORMALISE + batch->by_columns};
  for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
    hal_plugin_kernel_t *kernel;
    HAL_RETURN_IF_ERROR(hal_op_kernel(context, batch->dtype, variants[i], &kernel));
  }
  return HAL_OK;
}

static hal_status_t launch_training(hal_op_context_t *context, forward_t *f) {
  scratch_t scratch;
  HAL_RETURN_IF_ERROR(find_kernels(context, &f->batch));
  HAL_RETURN_IF_ERROR(scratch_allocate(context, &f->batch, &scratch));
  if (!f->mean) f->mean = scratch.channel[0];
  if (!f->rstd) f->rstd = scratch.channel[1];
  hal_status_t status = launch_moments(context, f, &scratch);
  if (!status) status = launch_statistics(context, f, &scratch);
  if (!status) status = launch_normalise(context, f);
  hal_op_scratch_release(&scratch.memory);
  return status;
}

/* Reads the arguments that are numbers or have one per channel. */
static hal_status_t read_forward(const hal_op_context_t *context, const hal_op_call_t *call, forward_t *f) {
  const batch_t *const batch = &f->batch;
  int64_t training;
  HAL_RETURN_IF_ERROR(hal_op_int(context, call, 5, &training));
  f->evaluation = !training;
  HAL_RETURN_IF_ERROR(read_channels(context, call, batch, 1, 0, &f->in.weight));
  HAL_RETURN_IF_ERROR(read_channels(context, call, batch, 2, 0, &f->in.bias));
  HAL_RETURN_IF_ERROR(read_channels(context, call, batch, 3, f->evaluation || call->results[3], &f->in.running_mean));
  HAL_RETURN_IF_ERROR(read_channels(context, call, batch, 4, f->evaluation || call->results[4], &f->in.running_var));
  HAL_RETURN_IF_ERROR(hal_op_scalar(context, &call->args[6], batch->accumulator, "momentum", &f->momentum));
  return hal_op_scalar(context, &call->args[7], batch->accumulator, "eps", &f->eps);
}

/* The saved statistics are those of the arguments, because in a call without elements no unit would write them. */
static hal_status_t launch_evaluation(hal_op_context_t *context, const hal_op_call_t *call, forward_t *f) {
  HAL_RETURN_IF_ERROR(result_channels(context, call, &f->batch, 1, "the mean", &f->saved_mean));
  HAL_RETURN_IF_ERROR(result_channels(context, call, &f->batch, 2, "rstd", &f->saved_rstd));
  if (f->batch.numel == 0 && (f->saved_mean || f->saved_rstd)) return HAL_UNIMPLEMENTED;
  f->mean = f->in.running_mean, f->rstd = f->in.running_var;
  return launch_normalise(context, f);
}

hal_status_t hal_op_launch_batch_norm(hal_op_context_t *context, const hal_op_call_t *call) {
  const hal_tensor_t *input, *result;
  forward_t f;
  HAL_RETURN_IF_ERROR(hal_op_tensor(context, call, 0, &input));
  HAL_RETURN_IF_ERROR(read_batch(context, input, &f.batch));
  HAL_RETURN_IF_ERROR(check_results(context, call, 5));
  HAL_RETURN_IF_ERROR(hal_op_result(context, call, 0, &result));
  HAL_RETURN_IF_ERROR(check_like(context, &f.batch, result, "the result"));
  HAL_RETURN_IF_ERROR(read_forward(context, call, &f));
  f.result = result->data;
  f.saved_mean = f.saved_rstd = NULL;
  if (f.evaluation) return launch_evaluation(context, call, &f);
  HAL_RETURN_IF_ERROR(result_channels(context, call, &f.batch, 1, "the mean", &f.mean));
  HAL_RETURN_IF_ERROR(result_channels(context, call, &f.batch, 2, "rstd", &f.rstd));
  HAL_RETURN_IF_ERROR(result_channels(context, call, &f.batch, 3, "the new running_mean", &f.new_mean));
  HAL_RETURN_IF_ERROR(result_channels(context, call, &f.batch, 4, "the new running_var", &f.new_var));
  return launch_training(context, &f);
}

/* ---- backward ---- */
typedef struct backward_s {
  batch_t batch;
  const hal_tensor_t *grad;
  void *mean, *scale, *weight; /* the statistics; in evaluation `scale` is the variance */
  void *of_weight, *of_bias;   /* results */
  hal_op_scalar_t eps;
  int32_t evaluation;
} backward_t;

static hal_status_t launch_sums(hal_op_context_t *context, const backward_t *in, const scratch_t *scratch) {
  hal_plugin_kernel_t *kernel;
  HAL_RETURN_IF_ERROR(
      hal_op_kernel(context, in->batch.dtype, HAL_BATCH_NORM_VARIANT_PLANES_SUMS + in->batch.by_columns, &kernel));
  uint64_t per_group, units = chunk_units(context, &in->batch, 2, &per_group);
  return queue_batch_norm_sums(context, kernel, groups_of(units, per_group), scratch->part[0], scratch->part[1],
                               in->grad->data, in->batch.tensor->data, in->mean, &in->batch.walk, units, per_group);
}

static hal_status_t launch_gradients(hal_op_context_t *context, const backward_t *in, const scratch_t *scratch) {
  hal_plugin_kernel_t *kernel;
  HAL_RETURN_IF_ERROR(hal_op_kernel(context, in->batch.dtype, HAL_BATCH_NORM_VARIANT_GRADIENTS, &kernel));
  uint64_t units = strips_of(in->batch.walk.channels);
  int32_t wanted = (in->of_weight != NULL) | (in->of_bias != NULL) << 1;
  void *of_weight = address_or(in->of_weight, scratch->channel[0]),
       *of_bias = address_or(in->of_bias, scratch->channel[1]);
  return queue_batch_norm_gradients(context, kernel, units, of_weight, of_bias, scratch->channel[0],
                                    scratch->channel[1], scratch->part[0], scratch->part[1], in->scale, &in->batch.walk,
                                    units, hal_op_number(&in->eps), in->evaluation, wanted);
}

/* `channel`: the means of the gradient and its slope over the input; evaluation does not read them. */
static hal_status_t launch_input(hal_op_context_t *context, const backward_t *in, void *const channel[2],
                                 const hal_tensor_t *result) {
  hal_plugin_kernel_t *kernel;
  HAL_RETURN_IF_ERROR(
      hal_op_kernel(context, in->batch.dtype, HAL_BATCH_NORM_VARIANT_PLANES_BACKWARD + in->batch.by_columns, &kernel));
  uint64_t per_group, units = walk_units(context, &in->batch, &per_group);
  int32_t with_weight = in->weight != NULL;
  void *const any = in->batch.tensor->data;
  void *weight = address_or(in->weight, any), *of_grad = address_or(channel[0], any),
       *of_slope = address_or(channel[1], any);
  return queue_batch_norm_backward(context, kernel, groups_of(units, per_group), result->data, in->grad->data,
                                   in->batch.tensor->data, in->mean, in->scale, weight, of_grad, of_slope,
                                   &in->batch.walk, units, per_group, hal_op_number(&in->eps), in->evaluation,
                                   with_weight);
}

static hal_status_t read_backward(const hal_op_context_t *context, const hal_op_call_t *call, backward_t *out) {
  const hal_tensor_t *input;
  int64_t training;
  HAL_RETURN_IF_ERROR(hal_op_tensor(context, call, 0, &out->grad));
  HAL_RETURN_IF_ERROR(hal_op_tensor(context, call, 1, &input));
  HAL_RETURN_IF_ERROR(read_batch(context, input, &out->batch));
  HAL_RETURN_IF_ERROR(check_like(context, &out->batch, out->grad, "grad_out"));
  HAL_RETURN_IF_ERROR(hal_op_int(context, call, 7, &training));
  out->evaluation = !training;
  HAL_RETURN_IF_ERROR(read_channels(context, call, &out->batch, 2, 0, &out->weight));
  HAL_RETURN_IF_ERROR(read_channels(context, call, &out->batch, training ? 5 : 3, 1, &out->mean));
  HAL_RETURN_IF_ERROR(read_channels(context, call, &out->batch, training ? 6 : 4, 1, &out->scale));
  return hal_op_scalar(context, &call->args[8], out->batch.accumulator, "eps", &out->eps);
}

/* Results: gradients of the input, the weight and the bias; those that are NULL are not computed. */
hal_status_t hal_op_launch_batch_norm_backward(hal_op_context_t *context, const hal_op_call_t *call) {
  backward_t in;
  scratch_t scratch = {.part = {NULL}};
  HAL_RETURN_IF_ERROR(read_backward(context, call, &in));
  HAL_RETURN_IF_ERROR(check_results(context, call, 3));
  const hal_tensor_t *const result = call->results[0];
  if (result) HAL_RETURN_IF_ERROR(hal_op_check_tensor(context, result, "the gradient of the input"));
  if (result) HAL_RETURN_IF_ERROR(check_like(context, &in.batch, result, "the gradient of the input"));
  HAL_RETURN_IF_ERROR(result_channels(context, call, &in.batch, 1, "the gradient of the weight", &in.of_weight));
  HAL_RETURN_IF_ERROR(result_channels(context, call, &in.batch, 2, "the gradient of the bias", &in.of_bias));
  hal_status_t status = HAL_OK;
  if (in.of_weight || in.of_bias || (result && !in.evaluation)) {
    HAL_RETURN_IF_ERROR(scratch_allocate(context, &in.batch, &scratch));
    status = launch_sums(context, &in, &scratch);
    if (!status) status = launch_gradients(context, &in, &scratch);
  }
  if (!status && result) status = launch_input(context, &in, scratch.channel, result);
  hal_op_scratch_release(&scratch.memory);
  return status;
}
