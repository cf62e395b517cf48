/* op_convolution.c: convolutions and their gradients, plain and transposed, compared with loops in C. Operands are
 * small integers, so that each sum is exact in float32 and in float64. */
#include "op_numbers.h"

typedef struct case_s {
  const char *what;
  int64_t batch, groups, large, small; /* channels per group */
  int64_t in[3], size[3], step[3], pad[3], dilation[3];
} case_t;

static const case_t cases[] = {
    {"few channels", 2, 3, 1, 2, {5, 6, 7}, {2, 3, 2}, {2, 1, 3}, {1, 1, 0}, {1, 2, 1}},
    {"few channels, steps and dilations", 1, 3, 1, 1, {1, 9, 8}, {1, 3, 2}, {1, 4, 3}, {0, 2, 1}, {1, 2, 3}},
    {"depthwise, in bands", 2, 5, 1, 1, {1, 75, 131}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}},
    {"depthwise, wider than a band", 1, 3, 1, 1, {1, 3, 9001}, {1, 2, 3}, {1, 1, 2}, {0, 1, 1}, {1, 1, 2}},
    {"depthwise, small planes", 3, 7, 1, 1, {1, 7, 7}, {1, 3, 3}, {1, 2, 2}, {0, 1, 1}, {1, 1, 1}},
    {"depthwise, steps beyond the window", 2, 4, 1, 2, {2, 11, 10}, {1, 2, 1}, {2, 3, 4}, {0, 1, 0}, {1, 2, 1}},
    {"depthwise, volumes", 2, 3, 2, 1, {5, 6, 7}, {3, 3, 2}, {1, 2, 1}, {1, 0, 1}, {2, 1, 3}},
    {"depthwise, a window of 143 places", 1, 2, 1, 1, {1, 15, 14}, {1, 11, 13}, {1, 1, 1}, {0, 5, 6}, {1, 1, 1}},
    {"depthwise, few planes of many images", 40, 1, 1, 1, {1, 9, 5}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}},
    {"groups", 2, 2, 5, 7, {5, 6, 7}, {2, 3, 2}, {2, 1, 3}, {1, 1, 0}, {1, 2, 1}},
    {"sums of several blocks", 3, 1, 37, 9, {1, 9, 41}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}},
    {"steps beyond the window", 2, 1, 6, 5, {1, 11, 13}, {1, 2, 1}, {1, 3, 5}, {0, 0, 0}, {1, 1, 1}},
    {"steps beyond the image", 2, 1, 6, 5, {1, 3, 2}, {1, 2, 1}, {1, 9, 8}, {0, 0, 0}, {1, 1, 1}},
    {"steps and dilations with common divisors", 1, 1, 6, 5, {1, 23, 19}, {1, 4, 3}, {1, 4, 6}, {0, 3, 2}, {1, 6, 4}},
    {"a window of 343 places", 1, 1, 5, 4, {8, 7, 9}, {7, 7, 7}, {1, 1, 1}, {3, 3, 3}, {1, 1, 1}},
    {"images of one place", 70, 1, 20, 3, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}},
    {"images smaller than a piece", 9, 1, 8, 8, {1, 4, 4}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}},
    {"more rows than a tile", 1, 1, 3, 203, {1, 6, 17}, {1, 3, 3}, {1, 2, 2}, {0, 1, 1}, {1, 1, 1}},
    {"padding beyond the window", 2, 1, 5, 6, {1, 3, 4}, {1, 2, 3}, {1, 2, 1}, {0, 5, 7}, {1, 1, 2}},
    {"windows of whole rows", 2, 1, 4, 9, {3, 5, 16}, {3, 1, 16}, {1, 1, 1}, {1, 0, 0}, {1, 1, 1}},
};

static void sizes_of(const case_t *c, int64_t large[5], int64_t small[5], int64_t weight[5]) {
  large[0] = small[0] = c->batch;
  large[1] = c->groups * c->large, small[1] = weight[0] = c->groups * c->small, weight[1] = c->large;
  for (int d = 0; d < 3; d++) {
    large[2 + d] = c->in[d], weight[2 + d] = c->size[d];
    small[2 + d] = (c->in[d] + 2 * c->pad[d] - c->dilation[d] * (c->size[d] - 1) - 1) / c->step[d] + 1;
    if (c->dilation[d] * (c->size[d] - 1) + 1 > c->in[d] + 2 * c->pad[d]) small[2 + d] = 1; /* no window fits */
  }
}

