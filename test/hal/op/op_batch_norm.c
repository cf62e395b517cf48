/* op_batch_norm.c: batch normalization and its gradients, compared with extended precision. */
#include "op_numbers.h"

typedef struct sample_s {
  int64_t batch, channels, inner;
  tensor_t *x, *dy, *y, *dx;                                         /* images */
  tensor_t *weight, *bias, *mean, *rstd, *running[2], *gradients[2]; /* a number per channel */
  int saves; /* evaluation receives mean and rstd; operators of plugins need not write them */
} sample_t;

static const double eps = 1e-3, momentum = 0.3;
static const hal_value_t none = {0};

/* Memory layouts: batch, channels, inner; with channels last: batch, inner, channels. */
static tensor_t *image_new(hal_dtype_t dtype, const sample_t *s, int channels_last) {
  const int64_t sizes[] = {s->batch, s->channels, s->inner};
  tensor_t *t = tensor_new(dtype, 3, sizes, CONTIGUOUS);
  if (channels_last) t->strides[1] = 1, t->strides[2] = s->channels;
  return t;
}

static sample_t sample_new(hal_dtype_t dtype, int64_t batch, int64_t channels, int64_t inner, int channels_last) {
  const hal_dtype_t wide = is_half(dtype) ? HAL_FLOAT32 : dtype;
  sample_t s = {.batch = batch, .channels = channels, .inner = inner};
  tensor_t **const images[] = {&s.x, &s.dy, &s.y, &s.dx};
  tensor_t **const columns[] = {&s.weight,     &s.bias,       &s.mean,         &s.rstd,
                                &s.running[0], &s.running[1], &s.gradients[0], &s.gradients[1]};
  for (int i = 0; i < 4; i++) *images[i] = image_new(dtype, &s, channels_last);
  for (int i = 0; i < 8; i++) *columns[i] = tensor_new(wide, 1, &channels, CONTIGUOUS);
  tensor_fill_ordinary(s.x, 3), tensor_fill_ordinary(s.dy, 4);
  for (int i = 0; i < 6; i++) tensor_fill_ordinary(*columns[i], 5 + (uint64_t)i);
  for (int64_t c = 0; c < channels; c++) { /* variances are positive */
    const number_t variance = {.f = 1 + tensor_get(s.running[1], c).f / 2};
    store(wide, s.running[1]->host + (size_t)c * s.running[1]->element, variance);
  }
  tensor_upload(s.running[1]);
  return s;
}

static void sample_free(sample_t *s) {
  tensor_t *const all[] = {s->x,    s->dy,   s->y,          s->dx,         s->weight,       s->bias,
                           s->mean, s->rstd, s->running[0], s->running[1], s->gradients[0], s->gradients[1]};
  for (int i = 0; i < 12; i++) tensor_free(all[i]);
}

static hal_status_t run_some(const char *name, const hal_value_t *args, uint32_t arg_count, tensor_t *const *outputs,
                             uint32_t count) {
  uint32_t op;
  must(hal_op_id(name, &op));
  const hal_tensor_t *results[5];
  for (uint32_t i = 0; i < count; i++) results[i] = outputs[i] ? &outputs[i]->desc : NULL;
  hal_op_call_t call = {
      .struct_size = sizeof call, .arg_count = arg_count, .result_count = count, .args = args, .results = results};
  return run_planned(0, op, NULL, &call);
}

static hal_value_t of_optional(const tensor_t *t) { return t ? of_tensor(t) : none; }
static hal_value_t of_bool(int flag) { return (hal_value_t){.tag = HAL_VALUE_BOOL, .u.i = flag}; }

static hal_status_t forward(const sample_t *s, int training, const tensor_t *weight, const tensor_t *bias,
                            int running) {
  tensor_t *const mean = running ? s->running[0] : NULL, *const var = running ? s->running[1] : NULL;
  const hal_value_t args[] = {of_tensor(s->x),  of_optional(weight), of_optional(bias),   of_optional(mean),
                              of_optional(var), of_bool(training),   of_double(momentum), of_double(eps)};
  const int saves = training || (running && s->saves);
  tensor_t *const results[] = {s->y, saves ? s->mean : NULL, saves ? s->rstd : NULL, training ? mean : NULL,
                               training ? var : NULL};
  return run_some("native_batch_norm", args, 8, results, 5);
}

