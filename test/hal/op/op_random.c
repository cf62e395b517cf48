/* op_random.c: uniform, normal and bernoulli: the formulas of hal/plugin.h literally, agreement with the archive's
 * default of random_fill, and statistics. */
#include "device/device.h"
#include "op_numbers.h"
#include "plugin/call.h"

enum { COUNT = 100003 };
static const uint64_t seed = UINT64_C(0x9E3779B97F4A7C15);

static const uint64_t *random_state; /* of the next run: in device memory, or NULL */

static hal_status_t random_run(const char *name, double p0, double p1, uint64_t key, uint64_t offset,
                               const tensor_t *r) {
  uint32_t op;
  must(hal_op_id(name, &op));
  const hal_value_t args[] = {of_double(p0), of_double(p1)};
  const hal_tensor_t *const results[] = {&r->desc};
  hal_op_call_t call = {.struct_size = sizeof call,
                        .arg_count = name[0] == 'b' ? 1 : 2,
                        .result_count = 1,
                        .args = args,
                        .results = results,
                        .seed = key,
                        .offset = offset,
                        .random_state = random_state};
  return run_planned(0, op, NULL, &call);
}

static tensor_t *vector(hal_dtype_t dtype, int64_t count) { return tensor_new(dtype, 1, &count, CONTIGUOUS); }

/* The words of element i of a tensor: one word, or two with the low word first. */
static uint64_t word_of(hal_dtype_t dtype, uint64_t offset, int64_t i) {
  uint32_t words[4];
  if (element_size(dtype) == 8) {
    hal_generator_philox(seed, offset + (uint64_t)i / 2, 0, words);
    return words[i % 2 * 2] | (uint64_t)words[i % 2 * 2 + 1] << 32;
  }
  hal_generator_philox(seed, offset + (uint64_t)i / 4, 0, words);
  return words[i % 4];
}

static const uint64_t offsets[] = {0, 5, UINT64_C(0xFFFFFFF0), UINT64_MAX - 3}; /* carries into the second word, and
                                                                                   wraps */

Test(op_random, philox_words_are_those_of_the_paper) {
  /* Random123's known answers. bernoulli with p = k / 2^24 shows whether the high 24 bits of the word are below k;
   * bisection finds all 96 bits of the device. */
  open_device();
  static const struct {
    uint64_t seed, offset;
    uint32_t words[4];
  } known = {0, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}};
  tensor_t *r = vector(HAL_UINT8, 4);
  for (int w = 0; w < 4; w++) {
    const double k = known.words[w] >> 8;
    must(random_run("bernoulli.p", k * 0x1p-24, 0, known.seed, known.offset, r));
    tensor_download(r);
    cr_assert_eq(tensor_get(r, w).i, 0, "word %d", w);
    must(random_run("bernoulli.p", (k + 1) * 0x1p-24, 0, known.seed, known.offset, r));
    tensor_download(r);
    cr_assert_eq(tensor_get(r, w).i, 1, "word %d", w);
  }
  tensor_free(r);
}

Test(op_random, uniform_is_the_formula_bit_for_bit) {
  open_device();
  static const double limits[][2] = {{0, 1}, {-3, 5}, {1e6, 1e6 + 1}, {2, 2}, {-1e-3, 1e30}};
  for (int wide = 0; wide < 2; wide++)
    for (size_t o = 0; o < 4; o++)
      for (size_t l = 0; l < 5; l++) {
        tensor_t *r = vector(wide ? HAL_FLOAT64 : HAL_FLOAT32, COUNT);
        must(random_run("uniform", limits[l][0], limits[l][1], seed, offsets[o], r));
        tensor_download(r);
        for (int64_t i = 0; i < COUNT; i++) {
          const uint64_t word = word_of(r->desc.dtype, offsets[o], i);
          const double low = limits[l][0], high = limits[l][1], u = (double)(word >> 11) * 0x1p-53;
          const volatile float range = (float)(high - low), scaled = range * ((float)(word >> 8) * 0x1p-24f);
          const volatile float narrow = (float)low + scaled;
          const volatile double wide_scaled = (high - low) * u, wide_sum = low + wide_scaled;
          const double want = wide ? (wide_sum >= high ? low : wide_sum) : narrow >= (float)high ? (float)low : narrow;
          cr_assert_eq((double)tensor_get(r, i).f, want, "element %lld: got %.17Lg, want %.17g", (long long)i,
                       tensor_get(r, i).f, want);
          cr_assert(want >= (wide ? low : (float)low) && (want < high || low == high));
        }
        tensor_free(r);
      }
}

