/* Tests of the archive's default of random_fill against the formulas at hal_random_t, implemented here a second
 * time.
 */
#include <criterion/criterion.h>
#include <hal/plugin.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "philox.h" /* generator.c compares its words with published ones */

enum { COUNT = 200003 }; /* several staging buffers, and an odd remainder */
static const uint64_t seed = UINT64_C(0x0123456789abcdef),
                      offset = UINT64_C(0xfffffffe); /* carries into the high word */

static char message[256];
static hal_status_t error_set(hal_status_t code, int64_t native_code, const char *text) {
  (void)native_code;
  strncpy(message, text, sizeof message - 1);
  return code;
}
static void *mem_alloc(size_t size, size_t alignment) {
  void *ptr = NULL;
  return posix_memalign(&ptr, alignment, size) ? NULL : ptr;
}
static const hal_host_api_t host = {.struct_size = sizeof host,
                                    .major = HAL_ABI_MAJOR,
                                    .minor = HAL_ABI_MINOR,
                                    .error_set = error_set,
                                    .mem_alloc = mem_alloc,
                                    .mem_free = free};

static void setup(void) {
  hal_plugin_api_t api = {.struct_size = sizeof api};
  cr_assert_eq(hal_plugin_entry(&host, &api), HAL_OK);
}

TestSuite(random_fill, .init = setup);

/* Fills `count` elements of `size` bytes, followed by guard bytes. */
static void *fill(hal_dtype_t dtype, size_t size, int32_t distribution, double p0, double p1, uint64_t count) {
  uint8_t *memory = malloc(count * size + 64);
  cr_assert_not_null(memory);
  memset(memory, 0xA5, count * size + 64);
  const hal_random_t desc = {.struct_size = sizeof desc,
                             .dst = memory,
                             .count = count,
                             .seed = seed,
                             .offset = offset,
                             .dtype = dtype,
                             .distribution = distribution,
                             .p0 = p0,
                             .p1 = p1};
  cr_assert_eq(hal_plugin_random_fill(NULL, &desc), HAL_OK, "%s", message);
  for (size_t i = 0; i < 64; i++) cr_assert_eq(memory[count * size + i], 0xA5, "wrote past the end");
  return memory;
}

static uint32_t word(uint64_t element) {
  uint32_t words[4];
  hal_philox_block(seed, offset + element / 4, 0, words);
  return words[element % 4];
}

static uint64_t wide_word(uint64_t element) {
  uint32_t words[4];
  hal_philox_block(seed, offset + element / 2, 0, words);
  return element % 2 ? words[2] | (uint64_t)words[3] << 32 : words[0] | (uint64_t)words[1] << 32;
}

Test(random_fill, uniform_float_is_24_bits_of_the_word_scaled) {
  const float *const x = fill(HAL_FLOAT32, 4, HAL_RANDOM_UNIFORM, 0, 1, COUNT);
  const float *const y = fill(HAL_FLOAT32, 4, HAL_RANDOM_UNIFORM, -3, 7.5, COUNT);
  for (uint64_t i = 0; i < COUNT; i++) {
    const float u = ldexpf((float)(word(i) >> 8), -24);
    const volatile float scaled = 10.5f * u; /* volatile: the reference must not use a fused multiply-add either */
    cr_assert_eq(x[i], u);
    cr_assert(x[i] >= 0 && x[i] < 1);
    cr_assert_eq(y[i], -3.0f + scaled);
  }
  free((void *)(uintptr_t)x), free((void *)(uintptr_t)y);
}

Test(random_fill, uniform_double_is_53_bits_of_two_words_scaled) {
  const double *const x = fill(HAL_FLOAT64, 8, HAL_RANDOM_UNIFORM, 0, 1, COUNT);
  const double *const y = fill(HAL_FLOAT64, 8, HAL_RANDOM_UNIFORM, -3, 7.5, COUNT);
  for (uint64_t i = 0; i < COUNT; i++) {
    const double u = ldexp((double)(wide_word(i) >> 11), -53);
    const volatile double scaled = 10.5 * u;
    cr_assert_eq(x[i], u);
    cr_assert_eq(y[i], -3.0 + scaled);
  }
  free((void *)(uintptr_t)x), free((void *)(uintptr_t)y);
}

static double from_half(uint16_t bits) {
  const double sign = bits & 0x8000 ? -1 : 1;
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  if (exponent == 31) return fraction ? NAN : sign * INFINITY;
  return sign * (exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24));
}

static float from_bfloat16(uint16_t bits) {
  const uint32_t wide = (uint32_t)bits << 16;
  float value;
  memcpy(&value, &wide, sizeof value);
  return value;
}