typedef struct sums_s {
  double *large, *weight, *small; /* operands */
  double *to_large, *to_weight, *to_small;
} sums_t;

/* Adds each product of the convolution to its element of the results. */
static void add_products(const case_t *c, const int64_t *large, const int64_t *small, const sums_t *sums) {
  const int64_t places = c->size[0] * c->size[1] * c->size[2], columns = small[2] * small[3] * small[4];
  for (int64_t s = 0; s < small[0] * small[1] * columns; s++) {
    const int64_t o = s / columns % small[1], n = s / columns / small[1];
    const int64_t x0 = s % small[4], y0 = s / small[4] % small[3], z0 = s / small[4] / small[3] % small[2];
    for (int64_t p = 0; p < places; p++) {
      const int64_t z = z0 * c->step[0] - c->pad[0] + p / c->size[2] / c->size[1] * c->dilation[0];
      const int64_t y = y0 * c->step[1] - c->pad[1] + p / c->size[2] % c->size[1] * c->dilation[1];
      const int64_t x = x0 * c->step[2] - c->pad[2] + p % c->size[2] * c->dilation[2];
      if (z < 0 || z >= large[2] || y < 0 || y >= large[3] || x < 0 || x >= large[4]) continue;
      for (int64_t i = 0; i < c->large; i++) {
        const int64_t l = at5(large, n, o / c->small * c->large + i, z, y, x), w = (o * c->large + i) * places + p;
        sums->to_small[s] += sums->large[l] * sums->weight[w];
        sums->to_large[l] += sums->small[s] * sums->weight[w];
        sums->to_weight[w] += sums->small[s] * sums->large[l];
      }
    }
  }
}

/* The tensors in channels-last order. */
enum { LARGE = 1, SMALL = 2, WEIGHT = 4, ALL = 7 };

/* A tensor in channels-last order if it is one of `last`. */
static tensor_t *image_new(hal_dtype_t dtype, int32_t ndim, const int64_t *sizes, int last) {
  tensor_t *t = tensor_new(dtype, ndim, sizes, CONTIGUOUS);
  int64_t next = ndim == 5 ? sizes[1] : 1;
  for (int32_t d = 4; ndim == 5 && last && d >= 0; d--) {
    if (d != 1) t->strides[d] = next, next *= sizes[d];
    if (d == 1) t->strides[1] = 1;
  }
  return t;
}

/* Small integers on the device, and as doubles. */
static tensor_t *small_numbers(hal_dtype_t dtype, int32_t ndim, const int64_t *sizes, int seed, double **out_numbers,
                               int last) {
  tensor_t *t = image_new(dtype, ndim, sizes, last);
  *out_numbers = calloc((size_t)t->numel + 1, sizeof **out_numbers);
  for (int64_t k = 0; k < t->numel; k++) {
    (*out_numbers)[k] = (double)((k * 7 + k / 9 * 5 + seed) % 9 - 4);
    store(dtype, t->host + (size_t)tensor_place(t, k) * t->element, (number_t){.f = (*out_numbers)[k]});
  }
  tensor_upload(t);
  return t;
}

/* A number rounded to a dtype. */
static long double rounded(hal_dtype_t dtype, double number) {
  unsigned char bytes[8];
  store(dtype, bytes, (number_t){.f = number});
  return load(dtype, bytes).f;
}

static void expect(const case_t *c, const char *what, tensor_t *got, const double *want, const double *bias) {
  tensor_download(got);
  const int64_t places = got->numel / (got->sizes[0] * got->sizes[1]);
  /* A vendor's library adds the bias in a second kernel, and rounds before it (plugins/cuda/README.md). */
  const int twice = bias && getenv("HAL_TEST_OWN");
  for (int64_t k = 0; k < got->numel; k++) {
    const double sum = twice ? (double)rounded(got->desc.dtype, want[k]) : want[k];
    cr_assert_eq(tensor_get(got, k).f, rounded(got->desc.dtype, sum + (bias ? bias[k / places % got->sizes[1]] : 0)),
                 "%s, %s: element %lld of dtype %d", c->what, what, (long long)k, (int)got->desc.dtype);
  }
}

/* An unwritten result holds NaN. */
static tensor_t *unwritten(hal_dtype_t dtype, const int64_t *sizes, int last) {
  tensor_t *t = image_new(dtype, 5, sizes, last);
  for (int64_t k = 0; k < t->numel; k++)
    store(dtype, t->host + (size_t)k * t->element, (number_t){.f = (long double)NAN});
  tensor_upload(t);
  return t;
}

