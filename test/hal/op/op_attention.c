/* op_attention.c: scaled dot product attention and its gradients, compared with extended precision. */
#include <float.h>

#include "op_numbers.h"

#define FORWARD "_scaled_dot_product_fused_attention_overrideable"
#define BACKWARD "_scaled_dot_product_fused_attention_overrideable_backward"

/* How rows lie in memory. */
enum rows { BY_HEAD, BY_ROW /* (batch, row, head, number), as models have them */, FAR_APART };
/* The mask, which is added to the scores. */
enum bias {
  NO_BIAS,
  FULL_BIAS,
  BIAS_OF_KEYS /* of one row for all queries and heads */,
  MASK /* 0 or -inf, a row of -inf */,
  LARGE_MASK /* 0 or a large finite number, with three rows of large numbers */
};

typedef struct problem_s {
  int64_t batch, heads, kv_heads, queries, keys, size, value_size;
  enum rows rows;
  enum bias bias;
  int causal;
  double scale;
} problem_t;

static tensor_t *new_rows(hal_dtype_t dtype, enum rows rows, int64_t batch, int64_t heads, int64_t n, int64_t size) {
  const int64_t gap = rows == FAR_APART ? 4099 : 0;
  const int64_t sizes[] = {batch, rows == BY_ROW ? n : heads, rows == BY_ROW ? heads : n, size + gap};
  tensor_t *t = tensor_new(dtype, 4, sizes, CONTIGUOUS);
  if (rows == BY_ROW) {
    const int64_t stride = t->strides[1];
    t->strides[1] = t->strides[2], t->strides[2] = stride;
    t->sizes[1] = heads, t->sizes[2] = n;
  }
  t->sizes[3] = size, t->numel = batch * heads * n * size;
  return t;
}

/* The values added to masked scores. Scores are negligible compared with these large finite numbers in each dtype. */
static double masked(hal_dtype_t dtype, enum bias bias, int64_t row) {
  if (bias == MASK) return -INFINITY;
  if (row == 0) return 1e30;
  return row == 1 ? -1e30 : dtype == HAL_FLOAT64 ? -DBL_MAX : -FLT_MAX;
}

static tensor_t *new_bias(hal_dtype_t dtype, const problem_t *p) {
  const int64_t sizes[] = {p->batch, p->heads, p->queries, p->keys};
  if (p->bias == NO_BIAS) return NULL;
  tensor_t *t = tensor_new(dtype, 4, sizes, CONTIGUOUS);
  tensor_fill_ordinary(t, 9);
  if (p->bias == BIAS_OF_KEYS) t->strides[0] = t->strides[1] = t->strides[2] = 0;
  if (p->bias == MASK || p->bias == LARGE_MASK) {
    t->strides[1] = 0; /* for all heads */
    for (int64_t i = 0; i < t->numel; i++) {
      const int64_t row = i / p->keys % p->queries;
      const int full = row == 1 || (p->bias == LARGE_MASK && (row == 0 || row == p->queries - 1));
      const number_t value = {0, full || tensor_get(t, i).f > 0.5L ? masked(dtype, p->bias, row) : 0.0};
      if (i / (p->queries * p->keys) % p->heads == 0)
        store(dtype, t->host + (size_t)tensor_place(t, i) * t->element, value);
    }
    tensor_upload(t);
  }
  return t;
}

/* Operands, results and gradients of query, key and value. */
typedef struct sample_s {
  problem_t p;
  tensor_t *q, *k, *v, *bias, *grad, *out, *sums, *dq, *dk, *dv;
} sample_t;

