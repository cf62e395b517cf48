/* lazy_testing.h: vectors, operators and counters for tests of streams with deferred work. */
#ifndef TEST_HAL_LAZY_TESTING_H_
#define TEST_HAL_LAZY_TESTING_H_

#include "../op/op_numbers.h"
#include "hal/lazy.h"
#include "support.h"

enum { COUNT = 10007 }; /* no multiple of a block */

static inline tensor_t *vector(hal_dtype_t dtype, int64_t count) { return tensor_new(dtype, 1, &count, CONTIGUOUS); }

static inline tensor_t *floats(float first, float step) {
  tensor_t *t = vector(HAL_FLOAT32, COUNT);
  for (int i = 0; i < COUNT; i++) ((float *)t->host)[i] = first + step * (float)i;
  tensor_upload(t);
  must(hal_stream_synchronize(NULL));
  return t;
}

static inline hal_status_t queue(const char *name, const hal_value_t *args, uint32_t count,
                                 const hal_tensor_t *result) {
  uint32_t op;
  must(hal_op_id(name, &op));
  hal_op_call_t call = {
      .struct_size = sizeof call, .arg_count = count, .result_count = 1, .args = args, .results = &result};
  return hal_op_run(0, op, NULL, &call);
}

/* result = a + number * b */
static inline void add(const tensor_t *a, const tensor_t *b, double number, const tensor_t *result) {
  const hal_value_t args[] = {of_tensor(a), of_tensor(b), of_double(number)};
  must(queue("add.Tensor", args, 3, &result->desc));
}

static inline void unary(const char *name, const tensor_t *a, const tensor_t *result) {
  const hal_value_t args[] = {of_tensor(a)};
  must(queue(name, args, 1, &result->desc));
}

static inline hal_lazy_t *begin_with(uint32_t flags, uint32_t limit) {
  hal_lazy_t *lazy;
  const hal_lazy_desc_t desc = {.struct_size = sizeof desc, .flags = flags, .limit = limit};
  must(hal_lazy_begin(NULL, &desc, &lazy));
  return lazy;
}

static inline hal_lazy_t *begin(void) { return begin_with(0, 0); }

/* Defers only groups, which operators over `least` elements begin. */
static inline hal_lazy_t *begin_groups(uint64_t least) {
  hal_lazy_t *lazy;
  const hal_lazy_desc_t desc = {.struct_size = sizeof desc, .flags = HAL_LAZY_GROUPS, .least = least};
  must(hal_lazy_begin(NULL, &desc, &lazy));
  return lazy;
}

static inline float at(tensor_t *t, int index) {
  tensor_download(t);
  return ((float *)t->host)[index];
}

static inline hal_lazy_info_t info_of(hal_lazy_t *lazy) {
  hal_lazy_info_t info = {.struct_size = sizeof info};
  must(hal_lazy_info(lazy, &info));
  return info;
}

/* Returns whether the device runs groups as one kernel. */
static inline int fuses(void) {
  hal_kernel_stats_t stats = {.struct_size = sizeof stats};
  must(hal_kernel_stats(0, &stats));
  return *stats.dialect != '\0';
}

/* Returns whether that kernel is compiled at its first use. */
static inline int compiles(void) {
  hal_kernel_stats_t stats = {.struct_size = sizeof stats};
  must(hal_kernel_stats(0, &stats));
  return strcmp(stats.dialect, "native") != 0;
}

/* A block of device memory as a tensor. */
static inline tensor_t *taken(hal_block_t **block) {
  tensor_t *const t = vector(HAL_FLOAT32, COUNT);
  must(hal_memory_allocate(0, NULL, COUNT * sizeof(float), block));
  t->desc.data = hal_memory_block_address(*block);
  return t;
}

#endif /* TEST_HAL_LAZY_TESTING_H_ */