static void check(const case_t *c, hal_dtype_t dtype, int transposed, int last) {
  int64_t large[5], small[5], weight[5], zero[] = {0, 0, 0};
  sizes_of(c, large, small, weight);
  sums_t sums;
  double *bias_numbers;
  tensor_t *l = small_numbers(dtype, 5, large, 1, &sums.large, last & LARGE);
  tensor_t *w = small_numbers(dtype, 5, weight, 2, &sums.weight, last & WEIGHT);
  tensor_t *s = small_numbers(dtype, 5, small, 3, &sums.small, last & SMALL);
  double *memory = calloc((size_t)(l->numel + w->numel + s->numel), sizeof *memory);
  sums.to_large = memory, sums.to_weight = memory + l->numel, sums.to_small = memory + l->numel + w->numel;
  add_products(c, large, small, &sums);
  tensor_t *input = transposed ? s : l, *grad = transposed ? l : s;
  tensor_t *result = unwritten(dtype, transposed ? large : small, last & LARGE);
  tensor_t *to_weight = unwritten(dtype, weight, last & WEIGHT);
  tensor_t *to_input = unwritten(dtype, transposed ? small : large, last & SMALL);
  tensor_t *bias = small_numbers(dtype, 1, &result->sizes[1], 5, &bias_numbers, 0);
  hal_value_t args[] = {of_tensor(input),    of_tensor(w),       of_tensor(bias),
                        of_list(c->step, 3), of_list(c->pad, 3), of_list(c->dilation, 3),
                        of_int(transposed),  of_list(zero, 3),   of_int(c->groups)};
  must(run("convolution_overrideable", args, 9, result, 0));
  expect(c, "with a bias", result, transposed ? sums.to_large : sums.to_small, bias_numbers);
  args[2].tag = HAL_VALUE_NONE;
  must(run("convolution_overrideable", args, 9, result, 0));
  expect(c, "without a bias", result, transposed ? sums.to_large : sums.to_small, NULL);
  args[0] = of_tensor(grad), args[1] = of_tensor(input), args[2] = of_tensor(w);
  must(run_two("convolution_backward_overrideable", args, 9, to_input, to_weight));
  expect(c, "gradient of the input", to_input, transposed ? sums.to_small : sums.to_large, NULL);
  expect(c, "gradient of the weight", to_weight, sums.to_weight, NULL);
  tensor_free(result), tensor_free(to_input), tensor_free(to_weight), tensor_free(bias);
  tensor_free(l), tensor_free(w), tensor_free(s);
  free(memory), free(sums.large), free(sums.weight), free(sums.small), free(bias_numbers);
}

Test(op_convolution, results_and_gradients_are_the_sums_of_all_products, .timeout = 300) {
  open_device();
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    for (int transposed = 0; transposed < 2; transposed++)
      for (int dtype = 0; dtype < 2; dtype++) check(&cases[i], dtype ? HAL_FLOAT64 : HAL_FLOAT32, transposed, 0);
  }
}

/* Devices that compute in half precision: each sum is accumulated in float32 and rounded once. */
Test(op_convolution, half_precision_is_rounded_once, .timeout = 300) {
  open_device();
  uint32_t op;
  must(hal_op_id("convolution_overrideable", &op));
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    for (int transposed = 0; transposed < 2; transposed++)
      for (int t = 0; t < 2; t++) {
        const hal_dtype_t dtype = t ? HAL_BFLOAT16 : HAL_FLOAT16;
        if (hal_op_dtypes(0, op) >> dtype & 1) check(&cases[i], dtype, transposed, t ? ALL : 0);
      }
}

/* Kernels that read the layout without a copy. */
Test(op_convolution, channels_may_come_last, .timeout = 300) {
  open_device();
  static const int orders[] = {ALL, LARGE, SMALL, WEIGHT, LARGE | WEIGHT};
  uint32_t op;
  must(hal_op_id("convolution_overrideable", &op));
  if (!hal_op_takes_channels_last(0, op)) return;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    for (int transposed = 0; transposed < 2; transposed++)
      check(&cases[i], HAL_FLOAT32, transposed, orders[(i + (size_t)transposed) % 5]);
}