static sample_t sample_new(hal_dtype_t dtype, const problem_t *p) {
  const int64_t sums[] = {p->batch, p->heads, p->queries};
  sample_t s = {.p = *p, .bias = new_bias(dtype, p), .sums = tensor_new(dtype, 3, sums, CONTIGUOUS)};
  tensor_t **const queries[] = {&s.q, &s.dq}, **const keys[] = {&s.k, &s.dk}, **const values[] = {&s.v, &s.dv},
                   **const results[] = {&s.out, &s.grad};
  for (int i = 0; i < 2; i++) {
    *queries[i] = new_rows(dtype, p->rows, p->batch, p->heads, p->queries, p->size);
    *keys[i] = new_rows(dtype, p->rows, p->batch, p->kv_heads, p->keys, p->size);
    *values[i] = new_rows(dtype, p->rows, p->batch, p->kv_heads, p->keys, p->value_size);
    *results[i] = new_rows(dtype, p->rows, p->batch, p->heads, p->queries, p->value_size);
  }
  tensor_fill_ordinary(s.q, 3), tensor_fill_ordinary(s.k, 4), tensor_fill_ordinary(s.v, 5);
  tensor_fill_ordinary(s.grad, 6);
  tensor_t *const written[] = {s.out, s.sums, s.dq, s.dk, s.dv};
  for (int i = 0; i < 5; i++) tensor_randomize(written[i], 7);
  return s;
}

static void sample_free(sample_t *s) {
  tensor_t *const all[] = {s->q, s->k, s->v, s->bias, s->grad, s->out, s->sums, s->dq, s->dk, s->dv};
  for (int i = 0; i < 10; i++) tensor_free(all[i]);
}

static hal_status_t call(const char *name, const hal_value_t *args, uint32_t arg_count,
                         const hal_tensor_t *const *results, uint32_t result_count) {
  uint32_t op;
  must(hal_op_id(name, &op));
  hal_op_call_t c = {
      .struct_size = sizeof c, .arg_count = arg_count, .result_count = result_count, .args = args, .results = results};
  return run_planned(0, op, NULL, &c);
}

static hal_value_t optional(const tensor_t *t) { return t ? of_tensor(t) : (hal_value_t){0}; }

static hal_status_t forward(const sample_t *s) {
  const hal_value_t args[] = {of_tensor(s->q),   of_tensor(s->k),     of_tensor(s->v),
                              optional(s->bias), of_int(s->p.causal), of_double(s->p.scale)};
  const hal_tensor_t *const results[] = {&s->out->desc, &s->sums->desc};
  return call(FORWARD, args, 6, results, 2);
}

static hal_status_t backward(const sample_t *s, const tensor_t *dq, const tensor_t *dk, const tensor_t *dv) {
  const hal_value_t args[] = {of_tensor(s->grad), of_tensor(s->q),     of_tensor(s->k),
                              of_tensor(s->v),    optional(s->bias),   of_tensor(s->out),
                              of_tensor(s->sums), of_int(s->p.causal), of_double(s->p.scale)};
  const hal_tensor_t *const results[] = {dq ? &dq->desc : NULL, dk ? &dk->desc : NULL, dv ? &dv->desc : NULL};
  return call(BACKWARD, args, 9, results, 3);
}

/* ---- the reference ---- */

/* A sum, and the sum of the magnitudes of its terms, which bounds its error. */
typedef struct sum_s {
  long double value, size;
} sum_t;

static void add(sum_t *sum, long double term) { sum->value += term, sum->size += fabsl(term); }

typedef struct matrix_s {
  int64_t columns;
  long double *data;
} matrix_t;

/* Rows of one head as numbers. */
static matrix_t rows_of(const tensor_t *t, int64_t batch, int64_t head) {
  const int64_t rows = t->sizes[2], columns = t->sizes[3];
  matrix_t m = {columns, calloc((size_t)(rows * columns) + 1, sizeof(long double))};
  for (int64_t i = 0; i < rows * columns; i++)
    m.data[i] = tensor_get(t, (batch * t->sizes[1] + head) * rows * columns + i).f;
  return m;
}

static long double dot(const matrix_t *a, int64_t i, const matrix_t *b, int64_t j) {
  long double sum = 0;
  for (int64_t d = 0; d < a->columns; d++) sum += a->data[i * a->columns + d] * b->data[j * b->columns + d];
  return sum;
}

