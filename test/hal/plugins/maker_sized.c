/* maker_sized.c: operators with special calling conventions: results whose size depends on the data, outputs that
 * are not ATen's results, numbers of a generator, attention. */
#include <math.h>

#include "maker.h"

static int same(const hal_tensor_t *a, const int64_t *i, const hal_tensor_t *b, const int64_t *k) {
  return load(a, i) == load(b, k);
}

/* self; the host has counted: a row of the result for each element */
static hal_status_t nonzero(const hal_op_call_t *call) {
  const hal_tensor_t *x = tensor_at(call, 0), *y = call->results[0];
  int64_t at[DIMS] = {0}, to[2] = {0};
  if (count_of(x) == 0) return HAL_OK;
  do {
    if (load(x, at) == 0) continue;
    for (to[1] = 0; to[1] < x->ndim; to[1]++) store(y, to, (double)at[to[1]]);
    to[0]++;
  } while (advance(x, at));
  return HAL_OK;
}

/* self, mask: both of the same shape here */
static hal_status_t masked_select(const hal_op_call_t *call) {
  const hal_tensor_t *x = tensor_at(call, 0), *mask = tensor_at(call, 1);
  int64_t at[DIMS] = {0}, to = 0;
  if (x->ndim != mask->ndim || count_of(x) != count_of(mask)) return HAL_UNIMPLEMENTED;
  do
    if (load(mask, at) != 0) store(call->results[0], &to, load(x, at)), to++;
  while (advance(x, at));
  return HAL_OK;
}

/* self, weights, minlength */
static hal_status_t bincount(const hal_op_call_t *call) {
  const hal_tensor_t *x = tensor_at(call, 0), *weights = tensor_at(call, 1), *y = call->results[0];
  for (int64_t bin = 0; bin < y->sizes[0]; bin++) store(y, &bin, 0);
  for (int64_t i = 0; i < x->sizes[0]; i++) {
    const int64_t bin = (int64_t)load(x, &i);
    store(y, &bin, load(y, &bin) + (weights ? load(weights, &i) : 1));
  }
  return HAL_OK;
}

/* repeats */
static hal_status_t repeat_interleave(const hal_op_call_t *call) {
  const hal_tensor_t *x = tensor_at(call, 0), *y = call->results[0];
  int64_t to = 0;
  for (int64_t i = 0; i < x->sizes[0]; i++)
    for (int64_t k = 0; k < (int64_t)load(x, &i); k++, to++) store(y, &to, (double)i);
  return HAL_OK;
}

/* self, return_inverse, return_counts, dim; results: buffers for values and counts of all elements, and their number */
static hal_status_t unique_consecutive(const hal_op_call_t *call) {
  const hal_tensor_t *x = tensor_at(call, 0), *inverse = call->results[1], *counts = call->results[2];
  int64_t at[DIMS] = {0}, before[DIMS], found = -1, none[1] = {0};
  do {
    if (found < 0 || !same(x, at, x, before)) {
      found++;
      store(call->results[0], &found, load(x, at));
      if (counts) store(counts, &found, 0);
    }
    if (inverse) store(inverse, at, (double)found);
    if (counts) store(counts, &found, load(counts, &found) + 1);
    memcpy(before, at, sizeof at);
  } while (advance(x, at));
  store(call->results[3], none, (double)(found + 1));
  return HAL_OK;
}

/* self, sorted, return_inverse, return_counts: repeatedly finds the smallest element above the last one */
static hal_status_t unique(const hal_op_call_t *call) {
  const hal_tensor_t *x = tensor_at(call, 0), *inverse = call->results[1], *counts = call->results[2];
  double last = -INFINITY;
  int64_t found = 0, none[1] = {0};
  for (;; found++) {
    double least = INFINITY;
    int64_t at[DIMS] = {0};
    do
      if (load(x, at) > last && load(x, at) < least) least = load(x, at);
    while (advance(x, at));
    if (least == INFINITY) break;
    int64_t count = 0, again[DIMS] = {0};
    do {
      if (load(x, again) != least) continue;
      count++;
      if (inverse) store(inverse, again, (double)found);
    } while (advance(x, again));
    store(call->results[0], &found, last = least);
    if (counts) store(counts, &found, (double)count);
  }
  store(call->results[3], none, (double)found);
  return HAL_OK;
}

/* self, other; the result is a bool */
static hal_status_t equal(const hal_op_call_t *call) {
  const hal_tensor_t *a = tensor_at(call, 0), *b = tensor_at(call, 1);
  int64_t at[DIMS] = {0}, none[1] = {0};
  int alike = 1;
  do alike &= same(a, at, b, at);
  while (advance(a, at));
  store(call->results[0], none, alike);
  return HAL_OK;
}

/* value: a number, or a tensor of one element */
static hal_status_t fill(const hal_op_call_t *call) {
  const int64_t none[1] = {0};
  const hal_value_t *value = &call->args[0];
  int64_t at[DIMS] = {0};
  const double number = call->arg_count == 0             ? 0
                        : value->tag == HAL_VALUE_TENSOR ? load(value->u.t, none)
                        : value->tag == HAL_VALUE_DOUBLE ? value->u.d
                                                         : (double)value->u.i;
  do store(call->results[0], at, number);
  while (advance(call->results[0], at));
  return HAL_OK;
}

/* from, to: each number is at a quarter of the range */
static hal_status_t uniform(const hal_op_call_t *call) {
  int64_t at[DIMS] = {0};
  do store(call->results[0], at, call->args[0].u.d + (call->args[1].u.d - call->args[0].u.d) / 4);
  while (advance(call->results[0], at));
  return HAL_OK;
}

/* query, key, value, attn_bias, is_causal, scale, dropout_p, return_debug_mask; dropout keeps all elements */
static hal_status_t attention(const hal_op_call_t *call) {
  const hal_tensor_t *q = tensor_at(call, 0), *k = tensor_at(call, 1), *v = tensor_at(call, 2), *y = call->results[0];
  const double scale = call->args[5].tag == HAL_VALUE_DOUBLE ? call->args[5].u.d : 1 / sqrt((double)q->sizes[3]);
  if (q->ndim != 4 || q->sizes[1] != k->sizes[1] || tensor_at(call, 3) || call->args[4].u.i || call->results[2])
    return HAL_UNIMPLEMENTED;
  int64_t at[DIMS] = {0};
  do {
    double sum = 0, weighted = 0;
    for (int64_t key = 0; key < k->sizes[2]; key++) {
      double score = 0;
      for (int64_t i = 0; i < q->sizes[3]; i++) {
        const int64_t of_q[] = {at[0], at[1], at[2], i}, of_k[] = {at[0], at[1], key, i};
        score += load(q, of_q) * load(k, of_k) * scale;
      }
      const int64_t of_v[] = {at[0], at[1], key, at[3]};
      sum += exp(score);
      weighted += exp(score) * load(v, of_v);
    }
    store(y, at, weighted / sum);
    store(call->results[1], at, log(sum));
  } while (advance(y, at));
  return HAL_OK;
}

const maker_operator_t maker_sized[] = {
    {"nonzero", nonzero},
    {"masked_select", masked_select},
    {"bincount", bincount},
    {"repeat_interleave.Tensor", repeat_interleave},
    {"unique_consecutive", unique_consecutive},
    {"_unique2", unique},
    {"equal", equal},
    {"fill.Scalar", fill},
    {"fill.Tensor", fill},
    {"zero", fill},
    {"uniform", uniform},
    {"_scaled_dot_product_fused_attention_overrideable", attention},
    {NULL, NULL},
};
