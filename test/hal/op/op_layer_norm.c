/* op_layer_norm.c: layer normalization and its gradients, compared with extended precision. */
#include "op_numbers.h"

typedef struct sample_s {
  int64_t rows, n;
  tensor_t *x, *dy, *weight, *bias, *y, *mean, *rstd, *dx, *dweight, *dbias;
} sample_t;

static const double eps = 1e-3;

/* Operands of `dtype`, with weight and bias of `parameters`; the statistics of half precision are float32. */
static sample_t sample_of(hal_dtype_t dtype, hal_dtype_t parameters_dtype, int64_t rows, int64_t n) {
  const int64_t matrix[] = {rows, n}, column[] = {rows};
  sample_t s = {.rows = rows, .n = n};
  tensor_t **const matrices[] = {&s.x, &s.dy, &s.y, &s.dx}, **const columns[] = {&s.mean, &s.rstd},
                   **const parameters[] = {&s.weight, &s.bias, &s.dweight, &s.dbias};
  for (int i = 0; i < 4; i++) *matrices[i] = tensor_new(dtype, 2, matrix, CONTIGUOUS);
  for (int i = 0; i < 2; i++) *columns[i] = tensor_new(is_half(dtype) ? HAL_FLOAT32 : dtype, 1, column, CONTIGUOUS);
  for (int i = 0; i < 4; i++) *parameters[i] = tensor_new(parameters_dtype, 1, &n, CONTIGUOUS);
  tensor_fill_ordinary(s.x, 3), tensor_fill_ordinary(s.dy, 4);
  tensor_fill_ordinary(s.weight, 5), tensor_fill_ordinary(s.bias, 6);
  return s;
}

static sample_t sample_new(hal_dtype_t dtype, int64_t rows, int64_t n) { return sample_of(dtype, dtype, rows, n); }

static void sample_free(sample_t *s) {
  tensor_t *const all[] = {s->x, s->dy, s->weight, s->bias, s->y, s->mean, s->rstd, s->dx, s->dweight, s->dbias};
  for (int i = 0; i < 10; i++) tensor_free(all[i]);
}

static hal_status_t run_three(const char *name, const hal_value_t *args, uint32_t arg_count, const tensor_t *a,
                              const tensor_t *b, const tensor_t *c) {
  uint32_t op;
  must(hal_op_id(name, &op));
  const hal_tensor_t *const results[] = {a ? &a->desc : NULL, b ? &b->desc : NULL, c ? &c->desc : NULL};
  hal_op_call_t call = {
      .struct_size = sizeof call, .arg_count = arg_count, .result_count = 3, .args = args, .results = results};
  return run_planned(0, op, NULL, &call);
}

static void near(const char *what, const tensor_t *t, int64_t i, long double want, long double error) {
  const long double got = tensor_get(t, i).f;
  cr_assert(fabsl(got - want) <= error, "%s[%lld]: got %.10Lg, want %.10Lg +- %.2Lg", what, (long long)i, got, want,
            error);
}

/* Computes all results; `with` has weight and bias. */
static void check(hal_dtype_t dtype, hal_dtype_t parameters, int64_t rows, int64_t n, int with) {
  sample_t s = sample_of(dtype, parameters, rows, n);
  const hal_value_t none = {0};
  const hal_value_t forward[] = {of_tensor(s.x), with ? of_tensor(s.weight) : none, with ? of_tensor(s.bias) : none,
                                 of_double(eps)};
  const hal_value_t backward[] = {of_tensor(s.dy), of_tensor(s.x), of_tensor(s.mean), of_tensor(s.rstd), forward[1]};
  must(run_three("native_layer_norm", forward, 4, s.y, s.mean, s.rstd));
  must(run_three("native_layer_norm_backward", backward, 5, s.dx, s.dweight, s.dbias));
  tensor_t *const results[] = {s.y, s.mean, s.rstd, s.dx, s.dweight, s.dbias};
  for (int i = 0; i < 6; i++) tensor_download(results[i]);
  const long double u = roundoff(dtype), v = roundoff(parameters), w = is_half(dtype) ? roundoff(HAL_FLOAT32) : u;
  long double *dweight = calloc((size_t)n, sizeof *dweight), *dbias = calloc((size_t)n, sizeof *dbias);
  for (int64_t r = 0; r < rows; r++) {
    long double sum = 0, squares = 0, gsum = 0, gh = 0;
    for (int64_t k = 0; k < n; k++) sum += tensor_get(s.x, r * n + k).f;
    const long double mean = sum / n;
    for (int64_t k = 0; k < n; k++) squares += powl(tensor_get(s.x, r * n + k).f - mean, 2);
    const long double rstd = 1 / sqrtl(squares / n + eps);
    near("mean", s.mean, r, mean, 100 * w), near("rstd", s.rstd, r, rstd, 100 * w * rstd);
    for (int64_t k = 0; k < n; k++) {
      const long double h = (tensor_get(s.x, r * n + k).f - mean) * rstd, d = tensor_get(s.dy, r * n + k).f;
      const long double g = d * (with ? tensor_get(s.weight, k).f : 1);
      gsum += g, gh += g * h, dweight[k] += d * h, dbias[k] += d;
      const long double y = with ? h * tensor_get(s.weight, k).f + tensor_get(s.bias, k).f : h;
      near("result", s.y, r * n + k, y, 200 * u * (1 + rstd));
    }
    for (int64_t k = 0; k < n; k++) {
      const long double h = (tensor_get(s.x, r * n + k).f - mean) * rstd;
      const long double g = tensor_get(s.dy, r * n + k).f * (with ? tensor_get(s.weight, k).f : 1);
      near("gradient", s.dx, r * n + k, rstd * (g - gsum / n - h * gh / n), 300 * u * rstd * (1 + fabsl(h)));
    }
  }
  for (int64_t k = 0; k < n; k++) {
    const long double error = 300 * (v > w ? v : w) * (1 + sqrtl((long double)rows)) * 4;
    near("weight's gradient", s.dweight, k, dweight[k], error), near("bias's gradient", s.dbias, k, dbias[k], error);
  }
  free(dweight), free(dbias), sample_free(&s);
}

