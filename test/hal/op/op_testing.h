/* op_testing.h: tensors on a device with a copy on the host, in any layout, for the tests of operators. */
#ifndef TEST_HAL_OP_TESTING_H_
#define TEST_HAL_OP_TESTING_H_

#include <criterion/criterion.h>
#include <hal/hal.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "op_planned.h"

#define MAX_DIMS 10

/* Memory layouts of a tensor. */
enum layout {
  CONTIGUOUS,
  REVERSED,      /* the first dimension innermost: a transposed tensor */
  PADDED,        /* every second element, with gaps between rows */
  FAR,           /* the innermost dimension has the largest stride */
  BROADCAST_ALL, /* stride 0 everywhere: one element */
  BROADCAST_FIRST,
  BROADCAST_LAST,
  LAYOUTS
};

typedef struct tensor_s {
  hal_tensor_t desc;
  int64_t sizes[MAX_DIMS], strides[MAX_DIMS];
  int64_t numel, storage; /* the number of elements of the tensor, and of its memory */
  size_t element;         /* bytes */
  hal_block_t *block;
  unsigned char *host; /* mirror of the memory */
} tensor_t;

static inline void must(hal_status_t status) {
  cr_assert_eq(status, HAL_OK, "%s: %s", hal_status_name(status), hal_error_message());
}

/* Opens the device that HAL_TEST_PLUGIN names, else the fake device of this build. Without a driver the test is
   skipped. */
static inline void open_device(void) {
  const char *const named = getenv("HAL_TEST_PLUGIN"), *const plugin = named ? named : "fake";
#ifdef PLUGIN_DIR
  must(hal_registry_add_path(PLUGIN_DIR));
#endif
  const hal_status_t status = hal_registry_open(plugin);
  if (!named || status != HAL_UNAVAILABLE) must(status);
  if (named && hal_device_count() == 0) fprintf(stderr, "SKIPPED: %s\n", hal_registry_report());
  if (named && hal_device_count() == 0) cr_skip_test("%s has no device here: %s", plugin, hal_registry_report());
  cr_assert_geq(hal_device_count(), 1, "%s", hal_registry_report());
}

/* If kernels are compiled at first use, about a second each, HAL_TEST_SAMPLE=n runs every n-th case of a test;
   otherwise all cases run. */
static inline int is_sampled(size_t number) {
  const char *const each = getenv("HAL_TEST_SAMPLE");
  return !each || strtoul(each, NULL, 10) < 2 || number % strtoul(each, NULL, 10) == 0;
}

static inline size_t element_size(hal_dtype_t dtype) {
  switch (dtype) {
    case HAL_INT64:
    case HAL_UINT64:
    case HAL_FLOAT64:
      return 8;
    case HAL_INT32:
    case HAL_UINT32:
    case HAL_FLOAT32:
      return 4;
    case HAL_INT16:
    case HAL_UINT16:
    case HAL_FLOAT16:
    case HAL_BFLOAT16:
      return 2;
    default:
      return 1;
  }
}

static inline int is_half(hal_dtype_t dtype) { return dtype == HAL_FLOAT16 || dtype == HAL_BFLOAT16; }

static inline int is_floating(hal_dtype_t dtype) {
  return dtype == HAL_FLOAT32 || dtype == HAL_FLOAT64 || is_half(dtype);
}

/* Rounds a float to bfloat16 by arithmetic on its value: to nearest, ties to even. */
static inline float to_bfloat16(float value) {
  int exponent;
  if (value == 0 || isnan(value) || isinf(value)) return value;
  frexpf(value, &exponent);
  const double place = ldexp(1, (exponent < -125 ? -125 : exponent) - 8);
  const double rounded = rint((double)value / place) * place;
  return fabs(rounded) >= 0x1p128 ? copysignf(INFINITY, value) : (float)rounded;
}

/* Writes the strides of a layout and returns the number of elements of memory. */
static inline int64_t set_strides(enum layout layout, int32_t ndim, const int64_t *sizes, int64_t *strides) {
  int64_t next = layout == PADDED ? 2 : 1;
  const int reversed = layout == REVERSED || layout == FAR;
  for (int32_t i = 0; i < ndim; i++) {
    const int32_t d = reversed ? i : ndim - 1 - i;
    const int flat =
        layout == BROADCAST_ALL || (layout == BROADCAST_FIRST && d == 0) || (layout == BROADCAST_LAST && d == ndim - 1);
    strides[d] = flat ? 0 : next;
    if (!flat) next *= sizes[d] ? sizes[d] : 1;
    if (layout == PADDED || layout == FAR) next += 3;
  }
  return next;
}

