/* reduce_calls.c: launchers of the operators that reduce dimensions: sums and extremes, inner products, norms,
 * moments. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "hal_op_ids.h"
#include "hal_op_variants.h"
#include "ops/reduce/reduce.h"

#include "op/parts.h"

/* Reads the dimensions at argument `index` and checks the result's shape against them. */
static hal_status_t read_dims(const hal_op_context_t *context, const hal_op_call_t *call, uint32_t index,
                              hal_op_reduction_t *out) {
  const int64_t *list;
  uint32_t count;
  HAL_RETURN_IF_ERROR(hal_op_int_list(context, call, index, &list, &count));
  HAL_RETURN_IF_ERROR(hal_op_dim_mask(context, out->a->ndim, list, count, &out->mask));
  return hal_op_check_keepdim(context, out->a, out->result, out->mask);
}

/* Reads the operator's number, the last of `count` arguments; in the kernels' computing type. */
static hal_status_t read_number(const hal_op_context_t *context, const hal_op_call_t *call, uint32_t count,
                                hal_op_reduction_t *out) {
  static const hal_value_t zero = {.tag = HAL_VALUE_INT, .u.i = 0};
  const hal_dtype_t dtype = out->a->dtype;
  const int half = dtype == HAL_FLOAT16 || dtype == HAL_BFLOAT16;
  const int given = context->info->argument_count == count;
  return hal_op_scalar(context, given ? &call->args[count - 1] : &zero, half ? HAL_FLOAT32 : dtype,
                       given ? context->info->arguments[count - 1] : "the number", &out->number);
}

/* Checks the result's dtype: that of the elements, or that of the accumulators. */
static hal_status_t check_result(const hal_op_context_t *context, hal_op_reduction_t *reduction) {
  const hal_dtype_t accumulator = hal_op_accumulator(context, reduction->a->dtype);
  const hal_dtype_t element = accumulator == HAL_INT64 ? HAL_INT64 : reduction->a->dtype;
  if (!hal_op_has_dtype(context, reduction->a->dtype)) return HAL_UNIMPLEMENTED;
  if (reduction->result->dtype != element && reduction->result->dtype != accumulator)
    return hal_op_invalid(context, "the result has dtype %s; expected %s (cast self before the call)",
                          hal_op_dtype_name(reduction->result->dtype), hal_op_dtype_name(element));
  reduction->with_accumulators = reduction->result->dtype != element;
  return HAL_OK;
}

/* Returns whether the operation has a result for no elements. */
static int has_neutral_element(const hal_op_context_t *context) {
  const char *const kernel = context->info->kernel;
  return strcmp(kernel, "amax") != 0 && strcmp(kernel, "amin") != 0 && strcmp(kernel, "norm_smallest") != 0;
}

/* The sum divided like complex numbers: an infinite part turns the other one into NaN. */
static hal_status_t complex_mean(hal_op_context_t *context, const hal_op_call_t *call, int64_t numel, int64_t outputs) {
  if (outputs == 0) return HAL_OK;
  HAL_RETURN_IF_ERROR(hal_op_run_part(context, HAL_OP_ID_SUM_DIM_INTLIST, call->args, 2, call->results, 1));
  const hal_value_t quotient[] = {hal_op_value(call->results[0]),
                                  {.tag = HAL_VALUE_DOUBLE, .u.d = (double)(numel / outputs)}};
  return hal_op_run_part(context, HAL_OP_ID_DIV_TENSOR, quotient, 2, call->results, 1);
}

hal_status_t hal_op_launch_reduce(hal_op_context_t *context, const hal_op_call_t *call) {
  hal_op_reduction_t reduction = {.b = NULL};
  int64_t numel, outputs;
  HAL_RETURN_IF_ERROR(hal_op_tensor(context, call, 0, &reduction.a));
  HAL_RETURN_IF_ERROR(hal_op_result(context, call, 0, &reduction.result));
  HAL_RETURN_IF_ERROR(read_dims(context, call, 1, &reduction));
  HAL_RETURN_IF_ERROR(check_result(context, &reduction));
  HAL_RETURN_IF_ERROR(read_number(context, call, 3, &reduction));
  HAL_RETURN_IF_ERROR(hal_op_numel(context, reduction.a, "self", &numel));
  HAL_RETURN_IF_ERROR(hal_op_numel(context, reduction.result, "the result", &outputs));
  if (numel == 0 && outputs != 0 && !has_neutral_element(context))
    return hal_op_invalid(context,
                          "the reduced dimensions are empty and the operation has no neutral element; reduce over "
                          "dimensions with at least one element");
  if (!hal_op_is_complex(reduction.a->dtype)) return hal_op_reduce(context, &reduction);
  /* Sums: the parts are an additional dimension, which is kept. */
  hal_op_parts_t a, result;
  if (reduction.a->ndim >= HAL_OP_MAX_DIMS || !hal_op_has_dtype(context, reduction.a->dtype)) return HAL_UNIMPLEMENTED;
  hal_op_parts(reduction.a, HAL_OP_BOTH_PARTS, &a);
  hal_op_parts(reduction.result, HAL_OP_BOTH_PARTS, &result);
  if (strcmp(context->info->kernel, "mean") == 0) return complex_mean(context, call, numel, outputs);
  reduction.a = &a.tensor;
  reduction.result = &result.tensor;
  HAL_RETURN_IF_ERROR(read_number(context, call, 3, &reduction)); /* of the parts' dtype, which kernels take */
  return hal_op_reduce(context, &reduction);
}

