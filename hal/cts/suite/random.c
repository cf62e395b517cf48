/* random.c: random_fill compared with a generator written from the paper (Salmon et al. 2011), and arithmetic in double
 * precision. */
#include <math.h>
#include <stdio.h>

#include "cts.h"
#include "hal/status.h"

enum { COUNT = 4099, GUARD = 64 };
static const uint64_t SEED = UINT64_C(0x123456789abcdef0);
static uint64_t offset = UINT64_C(0xfffffffe); /* of the fill that is checked: its blocks cross 32 bits */
static hal_plugin_stream_t *stream;            /* that it is queued on */

static void philox(uint64_t seed, uint64_t block, uint32_t out[4]) {
  uint32_t c[4] = {(uint32_t)block, (uint32_t)(block >> 32), 0, 0}, k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
  for (int round = 0; round < 10; round++) {
    const uint64_t p0 = UINT64_C(0xd2511f53) * c[0], p1 = UINT64_C(0xcd9e8d57) * c[2];
    const uint32_t next[4] = {(uint32_t)(p1 >> 32) ^ c[1] ^ k0, (uint32_t)p1, (uint32_t)(p0 >> 32) ^ c[3] ^ k1,
                              (uint32_t)p0};
    memcpy(c, next, sizeof c);
    k0 += 0x9e3779b9u, k1 += 0xbb67ae85u;
  }
  memcpy(out, c, sizeof c);
}

/* The word of a 32-bit element. */
static uint32_t word(uint64_t i) {
  uint32_t words[4];
  philox(SEED, offset + i / 4, words);
  return words[i % 4];
}

/* Fills device memory between two guards, and returns its content. */
static uint8_t *fill(cts_t *t, hal_dtype_t dtype, size_t size, int32_t distribution, double p0, double p1) {
  const size_t bytes = COUNT * size, all = bytes + 2 * GUARD;
  uint8_t *const device = cts_alloc(t, all), *const got = cts_host(t, all);
  memset(got, 0x5a, all);
  cts_put(t, NULL, device, got, all);
  hal_random_t desc = {.struct_size = HAL_STRUCT_SIZE(hal_random_t, random_state),
                       .dst = device + GUARD,
                       .count = COUNT,
                       .seed = SEED,
                       .offset = offset,
                       .device = t->device,
                       .dtype = dtype,
                       .distribution = distribution,
                       .p0 = p0,
                       .p1 = p1};
  const hal_status_t status = cts_random_fill(t, stream, &desc);
  memset(&desc, 0, sizeof desc);
  if (status == HAL_UNIMPLEMENTED)
    cts_skip(t, "random_fill does not do distribution %d of dtype %d", distribution, dtype);
  cts_expect_ok(t, HAL_SLOT_random_fill, status);
  cts_sync(t, stream);
  cts_get(t, NULL, got, device, all);
  for (size_t i = 0; i < GUARD; i++)
    CTS_CHECK(t, got[i] == 0x5a && got[GUARD + bytes + i] == 0x5a, "random_fill wrote outside of its %zu bytes", bytes);
  return got + GUARD;
}

static void check_bits(cts_t *t) {
  const uint8_t *const got = fill(t, HAL_INT32, 4, HAL_RANDOM_BITS, 0, 0), *const low = fill(t, HAL_UINT8, 1,
                                                                                             HAL_RANDOM_BITS, 0, 0);
  for (uint64_t i = 0; i < COUNT; i++) {
    uint32_t value;
    memcpy(&value, got + 4 * i, 4);
    CTS_CHECK(t, value == word(i), "random bits: element %llu is %08x instead of %08x", (unsigned long long)i, value,
              word(i));
    CTS_CHECK(t, low[i] == (uint8_t)word(i), "random bytes: element %llu is %02x instead of %02x",
              (unsigned long long)i, low[i], (uint8_t)word(i));
  }
}

void cts_case_random_bits(cts_t *t) { check_bits(t); }

/* Offsets of 64 bits, and streams. */
void cts_case_random_offsets(cts_t *t) {
  static const uint64_t offsets[] = {0, 1, UINT64_C(0x7fffffff), UINT64_C(0xabcdef0012345678), UINT64_C(0x10fffffffe)};
  for (size_t i = 0; i < sizeof offsets / sizeof offsets[0]; i++) {
    offset = offsets[i];
    stream = i % 2 ? cts_stream(t) : NULL;
    check_bits(t);
  }
}

void cts_case_random_uniform(cts_t *t) {
  const float low = -2.5f, width = 4.0f;
  const uint8_t *const got = fill(t, HAL_FLOAT32, 4, HAL_RANDOM_UNIFORM, -2.5, 1.5);
  for (uint64_t i = 0; i < COUNT; i++) {
    float value;
    memcpy(&value, got + 4 * i, 4);
    const float u = (float)(word(i) >> 8) * 0x1p-24f;
    const float product = width * u;
    float expected = low + product;
    if (expected >= 1.5f) expected = low;
    CTS_CHECK(t, memcmp(&value, &expected, 4) == 0, "uniform numbers: element %llu is %.9g instead of %.9g",
              (unsigned long long)i, (double)value, (double)expected);
  }
}

void cts_case_random_normal(cts_t *t) {
  const uint8_t *const got = fill(t, HAL_FLOAT32, 4, HAL_RANDOM_NORMAL, 1.0, 3.0);
  for (uint64_t i = 0; i < COUNT; i++) {
    float value;
    memcpy(&value, got + 4 * i, 4);
    const double a = ((double)word(i & ~UINT64_C(1)) + 1) * 0x1p-32, b = (double)word(i | 1) * 0x1p-32;
    const double r = sqrt(-2 * log(a)), angle = 2 * 3.14159265358979323846 * b;
    const double expected = 1.0 + 3.0 * r * (i % 2 ? sin(angle) : cos(angle));
    CTS_CHECK(t, fabs((double)value - expected) <= 1e-5 * (1 + fabs(expected)),
              "normal numbers: element %llu is %.9g instead of %.9g", (unsigned long long)i, (double)value, expected);
  }
}

void cts_case_random_bernoulli(cts_t *t) {
  const double p = 0.3;
  const uint8_t *const got = fill(t, HAL_FLOAT32, 4, HAL_RANDOM_BERNOULLI, p, 0);
  for (uint64_t i = 0; i < COUNT; i++) {
    float value;
    memcpy(&value, got + 4 * i, 4);
    const float expected = (double)(word(i) >> 8) * 0x1p-24 < p ? 1.0f : 0.0f;
    CTS_CHECK(t, memcmp(&value, &expected, 4) == 0, "bernoulli numbers: element %llu is %g instead of %g",
              (unsigned long long)i, (double)value, (double)expected);
  }
}
