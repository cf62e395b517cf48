/* op_softmax.c: softmax, log_softmax and their gradients compared with extended precision, over each dimension in
 * each layout. */
#include "op_numbers.h"

static int64_t row_index(const tensor_t *t, int dim, int64_t row, int64_t j) { /* logical index of element j of a row */
  int64_t inner = 1;
  for (int32_t d = dim + 1; d < t->desc.ndim; d++) inner *= t->sizes[d];
  return (row / inner * t->sizes[dim] + j) * inner + row % inner;
}

/* Fills with numbers of a range that overflows exp without the subtraction of the maximum. */
static void fill_wide(tensor_t *t, uint64_t seed) {
  uint64_t state = seed;
  for (int64_t i = 0; i < t->storage; i++)
    store(t->desc.dtype, t->host + (size_t)i * t->element, (number_t){0, (int32_t)next_random(&state) % 2001 * 0.05L});
  tensor_upload(t);
}

static void forward(const tensor_t *x, int dim, int64_t row, int log, long double *out) {
  const int64_t n = x->sizes[dim];
  long double top = -INFINITY, sum = 0;
  for (int64_t j = 0; j < n; j++) top = fmaxl(top, tensor_get(x, row_index(x, dim, row, j)).f);
  for (int64_t j = 0; j < n; j++) sum += expl(tensor_get(x, row_index(x, dim, row, j)).f - top);
  for (int64_t j = 0; j < n; j++) {
    const long double v = tensor_get(x, row_index(x, dim, row, j)).f - top;
    out[j] = log ? v - logl(sum) : expl(v) / sum;
  }
}

static void check(hal_dtype_t dtype, int32_t ndim, const int64_t *sizes, int dim, enum layout in, enum layout out) {
  const int64_t n = sizes[dim];
  const long double eps = roundoff(dtype);
  tensor_t *x = tensor_new(dtype, ndim, sizes, in), *y = tensor_new(dtype, ndim, sizes, out),
           *g = tensor_new(dtype, ndim, sizes, in), *r = tensor_new(dtype, ndim, sizes, out);
  long double *want = calloc((size_t)n + 1, sizeof *want);
  fill_wide(x, (uint64_t)n), tensor_fill_ordinary(g, 7);
  for (int log = 0; log < 2; log++) {
    const hal_value_t args[] = {of_tensor(x), of_int(dim % 2 ? dim : dim - ndim)};
    must(run(log ? "_log_softmax" : "_softmax", args, 2, y, 0));
    tensor_download(y);
    const hal_value_t back[] = {of_tensor(g), of_tensor(y), of_int(dim)};
    must(run(log ? "_log_softmax_backward_data" : "_softmax_backward_data", back, 3, r, 0));
    tensor_download(r);
    for (int64_t row = 0; row < (n ? x->numel / n : 0); row++) {
      long double total = 0, magnitude = 0;
      forward(x, dim, row, log, want);
      for (int64_t j = 0; j < n;
           j++) { /* differences of inputs up to 100 round to 100 eps, and so do their exponentials */
        const int64_t at = row_index(y, dim, row, j);
        const long double got = tensor_get(y, at).f,
                          error = log ? 8 * eps * (fabsl(want[j]) + 100) : 220 * eps * want[j] + 1e-44L;
        cr_assert(fabsl(got - want[j]) <= error, "log %d dim %d of %lld layout %d %d: got %.9Lg, want %.9Lg", log, dim,
                  (long long)n, (int)in, (int)out, got, want[j]);
        const long double term = tensor_get(g, at).f * (log ? 1 : got);
        total += term;
        magnitude += fabsl(term);
      }
      for (int64_t j = 0; j < n; j++) { /* the gradient of the device's output */
        const int64_t at = row_index(y, dim, row, j);
        const long double grad = tensor_get(g, at).f, output = tensor_get(y, at).f,
                          factor = log ? expl(output) : output;
        const long double exact = log ? grad - factor * total : (grad - total) * factor;
        const long double error =
            eps * (8 * (log ? 1 : factor) * (fabsl(grad) + fabsl(total)) + 32 * factor * magnitude +
                   (log ? 4 * fabsl(exact) + 8 * factor * fabsl(total) : 0)) +
            1e-44L;
        cr_assert(fabsl(tensor_get(r, at).f - exact) <= error,
                  "backward, log %d dim %d of %lld layout %d %d: got %.9Lg, want %.9Lg", log, dim, (long long)n,
                  (int)in, (int)out, tensor_get(r, at).f, exact);
      }
    }
  }
  free(want), tensor_free(x), tensor_free(y), tensor_free(g), tensor_free(r);
}