static inline tensor_t *tensor_new(hal_dtype_t dtype, int32_t ndim, const int64_t *sizes, enum layout layout) {
  tensor_t *t = calloc(1, sizeof *t);
  cr_assert(t != NULL && ndim <= MAX_DIMS);
  t->element = element_size(dtype);
  t->numel = 1;
  for (int32_t d = 0; d < ndim; d++) t->numel *= t->sizes[d] = sizes[d];
  t->storage = set_strides(layout, ndim, sizes, t->strides);
  t->host = calloc((size_t)t->storage, t->element);
  cr_assert(t->host != NULL);
  must(hal_memory_allocate(0, NULL, (size_t)t->storage * t->element, &t->block));
  t->desc = (hal_tensor_t){.struct_size = sizeof t->desc,
                           .data = t->numel ? hal_memory_block_address(t->block) : NULL,
                           .sizes = t->sizes,
                           .strides = t->strides,
                           .ndim = ndim,
                           .dtype = dtype};
  return t;
}

static inline void tensor_free(tensor_t *t) {
  if (!t) return;
  hal_memory_release(t->block);
  free(t->host);
  free(t);
}

static inline void tensor_upload(tensor_t *t) {
  must(
      hal_memory_copy(NULL, hal_memory_block_address(t->block), 0, t->host, HAL_HOST, (size_t)t->storage * t->element));
  must(hal_device_synchronize(0));
}

static inline void tensor_download(tensor_t *t) {
  must(
      hal_memory_copy(NULL, t->host, HAL_HOST, hal_memory_block_address(t->block), 0, (size_t)t->storage * t->element));
  must(hal_device_synchronize(0));
}

/* Returns the position in memory of logical element `index` in C order. */
static inline int64_t tensor_place(const tensor_t *t, int64_t index) {
  int64_t place = 0;
  for (int32_t d = t->desc.ndim - 1; d >= 0; d--) {
    place += index % t->sizes[d] * t->strides[d];
    index /= t->sizes[d];
  }
  return place;
}

/* A number as the references compute it: integers exactly, floating-point numbers in extended precision. */
typedef struct number_s {
  int64_t i;
  long double f;
} number_t;

static inline number_t load(hal_dtype_t dtype, const unsigned char *at) {
  union {
    double f64;
    float f32;
    int64_t i64;
    int32_t i32;
    int16_t i16;
    int8_t i8;
    uint8_t u8;
    uint16_t u16;
    uint32_t u32;
    _Float16 f16;
  } v;
  memset(&v, 0, sizeof v);
  memcpy(&v, at, element_size(dtype));
  switch (dtype) {
    case HAL_FLOAT16:
      return (number_t){0, v.f16};
    case HAL_BFLOAT16:
      v.u32 <<= 16; /* the upper half of a float */
      return (number_t){0, v.f32};
    case HAL_UINT16:
      return (number_t){v.u16, v.u16};
    case HAL_UINT32:
      return (number_t){v.u32, v.u32};
    case HAL_UINT64:
      return (number_t){v.i64, (uint64_t)v.i64};
    case HAL_FLOAT64:
      return (number_t){0, v.f64};
    case HAL_FLOAT32:
      return (number_t){0, v.f32};
    case HAL_INT64:
      return (number_t){v.i64, v.i64};
    case HAL_INT32:
      return (number_t){v.i32, v.i32};
    case HAL_INT16:
      return (number_t){v.i16, v.i16};
    case HAL_INT8:
      return (number_t){v.i8, v.i8};
    default:
      return (number_t){v.u8, v.u8};
  }
}

static inline number_t tensor_get(const tensor_t *t, int64_t index) {
  return load(t->desc.dtype, t->host + (size_t)tensor_place(t, index) * t->element);
}

