/* op_nll.c: the negative log likelihood and its gradient, compared with extended precision. */
#include "op_numbers.h"

enum { NONE, MEAN, SUM };

typedef struct sample_s {
  int64_t n, classes, places, ignore;
  int with_weight;
  tensor_t *x, *target, *weight, *each, *sum, *total, *grad;
} sample_t;

/* Targets are classes, the ignored index and, if `hostile`, numbers that are not classes. */
static sample_t sample_new(hal_dtype_t dtype, int64_t n, int64_t classes, int64_t places, int with_weight,
                           int hostile) {
  const int64_t sizes[] = {n, classes, places}, samples[] = {n, places}, one[] = {1};
  sample_t s = {.n = n, .classes = classes, .places = places, .ignore = 1, .with_weight = with_weight};
  s.x = tensor_new(dtype, 3, sizes, CONTIGUOUS), s.grad = tensor_new(dtype, 3, sizes, CONTIGUOUS);
  s.target = tensor_new(HAL_INT64, 2, samples, CONTIGUOUS), s.each = tensor_new(dtype, 2, samples, CONTIGUOUS);
  s.weight = tensor_new(dtype, 1, &classes, CONTIGUOUS);
  s.sum = tensor_new(dtype, 1, one, CONTIGUOUS), s.total = tensor_new(dtype, 1, one, CONTIGUOUS);
  tensor_fill_ordinary(s.x, 3), tensor_fill_ordinary(s.weight, 4), tensor_fill_ordinary(s.each, 5);
  static const int64_t wrong[] = {-1, INT64_MAX, INT64_MIN, 1 << 30};
  uint64_t state = (uint64_t)n;
  for (int64_t i = 0; i < s.target->numel; i++) {
    const uint32_t r = next_random(&state);
    const int64_t value = hostile && r % 5 == 0 ? wrong[r / 5 % 4] : hostile && r % 5 == 1 ? classes : r % classes;
    memcpy(s.target->host + 8 * i, &value, 8);
  }
  tensor_upload(s.target);
  return s;
}

static void sample_free(sample_t *s) {
  tensor_t *const all[] = {s->x, s->target, s->weight, s->each, s->sum, s->total, s->grad};
  for (int i = 0; i < 7; i++) tensor_free(all[i]);
}

static hal_status_t forward(const sample_t *s, int64_t reduction, const tensor_t *result) {
  uint32_t op;
  must(hal_op_id("nll_loss_forward", &op));
  const hal_value_t args[] = {of_tensor(s->x), of_tensor(s->target),
                              s->with_weight ? of_tensor(s->weight) : (hal_value_t){0}, of_int(reduction),
                              of_int(s->ignore)};
  const hal_tensor_t *const results[] = {&result->desc, &s->total->desc};
  hal_op_call_t call = {
      .struct_size = sizeof call, .arg_count = 5, .result_count = 2, .args = args, .results = results};
  return run_planned(0, op, NULL, &call);
}

static hal_status_t backward(const sample_t *s, int64_t reduction, const tensor_t *grad) {
  const hal_value_t args[] = {
      of_tensor(grad),     of_tensor(s->target), s->with_weight ? of_tensor(s->weight) : (hal_value_t){0},
      of_tensor(s->total), of_int(reduction),    of_int(s->ignore)};
  return run("nll_loss_backward", args, 6, s->grad, 0);
}

static void near(const char *what, const tensor_t *t, int64_t i, long double want, long double error) {
  const long double got = tensor_get(t, i).f;
  cr_assert(fabsl(got - want) <= error || (isnan(got) && isnan(want)), "%s[%lld]: got %.10Lg, want %.10Lg +- %.2Lg",
            what, (long long)i, got, want, error);
}