/* The archive's default of random_fill is a separate implementation of the same numbers. */
Test(op_random, uniform_and_bernoulli_equal_random_fill_bit_for_bit) {
  open_device();
  static const struct {
    const char *op;
    int32_t distribution;
    double p0, p1;
  } cases[] = {{"uniform", HAL_RANDOM_UNIFORM, -1, 3},
               {"uniform", HAL_RANDOM_UNIFORM, 0, 1e-3},
               {"bernoulli.p", HAL_RANDOM_BERNOULLI, 0.37, 0}};
  hal_device_t *device;
  must(hal_device_get(0, &device));
  for (size_t c = 0; c < 3; c++)
    for (int wide = 0; wide < 2; wide++) {
      tensor_t *r = vector(wide ? HAL_FLOAT64 : HAL_FLOAT32, COUNT), *d = vector(r->desc.dtype, COUNT);
      must(random_run(cases[c].op, cases[c].p0, cases[c].p1, seed, UINT64_C(0xFFFFFF00), r));
      const hal_random_t desc = {.struct_size = sizeof desc,
                                 .dst = d->desc.data,
                                 .count = COUNT,
                                 .seed = seed,
                                 .offset = UINT64_C(0xFFFFFF00),
                                 .device = device->ordinal,
                                 .dtype = d->desc.dtype,
                                 .distribution = cases[c].distribution,
                                 .p0 = cases[c].p0,
                                 .p1 = cases[c].p1};
      must(hal_call_random_fill(device->plugin, device->default_stream.direct.handle, &desc));
      tensor_download(r), tensor_download(d);
      cr_assert_eq(memcmp(r->host, d->host, (size_t)r->storage * r->element), 0, "%s", cases[c].op);
      tensor_free(r), tensor_free(d);
    }
}

Test(op_random, bernoulli_compares_the_uniform_number_in_every_dtype) {
  open_device();
  static const hal_dtype_t dtypes[] = {HAL_FLOAT32, HAL_FLOAT64, HAL_INT64, HAL_INT32,
                                       HAL_INT16,   HAL_INT8,    HAL_UINT8, HAL_BOOL};
  static const double ps[] = {0, 0.25, 0.3, 1.0 / 3, 1, 0x1p-24, 1 - 0x1p-25};
  for (size_t t = 0; t < 8; t++)
    for (size_t p = 0; p < 7; p++) {
      tensor_t *r = vector(dtypes[t], 5003);
      must(random_run("bernoulli.p", ps[p], 0, seed, 11, r));
      tensor_download(r);
      for (int64_t i = 0; i < r->numel; i++) {
        const uint64_t word = word_of(dtypes[t], 11, i);
        const double u = r->element == 8 ? (double)(word >> 11) * 0x1p-53 : (double)(word >> 8) * 0x1p-24;
        const number_t got = tensor_get(r, i);
        cr_assert_eq(is_floating(dtypes[t]) ? (int64_t)got.f : got.i, u < ps[p], "dtype %d p %g element %lld",
                     (int)dtypes[t], ps[p], (long long)i);
      }
      tensor_free(r);
    }
}

Test(op_random, normal_is_box_muller_to_4_ulp) {
  open_device();
  const long double pi = acosl(-1.0L);
  for (int wide = 0; wide < 2; wide++)
    for (size_t o = 0; o < 4; o++) {
      const hal_dtype_t dtype = wide ? HAL_FLOAT64 : HAL_FLOAT32;
      tensor_t *r = vector(dtype, COUNT);
      must(random_run("normal_functional", 0.5, 2, seed, offsets[o], r));
      tensor_download(r);
      for (int64_t i = 0; i < COUNT; i++) {
        const uint64_t even = word_of(dtype, offsets[o], i & ~1), odd = word_of(dtype, offsets[o], i | 1);
        const long double a = wide ? ((even >> 11) + 1) * 0x1p-53L : (even + 1) * 0x1p-32L;
        const long double b = wide ? (odd >> 11) * 0x1p-53L : odd * 0x1p-32L;
        const long double radius = sqrtl(-2 * logl(a)), angle = 2 * pi * b;
        const long double want = 0.5L + 2 * radius * (i & 1 ? sinl(angle) : cosl(angle));
        const long double error = 8 * roundoff(dtype) * (0.5L + 2 * radius);
        cr_assert(fabsl(tensor_get(r, i).f - want) <= error, "element %lld: got %.17Lg, want %.17Lg", (long long)i,
                  tensor_get(r, i).f, want);
      }
      tensor_free(r);
    }
}