/* Rounds to the dtype: integers wrap, bool is 0 or 1. */
static inline void store(hal_dtype_t dtype, unsigned char *at, number_t value) {
  const uint64_t bits = (uint64_t)value.i;
  const double f64 = (double)value.f;
  const float f32 = (float)value.f;
  const _Float16 f16 = (_Float16)f32; /* through float, like each conversion to half precision */
  const float bf16 = to_bfloat16(f32);
  const uint8_t truth = value.i != 0;
  if (dtype == HAL_FLOAT64)
    memcpy(at, &f64, 8);
  else if (dtype == HAL_FLOAT32)
    memcpy(at, &f32, 4);
  else if (dtype == HAL_FLOAT16)
    memcpy(at, &f16, 2);
  else if (dtype == HAL_BFLOAT16)
    memcpy(at, (const char *)&bf16 + 2, 2);
  else if (dtype == HAL_BOOL)
    memcpy(at, &truth, 1);
  else
    memcpy(at, &bits, element_size(dtype)); /* little endian */
}

/* A fixed sequence that does not repeat within a test. */
static inline uint32_t next_random(uint64_t *state) {
  *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (uint32_t)(*state >> 33);
}

/* Fills the memory with special values of the dtype: extremes, zeros of both signs, NaN, infinities, and ordinary
 * values.
 */
static inline void tensor_randomize(tensor_t *t, uint64_t seed) {
  static const double special[] = {0.0,   -0.0, NAN, INFINITY, -INFINITY, 1e-40, 3e38,
                                   -3e38, 0.5,  1.0, -1.0,     88.5,      -104.0};
  static const int64_t extreme[] = {0, 1, -1, INT64_MIN, INT64_MAX, INT32_MIN, INT32_MAX, INT16_MIN, 127, -128, 255};
  uint64_t state = seed * 7919 + 1;
  for (int64_t i = 0; i < t->storage; i++) {
    const uint32_t r = next_random(&state);
    number_t value = {(int64_t)(r >> 4) % 101 - 50, 0};
    value.f = (long double)value.i / 8 + (long double)(r >> 12) * 0x1p-24L;
    if (r % 16 == 0) {
      value.i = extreme[(r >> 4) % (sizeof extreme / sizeof extreme[0])];
      value.f = special[(r >> 4) % (sizeof special / sizeof special[0])];
    }
    store(t->desc.dtype, t->host + (size_t)i * t->element, value);
  }
  tensor_upload(t);
}

/* Runs an operator by name on device 0. */
static inline hal_status_t run(const char *name, const hal_value_t *args, uint32_t arg_count, const tensor_t *result,
                               uint32_t flags) {
  uint32_t op;
  must(hal_op_id(name, &op));
  const hal_tensor_t *const results[] = {&result->desc};
  hal_op_call_t call = {.struct_size = sizeof call,
                        .arg_count = arg_count,
                        .result_count = 1,
                        .flags = flags,
                        .args = args,
                        .results = results};
  return run_planned(0, op, NULL, &call);
}

static inline hal_value_t of_tensor(const tensor_t *t) {
  return (hal_value_t){.tag = HAL_VALUE_TENSOR, .u.t = &t->desc};
}
static inline hal_value_t of_int(int64_t i) { return (hal_value_t){.tag = HAL_VALUE_INT, .u.i = i}; }
static inline hal_value_t of_double(double d) { return (hal_value_t){.tag = HAL_VALUE_DOUBLE, .u.d = d}; }

/* The position of an element of a contiguous tensor of five dimensions. */
static inline int64_t at5(const int64_t *sizes, int64_t n, int64_t c, int64_t z, int64_t y, int64_t x) {
  return (((n * sizes[1] + c) * sizes[2] + z) * sizes[3] + y) * sizes[4] + x;
}

static inline hal_value_t of_list(const int64_t *list, uint32_t count) {
  return (hal_value_t){.tag = HAL_VALUE_INT_LIST, .count = count, .u.il = list};
}

/* Runs an operator with two results. */
static inline hal_status_t run_two(const char *name, const hal_value_t *args, uint32_t count, const tensor_t *a,
                                   const tensor_t *b) {
  uint32_t op;
  must(hal_op_id(name, &op));
  const hal_tensor_t *const results[] = {&a->desc, &b->desc};
  hal_op_call_t call = {
      .struct_size = sizeof call, .arg_count = count, .result_count = 2, .args = args, .results = results};
  return run_planned(0, op, NULL, &call);
}

#endif /* TEST_HAL_OP_TESTING_H_ */
