/* random.c: launchers of the random distributions: by the portable kernel, and by the plugin's random_fill for a
 * device without kernels. The formulas are documented at hal_random_t in hal/plugin.h.
 *
 * A call uses the Philox blocks call->offset, call->offset + 1, ... of call->seed: ceil(count / 4) blocks, in 64-bit
 * dtypes ceil(count / 2). The caller reserves as many (hal_generator_reserve). */
#include <math.h>
#include <string.h>

#include "hal_op_variants.h"
#include "op/dims.h"
#include "ops/random/random_args.h"

HAL_OP_LAUNCHER(queue_random_blocks, groups, RANDOM_BLOCKS_ARGS)

#define UNIT 64   /* Philox blocks of a unit of work: PK_LSIZE */
#define COST 1024 /* elements of memory traffic that a unit is worth */

/* The kernel's three parameters, by dtype or as thresholds. */
typedef struct parameters_s {
  hal_op_scalar_t value[3];
} parameters_t;

static void set_parameter(parameters_t *parameters, int index, hal_dtype_t dtype, double value) {
  hal_op_scalar_t *scalar = &parameters->value[index];
  scalar->size = dtype == HAL_FLOAT64 ? 8 : 4;
  if (dtype == HAL_FLOAT64)
    scalar->u.f64 = value;
  else
    scalar->u.f32 = (float)value;
}

static hal_status_t read_uniform(const hal_op_context_t *context, const hal_op_call_t *call, hal_dtype_t dtype,
                                 parameters_t *out) {
  double low, high;
  HAL_RETURN_IF_ERROR(hal_op_double(context, call, 0, &low));
  HAL_RETURN_IF_ERROR(hal_op_double(context, call, 1, &high));
  if (!(low <= high)) return hal_op_invalid(context, "invalid from = %g, to = %g; expected from <= to", low, high);
  set_parameter(out, 0, dtype, low);
  set_parameter(out, 1, dtype, high - low);
  set_parameter(out, 2, dtype, high);
  return HAL_OK;
}

static hal_status_t read_normal(const hal_op_context_t *context, const hal_op_call_t *call, hal_dtype_t dtype,
                                parameters_t *out) {
  double mean, deviation;
  HAL_RETURN_IF_ERROR(hal_op_double(context, call, 0, &mean));
  HAL_RETURN_IF_ERROR(hal_op_double(context, call, 1, &deviation));
  if (!(deviation >= 0)) return hal_op_invalid(context, "invalid std = %g; expected at least 0", deviation);
  set_parameter(out, 0, dtype, mean);
  set_parameter(out, 1, dtype, deviation);
  set_parameter(out, 2, dtype, 0);
  return HAL_OK;
}

/* u < p for a multiple u of a power of two is equivalent to an integer below ceil(p * 2^bits). */
static hal_status_t read_bernoulli(const hal_op_context_t *context, const hal_op_call_t *call, hal_dtype_t dtype,
                                   parameters_t *out) {
  double p;
  HAL_RETURN_IF_ERROR(hal_op_double(context, call, 0, &p));
  if (!(p >= 0 && p <= 1)) return hal_op_invalid(context, "invalid p = %g; expected a probability from 0 to 1", p);
  for (int i = 0; i < 3; i++) {
    out->value[i].size = 8;
    out->value[i].u.i64 = (int64_t)ceil(p * (hal_op_dtype_size(dtype) == 8 ? 0x1p53 : 0x1p24));
  }
  return HAL_OK;
}

/* The kernel multiplies numbers of rate 1 by the parameter. */
static hal_status_t read_exponential(const hal_op_context_t *context, const hal_op_call_t *call, hal_dtype_t dtype,
                                     parameters_t *out) {
  double rate;
  HAL_RETURN_IF_ERROR(hal_op_double(context, call, 0, &rate));
  if (!(rate > 0)) return hal_op_invalid(context, "invalid lambd = %g; expected more than 0", rate);
  for (int i = 0; i < 3; i++) set_parameter(out, i, dtype, 1 / rate);
  return HAL_OK;
}

static hal_status_t read_geometric(const hal_op_context_t *context, const hal_op_call_t *call, hal_dtype_t dtype,
                                   parameters_t *out) {
  double p;
  HAL_RETURN_IF_ERROR(hal_op_double(context, call, 0, &p));
  if (!(p > 0 && p <= 1)) return hal_op_invalid(context, "invalid p = %g; expected a probability above 0", p);
  for (int i = 0; i < 3; i++) set_parameter(out, i, dtype, -1 / log1p(-p));
  return HAL_OK;
}

static hal_status_t read_cauchy(const hal_op_context_t *context, const hal_op_call_t *call, hal_dtype_t dtype,
                                parameters_t *out) {
  double median, sigma;
  HAL_RETURN_IF_ERROR(hal_op_double(context, call, 0, &median));
  HAL_RETURN_IF_ERROR(hal_op_double(context, call, 1, &sigma));
  if (!(sigma > 0)) return hal_op_invalid(context, "invalid sigma = %g; expected more than 0", sigma);
  set_parameter(out, 0, dtype, median);
  set_parameter(out, 1, dtype, sigma);
  set_parameter(out, 2, dtype, 0);
  return HAL_OK;
}