static hal_status_t backward(const sample_t *s, int training, const tensor_t *weight, tensor_t *dx, tensor_t *dweight,
                             tensor_t *dbias) {
  const hal_value_t mean = of_tensor(s->running[0]), var = of_tensor(s->running[1]);
  const hal_value_t args[] = {of_tensor(s->dy),
                              of_tensor(s->x),
                              of_optional(weight),
                              training ? none : mean,
                              training ? none : var,
                              training ? of_tensor(s->mean) : none,
                              training ? of_tensor(s->rstd) : none,
                              of_bool(training),
                              of_double(eps)};
  tensor_t *const results[] = {dx, dweight, dbias};
  return run_some("native_batch_norm_backward", args, 9, results, 3);
}

static void near(const char *what, const tensor_t *t, int64_t i, long double want, long double error) {
  const long double got = tensor_get(t, i).f;
  cr_assert(isnan(want) ? isnan(got) : fabsl(got - want) <= error, "%s[%lld]: got %.10Lg, want %.10Lg +- %.2Lg", what,
            (long long)i, got, want, error);
}

/* Element i of channel c, counted over batch and positions. */
static int64_t element(const sample_t *s, int64_t c, int64_t i) {
  return (i / s->inner * s->channels + c) * s->inner + i % s->inner;
}

/* The shift and the scale of a channel's elements, in extended precision. */
typedef struct truth_s {
  long double mean, variance, rstd, weight, bias;
} truth_t;

static truth_t channel_truth(const sample_t *s, int64_t c, int training, int with) {
  const int64_t n = s->batch * s->inner;
  truth_t t = {.weight = with ? tensor_get(s->weight, c).f : 1, .bias = with ? tensor_get(s->bias, c).f : 0};
  if (training) {
    for (int64_t i = 0; i < n; i++) t.mean += tensor_get(s->x, element(s, c, i)).f / n;
    for (int64_t i = 0; i < n; i++) t.variance += powl(tensor_get(s->x, element(s, c, i)).f - t.mean, 2) / n;
  } else {
    t.mean = tensor_get(s->running[0], c).f, t.variance = tensor_get(s->running[1], c).f;
  }
  t.rstd = 1 / sqrtl(t.variance + eps);
  return t;
}

static void check_forward(const sample_t *s, int64_t c, const truth_t *t, int with, long double u, long double uy) {
  for (int64_t i = 0; i < s->batch * s->inner; i++) {
    const long double h = (tensor_get(s->x, element(s, c, i)).f - t->mean) * t->rstd;
    near("result", s->y, element(s, c, i), h * t->weight + t->bias, 50 * u * (1 + t->rstd) + uy * (1 + fabsl(h)));
  }
  (void)with;
}

static void check_backward(const sample_t *s, int64_t c, const truth_t *t, int training, long double u,
                           long double uy) {
  const int64_t n = s->batch * s->inner;
  long double sum = 0, product = 0;
  for (int64_t i = 0; i < n; i++) {
    const long double d = tensor_get(s->dy, element(s, c, i)).f;
    sum += d, product += d * (tensor_get(s->x, element(s, c, i)).f - t->mean) * t->rstd;
  }
  const long double error = 50 * u * (1 + sqrtl((long double)n)) * (1 + t->rstd);
  near("weight's gradient", s->gradients[0], c, product, error),
      near("bias's gradient", s->gradients[1], c, sum, error);
  for (int64_t i = 0; i < n; i++) {
    const long double h = (tensor_get(s->x, element(s, c, i)).f - t->mean) * t->rstd;
    const long double d = tensor_get(s->dy, element(s, c, i)).f;
    const long double want = t->rstd * t->weight * (training ? d - sum / n - h * product / n : d);
    near("input's gradient", s->dx, element(s, c, i), want, (50 * u + uy) * t->rstd * (1 + h * h));
  }
}

