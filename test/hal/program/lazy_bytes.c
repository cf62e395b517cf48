/* lazy_bytes.c: how groups of lazy work treat bits: copies and fills of bytes are steps of groups, and a value is
 * read with the dtype of its reader, independent of the kernel that wrote it; on the device that HAL_TEST_PLUGIN
 * names. */
#include "../op/op_numbers.h"
#include "hal/lazy.h"
#include "support.h"

TestSuite(lazy_bytes, .init = open_device, .timeout = 240);

enum { ROWS = 37, COLUMNS = 29, COUNT = ROWS * COLUMNS };

static const int64_t shape[] = {ROWS, COLUMNS};

static tensor_t *matrix(hal_dtype_t dtype, enum layout layout) { return tensor_new(dtype, 2, shape, layout); }

/* A number for each element; all have different bits. */
static double number_at(int64_t i) { return (double)(i % 61 - 30) / 4; }

static tensor_t *numbers(hal_dtype_t dtype, enum layout layout) {
  tensor_t *const t = matrix(dtype, layout);
  for (int64_t i = 0; i < COUNT; i++)
    store(dtype, t->host + (size_t)tensor_place(t, i) * t->element, (number_t){(int64_t)number_at(i), number_at(i)});
  tensor_upload(t);
  return t;
}

static void queue(const char *name, const hal_value_t *args, uint32_t count, const hal_tensor_t *result) {
  uint32_t op;
  must(hal_op_id(name, &op));
  hal_op_call_t call = {
      .struct_size = sizeof call, .arg_count = count, .result_count = 1, .args = args, .results = &result};
  must(hal_op_run(0, op, NULL, &call));
}

/* result = a + a */
static void twice(const tensor_t *a, const tensor_t *result) {
  const hal_value_t args[] = {of_tensor(a), of_tensor(a), of_double(1)};
  queue("add.Tensor", args, 3, &result->desc);
}

static void copy_bytes(const tensor_t *from, const tensor_t *to) {
  must(hal_memory_copy(NULL, to->desc.data, 0, from->desc.data, 0, (size_t)COUNT * to->element));
}

static hal_lazy_t *begin(void) {
  hal_lazy_t *lazy;
  must(hal_lazy_begin(NULL, NULL, &lazy));
  return lazy;
}

static hal_lazy_info_t end(hal_lazy_t *lazy) {
  hal_lazy_info_t info = {.struct_size = sizeof info};
  must(hal_lazy_flush(lazy));
  must(hal_lazy_info(lazy, &info));
  must(hal_lazy_end(lazy));
  return info;
}

/* Returns whether the device runs groups as one kernel. */
static int fuses(void) {
  hal_kernel_stats_t stats = {.struct_size = sizeof stats};
  must(hal_kernel_stats(0, &stats));
  return *stats.dialect != '\0';
}

static void expect(tensor_t *t, double factor, double more, const char *what) {
  tensor_download(t);
  for (int64_t i = 0; i < COUNT; i++) {
    const long double got = load(t->desc.dtype, t->host + (size_t)tensor_place(t, i) * t->element).f;
    const double expected = factor * number_at(i) + more;
    cr_assert_eq((double)got, expected, "%s: element %d is %g instead of %g", what, (int)i, (double)got, expected);
  }
}

static const struct {
  hal_dtype_t dtype, moved;
  const char *name;
} kinds[] = {{HAL_FLOAT32, HAL_INT32, "float32"},
             {HAL_FLOAT16, HAL_INT16, "float16"},
             {HAL_BFLOAT16, HAL_INT16, "bfloat16"},
             {HAL_FLOAT64, HAL_INT64, "float64"}};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* Returns whether the device computes in a dtype. */
static int computes_in(hal_dtype_t dtype) {
  uint32_t op;
  must(hal_op_id("add.Tensor", &op));
  return hal_op_portable_dtypes(0, op) >> dtype & 1;
}

/* ---- values ---- */

Test(lazy_bytes, a_strided_copy_of_bits_is_read_with_the_dtype_of_its_reader) {
  for (int i = 0; i < KINDS; i++) {
    if (!computes_in(kinds[i].dtype)) continue;
    tensor_t *const from = numbers(kinds[i].dtype, REVERSED), *const to = matrix(kinds[i].dtype, CONTIGUOUS),
                    *const result = matrix(kinds[i].dtype, CONTIGUOUS);
    tensor_t source = *from, target = *to;
    source.desc.dtype = target.desc.dtype = kinds[i].moved; /* copied as elements of their size */
    hal_lazy_t *const lazy = begin();
    const hal_value_t args[] = {of_tensor(&source)};
    queue("copy", args, 1, &target.desc);
    twice(to, result);
    end(lazy);
    expect(to, 1, 0, kinds[i].name);
    expect(result, 2, 0, kinds[i].name);
    tensor_free(from), tensor_free(to), tensor_free(result);
  }
}

