/* attention.c: launchers of scaled dot product attention and its gradients. Operands have the dimensions batch, head,
 * row and number; rows have stride 1, other strides are arbitrary. For heads of more than HEAD_SIZE numbers the
 * launcher returns HAL_UNIMPLEMENTED. */
#include <string.h>

#include "hal_op_ids.h"
#include "hal_op_variants.h"
#include "ops/attention/attention_args.h"
#include "ops/reduce/reduce.h"

HAL_OP_LAUNCHER(queue_attention_forward, groups, ATTENTION_FORWARD_ARGS)
HAL_OP_LAUNCHER(queue_attention_normalizers, groups, ATTENTION_NORMALIZERS_ARGS)
HAL_OP_LAUNCHER(queue_attention_backward, groups, ATTENTION_BACKWARD_ARGS)

enum {
  HEAD_SIZE = PK_HEAD_SIZE,
  LANE_BYTES = PK_GEMM_BYTES, /* maximum number of queries of a unit on a CPU */
  ROWS = 8,                   /* queries that a group processes at once on a device with many threads */
  PART = 128,                 /* minimum number of keys of a unit of the gradients; the number is a multiple of it */
};

typedef pk_attention_t attention_t;

typedef struct operands_s {
  const hal_tensor_t *query, *key, *value, *bias; /* bias may be NULL */
  hal_dtype_t dtype, accumulator;
  int64_t batch;
  hal_op_scalar_t scale;
} operands_t;

/* Checks sizes, dtype and the stride of a row; returns the strides of the first `strides` dimensions, 0 where the
 * tensor is not read. */
static hal_status_t check_operand(const hal_op_context_t *context, const hal_tensor_t *tensor, const char *what,
                                  const int64_t sizes[4], hal_dtype_t dtype, int32_t strides, int64_t *out) {
  int64_t numel;
  HAL_RETURN_IF_ERROR(hal_op_numel(context, tensor, what, &numel));
  if (tensor->ndim != 4)
    return hal_op_invalid(context, "%s has %d dimensions; expected (batch, head, row, number)", what,
                          (int)tensor->ndim);
  if (memcmp(tensor->sizes, sizes, 4 * sizeof *sizes) != 0)
    return hal_op_invalid(context, "%s has the shape %lld x %lld x %lld x %lld; expected %lld x %lld x %lld x %lld",
                          what, (long long)tensor->sizes[0], (long long)tensor->sizes[1], (long long)tensor->sizes[2],
                          (long long)tensor->sizes[3], (long long)sizes[0], (long long)sizes[1], (long long)sizes[2],
                          (long long)sizes[3]);
  if (tensor->dtype != dtype)
    return hal_op_invalid(context, "%s is %s; expected %s", what, hal_op_dtype_name(tensor->dtype),
                          hal_op_dtype_name(dtype));
  if (strides == 3 && sizes[3] > 1 && tensor->strides[3] != 1)
    return hal_op_invalid(context, "rows of %s have stride %lld; expected 1", what, (long long)tensor->strides[3]);
  for (int32_t d = 0; d < strides; d++) out[d] = numel == 0 || sizes[d] == 1 ? 0 : tensor->strides[d];
  return HAL_OK;
}

