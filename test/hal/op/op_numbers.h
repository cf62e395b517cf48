/* op_numbers.h: ordinary numbers for tests whose reference needs finite sums, and a comparison of the bits of two
 * runs of the device: inline and asynchronous, with different numbers of threads. */
#ifndef TEST_HAL_OP_NUMBERS_H_
#define TEST_HAL_OP_NUMBERS_H_

#include <sys/wait.h>
#include <unistd.h>

#include "op_testing.h"

/* Fills the memory with numbers in [-1, 1), or integers in [-100, 100]. */
static inline void tensor_fill_ordinary(tensor_t *t, uint64_t seed) {
  uint64_t state = seed * 104729 + 7;
  for (int64_t i = 0; i < t->storage; i++) {
    const uint32_t r = next_random(&state);
    const number_t value = {.i = t->desc.dtype == HAL_UINT8 ? r % 101 : (int64_t)(r % 201) - 100,
                            .f = (long double)(int32_t)(r << 1) * 0x1p-31L};
    store(t->desc.dtype, t->host + (size_t)i * t->element, value);
  }
  tensor_upload(t);
}

/* The position in the output, in row order, of element `index` of `t`, if the dimensions of `mask` are reduced. */
static inline int64_t output_of(const tensor_t *t, uint64_t mask, int64_t index) {
  int64_t output = 0, scale = 1;
  for (int32_t d = t->desc.ndim - 1; d >= 0; d--) {
    const int64_t x = index % t->sizes[d];
    index /= t->sizes[d];
    if (mask >> d & 1) continue;
    output += x * scale;
    scale *= t->sizes[d];
  }
  return output;
}

/* Unit roundoff of a floating dtype. */
static inline long double roundoff(hal_dtype_t dtype) {
  return dtype == HAL_FLOAT16 ? 0x1p-11L : dtype == HAL_BFLOAT16 ? 0x1p-8L : dtype == HAL_FLOAT32 ? 0x1p-24L : 0x1p-53L;
}

/* Returns the output that `compute` writes into `out` in a separate process with a setting of the fake device. */
typedef void (*compute_fn_t)(unsigned char *out, size_t size);
static inline void compute_apart(const char *name, const char *value, compute_fn_t compute, unsigned char *out,
                                 size_t size) {
  int ends[2];
  cr_assert_eq(pipe(ends), 0);
  const pid_t child = fork();
  cr_assert_geq(child, 0);
  if (child == 0) {
    setenv(name, value, 1);
    open_device();
    compute(out, size);
    for (size_t done = 0; done < size;) {
      const ssize_t n = write(ends[1], out + done, size - done);
      if (n <= 0) _exit(1);
      done += (size_t)n;
    }
    _exit(0);
  }
  close(ends[1]);
  size_t done = 0;
  for (ssize_t n; done < size && (n = read(ends[0], out + done, size - done)) > 0;) done += (size_t)n;
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  cr_assert(done == size && WIFEXITED(status) && WEXITSTATUS(status) == 0, "%s=%s: the computation failed", name,
            value);
}

/* Asserts that `compute` produces the same bits inline, asynchronously, with one thread and with three. */
static inline void assert_same_bits(compute_fn_t compute, size_t size) {
  if (getenv("HAL_TEST_PLUGIN")) cr_skip_test("HAL_FAKE_ASYNC and several processes are the fake device's");
  static const char *const settings[][2] = {
      {"HAL_FAKE_ASYNC", "0"}, {"HAL_FAKE_ASYNC", "1"}, {"HAL_FAKE_THREADS", "1"}, {"HAL_FAKE_THREADS", "3"}};
  unsigned char *first = calloc(1, size), *other = calloc(1, size);
  cr_assert(first && other);
  compute_apart(settings[0][0], settings[0][1], compute, first, size);
  for (int i = 1; i < 4; i++) {
    compute_apart(settings[i][0], settings[i][1], compute, other, size);
    cr_expect_eq(memcmp(first, other, size), 0, "other bits with %s=%s", settings[i][0], settings[i][1]);
  }
  free(first), free(other);
}

#endif /* TEST_HAL_OP_NUMBERS_H_ */