Test(lazy_bytes, truth_is_read_as_a_number_and_numbers_as_truth) {
  tensor_t *const a = numbers(HAL_FLOAT32, CONTIGUOUS), *const truth = matrix(HAL_BOOL, CONTIGUOUS),
                  *const result = matrix(HAL_FLOAT32, CONTIGUOUS);
  hal_lazy_t *const lazy = begin();
  const hal_value_t compared[] = {of_tensor(a), of_double(0)};
  queue("gt.Tensor", compared, 2, &truth->desc);
  const hal_value_t chosen[] = {of_tensor(truth), of_tensor(a), of_tensor(a)};
  queue("where.self", chosen, 3, &result->desc);
  end(lazy);
  expect(result, 1, 0, "where");
  tensor_download(truth);
  for (int64_t i = 0; i < COUNT; i++) cr_assert_eq(truth->host[i], number_at(i) > 0);
}

/* ---- copies ---- */

Test(lazy_bytes, copies_are_steps_of_groups) {
  for (int i = 0; i < KINDS; i++) {
    if (!computes_in(kinds[i].dtype)) continue;
    tensor_t *const from = numbers(kinds[i].dtype, CONTIGUOUS), *const kept = matrix(kinds[i].dtype, CONTIGUOUS),
                    *const to = matrix(kinds[i].dtype, CONTIGUOUS), *const result = matrix(kinds[i].dtype, CONTIGUOUS);
    hal_lazy_t *const lazy = begin();
    copy_bytes(from, to);   /* begins a group, */
    twice(to, to);          /* which overwrites it, */
    copy_bytes(to, kept);   /* stands within it */
    twice(kept, result);    /* and feeds it, */
    copy_bytes(result, to); /* and ends it */
    const hal_lazy_info_t info = end(lazy);
    expect(from, 1, 0, kinds[i].name);
    expect(kept, 2, 0, kinds[i].name);
    expect(result, 4, 0, kinds[i].name);
    expect(to, 4, 0, kinds[i].name);
    if (fuses()) cr_expect(info.groups == 1 && info.queued == 1, "%llu groups", (unsigned long long)info.groups);
    tensor_free(from), tensor_free(kept), tensor_free(to), tensor_free(result);
  }
}

Test(lazy_bytes, a_copy_that_only_a_group_reads_is_not_written) {
  tensor_t *const from = numbers(HAL_FLOAT32, CONTIGUOUS), *const result = matrix(HAL_FLOAT32, CONTIGUOUS);
  tensor_t *const between = matrix(HAL_FLOAT32, CONTIGUOUS);
  memset(between->host, 0x55, (size_t)COUNT * 4);
  tensor_upload(between);
  hal_lazy_t *const lazy = begin();
  copy_bytes(from, between);
  twice(between, result);
  void *const address = between->desc.data;
  tensor_free(between); /* nothing can read it */
  const hal_lazy_info_t info = end(lazy);
  expect(result, 2, 0, "the result");
  if (!fuses()) return;
  cr_expect_eq(info.queued, 1);
  tensor_t *const again = matrix(HAL_FLOAT32, CONTIGUOUS); /* the memory that was freed last */
  if (again->desc.data != address) return;
  tensor_download(again);
  cr_expect_eq(again->host[5], 0x55, "the copy was written");
}

Test(lazy_bytes, single_copies_and_copies_of_other_sizes_run_as_they_were_recorded) {
  tensor_t *const from = numbers(HAL_FLOAT32, CONTIGUOUS), *const to = matrix(HAL_FLOAT32, CONTIGUOUS),
                  *const result = matrix(HAL_FLOAT32, CONTIGUOUS);
  hal_lazy_t *const lazy = begin();
  copy_bytes(from, to);
  copy_bytes(to, result);
  hal_lazy_info_t info = end(lazy);
  cr_expect_eq(info.groups, 0);
  cr_expect_eq(info.queued, 2);
  expect(result, 1, 0, "two copies");
  hal_lazy_t *const other = begin();
  must(hal_memory_copy(NULL, (char *)to->desc.data + 3, 0, (char *)from->desc.data + 3, 0, COUNT * 4 - 3));
  twice(to, result);
  must(hal_memory_copy(NULL, to->desc.data, 0, result->desc.data, 0, COUNT * 2)); /* half of it */
  info = end(other);
  expect(result, 2, 0, "after a copy of other bytes");
  tensor_download(to);
  cr_expect_float_eq(((float *)(void *)to->host)[0], (float)(2 * number_at(0)), 0);
  cr_expect_float_eq(((float *)(void *)to->host)[COUNT - 1], (float)number_at(COUNT - 1), 0);
}