static const struct {
  int32_t ndim;
  int64_t sizes[MAX_DIMS];
} shapes[] = {{1, {1}},          {1, {300}},     {2, {70, 10}},    {2, {9, 31}},     {2, {9, 32}},
              {2, {3, 1000}},    {2, {1000, 3}}, {3, {5, 33, 70}}, {3, {4, 130, 5}}, {4, {2, 3, 4, 65}},
              {4, {3, 2, 5, 2}}, {2, {0, 5}},    {2, {5, 0}}};

Test(op_softmax, every_dimension_in_every_layout, .timeout = 120) {
  open_device();
  for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
    for (int dim = 0; dim < shapes[s].ndim; dim++)
      for (enum layout in = CONTIGUOUS; in < LAYOUTS; in++)
        for (enum layout out = CONTIGUOUS; out < BROADCAST_ALL; out++)
          for (int wide = 0; wide < 2; wide++)
            check(wide ? HAL_FLOAT64 : HAL_FLOAT32, shapes[s].ndim, shapes[s].sizes, dim, in, out);
}

Test(op_softmax, rows_add_up_to_1_and_infinities_are_torchs) {
  open_device();
  static const int64_t sizes[] = {4, 40};
  tensor_t *x = tensor_new(HAL_FLOAT32, 2, sizes, CONTIGUOUS), *y = tensor_new(HAL_FLOAT32, 2, sizes, CONTIGUOUS);
  tensor_fill_ordinary(x, 1);
  float *v = (void *)x->host;
  v[3] = -INFINITY;                                    /* row 0: probability 0 */
  v[40 + 5] = NAN;                                     /* row 1: all NaN */
  v[80 + 39] = INFINITY;                               /* row 2: all NaN, like inf - inf */
  for (int j = 0; j < 40; j++) v[120 + j] = -INFINITY; /* row 3: all NaN */
  tensor_upload(x);
  const hal_value_t args[] = {of_tensor(x), of_int(1)};
  must(run("_softmax", args, 2, y, 0));
  tensor_download(y);
  long double sum = 0;
  for (int64_t j = 0; j < 40; j++) {
    sum += tensor_get(y, j).f;
    cr_assert(isnan(tensor_get(y, 40 + j).f) && isnan(tensor_get(y, 120 + j).f));
  }
  cr_assert_eq(tensor_get(y, 3).f, 0);
  cr_assert(isnan(tensor_get(y, 119).f));
  cr_assert(fabsl(sum - 1) < 1e-6L);
  tensor_free(x), tensor_free(y);
}

Test(op_softmax, the_result_may_be_the_operand) {
  open_device();
  for (int dim = 0; dim < 2; dim++) {
    static const int64_t sizes[] = {50, 70};
    tensor_t *x = tensor_new(HAL_FLOAT32, 2, sizes, CONTIGUOUS), *y = tensor_new(HAL_FLOAT32, 2, sizes, CONTIGUOUS);
    fill_wide(x, 3);
    const hal_value_t args[] = {of_tensor(x), of_int(dim)};
    must(run("_softmax", args, 2, y, 0));
    must(run("_softmax", args, 2, x, 0));
    tensor_download(x), tensor_download(y);
    cr_assert_eq(memcmp(x->host, y->host, sizeof(float) * 50 * 70), 0);
    tensor_free(x), tensor_free(y);
  }
}

Test(op_softmax, wrong_calls_are_refused) {
  open_device();
  static const int64_t sizes[] = {5, 7}, other[] = {7, 5};
  tensor_t *x = tensor_new(HAL_FLOAT32, 2, sizes, CONTIGUOUS), *y = tensor_new(HAL_FLOAT32, 2, other, CONTIGUOUS);
  hal_value_t args[] = {of_tensor(x), of_int(1)};
  cr_assert_eq(run("_softmax", args, 2, y, 0), HAL_INVALID_ARGUMENT);
  args[1] = of_int(2);
  cr_assert_eq(run("_softmax", args, 2, x, 0), HAL_INVALID_ARGUMENT);
  cr_assert(strstr(hal_error_message(), "dimension 2") != NULL, "%s", hal_error_message());
  tensor_free(x), tensor_free(y);
}

static void compute_softmax(unsigned char *out, size_t size) {
  static const int64_t sizes[] = {300, 310};
  tensor_t *x = tensor_new(HAL_FLOAT32, 2, sizes, CONTIGUOUS), *y = tensor_new(HAL_FLOAT32, 2, sizes, CONTIGUOUS);
  fill_wide(x, 3);
  for (int dim = 0; dim < 2; dim++) {
    const hal_value_t args[] = {of_tensor(x), of_int(dim)};
    must(run("_log_softmax", args, 2, y, 0));
    tensor_download(y);
    memcpy(out + (size_t)dim * size / 2, y->host, size / 2);
  }
  tensor_free(x), tensor_free(y);
}

Test(op_softmax, bits_do_not_depend_on_threads_or_mode) { assert_same_bits(compute_softmax, 2 * 300 * 310 * 4); }