/* The weights of a query; returns the logarithm of the sum of exponentials, -inf if all weights are 0. */
static long double weights_of(const sample_t *s, int64_t batch, int64_t head, int64_t i, const matrix_t *q,
                              const matrix_t *k, long double *weights) {
  const problem_t *p = &s->p;
  long double top = -INFINITY, sum = 0;
  for (int64_t j = 0; j < p->keys; j++) {
    weights[j] = p->causal && j > i ? -INFINITY : dot(q, i, k, j) * p->scale;
    if (s->bias) weights[j] += tensor_get(s->bias, ((batch * p->heads + head) * p->queries + i) * p->keys + j).f;
    if (weights[j] > top) top = weights[j];
  }
  for (int64_t j = 0; j < p->keys; j++) sum += weights[j] = isinf(top) ? 0 : expl(weights[j] - top);
  for (int64_t j = 0; j < p->keys && sum > 0; j++) weights[j] /= sum;
  return sum > 0 ? top + logl(sum) : -INFINITY;
}

static void near(const char *what, const tensor_t *t, int64_t i, long double want, long double error) {
  const long double got = tensor_get(t, i).f;
  cr_assert(got == want || fabsl(got - want) <= error, "%s[%lld]: got %.10Lg, want %.10Lg +- %.2Lg", what, (long long)i,
            got, want, error);
}

/* Scores have a relative error of a few roundings of their largest terms, and so have the exponentials. */
static long double allowed(const sample_t *s, hal_dtype_t dtype) {
  const long double size = (long double)s->p.size * fabsl((long double)s->p.scale) + 2;
  return roundoff(dtype) * (60 + 8 * size);
}

static void near_rows(const char *what, const tensor_t *t, int64_t batch, int64_t head, const sum_t *want,
                      long double u) {
  const int64_t count = t->sizes[2] * t->sizes[3];
  for (int64_t i = 0; i < count; i++)
    near(what, t, (batch * t->sizes[1] + head) * count + i, want[i].value, u * (want[i].size + 1e-30L));
}

/* Adds the terms of a head to the gradients, and compares the results of its queries. */
static void check_head(const sample_t *s, int64_t batch, int64_t head, sum_t *dk, sum_t *dv, long double u) {
  const problem_t *p = &s->p;
  const int64_t kv_head = head * p->kv_heads / p->heads;
  matrix_t q = rows_of(s->q, batch, head), k = rows_of(s->k, batch, kv_head), v = rows_of(s->v, batch, kv_head),
           g = rows_of(s->grad, batch, head);
  sum_t *out = calloc((size_t)(p->queries * p->value_size) + 1, sizeof *out);
  sum_t *dq = calloc((size_t)(p->queries * p->size) + 1, sizeof *dq);
  long double *weights = calloc((size_t)p->keys + 1, sizeof *weights);
  for (int64_t i = 0; i < p->queries; i++) {
    const long double logarithm = weights_of(s, batch, head, i, &q, &k, weights);
    near("logsumexp", s->sums, (batch * p->heads + head) * p->queries + i, logarithm, u * (1 + fabsl(logarithm)));
    sum_t *const o = out + i * p->value_size;
    for (int64_t j = 0; j < p->keys; j++)
      for (int64_t d = 0; d < p->value_size; d++) add(&o[d], weights[j] * v.data[j * v.columns + d]);
    sum_t delta = {0, 0};
    for (int64_t d = 0; d < p->value_size; d++)
      add(&delta, g.data[i * g.columns + d] * o[d].value), delta.size += o[d].size - fabsl(o[d].value);
    for (int64_t j = 0; j < p->keys; j++) {
      sum_t slope = {-delta.value, delta.size};
      for (int64_t d = 0; d < p->value_size; d++) {
        add(&dv[j * v.columns + d], weights[j] * g.data[i * g.columns + d]);
        add(&slope, g.data[i * g.columns + d] * v.data[j * v.columns + d]);
      }
      const long double value = weights[j] * slope.value * p->scale,
                        size = weights[j] * slope.size * fabsl((long double)p->scale);
      for (int64_t d = 0; d < p->size; d++) {
        sum_t *const of_query = &dq[i * p->size + d], *const of_key = &dk[j * p->size + d];
        of_query->value += value * k.data[j * k.columns + d], of_query->size += size * fabsl(k.data[j * k.columns + d]);
        of_key->value += value * q.data[i * q.columns + d], of_key->size += size * fabsl(q.data[i * q.columns + d]);
      }
    }
  }
  near_rows("result", s->out, batch, head, out, u), near_rows("gradient of query", s->dq, batch, head, dq, u);
  free(out), free(dq), free(weights), free(q.data), free(k.data), free(v.data), free(g.data);
}