Test(lazy_bytes, a_copy_from_the_host_is_none) {
  tensor_t *const from = numbers(HAL_FLOAT32, CONTIGUOUS), *const result = matrix(HAL_FLOAT32, CONTIGUOUS);
  float *const host = malloc(COUNT * sizeof *host);
  for (int i = 0; i < COUNT; i++) host[i] = (float)(3 * number_at(i));
  hal_lazy_t *const lazy = begin();
  must(hal_memory_copy(NULL, from->desc.data, 0, host, HAL_HOST, COUNT * sizeof *host));
  memset(host, 0, COUNT * sizeof *host);
  twice(from, result);
  end(lazy);
  expect(result, 6, 0, "uploaded");
  free(host);
}

/* ---- fills ---- */

Test(lazy_bytes, fills_are_steps_of_groups) {
  const float pattern = 1.5f;
  tensor_t *const a = numbers(HAL_FLOAT32, CONTIGUOUS), *const b = matrix(HAL_FLOAT32, CONTIGUOUS),
                  *const zero = matrix(HAL_FLOAT32, CONTIGUOUS);
  hal_lazy_t *const lazy = begin();
  must(hal_memory_fill(NULL, 0, b->desc.data, &pattern, sizeof pattern, COUNT * 4));
  must(hal_memory_fill(NULL, 0, zero->desc.data, "", 1, COUNT * 4));
  const hal_value_t args[] = {of_tensor(b), of_tensor(a), of_double(2)};
  queue("add.Tensor", args, 3, &b->desc); /* 1.5 + 2 a */
  const hal_value_t more[] = {of_tensor(zero), of_tensor(b), of_double(1)};
  queue("add.Tensor", more, 3, &zero->desc);
  const hal_lazy_info_t info = end(lazy);
  expect(b, 2, 1.5, "a fill and an addition");
  expect(zero, 2, 1.5, "zeros and an addition");
  if (fuses()) cr_expect(info.groups == 1 && info.queued == 1, "%llu groups", (unsigned long long)info.groups);
}

Test(lazy_bytes, a_fill_that_nothing_reads_is_dropped_and_one_that_something_reads_is_not) {
  tensor_t *const a = numbers(HAL_FLOAT32, CONTIGUOUS), *const b = matrix(HAL_FLOAT32, CONTIGUOUS),
                  *const c = matrix(HAL_FLOAT32, CONTIGUOUS);
  hal_lazy_t *const lazy = begin();
  must(hal_memory_fill(NULL, 0, b->desc.data, "\x11", 1, COUNT * 4));
  twice(a, b);
  must(hal_memory_fill(NULL, 0, c->desc.data, "", 1, COUNT * 4));
  const hal_lazy_info_t info = end(lazy);
  expect(b, 2, 0, "what overwrote a fill");
  expect(c, 0, 0, "a fill at the end");
  if (fuses()) cr_expect_eq(info.dropped, 1, "%llu dropped", (unsigned long long)info.dropped);
}

Test(lazy_bytes, a_pattern_of_two_bytes_fills_elements_of_four) {
  tensor_t *const a = numbers(HAL_INT32, CONTIGUOUS), *const b = matrix(HAL_INT32, CONTIGUOUS),
                  *const c = matrix(HAL_INT32, CONTIGUOUS);
  hal_lazy_t *const lazy = begin();
  must(hal_memory_fill(NULL, 0, b->desc.data, "\x02\x01", 2, COUNT * 4));
  const hal_value_t args[] = {of_tensor(b), of_tensor(a), {.tag = HAL_VALUE_INT, .u.i = 1}};
  queue("add.Tensor", args, 3, &c->desc);
  end(lazy);
  tensor_download(c);
  for (int64_t i = 0; i < COUNT; i++)
    cr_assert_eq(((int32_t *)(void *)c->host)[i], 0x01020102 + (int32_t)number_at(i), "element %d", (int)i);
}