static void check_statistics(const sample_t *s, int64_t c, const truth_t *t, const truth_t *old, long double u) {
  const long double n = (long double)(s->batch * s->inner);
  near("mean", s->mean, c, t->mean, 10 * u), near("rstd", s->rstd, c, t->rstd, 20 * u * t->rstd);
  near("running mean", s->running[0], c, (1 - momentum) * old->mean + momentum * t->mean, 20 * u);
  near("running variance", s->running[1], c, (1 - momentum) * old->variance + momentum * t->variance * n / (n - 1),
       20 * u * 3);
}

/* Computes all results; `with` has weight and bias. */
static void check(hal_dtype_t dtype, const int64_t *shape, int channels_last, int training, int with) {
  sample_t s = sample_new(dtype, shape[0], shape[1], shape[2], channels_last);
  s.saves = !getenv("HAL_TEST_OWN");
  const long double u = is_half(dtype) ? 0x1p-24L : roundoff(dtype), uy = is_half(dtype) ? 4 * roundoff(dtype) : 0;
  truth_t *const old = calloc((size_t)s.channels + 1, sizeof *old);
  for (int64_t c = 0; c < s.channels; c++) old[c] = channel_truth(&s, c, 0, with);
  must(forward(&s, training, with ? s.weight : NULL, with ? s.bias : NULL, 1));
  must(backward(&s, training, with ? s.weight : NULL, s.dx, s.gradients[0], s.gradients[1]));
  tensor_t *const results[] = {s.y, s.mean, s.rstd, s.running[0], s.running[1], s.dx, s.gradients[0], s.gradients[1]};
  for (int i = 0; i < 8; i++) tensor_download(results[i]);
  for (int64_t c = 0; c < s.channels; c++) {
    const truth_t t = training ? channel_truth(&s, c, 1, with) : old[c];
    check_forward(&s, c, &t, with, u, uy);
    check_backward(&s, c, &t, training, u, uy);
    if (training) check_statistics(&s, c, &t, &old[c], u);
    if (!training && s.saves)
      near("saved mean", s.mean, c, t.mean, 0), near("saved rstd", s.rstd, c, t.rstd, 4 * u * t.rstd);
  }
  free(old), sample_free(&s);
}

/* Planes of several chunks and several runs, columns of several channels and several adjacent rows, and the
   remainders of each. */
static const int64_t shapes[][3] = {{2, 3, 1},   {5, 70, 1},  {300, 3, 1}, {6, 2, 3},   {9, 33, 5},   {40, 5, 49},
                                    {1, 40, 49}, {3, 2, 64},  {4, 3, 100}, {70, 2, 65}, {2, 2, 4097}, {1, 1, 9001},
                                    {2, 1, 3},   {130, 7, 2}, {1, 200, 7}, {512, 16, 4}};
#define SHAPES (sizeof shapes / sizeof shapes[0])

Test(op_batch_norm, results_gradients_and_running_statistics, .timeout = 120) {
  open_device();
  static const hal_dtype_t dtypes[] = {HAL_FLOAT32, HAL_FLOAT64, HAL_FLOAT16, HAL_BFLOAT16};
  for (size_t i = 0; i < SHAPES; i++)
    for (int k = 0; k < 4; k++)
      for (int way = 0; way < 8; way++) check(dtypes[k], shapes[i], way & 1, way >> 1 & 1, way >> 2);
}

Test(op_batch_norm, one_element_per_channel_has_no_unbiased_variance) {
  open_device();
  sample_t s = sample_new(HAL_FLOAT32, 1, 5, 1, 0);
  must(forward(&s, 1, NULL, s.bias, 1));
  tensor_t *const results[] = {s.y, s.mean, s.rstd, s.running[1]};
  for (int i = 0; i < 4; i++) tensor_download(results[i]);
  for (int64_t c = 0; c < 5; c++) {
    near("result", s.y, c, tensor_get(s.bias, c).f, 0), near("mean", s.mean, c, tensor_get(s.x, c).f, 0);
    near("rstd", s.rstd, c, 1 / sqrtl(eps), 1e-5L), near("running variance", s.running[1], c, NAN, 0);
  }
  sample_free(&s);
}