hal_status_t hal_op_launch_reduce_pair(hal_op_context_t *context, const hal_op_call_t *call) {
  hal_op_reduction_t reduction = {.c = NULL};
  HAL_RETURN_IF_ERROR(hal_op_tensor(context, call, 0, &reduction.a));
  HAL_RETURN_IF_ERROR(hal_op_tensor(context, call, 1, &reduction.b));
  HAL_RETURN_IF_ERROR(hal_op_result(context, call, 0, &reduction.result));
  HAL_RETURN_IF_ERROR(read_dims(context, call, 3, &reduction));
  HAL_RETURN_IF_ERROR(check_result(context, &reduction));
  HAL_RETURN_IF_ERROR(hal_op_check_same_shape(context, reduction.b, "other", reduction.a, "self"));
  if (reduction.b->dtype != reduction.a->dtype)
    return hal_op_invalid(context, "self has dtype %s, other %s; both must be the same",
                          hal_op_dtype_name(reduction.a->dtype), hal_op_dtype_name(reduction.b->dtype));
  if (call->args[2].tag != HAL_VALUE_NONE) {
    HAL_RETURN_IF_ERROR(hal_op_tensor(context, call, 2, &reduction.c));
    HAL_RETURN_IF_ERROR(hal_op_check_keepdim(context, reduction.a, reduction.c, reduction.mask));
    if (reduction.c->dtype != hal_op_accumulator(context, reduction.a->dtype))
      return hal_op_invalid(context, "center has dtype %s; expected %s", hal_op_dtype_name(reduction.c->dtype),
                            hal_op_dtype_name(hal_op_accumulator(context, reduction.a->dtype)));
  }
  HAL_RETURN_IF_ERROR(read_number(context, call, 5, &reduction));
  return hal_op_reduce(context, &reduction);
}

hal_status_t hal_op_add_rows(const hal_op_context_t *context, int64_t rows, void *sums, hal_dtype_t dtype,
                             const hal_tensor_t *result) {
  int64_t n;
  HAL_RETURN_IF_ERROR(hal_op_numel(context, result, "the result", &n));
  const int64_t sizes[] = {rows, n}, strides[] = {n, 1}, kept[] = {1, n}, dim = 0;
  hal_tensor_t source = *result, row = *result;
  source.data = sums, source.dtype = dtype, source.ndim = 2, source.sizes = sizes, source.strides = strides;
  row.ndim = 2, row.sizes = kept, row.strides = strides;
  const hal_tensor_t *const target = &row;
  const hal_value_t args[] = {hal_op_value(&source), {.tag = HAL_VALUE_INT_LIST, .count = 1, .u.il = &dim}};
  if (dtype == result->dtype) return hal_op_run_part(context, HAL_OP_ID_SUM_DIM_INTLIST, args, 2, &target, 1);
  hal_tensor_t sum = row; /* replaces the first row: the sums of other columns are elsewhere */
  sum.data = sums, sum.dtype = dtype;
  const hal_tensor_t *const own = &sum;
  HAL_RETURN_IF_ERROR(hal_op_run_part(context, HAL_OP_ID_SUM_DIM_INTLIST, args, 2, &own, 1));
  const hal_value_t total = hal_op_value(&sum);
  return hal_op_run_part(context, HAL_OP_ID_COPY, &total, 1, &target, 1);
}