/* Reads query, key, value and bias, the arguments from `first` on, and scale and is_causal, the last ones. */
static hal_status_t read_operands(const hal_op_context_t *context, const hal_op_call_t *call, uint32_t first,
                                  operands_t *out, attention_t *s) {
  const uint32_t last = context->info->argument_count - 1;
  int64_t causal;
  memset(s, 0, sizeof *s);
  HAL_RETURN_IF_ERROR(hal_op_tensor(context, call, first, &out->query));
  HAL_RETURN_IF_ERROR(hal_op_tensor(context, call, first + 1, &out->key));
  HAL_RETURN_IF_ERROR(hal_op_tensor(context, call, first + 2, &out->value));
  if (out->query->ndim != 4 || out->key->ndim != 4 || out->value->ndim != 4)
    return hal_op_invalid(context, "query, key and value have %d, %d and %d dimensions; expected 4",
                          (int)out->query->ndim, (int)out->key->ndim, (int)out->value->ndim);
  const int64_t *const q = out->query->sizes, *const k = out->key->sizes, *const v = out->value->sizes;
  out->dtype = out->query->dtype, out->batch = q[0];
  if (!hal_op_has_dtype(context, out->dtype)) return HAL_UNIMPLEMENTED;
  out->accumulator = hal_op_accumulator(context, out->dtype);
  if (k[1] ? q[1] % k[1] : q[1])
    return hal_op_invalid(context, "%lld heads of query cannot share %lld heads of key", (long long)q[1],
                          (long long)k[1]);
  if (q[3] > HEAD_SIZE || v[3] > HEAD_SIZE) return HAL_UNIMPLEMENTED;
  s->heads = q[1], s->kv_heads = k[1], s->shared = k[1] ? q[1] / k[1] : 0;
  s->queries = q[2], s->keys = k[2], s->size = q[3], s->value_size = v[3];
  const int64_t keys[] = {q[0], k[1], k[2], q[3]}, values[] = {q[0], k[1], k[2], v[3]},
                biases[] = {q[0], q[1], q[2], k[2]};
  HAL_RETURN_IF_ERROR(check_operand(context, out->query, "query", q, out->dtype, 3, s->query));
  HAL_RETURN_IF_ERROR(check_operand(context, out->key, "key", keys, out->dtype, 3, s->key));
  HAL_RETURN_IF_ERROR(check_operand(context, out->value, "value", values, out->dtype, 3, s->value));
  out->bias = NULL;
  if (call->args[first + 3].tag != HAL_VALUE_NONE) {
    HAL_RETURN_IF_ERROR(hal_op_tensor(context, call, first + 3, &out->bias));
    HAL_RETURN_IF_ERROR(check_operand(context, out->bias, "attn_bias", biases, out->dtype, 4, s->bias));
  }
  HAL_RETURN_IF_ERROR(hal_op_int(context, call, last - 1, &causal));
  HAL_RETURN_IF_ERROR(hal_op_scalar(context, &call->args[last], out->accumulator, "scale", &out->scale));
  s->with_bias = out->bias != NULL, s->causal = causal != 0;
  const uint32_t form = hal_op_target(context)->form;
  s->block = form == HAL_FORM_HOST         ? LANE_BYTES / (int64_t)out->scale.size
             : form == HAL_FORM_CPU_VECTOR ? PK_ATTENTION_QUERIES
                                           : ROWS;
  return HAL_OK;
}

/* Returns the number of units per group. Each unit combines `rows` queries with `keys` keys in `products` pairs of
 * products; an exponential takes the time of about 16 of their steps. */
static uint64_t units_per_group(const hal_op_context_t *context, const attention_t *s, int64_t rows, int64_t keys,
                                double products) {
  enum { STEPS = 10 }; /* steps of a product in the time of one element of hal_op_units_per_group */
  const double cost = (double)rows * (double)(keys + 1) * (products * (double)(s->size + s->value_size) + 16) / STEPS;
  return hal_op_units_per_group(context, cost >= HAL_OP_ATTENTION ? HAL_OP_ATTENTION : (uint64_t)cost);
}

/* batch * heads * blocks, checked for overflow. */
static hal_status_t count_units(const hal_op_context_t *context, int64_t batch, int64_t heads, int64_t blocks,
                                uint64_t *out) {
  if (__builtin_mul_overflow((uint64_t)batch, (uint64_t)heads, out) ||
      __builtin_mul_overflow(*out, (uint64_t)blocks, out))
    return hal_op_too_large(context, UINT64_MAX);
  return HAL_OK;
}

hal_status_t hal_op_launch_attention(hal_op_context_t *context, const hal_op_call_t *call) {
  operands_t in;
  attention_t s;
  const hal_tensor_t *output, *sums;
  hal_plugin_kernel_t *kernel;
  uint64_t units, rows;
  HAL_RETURN_IF_ERROR(read_operands(context, call, 0, &in, &s));
  HAL_RETURN_IF_ERROR(hal_op_result(context, call, 0, &output));
  HAL_RETURN_IF_ERROR(hal_op_result(context, call, 1, &sums));
  const int64_t sizes[] = {in.batch, s.heads, s.queries, s.value_size};
  HAL_RETURN_IF_ERROR(check_operand(context, output, "the result", sizes, in.dtype, 3, s.result));
  HAL_RETURN_IF_ERROR(count_units(context, in.batch, s.heads, s.queries, &rows));
  HAL_RETURN_IF_ERROR(hal_op_check_dense(context, sums, "logsumexp", (int64_t)rows, in.accumulator));
  HAL_RETURN_IF_ERROR(count_units(context, in.batch, s.heads, (s.queries + s.block - 1) / s.block, &units));
  HAL_RETURN_IF_ERROR(hal_op_kernel(context, in.dtype, HAL_ATTENTION_VARIANT_FORWARD, &kernel));
  uint64_t per_group = units_per_group(context, &s, s.queries < s.block ? s.queries : s.block, s.keys, 1);
  void *result = output->data, *logarithms = sums->data, *query = in.query->data, *key = in.key->data;
  void *value = in.value->data, *bias = in.bias ? in.bias->data : query; /* any valid address */
  return queue_attention_forward(context, kernel, (units + per_group - 1) / per_group, result, logarithms, query, key,
                                 value, bias, &s, hal_op_number(&in.scale), units, per_group);
}