static void check(hal_dtype_t dtype, int64_t n, int64_t classes, int64_t places, int with_weight) {
  sample_t s = sample_new(dtype, n, classes, places, with_weight, 0);
  const long double u = roundoff(dtype);
  long double sum = 0, total = 0;
  tensor_t *dy = tensor_new(dtype, 2, (int64_t[]){n, places}, CONTIGUOUS);
  tensor_fill_ordinary(dy, 9);
  must(forward(&s, NONE, s.each));
  tensor_download(s.each);
  for (int64_t i = 0; i < s.target->numel; i++) {
    const int64_t t = tensor_get(s.target, i).i;
    const long double w = t == s.ignore ? 0 : with_weight ? tensor_get(s.weight, t).f : 1;
    const long double loss = -w * tensor_get(s.x, (i / places * classes + t) * places + i % places).f;
    near("loss", s.each, i, loss, 2 * u * fabsl(loss));
    sum += loss, total += w;
  }
  must(forward(&s, SUM, s.sum));
  tensor_download(s.sum), tensor_download(s.total);
  near("sum", s.sum, 0, sum, 200 * u * (long double)s.target->numel);
  near("total weight", s.total, 0, total, 200 * u * (long double)s.target->numel);
  must(forward(&s, MEAN, s.sum));
  tensor_download(s.sum);
  near("mean", s.sum, 0, sum / total, 400 * u * (1 + (long double)s.target->numel / fabsl(total)));
  for (int64_t reduction = NONE; reduction <= SUM; reduction++) {
    tensor_randomize(s.grad, 1);
    must(backward(&s, reduction, reduction == NONE ? dy : s.sum));
    tensor_download(s.grad);
    for (int64_t i = 0; i < s.grad->numel; i++) {
      const int64_t c = i / places % classes, at = i / places / classes * places + i % places;
      const int64_t t = tensor_get(s.target, at).i;
      const long double w = with_weight ? tensor_get(s.weight, c).f : 1;
      const long double d =
          reduction == NONE ? tensor_get(dy, at).f : tensor_get(s.sum, 0).f / (reduction == MEAN ? total : 1);
      const long double want = t == c && t != s.ignore ? -w * d : 0;
      near("gradient", s.grad, i, want, 400 * u * (fabsl(want) + (reduction == MEAN ? fabsl(d) : 0)));
    }
  }
  tensor_free(dy), sample_free(&s);
}

Test(op_nll, losses_sums_and_gradients, .timeout = 60) {
  open_device();
  static const int64_t shapes[][3] = {{1, 3, 1}, {70, 5, 1}, {9001, 3, 1}, {3, 4, 7}, {2, 5, 90}, {40, 2, 300}};
  for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
    for (int with_weight = 0; with_weight < 2; with_weight++) {
      check(HAL_FLOAT32, shapes[i][0], shapes[i][1], shapes[i][2], with_weight);
      check(HAL_FLOAT64, shapes[i][0], shapes[i][1], shapes[i][2], with_weight);
    }
}

/* The launch reports it if streams are synchronous; otherwise the next synchronization reports it, once. */
static void expect_report(hal_status_t status, const char *what) {
  status = status ? status : hal_device_synchronize(0);
  cr_assert_eq(status, HAL_OUT_OF_RANGE, "%s", hal_status_name(status));
  cr_assert(strstr(hal_error_message(), what) != NULL, "%s", hal_error_message());
  must(hal_device_synchronize(0));
}

/* The weights are at the end of their block, so that the sanitizers detect a read past them. */
Test(op_nll, targets_that_are_no_class_are_not_followed_and_reported) {
  open_device();
  for (int64_t places = 1; places < 8; places += 6) {
    sample_t s = sample_new(HAL_FLOAT32, 60, 3, places, 1, 1);
    expect_report(forward(&s, NONE, s.each), "nll_loss_forward: Target ");
    expect_report(forward(&s, SUM, s.sum), "is out of bounds: the input has 3 classes");
    tensor_download(s.each), tensor_download(s.sum), tensor_download(s.total);
    cr_assert(isnan(tensor_get(s.sum, 0).f) && isnan(tensor_get(s.total, 0).f));
    for (int64_t i = 0; i < s.target->numel; i++) {
      const int64_t t = tensor_get(s.target, i).i;
      cr_assert_eq(!!isnan(tensor_get(s.each, i).f), t < 0 || t >= 3, "target %lld", (long long)t);
    }
    tensor_t *dy = tensor_new(HAL_FLOAT32, 2, (int64_t[]){60, places}, CONTIGUOUS);
    tensor_fill_ordinary(dy, 9);
    expect_report(backward(&s, NONE, dy), "nll_loss_backward: Target ");
    tensor_download(s.grad);
    for (int64_t i = 0; i < s.grad->numel; i++) cr_assert(!isnan(tensor_get(s.grad, i).f));
    tensor_free(dy), sample_free(&s);
  }
}

Test(op_nll, wrong_calls_are_refused_with_a_message) {
  open_device();
  sample_t s = sample_new(HAL_FLOAT32, 6, 3, 1, 1, 0), other = sample_new(HAL_FLOAT32, 5, 4, 1, 1, 0);
  cr_assert_eq(forward(&s, 3, s.each), HAL_INVALID_ARGUMENT);
  cr_assert(strstr(hal_error_message(), "unknown reduction 3") != NULL, "%s", hal_error_message());
  cr_assert_eq(forward(&s, NONE, other.each), HAL_INVALID_ARGUMENT);
  cr_assert_eq(forward(&s, SUM, s.each), HAL_INVALID_ARGUMENT);
  tensor_t *const target = s.target;
  s.target = other.target;
  cr_assert_eq(forward(&s, SUM, s.sum), HAL_INVALID_ARGUMENT);
  cr_assert(strstr(hal_error_message(), "target has 2 dimensions and 5 elements") != NULL, "%s", hal_error_message());
  s.target = target;
  sample_free(&s), sample_free(&other);
}