static void check(hal_dtype_t dtype, const problem_t *p) {
  sample_t s = sample_new(dtype, p);
  must(forward(&s));
  must(backward(&s, s.dq, s.dk, s.dv));
  tensor_t *const results[] = {s.out, s.sums, s.dq, s.dk, s.dv};
  for (int i = 0; i < 5; i++) tensor_download(results[i]);
  const int64_t shared = p->kv_heads ? p->heads / p->kv_heads : 0;
  const long double u = allowed(&s, dtype);
  for (int64_t b = 0; b < p->batch; b++)
    for (int64_t kv = 0; kv < p->kv_heads; kv++) {
      sum_t *dk = calloc((size_t)(p->keys * p->size) + 1, sizeof *dk);
      sum_t *dv = calloc((size_t)(p->keys * p->value_size) + 1, sizeof *dv);
      for (int64_t h = kv * shared; h < (kv + 1) * shared; h++) check_head(&s, b, h, dk, dv, u);
      near_rows("gradient of key", s.dk, b, kv, dk, u), near_rows("gradient of value", s.dv, b, kv, dv, u);
      free(dk), free(dv);
    }
  sample_free(&s);
}

/* ---- values ---- */

Test(op_attention, results_and_gradients_of_lengths_around_all_blocks, .timeout = 120) {
  open_device();
  static const int64_t shapes[][4] = {{1, 1, 1, 1},     {1, 7, 3, 2},     {3, 1, 5, 7},
                                      {32, 32, 16, 16}, {33, 31, 16, 17}, {16, 64, 8, 32},
                                      {17, 65, 33, 8},  {40, 129, 48, 5}, {70, 200, 64, 64}};
  for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
    for (int causal = 0; causal < 2; causal++) {
      const int64_t *n = shapes[i];
      const problem_t p = {2, 2, 2, n[0], n[1], n[2], n[3], (enum rows)(i % 3), NO_BIAS, causal, i % 2 ? 0.3 : -0.5};
      check(HAL_FLOAT32, &p);
      check(HAL_FLOAT64, &p);
    }
}

Test(op_attention, biases_masks_and_groups_of_heads, .timeout = 120) {
  open_device();
  for (int bias = NO_BIAS; bias <= LARGE_MASK; bias++)
    for (int rows = BY_HEAD; rows <= FAR_APART; rows++)
      for (int causal = 0; causal < 2; causal++) {
        const problem_t p = {2, 6, 3, 37, 45, 10, 12, (enum rows)rows, (enum bias)bias, causal, 0.7};
        check(HAL_FLOAT32, &p);
        check(HAL_FLOAT64, &p);
      }
}

Test(op_attention, long_sequences, .timeout = 120) {
  open_device();
  for (int causal = 0; causal < 2; causal++) {
    const problem_t p = {1, 2, 1, 700, 900, 32, 16, BY_ROW, causal ? NO_BIAS : MASK, causal, 1.5};
    const problem_t large = {1, 2, 1, 700, 900, 32, 16, BY_ROW, LARGE_MASK, causal, 1.5};
    check(HAL_FLOAT32, &p);
    check(HAL_FLOAT64, &p);
    check(HAL_FLOAT32, &large);
  }
}