Test(op_layer_norm, results_and_gradients, .timeout = 240) {
  open_device();
  static const int64_t shapes[][2] = {{1, 1}, {3, 2}, {5, 64}, {4, 65}, {700, 33}, {2, 9001}, {1500, 7}, {130, 257}};
  for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
    for (int with = 0; with < 2; with++) {
      check(HAL_FLOAT32, HAL_FLOAT32, shapes[i][0], shapes[i][1], with);
      check(HAL_FLOAT64, HAL_FLOAT64, shapes[i][0], shapes[i][1], with);
    }
}

/* Without weight and bias, their gradients still have the input's dtype. */
Test(op_layer_norm, half_precision_takes_parameters_of_its_own_dtype_or_float32, .timeout = 240) {
  open_device();
  static const hal_dtype_t halves[] = {HAL_FLOAT16, HAL_BFLOAT16};
  static const int64_t shapes[][2] = {{1, 1}, {5, 64}, {4, 65}, {700, 33}, {130, 257}};
  for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
    for (int h = 0; h < 2; h++) {
      check(halves[h], halves[h], shapes[i][0], shapes[i][1], 0);
      check(halves[h], halves[h], shapes[i][0], shapes[i][1], 1);
      check(halves[h], HAL_FLOAT32, shapes[i][0], shapes[i][1], 1);
    }
}

Test(op_layer_norm, weight_and_bias_of_two_dtypes_are_refused) {
  open_device();
  sample_t s = sample_of(HAL_FLOAT16, HAL_FLOAT32, 3, 5), other = sample_new(HAL_FLOAT16, 3, 5);
  const hal_value_t mixed[] = {of_tensor(s.x), of_tensor(s.weight), of_tensor(other.bias), of_double(eps)};
  cr_assert_eq(run_three("native_layer_norm", mixed, 4, s.y, s.mean, s.rstd), HAL_INVALID_ARGUMENT);
  const hal_value_t reversed[] = {of_tensor(s.x), of_tensor(other.weight), of_tensor(s.bias), of_double(eps)};
  cr_assert_eq(run_three("native_layer_norm", reversed, 4, s.y, s.mean, s.rstd), HAL_INVALID_ARGUMENT);
  sample_free(&s), sample_free(&other);
}

Test(op_layer_norm, gradients_that_are_not_requested_are_not_written) {
  open_device();
  sample_t s = sample_new(HAL_FLOAT32, 3, 5);
  const hal_value_t forward[] = {of_tensor(s.x), {0}, {0}, of_double(eps)};
  const hal_value_t backward[] = {of_tensor(s.dy), of_tensor(s.x), of_tensor(s.mean), of_tensor(s.rstd), {0}};
  must(run_three("native_layer_norm", forward, 4, s.y, s.mean, s.rstd));
  tensor_randomize(s.dbias, 1);
  must(run_three("native_layer_norm_backward", backward, 5, NULL, NULL, s.dbias));
  tensor_download(s.dbias);
  for (int64_t k = 0; k < 5; k++) {
    long double want = 0;
    for (int64_t r = 0; r < 3; r++) want += tensor_get(s.dy, r * 5 + k).f;
    near("bias's gradient", s.dbias, k, want, 1e-6L);
  }
  must(run_three("native_layer_norm_backward", backward, 5, NULL, NULL, NULL));
  sample_free(&s);
}

Test(op_layer_norm, wrong_calls_are_refused_with_a_message) {
  open_device();
  sample_t s = sample_new(HAL_FLOAT32, 3, 5), other = sample_new(HAL_FLOAT32, 4, 6);
  const hal_value_t wrong_weight[] = {of_tensor(s.x), of_tensor(other.weight), {0}, of_double(eps)};
  cr_assert_eq(run_three("native_layer_norm", wrong_weight, 4, s.y, s.mean, s.rstd), HAL_INVALID_ARGUMENT);
  cr_assert(strstr(hal_error_message(), "weight has 6 elements") != NULL, "%s", hal_error_message());
  const hal_value_t right[] = {of_tensor(s.x), {0}, {0}, of_double(eps)};
  cr_assert_eq(run_three("native_layer_norm", right, 4, s.y, other.mean, s.rstd), HAL_INVALID_ARGUMENT);
  cr_assert_eq(run_three("native_layer_norm", right, 4, NULL, s.mean, s.rstd), HAL_INVALID_ARGUMENT);
  sample_free(&s), sample_free(&other);
}