/* The gradients of a convolution whose sums are split into blocks and parts. */
static void compute_gradients(unsigned char *out, size_t size) {
  const int64_t large[] = {6, 20, 1, 24, 24}, small[] = {6, 12, 1, 12, 12}, weight[] = {12, 20, 1, 3, 3};
  const int64_t step[] = {1, 2, 2}, pad[] = {0, 1, 1}, one[] = {1, 1, 1}, zero[] = {0, 0, 0};
  tensor_t *x = tensor_new(HAL_FLOAT32, 5, large, CONTIGUOUS), *w = tensor_new(HAL_FLOAT32, 5, weight, CONTIGUOUS);
  tensor_t *g = tensor_new(HAL_FLOAT32, 5, small, CONTIGUOUS), *to_x = unwritten(HAL_FLOAT32, large, 0),
           *to_w = unwritten(HAL_FLOAT32, weight, 0);
  tensor_fill_ordinary(x, 1), tensor_fill_ordinary(w, 2), tensor_fill_ordinary(g, 3);
  const hal_value_t args[] = {of_tensor(g),    of_tensor(x), of_tensor(w),     of_list(step, 3), of_list(pad, 3),
                              of_list(one, 3), of_int(0),    of_list(zero, 3), of_int(1)};
  must(run_two("convolution_backward_overrideable", args, 9, to_x, to_w));
  tensor_download(to_x), tensor_download(to_w);
  const size_t first = (size_t)to_x->numel * 4;
  cr_assert_eq(first + (size_t)to_w->numel * 4, size);
  memcpy(out, to_x->host, first), memcpy(out + first, to_w->host, size - first);
}

Test(op_convolution, bits_do_not_depend_on_threads_or_mode) {
  assert_same_bits(compute_gradients, (6 * 20 * 24 * 24 + 12 * 20 * 9) * 4);
}

Test(op_convolution, wrong_calls_are_refused_with_a_message) {
  open_device();
  const case_t *c = &cases[2];
  int64_t large[5], small[5], weight[5], zero[] = {0, 0, 0}, huge[] = {1, (int64_t)1 << 40, 1};
  sizes_of(c, large, small, weight);
  double *numbers[4];
  const int64_t two = 2;
  tensor_t *l = small_numbers(HAL_FLOAT32, 5, large, 1, &numbers[0], 0),
           *w = small_numbers(HAL_FLOAT32, 5, weight, 2, &numbers[1], 0);
  tensor_t *other = small_numbers(HAL_FLOAT64, 5, weight, 2, &numbers[2], 0),
           *b = small_numbers(HAL_FLOAT32, 1, &two, 2, &numbers[3], 0);
  tensor_t *result = unwritten(HAL_FLOAT32, small, 0), *to_weight = unwritten(HAL_FLOAT32, weight, 0),
           *to_input = unwritten(HAL_FLOAT32, large, 0);
  const hal_value_t right[] = {of_tensor(l),        of_tensor(w),       {.tag = HAL_VALUE_NONE},
                               of_list(c->step, 3), of_list(c->pad, 3), of_list(c->dilation, 3),
                               of_int(0),           of_list(zero, 3),   of_int(c->groups)};
  const struct {
    int argument;
    hal_value_t value;
    const char *message;
  } wrong[] = {
      {1, of_tensor(other), "float64"}, {2, of_tensor(b), "bias"},         {3, of_list(zero, 3), "stride"},
      {4, of_list(huge, 3), "padding"}, {5, of_list(huge, 3), "dilation"}, {3, of_list(c->step, 2), "stride"},
      {8, of_int(3), "groups"},         {8, of_int(0), "groups"},          {0, of_int(1), "input"},
  };
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    hal_value_t args[9];
    memcpy(args, right, sizeof args);
    args[wrong[i].argument] = wrong[i].value;
    cr_assert_eq(run("convolution_overrideable", args, 9, result, 0), HAL_INVALID_ARGUMENT, "%s", wrong[i].message);
    cr_assert(strstr(hal_error_message(), wrong[i].message), "%s", hal_error_message());
  }
  hal_value_t args[9];
  memcpy(args, right, sizeof args);
  args[0] = of_tensor(result), args[1] = of_tensor(l), args[2] = of_tensor(w);
  cr_assert_eq(run_two("convolution_backward_overrideable", args, 9, to_weight, to_weight), HAL_INVALID_ARGUMENT);
  args[8] = of_int(3); /* channels do not divide */
  cr_assert_eq(run_two("convolution_backward_overrideable", args, 9, to_input, to_weight), HAL_INVALID_ARGUMENT);
  tensor_free(l), tensor_free(w), tensor_free(other), tensor_free(b), tensor_free(result), tensor_free(to_weight),
      tensor_free(to_input);
  for (int i = 0; i < 4; i++) free(numbers[i]);
}