Test(op_batch_norm, nothing_has_no_mean_and_no_channels_are_no_work) {
  open_device();
  static const int64_t empty[][3] = {{0, 3, 4}, {2, 3, 0}, {2, 0, 4}, {0, 0, 0}};
  for (size_t i = 0; i < 4; i++) {
    sample_t s = sample_new(HAL_FLOAT32, empty[i][0], empty[i][1], empty[i][2], 0);
    must(forward(&s, 1, s.weight, s.bias, 1));
    must(backward(&s, 1, s.weight, s.dx, s.gradients[0], s.gradients[1]));
    must(forward(&s, 0, s.weight, s.bias, 1));
    s.saves = 1; /* no kernel runs that could write them */
    if (empty[i][1]) cr_assert_eq(forward(&s, 0, s.weight, s.bias, 1), HAL_UNIMPLEMENTED);
    must(backward(&s, 0, s.weight, s.dx, s.gradients[0], s.gradients[1]));
    tensor_download(s.mean), tensor_download(s.gradients[1]);
    for (int64_t c = 0; c < empty[i][1]; c++)
      near("mean", s.mean, c, NAN, 0), near("bias's gradient", s.gradients[1], c, 0, 0);
    sample_free(&s);
  }
}

Test(op_batch_norm, nan_and_infinity_stay_in_their_channel) {
  open_device();
  for (int last = 0; last < 2; last++) {
    sample_t s = sample_new(HAL_FLOAT32, 4, 3, 70, last);
    store(HAL_FLOAT32, s.x->host + (size_t)tensor_place(s.x, element(&s, 0, 17)) * 4, (number_t){.f = NAN});
    store(HAL_FLOAT32, s.x->host + (size_t)tensor_place(s.x, element(&s, 2, 99)) * 4, (number_t){.f = INFINITY});
    tensor_upload(s.x);
    must(forward(&s, 1, NULL, NULL, 1));
    tensor_download(s.y), tensor_download(s.running[1]);
    for (int64_t i = 0; i < 4 * 70; i++) {
      cr_assert(isnan(tensor_get(s.y, element(&s, 0, i)).f) && isnan(tensor_get(s.y, element(&s, 2, i)).f));
      cr_assert(isfinite(tensor_get(s.y, element(&s, 1, i)).f));
    }
    cr_assert(isnan(tensor_get(s.running[1], 0).f) && isfinite(tensor_get(s.running[1], 1).f));
    sample_free(&s);
  }
}

/* A deviation of 1/16 around 4096: a variance computed as a difference of mean squares would be noise. */
Test(op_batch_norm, a_large_mean_with_a_small_variance_is_accurate) {
  open_device();
  static const int64_t far[][3] = {{16, 3, 1024}, {2000, 5, 1}, {64, 2, 9}};
  for (size_t i = 0; i < 3; i++) {
    sample_t s = sample_new(HAL_FLOAT32, far[i][0], far[i][1], far[i][2], 0);
    for (int64_t k = 0; k < s.x->numel; k++)
      store(HAL_FLOAT32, s.x->host + k * 4, (number_t){.f = 4096 + tensor_get(s.x, k).f / 16});
    tensor_upload(s.x);
    must(forward(&s, 1, NULL, NULL, 0));
    tensor_download(s.y), tensor_download(s.mean), tensor_download(s.rstd);
    for (int64_t c = 0; c < far[i][1]; c++) {
      const truth_t t = channel_truth(&s, c, 1, 0);
      near("mean", s.mean, c, t.mean, 4096 * 0x1p-23L), near("rstd", s.rstd, c, t.rstd, t.rstd * 1e-4L);
      for (int64_t k = 0; k < far[i][0] * far[i][2]; k++) {
        const int64_t at = element(&s, c, k);
        near("result", s.y, at, (tensor_get(s.x, at).f - t.mean) * t.rstd, t.rstd * 4096 * 0x1p-22L);
      }
    }
    sample_free(&s);
  }
}