/* Integers from `from` on; `range` is unsigned, 0 stands for 2^64. */
static hal_status_t read_random(const hal_op_context_t *context, const hal_op_call_t *call, hal_dtype_t dtype,
                                parameters_t *out) {
  (void)dtype;
  for (int i = 0; i < 3; i++) out->value[i] = (hal_op_scalar_t){.size = 8};
  HAL_RETURN_IF_ERROR(hal_op_int(context, call, 0, &out->value[1].u.i64));
  return hal_op_int(context, call, 1, &out->value[0].u.i64);
}

typedef hal_status_t (*reader_t)(const hal_op_context_t *, const hal_op_call_t *, hal_dtype_t, parameters_t *);

/* The distributions, by the first letter of the kernel's name. */
static reader_t reader_of(char letter) {
  switch (letter) {
    case 'u':
      return read_uniform;
    case 'n': /* normal */
    case 'l': /* log_normal */
      return read_normal;
    case 'e':
      return read_exponential;
    case 'g':
      return read_geometric;
    case 'c':
      return read_cauchy;
    case 'r':
      return read_random;
    default:
      return read_bernoulli;
  }
}

/* Reads and checks the call. */
static hal_status_t read_call(const hal_op_context_t *context, const hal_op_call_t *call,
                              const hal_tensor_t **out_tensor, int64_t *out_numel, parameters_t *out_parameters) {
  HAL_RETURN_IF_ERROR(hal_op_result(context, call, 0, out_tensor));
  const hal_dtype_t dtype = (*out_tensor)->dtype;
  if (!hal_op_has_dtype(context, dtype)) return HAL_UNIMPLEMENTED;
  HAL_RETURN_IF_ERROR(reader_of(context->info->kernel[0])(context, call, dtype, out_parameters));
  HAL_RETURN_IF_ERROR(hal_op_numel(context, *out_tensor, "the result", out_numel));
  return *out_numel == 0 || hal_op_is_contiguous(*out_tensor) ? HAL_OK : HAL_UNIMPLEMENTED;
}

hal_status_t hal_op_fill_random(hal_op_context_t *context, const hal_op_call_t *call) {
  const hal_tensor_t *tensor;
  parameters_t parameters;
  int64_t numel;
  const char kind = context->info->kernel[0];
  if (kind != 'u' && kind != 'n' && kind != 'b') return HAL_UNIMPLEMENTED; /* random_fill has no others */
  HAL_RETURN_IF_ERROR(read_call(context, call, &tensor, &numel, &parameters));
  if (numel == 0) return HAL_OK;
  hal_random_t desc = {.struct_size = HAL_STRUCT_SIZE(hal_random_t, random_state),
                       .dst = tensor->data,
                       .count = (uint64_t)numel,
                       .dtype = tensor->dtype,
                       .device = context->device->ordinal,
                       .seed = call->seed,
                       .offset = call->offset,
                       .random_state = hal_op_random_state(call),
                       .distribution = kind == 'u'   ? HAL_RANDOM_UNIFORM
                                       : kind == 'n' ? HAL_RANDOM_NORMAL
                                                     : HAL_RANDOM_BERNOULLI};
  HAL_RETURN_IF_ERROR(hal_op_double(context, call, 0, &desc.p0));
  if (desc.distribution != HAL_RANDOM_BERNOULLI) HAL_RETURN_IF_ERROR(hal_op_double(context, call, 1, &desc.p1));
  return hal_op_queue_random(context, &desc);
}

hal_status_t hal_op_launch_random(hal_op_context_t *context, const hal_op_call_t *call) {
  const hal_tensor_t *tensor;
  parameters_t parameters;
  int64_t numel;
  hal_plugin_kernel_t *kernel;
  HAL_RETURN_IF_ERROR(read_call(context, call, &tensor, &numel, &parameters));
  if (numel == 0) return HAL_OK;
  const hal_dtype_t dtype = tensor->dtype;
  HAL_RETURN_IF_ERROR(hal_op_kernel(context, dtype, HAL_RANDOM_VARIANT_BLOCKS, &kernel));

  void *result = tensor->data;
  const uint64_t count = (uint64_t)numel;
  const uint64_t unit = UNIT * (hal_op_dtype_size(dtype) == 8 ? 2u : 4u);
  uint64_t units = (count + unit - 1) / unit, per_group = hal_op_units_per_group(context, COST);
  return queue_random_blocks(context, kernel, (units + per_group - 1) / per_group, result, count, call->seed,
                             call->offset, hal_op_random_state(call), units, per_group,
                             hal_op_number(&parameters.value[0]), hal_op_number(&parameters.value[1]),
                             hal_op_number(&parameters.value[2]));
}