static int by_value(const void *x, const void *y) {
  const float a = *(const float *)x, b = *(const float *)y;
  return (a > b) - (a < b);
}

/* The Kolmogorov-Smirnov distance from a distribution; a correct generator stays below 1.95 / sqrt(n) with
 * probability 1 - 0.001. The seed is fixed, so the result is reproducible. */
static void check_distribution(const char *op, double p0, double p1, double mean, double variance,
                               double (*cdf)(double)) {
  enum { N = 1 << 20 };
  tensor_t *r = vector(HAL_FLOAT32, N);
  must(random_run(op, p0, p1, 42, 0, r));
  tensor_download(r);
  const float *x = (const void *)r->host;
  double sum = 0, squares = 0, distance = 0;
  for (int i = 0; i < N; i++) sum += x[i], squares += ((double)x[i] - mean) * ((double)x[i] - mean);
  cr_assert_float_eq(sum / N, mean, 4 * sqrt(variance / N), "%s: mean %g", op, sum / N);
  cr_assert_float_eq(squares / N, variance, 8 * variance / sqrt(N), "%s: variance %g", op, squares / N);
  qsort(r->host, N, sizeof(float), by_value);
  for (int i = 0; i < N; i++)
    distance = fmax(distance, fmax(cdf(x[i]) - (double)i / N, (double)(i + 1) / N - cdf(x[i])));
  cr_assert_lt(distance, 1.95 / sqrt(N), "%s: distance %g", op, distance);
  tensor_free(r);
}

static double uniform_cdf(double x) { return x; }
static double normal_cdf(double x) { return 0.5 * erfc(-x * 0.70710678118654752440); }

Test(op_random, distributions_are_right) {
  open_device();
  check_distribution("uniform", 0, 1, 0.5, 1.0 / 12, uniform_cdf);
  check_distribution("normal_functional", 0, 1, 0, 1, normal_cdf);
}

Test(op_random, an_element_does_not_depend_on_the_count_and_nothing_else_is_written) {
  open_device();
  tensor_t *whole = vector(HAL_FLOAT32, 1500);
  must(random_run("normal_functional", 0, 1, seed, 3, whole));
  tensor_download(whole);
  for (int64_t n = 0; n < 1500; n += 1 + n / 5) {
    tensor_t *r = vector(HAL_FLOAT32, 1500);
    memset(r->host, 0x5A, 6000);
    tensor_upload(r);
    const int64_t full = r->sizes[0];
    r->sizes[0] = n;
    must(random_run("normal_functional", 0, 1, seed, 3, r));
    r->sizes[0] = full;
    tensor_download(r);
    cr_assert_eq(memcmp(r->host, whole->host, (size_t)n * 4), 0);
    for (int64_t i = n * 4; i < 6000; i++) cr_assert_eq(r->host[i], 0x5A);
    tensor_free(r);
  }
  tensor_free(whole);
}

Test(op_random, parameters_out_of_range_are_refused) {
  open_device();
  tensor_t *r = vector(HAL_FLOAT32, 10);
  cr_assert_eq(random_run("uniform", 2, 1, 0, 0, r), HAL_INVALID_ARGUMENT);
  cr_assert_eq(random_run("normal_functional", 0, -1, 0, 0, r), HAL_INVALID_ARGUMENT);
  cr_assert_eq(random_run("bernoulli.p", 1.5, 0, 0, 0, r), HAL_INVALID_ARGUMENT);
  cr_assert_eq(random_run("bernoulli.p", NAN, 0, 0, 0, r), HAL_INVALID_ARGUMENT);
  cr_assert(strstr(hal_error_message(), "bernoulli") != NULL, "%s", hal_error_message());
  tensor_free(r);
}

static void compute_numbers(unsigned char *out, size_t size) {
  tensor_t *r = vector(HAL_FLOAT32, (int64_t)size / 8);
  must(random_run("uniform", 0, 1, seed, 1, r));
  tensor_download(r);
  memcpy(out, r->host, size / 2);
  must(random_run("normal_functional", 0, 1, seed, 1, r));
  tensor_download(r);
  memcpy(out + size / 2, r->host, size / 2);
  tensor_free(r);
}

Test(op_random, bits_do_not_depend_on_threads_or_mode) { assert_same_bits(compute_numbers, 8 * COUNT); }