Test(op_attention, the_largest_heads, .timeout = 60) {
  open_device();
  const problem_t p = {1, 1, 1, 35, 70, 256, 255, BY_HEAD, NO_BIAS, 0, 0.06};
  check(HAL_FLOAT32, &p);
  check(HAL_FLOAT64, &p);
}

Test(op_attention, sizes_of_zero) {
  open_device();
  for (int zero = 0; zero < 5; zero++) {
    problem_t p = {2, 2, 2, 3, 4, 5, 6, BY_HEAD, FULL_BIAS, 0, 1};
    int64_t *const sizes[] = {&p.batch, &p.queries, &p.keys, &p.size, &p.value_size};
    *sizes[zero] = 0;
    check(HAL_FLOAT32, &p); /* no keys: a result of 0 with the logarithm -inf; all masked: equal weights */
  }
  const problem_t no_heads = {2, 0, 0, 3, 4, 5, 6, BY_HEAD, NO_BIAS, 0, 1};
  check(HAL_FLOAT32, &no_heads);
}

Test(op_attention, memory_between_rows_is_not_written) {
  open_device();
  const problem_t p = {1, 2, 1, 5, 6, 7, 3, FAR_APART, NO_BIAS, 0, 1};
  sample_t s = sample_new(HAL_FLOAT32, &p);
  tensor_t *const results[] = {s.out, s.dq, s.dk, s.dv};
  unsigned char *before[4];
  for (int i = 0; i < 4; i++) {
    before[i] = malloc((size_t)results[i]->storage * results[i]->element);
    memcpy(before[i], results[i]->host, (size_t)results[i]->storage * results[i]->element);
  }
  must(forward(&s));
  must(backward(&s, s.dq, s.dk, s.dv));
  for (int i = 0; i < 4; i++) {
    const size_t row = (size_t)results[i]->strides[2] * 4, used = (size_t)results[i]->sizes[3] * 4;
    tensor_download(results[i]);
    for (size_t at = 0; at < (size_t)results[i]->storage * 4; at += row)
      cr_assert_eq(memcmp(before[i] + at + used, results[i]->host + at + used, row - used), 0);
    free(before[i]);
  }
  sample_free(&s);
}

Test(op_attention, gradients_that_are_not_wanted_are_not_computed) {
  open_device();
  const problem_t p = {1, 2, 1, 70, 300, 7, 3, BY_HEAD, NO_BIAS, 0, 1};
  sample_t s = sample_new(HAL_FLOAT32, &p), one = sample_new(HAL_FLOAT32, &p);
  must(forward(&s)), must(backward(&s, s.dq, s.dk, s.dv));
  must(forward(&one));
  must(backward(&one, one.dq, NULL, NULL));
  must(backward(&one, NULL, one.dk, NULL));
  must(backward(&one, NULL, NULL, one.dv));
  must(backward(&one, NULL, NULL, NULL));
  tensor_t *const all[] = {s.dq, s.dk, s.dv}, *const single[] = {one.dq, one.dk, one.dv};
  for (int i = 0; i < 3; i++) {
    tensor_download(all[i]), tensor_download(single[i]);
    cr_assert_eq(memcmp(all[i]->host, single[i]->host, (size_t)all[i]->storage * 4), 0);
  }
  sample_free(&s), sample_free(&one);
}

static void compute(unsigned char *out, size_t size) {
  const problem_t p = {1, 4, 2, 150, 333, 24, 40, BY_ROW, FULL_BIAS, 1, 0.2};
  sample_t s = sample_new(HAL_FLOAT32, &p);
  must(forward(&s));
  must(backward(&s, s.dq, s.dk, s.dv));
  tensor_t *const results[] = {s.out, s.sums, s.dq, s.dk, s.dv};
  for (int i = 0; i < 5; i++) {
    const size_t bytes = (size_t)results[i]->storage * 4;
    tensor_download(results[i]);
    memcpy(out, results[i]->host, bytes < size ? bytes : size);
    out += bytes < size ? bytes : size, size -= bytes < size ? bytes : size;
  }
}