/* The smallest and the largest element: two operators. */
hal_status_t hal_op_launch_aminmax(hal_op_context_t *context, const hal_op_call_t *call) {
  const hal_tensor_t *low, *high;
  HAL_RETURN_IF_ERROR(hal_op_result(context, call, 0, &low));
  HAL_RETURN_IF_ERROR(hal_op_result(context, call, 1, &high));
  HAL_RETURN_IF_ERROR(hal_op_run_part(context, HAL_OP_ID_AMIN, call->args, 2, &low, 1));
  return hal_op_run_part(context, HAL_OP_ID_AMAX, call->args, 2, &high, 1);
}

/* The vector norm of an order, for each of which there is a kernel. */
hal_status_t hal_op_launch_norm(hal_op_context_t *context, const hal_op_call_t *call) {
  double order;
  HAL_RETURN_IF_ERROR(hal_op_double(context, call, 2, &order));
  uint32_t op = HAL_OP_ID_NORM_P;
  if (order == 0) op = HAL_OP_ID_NORM_ZERO;
  if (order == 1) op = HAL_OP_ID_NORM_ONE;
  if (order == 2) op = HAL_OP_ID_NORM_TWO;
  if (isinf(order)) op = order > 0 ? HAL_OP_ID_NORM_LARGEST : HAL_OP_ID_NORM_SMALLEST;
  return hal_op_run_part(context, op, call->args, op == HAL_OP_ID_NORM_P ? 3 : 2, call->results, 1);
}

/* A contiguous tensor of accumulators in the shape of another, in scratch memory. */
typedef struct scratch_s {
  hal_tensor_t tensor;
  int64_t strides[HAL_OP_MAX_DIMS];
  hal_op_scratch_t memory;
} scratch_t;

static hal_status_t scratch_init(const hal_op_context_t *context, const hal_tensor_t *like, hal_dtype_t dtype,
                                 scratch_t *out) {
  int64_t numel;
  size_t size;
  HAL_RETURN_IF_ERROR(hal_op_numel(context, like, "the result", &numel));
  if (__builtin_mul_overflow((size_t)numel, (size_t)hal_op_dtype_size(dtype), &size))
    return hal_op_too_large(context, UINT64_MAX);
  HAL_RETURN_IF_ERROR(hal_op_scratch(context, size, &out->memory));
  out->tensor = *like;
  out->tensor.dtype = dtype;
  out->tensor.data = out->memory.address;
  out->tensor.strides = out->strides;
  int64_t stride = 1;
  for (int32_t d = like->ndim - 1; d >= 0; d--) {
    out->strides[d] = stride;
    stride *= like->sizes[d];
  }
  return HAL_OK;
}

/* Returns the number of elements of `self` per output; NaN-safe difference from the correction, at least 0. */
static hal_status_t degrees_of_freedom(const hal_op_context_t *context, const hal_op_call_t *call,
                                       const hal_tensor_t *self, const hal_tensor_t *result, double *out) {
  int64_t numel, outputs;
  double correction;
  HAL_RETURN_IF_ERROR(hal_op_double(context, call, 2, &correction));
  HAL_RETURN_IF_ERROR(hal_op_numel(context, self, "self", &numel));
  HAL_RETURN_IF_ERROR(hal_op_numel(context, result, "the result", &outputs));
  const double count = outputs ? (double)(numel / outputs) : 0;
  *out = count > correction ? count - correction : 0;
  return HAL_OK;
}

/* Reads the first element of each output, in the accumulators' type. An infinite one is replaced by the type's largest
 * number, so that its difference from itself is infinite and not NaN. NaN stays NaN. */
static hal_status_t take_first(hal_op_context_t *context, const hal_op_call_t *call, const hal_tensor_t *self,
                               const hal_tensor_t *first) {
  int64_t strides[HAL_OP_MAX_DIMS];
  const int64_t *list;
  uint32_t count;
  uint64_t mask;
  HAL_RETURN_IF_ERROR(hal_op_int_list(context, call, 1, &list, &count));
  HAL_RETURN_IF_ERROR(hal_op_dim_mask(context, self->ndim, list, count, &mask));
  const int keeps = first->ndim == self->ndim;
  for (int32_t d = 0, to = 0; d < self->ndim; d++) {
    const int reduced = (mask >> d & 1) != 0;
    if (!reduced || keeps) strides[to++] = reduced ? 0 : self->strides[d];
  }
  hal_tensor_t view = *self;
  view.ndim = first->ndim, view.sizes = first->sizes, view.strides = strides;
  const double most = first->dtype == HAL_FLOAT64 ? DBL_MAX : (double)FLT_MAX;
  const hal_value_t source = hal_op_value(&view), copied = hal_op_value(first);
  const int casts = view.dtype != first->dtype;
  if (casts) HAL_RETURN_IF_ERROR(hal_op_run_part(context, HAL_OP_ID_COPY, &source, 1, &first, 1));
  const hal_value_t low[] = {casts ? copied : source, {.tag = HAL_VALUE_DOUBLE, .u.d = -most}};
  const hal_value_t high[] = {copied, {.tag = HAL_VALUE_DOUBLE, .u.d = most}};
  HAL_RETURN_IF_ERROR(hal_op_run_part(context, HAL_OP_ID_CLAMP_MIN_TENSOR, low, 2, &first, 1));
  return hal_op_run_part(context, HAL_OP_ID_CLAMP_MAX_TENSOR, high, 2, &first, 1);
}