Test(op_batch_norm, outputs_that_are_not_requested_are_not_written) {
  open_device();
  sample_t s = sample_new(HAL_FLOAT32, 3, 5, 7, 0);
  tensor_t *const outputs[] = {s.mean, s.rstd, s.running[0], s.running[1], s.gradients[0], s.gradients[1], s.dx};
  unsigned char *before[7];
  for (int i = 0; i < 7; i++) {
    tensor_randomize(outputs[i], (uint64_t)i + 1);
    before[i] = memcpy(malloc((size_t)outputs[i]->numel * 4), outputs[i]->host, (size_t)outputs[i]->numel * 4);
  }
  const hal_value_t args[] = {
      of_tensor(s.x),      none,          none, of_tensor(s.running[0]), of_tensor(s.running[1]), of_bool(1),
      of_double(momentum), of_double(eps)};
  tensor_t *const only_result[5] = {s.y};
  must(run_some("native_batch_norm", args, 8, only_result, 5));
  must(backward(&s, 1, NULL, NULL, NULL, NULL));
  for (int i = 0; i < 7; i++) {
    tensor_download(outputs[i]);
    cr_assert_eq(memcmp(before[i], outputs[i]->host, (size_t)outputs[i]->numel * 4), 0, "output %d was written", i);
    free(before[i]);
  }
  must(backward(&s, 0, NULL, NULL, NULL, s.gradients[1]));
  tensor_download(s.gradients[1]);
  for (int64_t c = 0; c < 5; c++) {
    long double want = 0;
    for (int64_t i = 0; i < 21; i++) want += tensor_get(s.dy, element(&s, c, i)).f;
    near("bias's gradient", s.gradients[1], c, want, 1e-5L);
  }
  sample_free(&s);
}

static void refused(hal_status_t status, const char *message) {
  cr_assert_eq(status, HAL_INVALID_ARGUMENT, "%s", message);
  cr_assert(strstr(hal_error_message(), message) != NULL, "%s", hal_error_message());
}

Test(op_batch_norm, wrong_calls_are_refused_with_a_message) {
  open_device();
  sample_t s = sample_new(HAL_FLOAT32, 3, 5, 4, 0), other = sample_new(HAL_FLOAT64, 3, 6, 4, 1);
  refused(forward(&s, 1, other.weight, NULL, 0),
          "weight has 6 elements of dtype float64; expected 5 contiguous ones of float32");
  refused(forward(&s, 0, NULL, NULL, 0), "running_mean");
  refused(backward(&s, 1, NULL, other.dx, NULL, NULL), "the gradient of the input");
  refused(backward(&s, 1, NULL, NULL, other.weight, NULL), "the gradient of the weight has 6 elements");
  const sample_t crossed = {.x = s.x, .dy = other.dy, .mean = s.mean, .rstd = s.rstd, .running = {s.mean, s.rstd}};
  refused(backward(&crossed, 1, NULL, s.dx, NULL, NULL), "grad_out");
  const sample_t turned = {.x = s.x, .y = image_new(HAL_FLOAT32, &s, 1), .mean = s.mean, .rstd = s.rstd};
  refused(forward(&turned, 1, NULL, NULL, 0), "does not have the memory layout of the input");
  s.x->strides[0] = 1;
  refused(forward(&s, 1, NULL, NULL, 0), "neither contiguous nor has its channels last");
  s.x->desc.ndim = 1;
  refused(forward(&s, 1, NULL, NULL, 0), "the input has 1 dimensions");
  tensor_free(turned.y), sample_free(&s), sample_free(&other);
}

/* All results of a sample of each kind of traversal. */
static void compute(unsigned char *out, size_t size) {
  (void)size;
  static const int64_t large[][3] = {{8, 3, 9000}, {16, 40, 256}, {700, 70, 3}, {3000, 16, 1}};
  for (size_t i = 0; i < 4; i++) {
    sample_t s = sample_new(HAL_FLOAT32, large[i][0], large[i][1], large[i][2], 0);
    must(forward(&s, 1, s.weight, s.bias, 1));
    must(backward(&s, 1, s.weight, s.dx, s.gradients[0], s.gradients[1]));
    tensor_t *const results[] = {s.y, s.dx, s.mean, s.rstd, s.running[1], s.gradients[0]};
    for (int k = 0; k < 6; k++) {
      tensor_download(results[k]);
      memcpy(out, results[k]->host, (size_t)results[k]->numel * 4);
      out += results[k]->numel * 4;
    }
    sample_free(&s);
  }
}

Test(op_batch_norm, bits_do_not_depend_on_threads, .timeout = 60) {
  assert_same_bits(compute, (8 * 3 * 9000 * 2 + 16 * 40 * 256 * 2 + 700 * 70 * 3 * 2 + 3000 * 16 * 2 + 4 * 129) * 4);
}