/* Uploads the state that a graph's generator stores on the device. */
static tensor_t *state_of(uint64_t key, uint64_t offset) {
  tensor_t *state = vector(HAL_INT64, 2);
  memcpy(state->host, (uint64_t[]){key, offset}, 16);
  tensor_upload(state);
  return state;
}

Test(op_random, a_state_in_device_memory_sets_the_seed_and_adds_to_the_offset) {
  open_device();
  tensor_t *expected = vector(HAL_FLOAT32, COUNT), *drawn = vector(HAL_FLOAT32, COUNT), *state = state_of(seed, 40);
  must(random_run("normal_functional", 0, 1, seed, 47, expected));
  random_state = state->desc.data;
  must(random_run("normal_functional", 0, 1, 1, 7, drawn));
  tensor_download(expected);
  tensor_download(drawn);
  cr_assert_eq(memcmp(expected->host, drawn->host, COUNT * sizeof(float)), 0);
  tensor_free(expected), tensor_free(drawn), tensor_free(state);
}

Test(op_random, a_state_in_device_memory_is_read_when_the_work_runs) {
  open_device();
  tensor_t *expected = vector(HAL_FLOAT32, COUNT), *drawn = vector(HAL_FLOAT32, COUNT);
  tensor_t *state = state_of(1, 0), *later = state_of(seed, 40);
  must(random_run("uniform", 0, 1, seed, 47, expected));
  random_state = state->desc.data;
  must(hal_memory_copy(NULL, state->desc.data, 0, later->desc.data, 0, 16)); /* queued before the call, on its stream */
  must(random_run("uniform", 0, 1, 1, 7, drawn));
  tensor_download(expected);
  tensor_download(drawn);
  cr_assert_eq(memcmp(expected->host, drawn->host, COUNT * sizeof(float)), 0);
  tensor_free(expected), tensor_free(drawn), tensor_free(state), tensor_free(later);
}

/* randperm. */
static void shuffle(const tensor_t *result, uint64_t key, uint64_t offset) {
  uint32_t op;
  must(hal_op_id("randperm", &op));
  const hal_tensor_t *const results[] = {&result->desc};
  hal_op_call_t call = {.struct_size = sizeof call,
                        .result_count = 1,
                        .results = results,
                        .seed = key,
                        .offset = offset,
                        .random_state = random_state};
  must(run_planned(0, op, NULL, &call));
}

Test(op_random, permutations_take_their_state_from_device_memory_too) {
  static const int64_t counts[] = {100, 10000}; /* a kernel each */
  open_device();
  tensor_t *state = state_of(seed, 40);
  for (int i = 0; i < 2; i++) {
    tensor_t *expected = vector(HAL_INT64, counts[i]), *drawn = vector(HAL_INT64, counts[i]);
    random_state = NULL;
    shuffle(expected, seed, 47);
    random_state = state->desc.data;
    shuffle(drawn, 1, 7);
    tensor_download(expected);
    tensor_download(drawn);
    cr_assert_eq(memcmp(expected->host, drawn->host, (size_t)counts[i] * 8), 0);
    tensor_free(expected), tensor_free(drawn);
  }
  tensor_free(state);
}

Test(op_random, dropout_takes_its_state_from_device_memory_too) {
  open_device();
  uint32_t op;
  must(hal_op_id("native_dropout", &op));
  tensor_t *a = vector(HAL_FLOAT32, COUNT), *r = vector(HAL_FLOAT32, COUNT), *state = state_of(seed, 40);
  tensor_t *masks[] = {vector(HAL_BOOL, COUNT), vector(HAL_BOOL, COUNT)};
  for (int i = 0; i < 2; i++) {
    const hal_value_t args[] = {{.tag = HAL_VALUE_TENSOR, .u.t = &a->desc}, of_double(0.5)};
    const hal_tensor_t *const results[] = {&r->desc, &masks[i]->desc};
    hal_op_call_t call = {.struct_size = sizeof call,
                          .arg_count = 2,
                          .result_count = 2,
                          .args = args,
                          .results = results,
                          .seed = i ? 1 : seed,
                          .offset = i ? 7 : 47,
                          .random_state = i ? state->desc.data : NULL};
    must(run_planned(0, op, NULL, &call));
    tensor_download(masks[i]);
  }
  cr_assert_eq(memcmp(masks[0]->host, masks[1]->host, COUNT), 0);
  tensor_free(a), tensor_free(r), tensor_free(state), tensor_free(masks[0]), tensor_free(masks[1]);
}