Test(random_fill, uniform_half_and_bfloat16_stay_below_one) {
  const uint16_t *const x = fill(HAL_FLOAT16, 2, HAL_RANDOM_UNIFORM, 0, 1, COUNT);
  const uint16_t *const y = fill(HAL_BFLOAT16, 2, HAL_RANDOM_UNIFORM, 0, 1, COUNT);
  for (uint64_t i = 0; i < COUNT; i++) {
    cr_assert_eq(from_half(x[i]), ldexp(word(i) >> 21, -11));
    cr_assert_eq(from_bfloat16(y[i]), ldexpf((float)(word(i) >> 24), -8));
  }
  free((void *)(uintptr_t)x), free((void *)(uintptr_t)y);
}

/* The pair's numbers in long double, which has 11 more bits. */
static long double normal_of(long double a, long double b, int odd) {
  const long double pi = 3.14159265358979323846264338327950288L, r = sqrtl(-2 * logl(a));
  return r * (odd ? sinl(2 * pi * b) : cosl(2 * pi * b));
}

Test(random_fill, normal_is_box_muller_on_pairs_rounded_once) {
  const float *const x = fill(HAL_FLOAT32, 4, HAL_RANDOM_NORMAL, 2, 0.5, COUNT);
  const double *const y = fill(HAL_FLOAT64, 8, HAL_RANDOM_NORMAL, 2, 0.5, COUNT);
  for (uint64_t i = 0; i < COUNT; i++) {
    const uint64_t even = i & ~UINT64_C(1);
    const long double a = ldexpl((long double)word(even) + 1, -32), b = ldexpl(word(even + 1), -32);
    const long double want = 2 + 0.5L * normal_of(a, b, i & 1);
    cr_assert_leq(fabsl(x[i] - want),
                  0.5001L * (nextafterf((float)fabsl(want), INFINITY) - (float)fabsl(want)) + 1e-14L);
    const long double a2 = ldexpl((long double)(wide_word(even) >> 11) + 1, -53),
                      b2 = ldexpl(wide_word(even + 1) >> 11, -53);
    cr_assert_leq(fabsl(y[i] - (2 + 0.5L * normal_of(a2, b2, i & 1))), 1e-14L);
  }
  free((void *)(uintptr_t)x), free((void *)(uintptr_t)y);
}

Test(random_fill, normal_numbers_have_the_moments_of_the_normal_distribution) {
  const double *const x = fill(HAL_FLOAT64, 8, HAL_RANDOM_NORMAL, 0, 1, COUNT);
  double sum = 0, squares = 0, fourth = 0;
  for (uint64_t i = 0; i < COUNT; i++) sum += x[i], squares += x[i] * x[i], fourth += x[i] * x[i] * x[i] * x[i];
  /* five standard errors: 1, sqrt(2), sqrt(96) over sqrt(n) */
  cr_assert_lt(fabs(sum / COUNT), 5 / sqrt(COUNT));
  cr_assert_lt(fabs(squares / COUNT - 1), 5 * sqrt(2.0 / COUNT));
  cr_assert_lt(fabs(fourth / COUNT - 3), 5 * sqrt(96.0 / COUNT));
  free((void *)(uintptr_t)x);
}

Test(random_fill, half_numbers_are_rounded_to_the_nearest) {
  const uint16_t *const x = fill(HAL_FLOAT16, 2, HAL_RANDOM_NORMAL, 0, 1, COUNT);
  const float *const y = fill(HAL_FLOAT32, 4, HAL_RANDOM_NORMAL, 0, 1, COUNT);
  const uint16_t *const z = fill(HAL_BFLOAT16, 2, HAL_RANDOM_NORMAL, 0, 1, COUNT);
  for (uint64_t i = 0; i < COUNT; i++) {
    const double value = y[i], half = from_half(x[i]), narrow = from_bfloat16(z[i]);
    const double spacing = ldexp(1, (fabs(value) < 0x1p-14 ? -14 : ilogb(value)) - 10);
    cr_assert_leq(fabs(half - value), spacing / 2 * 1.001, "%.9g became %.9g", value, half);
    cr_assert_leq(fabs(narrow - value), ldexp(1, ilogb(value) - 7) / 2 * 1.001, "%.9g became %.9g", value, narrow);
  }
  free((void *)(uintptr_t)x), free((void *)(uintptr_t)y), free((void *)(uintptr_t)z);
}