/* ---- gradients --------------------------------------------------------------------------------------------------- */

typedef struct backward_s {
  operands_t in;
  attention_t s;
  const hal_tensor_t *grad, *output, *sums, *results[3]; /* gradients of query, key and value, NULL if not requested */
} backward_t;

static hal_status_t read_backward(const hal_op_context_t *context, const hal_op_call_t *call, backward_t *out) {
  static const char *const names[] = {"the gradient of query", "the gradient of key", "the gradient of value"};
  attention_t *const s = &out->s;
  uint64_t rows;
  HAL_RETURN_IF_ERROR(read_operands(context, call, 1, &out->in, s));
  HAL_RETURN_IF_ERROR(hal_op_tensor(context, call, 0, &out->grad));
  HAL_RETURN_IF_ERROR(hal_op_tensor(context, call, 5, &out->output));
  HAL_RETURN_IF_ERROR(hal_op_tensor(context, call, 6, &out->sums));
  const int64_t sizes[] = {out->in.batch, s->heads, s->queries, s->value_size};
  HAL_RETURN_IF_ERROR(check_operand(context, out->grad, "grad_out", sizes, out->in.dtype, 3, s->grad));
  HAL_RETURN_IF_ERROR(check_operand(context, out->output, "out", sizes, out->in.dtype, 3, s->result));
  HAL_RETURN_IF_ERROR(count_units(context, out->in.batch, s->heads, s->queries, &rows));
  HAL_RETURN_IF_ERROR(hal_op_check_dense(context, out->sums, "logsumexp", (int64_t)rows, out->in.accumulator));
  if (call->result_count != 3)
    return hal_op_invalid(context, "the call has %u results; expected three, NULL if not requested",
                          (unsigned)call->result_count);
  const hal_tensor_t *const like[] = {out->in.query, out->in.key, out->in.value};
  int64_t *const strides[] = {s->grad_query, s->grad_key, s->grad_value};
  for (int i = 0; i < 3; i++) {
    out->results[i] = call->results[i];
    if (!call->results[i]) continue;
    HAL_RETURN_IF_ERROR(hal_op_check_tensor(context, call->results[i], names[i]));
    HAL_RETURN_IF_ERROR(
        check_operand(context, call->results[i], names[i], like[i]->sizes, out->in.dtype, 3, strides[i]));
    s->wanted |= 1 << i;
  }
  return HAL_OK;
}

/* Divides the keys into parts, so that few heads occupy many threads. Depends only on sizes and the kind of device. */
static void choose_parts(const hal_op_context_t *context, const operands_t *in, attention_t *s) {
  const int64_t wanted = (int64_t)hal_op_target(context)->wanted_groups;
  const double heads = (double)in->batch * (double)s->kv_heads;
  int64_t parts = heads > 0 && heads < (double)wanted ? (wanted + (int64_t)heads - 1) / (int64_t)heads : 1;
  const int64_t most = (s->keys + PART - 1) / PART;
  parts = parts < most ? parts : most;
  parts = parts < 1 ? 1 : parts;
  s->part = (s->keys / parts + (s->keys % parts != 0) + PART - 1) / PART * PART;
  s->part = s->part < PART ? PART : s->part;
  s->parts = s->keys > 0 ? (s->keys + s->part - 1) / s->part : 1;
}

/* Computes one number for each row of weights, by which the backward multiplies its weights (attention.pk). */
static hal_status_t launch_normalizers(hal_op_context_t *context, const backward_t *b, void *normalizers) {
  hal_plugin_kernel_t *kernel;
  uint64_t units;
  const attention_t *const s = &b->s;
  HAL_RETURN_IF_ERROR(count_units(context, b->in.batch, s->heads, (s->queries + s->block - 1) / s->block, &units));
  HAL_RETURN_IF_ERROR(hal_op_kernel(context, b->in.dtype, HAL_ATTENTION_BACKWARD_VARIANT_NORMALIZERS, &kernel));
  uint64_t per_group = units_per_group(context, s, s->queries < s->block ? s->queries : s->block, s->keys, 0.5);
  void *query = b->in.query->data, *key = b->in.key->data, *logarithms = b->sums->data;
  void *bias = b->in.bias ? b->in.bias->data : query; /* any valid address */
  return queue_attention_normalizers(context, kernel, (units + per_group - 1) / per_group, normalizers, query, key,
                                     bias, logarithms, s, hal_op_number(&b->in.scale), units, per_group);
}