Test(op_attention, bits_do_not_depend_on_threads, .timeout = 60) {
  assert_same_bits(compute, sizeof(float) * (150 * 4 * (40 + 1 + 24) + 333 * 2 * (24 + 40)));
}

/* ---- invalid calls ---- */

static void refuse(hal_status_t status, hal_status_t want, const char *part) {
  cr_assert_eq(status, want, "%s: %s", hal_status_name(status), hal_error_message());
  if (part) cr_assert(strstr(hal_error_message(), part) != NULL, "%s", hal_error_message());
}

Test(op_attention, wrong_calls_are_refused_with_a_message) {
  open_device();
  const problem_t right = {2, 4, 2, 3, 5, 8, 6, BY_HEAD, FULL_BIAS, 0, 1},
                  longer = {2, 4, 2, 4, 7, 9, 5, BY_HEAD, FULL_BIAS, 0, 1};
  const problem_t three = {2, 4, 3, 3, 5, 8, 6, BY_HEAD, NO_BIAS, 0, 1};
  sample_t s = sample_new(HAL_FLOAT32, &right), other = sample_new(HAL_FLOAT32, &longer);
  sample_t wide = sample_new(HAL_FLOAT64, &right), odd = sample_new(HAL_FLOAT32, &three), bad = s;
  bad = s, bad.k = other.k, refuse(forward(&bad), HAL_INVALID_ARGUMENT, "key has the shape");
  bad = s, bad.v = other.v, refuse(forward(&bad), HAL_INVALID_ARGUMENT, "value has the shape");
  bad = s, bad.bias = other.bias, refuse(forward(&bad), HAL_INVALID_ARGUMENT, "attn_bias has the shape");
  bad = s, bad.out = other.out, refuse(forward(&bad), HAL_INVALID_ARGUMENT, "the result has the shape");
  bad = s, bad.sums = other.sums, refuse(forward(&bad), HAL_INVALID_ARGUMENT, "logsumexp");
  bad = s, bad.sums = wide.sums, refuse(forward(&bad), HAL_INVALID_ARGUMENT, "logsumexp");
  bad = s, bad.k = wide.k, refuse(forward(&bad), HAL_INVALID_ARGUMENT, "key is float64; expected float32");
  bad = s, bad.q = s.sums, refuse(forward(&bad), HAL_INVALID_ARGUMENT, "dimensions");
  bad = s, bad.k = odd.k, bad.v = odd.v, refuse(forward(&bad), HAL_INVALID_ARGUMENT, "cannot share 3 heads");
  bad = s, bad.grad = other.grad,
  refuse(backward(&bad, s.dq, s.dk, s.dv), HAL_INVALID_ARGUMENT, "grad_out has the shape");
  refuse(backward(&s, other.dq, s.dk, s.dv), HAL_INVALID_ARGUMENT, "the gradient of query has the shape");
  s.q->strides[3] = 2, refuse(forward(&s), HAL_INVALID_ARGUMENT, "rows of query have stride 2; expected 1");
  sample_free(&s), sample_free(&other), sample_free(&wide), sample_free(&odd);
}

Test(op_attention, heads_of_more_than_256_numbers_are_left_to_the_caller) {
  open_device();
  const problem_t p = {1, 1, 1, 2, 3, 257, 4, BY_HEAD, NO_BIAS, 0, 1};
  sample_t s = sample_new(HAL_FLOAT32, &p);
  cr_assert_eq(forward(&s), HAL_UNIMPLEMENTED);
  cr_assert_eq(backward(&s, s.dq, s.dk, s.dv), HAL_UNIMPLEMENTED);
  sample_free(&s);
}