Test(random_fill, bernoulli_compares_the_uniform_number) {
  const uint8_t *const x = fill(HAL_BOOL, 1, HAL_RANDOM_BERNOULLI, 0.3, 0, COUNT);
  const float *const y = fill(HAL_FLOAT32, 4, HAL_RANDOM_BERNOULLI, 0.3, 0, COUNT);
  const int64_t *const z = fill(HAL_INT64, 8, HAL_RANDOM_BERNOULLI, 0.3, 0, COUNT);
  for (uint64_t i = 0; i < COUNT; i++) {
    cr_assert_eq(x[i], ldexp(word(i) >> 8, -24) < 0.3);
    cr_assert_eq(y[i], x[i]);
    cr_assert_eq(z[i], ldexp((double)(wide_word(i) >> 11), -53) < 0.3);
  }
  free((void *)(uintptr_t)x), free((void *)(uintptr_t)y), free((void *)(uintptr_t)z);
}

Test(random_fill, bits_are_the_low_bits_of_the_words) {
  const int16_t *const x = fill(HAL_INT16, 2, HAL_RANDOM_BITS, 0, 0, COUNT);
  const uint32_t *const y = fill(HAL_UINT32, 4, HAL_RANDOM_BITS, 0, 0, COUNT);
  const uint64_t *const z = fill(HAL_UINT64, 8, HAL_RANDOM_BITS, 0, 0, COUNT);
  const uint8_t *const b = fill(HAL_BOOL, 1, HAL_RANDOM_BITS, 0, 0, COUNT);
  for (uint64_t i = 0; i < COUNT; i++) {
    cr_assert_eq((uint16_t)x[i], (uint16_t)word(i));
    cr_assert_eq(y[i], word(i));
    cr_assert_eq(z[i], wide_word(i));
    cr_assert_eq(b[i], word(i) & 1);
  }
  free((void *)(uintptr_t)x), free((void *)(uintptr_t)y), free((void *)(uintptr_t)z), free((void *)(uintptr_t)b);
}

Test(random_fill, an_elements_number_does_not_depend_on_the_count) {
  const float *const all = fill(HAL_FLOAT32, 4, HAL_RANDOM_NORMAL, 0, 1, COUNT);
  for (uint64_t count = 0; count < 9; count++) {
    const float *const few = fill(HAL_FLOAT32, 4, HAL_RANDOM_NORMAL, 0, 1, count);
    cr_assert_eq(memcmp(all, few, count * 4), 0);
    free((void *)(uintptr_t)few);
  }
  free((void *)(uintptr_t)all);
}

Test(random_fill, unsupported_calls_are_UNIMPLEMENTED_and_write_nothing) {
  uint8_t memory[16];
  memset(memory, 0xA5, sizeof memory);
  hal_random_t desc = {.struct_size = sizeof desc, .dst = memory, .count = 1, .dtype = HAL_COMPLEX64, .p1 = 1};
  cr_assert_eq(hal_plugin_random_fill(NULL, &desc), HAL_UNIMPLEMENTED);
  desc.dtype = HAL_INT32; /* uniform integers */
  cr_assert_eq(hal_plugin_random_fill(NULL, &desc), HAL_UNIMPLEMENTED);
  desc.dtype = HAL_FLOAT32;
  desc.distribution = HAL_RANDOM_BITS;
  cr_assert_eq(hal_plugin_random_fill(NULL, &desc), HAL_UNIMPLEMENTED);
  for (size_t i = 0; i < sizeof memory; i++) cr_assert_eq(memory[i], 0xA5);
}

Test(random_fill, a_state_in_device_memory_sets_the_seed_and_adds_to_the_offset) {
  const uint32_t *const expected = fill(HAL_INT32, 4, HAL_RANDOM_BITS, 0, 0, COUNT);
  uint64_t state[2] = {seed, offset - 3}; /* the device memory of five is host memory */
  uint32_t *const drawn = malloc(COUNT * sizeof *drawn);
  hal_random_t desc = {.struct_size = sizeof desc,
                       .dst = drawn,
                       .count = COUNT,
                       .seed = 1,
                       .offset = 3,
                       .dtype = HAL_INT32,
                       .distribution = HAL_RANDOM_BITS,
                       .random_state = state};
  cr_assert_eq(hal_plugin_random_fill(NULL, &desc), HAL_OK, "%s", message);
  cr_assert_eq(memcmp(drawn, expected, COUNT * sizeof *drawn), 0);
  state[1]++; /* a replay: different numbers from the same description */
  cr_assert_eq(hal_plugin_random_fill(NULL, &desc), HAL_OK, "%s", message);
  cr_assert_eq(memcmp(drawn, expected + 4, (COUNT - 4) * sizeof *drawn), 0);
  desc.struct_size = HAL_STRUCT_SIZE(hal_random_t, p1); /* a caller that does not know the field */
  desc.seed = seed, desc.offset = offset;
  cr_assert_eq(hal_plugin_random_fill(NULL, &desc), HAL_OK, "%s", message);
  cr_assert_eq(memcmp(drawn, expected, COUNT * sizeof *drawn), 0);
}