static hal_status_t launch_gradients(hal_op_context_t *context, const backward_t *b, void *grad_query,
                                     void *normalizers) {
  hal_plugin_kernel_t *kernel;
  uint64_t units;
  attention_t s = b->s;
  hal_op_scalar_t scale = b->in.scale;
  HAL_RETURN_IF_ERROR(count_units(context, b->in.batch, s.kv_heads, s.parts, &units));
  HAL_RETURN_IF_ERROR(hal_op_kernel(context, b->in.dtype, HAL_ATTENTION_BACKWARD_VARIANT_BACKWARD, &kernel));
  uint64_t per_group = units_per_group(context, &s, s.shared * s.queries, s.part < s.keys ? s.part : s.keys, 2.5);
  void *query = b->in.query->data, *key = b->in.key->data, *value = b->in.value->data, *grad = b->grad->data;
  void *bias = b->in.bias ? b->in.bias->data : query, *result = b->output->data, *logarithms = b->sums->data;
  void *grad_key = b->results[1] ? b->results[1]->data : query; /* any valid address */
  void *grad_value = b->results[2] ? b->results[2]->data : query;
  return queue_attention_backward(context, kernel, (units + per_group - 1) / per_group, grad_query, grad_key,
                                  grad_value, grad, query, key, value, bias, result, logarithms, normalizers, &s,
                                  hal_op_number(&scale), units, per_group);
}

static hal_status_t launch_backward(hal_op_context_t *context, const backward_t *b, void *grad_query) {
  hal_op_scratch_t scratch = {.block = NULL};
  uint64_t rows;
  size_t bytes;
  HAL_RETURN_IF_ERROR(count_units(context, b->in.batch, b->s.heads, b->s.queries, &rows));
  if (__builtin_mul_overflow((size_t)rows, hal_op_dtype_size(b->in.accumulator), &bytes))
    return hal_op_too_large(context, UINT64_MAX);
  HAL_RETURN_IF_ERROR(hal_op_scratch(context, bytes, &scratch));
  hal_status_t status = launch_normalizers(context, b, scratch.address);
  if (!status) status = launch_gradients(context, b, grad_query, scratch.address);
  hal_op_scratch_release(&scratch);
  return status;
}

/* Computes the contributions of parts to the query's gradient in separate memory, and adds them up in order. */
static hal_status_t launch_in_parts(hal_op_context_t *context, backward_t *b) {
  attention_t *const s = &b->s;
  const hal_tensor_t *const target = b->results[0];
  const int64_t sizes[] = {s->parts, b->in.batch, s->heads, s->queries, s->size}, dim = 0;
  int64_t strides[5] = {0, 0, 0, 0, 1}, numel;
  for (int d = 3; d >= 0; d--) strides[d] = strides[d + 1] * sizes[d + 1];
  hal_tensor_t shares = {
      .struct_size = sizeof shares, .sizes = sizes, .strides = strides, .ndim = 5, .dtype = b->in.dtype};
  hal_op_scratch_t scratch = {.block = NULL};
  size_t bytes;
  shares.data = target->data; /* only for the check */
  HAL_RETURN_IF_ERROR(hal_op_numel(context, &shares, "the gradient of query by parts", &numel));
  if (__builtin_mul_overflow((size_t)numel, hal_op_dtype_size(b->in.dtype), &bytes))
    return hal_op_too_large(context, UINT64_MAX);
  HAL_RETURN_IF_ERROR(hal_op_scratch(context, bytes, &scratch));
  shares.data = scratch.address;
  memcpy(s->grad_query, strides + 1, sizeof s->grad_query);
  s->part_stride = strides[0];
  const int64_t kept_sizes[] = {1, sizes[1], sizes[2], sizes[3], sizes[4]};
  const int64_t kept_strides[] = {0, target->strides[0], target->strides[1], target->strides[2], target->strides[3]};
  hal_tensor_t kept = *target;
  kept.sizes = kept_sizes, kept.strides = kept_strides, kept.ndim = 5;
  const hal_tensor_t *const result = &kept;
  const hal_value_t args[] = {hal_op_value(&shares), {.tag = HAL_VALUE_INT_LIST, .count = 1, .u.il = &dim}};
  hal_status_t status = launch_backward(context, b, shares.data);
  if (!status) status = hal_op_run_part(context, HAL_OP_ID_SUM_DIM_INTLIST, args, 2, &result, 1);
  hal_op_scratch_release(&scratch);
  return status;
}

/* Results: gradients of query, key and value; those that are NULL are not computed. */
hal_status_t hal_op_launch_attention_backward(hal_op_context_t *context, const hal_op_call_t *call) {
  backward_t b;
  HAL_RETURN_IF_ERROR(read_backward(context, call, &b));
  if (b.s.wanted == 0) return HAL_OK;
  choose_parts(context, &b.in, &b.s);
  if (b.s.parts > 1 && b.results[0]) return launch_in_parts(context, &b);
  return launch_backward(context, &b, b.results[0] ? b.results[0]->data : b.in.query->data);
}