/* The mean as the sum of the first element and the mean of the differences from it: for equal numbers it is exactly
 * that number, and for numbers far from 0 it is as exact as their differences. */
static hal_status_t exact_mean(hal_op_context_t *context, const hal_op_call_t *call, const hal_tensor_t *self,
                               const hal_tensor_t *center) {
  int64_t numel, outputs;
  scratch_t first = {.memory = {.block = NULL}};
  HAL_RETURN_IF_ERROR(hal_op_numel(context, self, "self", &numel));
  HAL_RETURN_IF_ERROR(hal_op_numel(context, center, "the result", &outputs));
  if (!numel || !outputs) return hal_op_run_part(context, HAL_OP_ID_MEAN_DIM, call->args, 2, &center, 1);
  HAL_RETURN_IF_ERROR(scratch_init(context, center, center->dtype, &first));
  const hal_value_t about[] = {call->args[0],
                               call->args[0],
                               hal_op_value(&first.tensor),
                               call->args[1],
                               {.tag = HAL_VALUE_DOUBLE, .u.d = (double)(numel / outputs)}};
  const hal_value_t sum[] = {hal_op_value(center), about[2], {.tag = HAL_VALUE_DOUBLE, .u.d = 1}};
  hal_status_t status = take_first(context, call, self, &first.tensor);
  if (!status) status = hal_op_run_part(context, HAL_OP_ID_MEAN_ABOUT, about, 5, &center, 1);
  if (!status) status = hal_op_run_part(context, HAL_OP_ID_ADD_TENSOR, sum, 3, &center, 1);
  hal_op_scratch_release(&first.memory);
  return status;
}

/* Variance or standard deviation, and the mean if there is a second result: in two passes, the second one over the
 * squares of the deviations, which is as exact as the mean. */
hal_status_t hal_op_launch_moments(hal_op_context_t *context, const hal_op_call_t *call) {
  const hal_tensor_t *self, *result, *mean = NULL;
  scratch_t scratch = {.memory = {.block = NULL}};
  double freedom = 0;
  HAL_RETURN_IF_ERROR(hal_op_tensor(context, call, 0, &self));
  HAL_RETURN_IF_ERROR(hal_op_result(context, call, 0, &result));
  if (!hal_op_has_dtype(context, self->dtype)) return HAL_UNIMPLEMENTED;
  if (call->result_count > 1) HAL_RETURN_IF_ERROR(hal_op_result(context, call, 1, &mean));
  HAL_RETURN_IF_ERROR(degrees_of_freedom(context, call, self, result, &freedom));
  const hal_dtype_t accumulator = hal_op_accumulator(context, self->dtype);
  const int own_mean = mean && mean->dtype == accumulator;
  hal_status_t status = own_mean ? HAL_OK : scratch_init(context, result, accumulator, &scratch);
  if (status) goto cleanup;
  const hal_tensor_t *const center = own_mean ? mean : &scratch.tensor;
  status = exact_mean(context, call, self, center);
  if (status) goto cleanup;
  const hal_value_t args[] = {
      call->args[0], call->args[0], hal_op_value(center), call->args[1], {.tag = HAL_VALUE_DOUBLE, .u.d = freedom}};
  const int root = strcmp(context->info->kernel, "std") == 0;
  status = hal_op_run_part(context, root ? HAL_OP_ID_STD_ABOUT : HAL_OP_ID_VAR_ABOUT, args, 5, &result, 1);
  if (status || own_mean || !mean) goto cleanup;
  const hal_value_t source = hal_op_value(center);
  status = hal_op_run_part(context, HAL_OP_ID_COPY, &source, 1, &mean, 1);
cleanup:
  hal_op_scratch_release(&scratch.memory);
  return status;
}
