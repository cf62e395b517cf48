/* op_index.c: kernels that read indices, compared with loops on the host: gather, scatter, accumulation, in each
 * layout. Invalid indices: no element outside is accessed, the stream's next synchronization reports the index, and
 * later work runs. */
#include "op_testing.h"

static const hal_dtype_t dtypes[] = {HAL_UINT8, HAL_INT16, HAL_FLOAT32, HAL_FLOAT64, HAL_INT64};
static const int64_t shape[] = {5, 7, 6};

/* An index of `sizes` with numbers from `low` to `high` - 1. */
static tensor_t *index_new(const int64_t *sizes, enum layout layout, int64_t low, int64_t high, uint64_t seed) {
  tensor_t *t = tensor_new(HAL_INT64, 3, sizes, layout);
  uint64_t state = seed + 1;
  for (int64_t i = 0; i < t->storage; i++) {
    const int64_t value = low + (int64_t)(next_random(&state) % (uint64_t)(high - low));
    memcpy(t->host + i * 8, &value, 8);
  }
  tensor_upload(t);
  return t;
}

static hal_status_t run_on(hal_stream_t *stream, const char *name, const hal_value_t *args, uint32_t count,
                           const tensor_t *result) {
  uint32_t op;
  must(hal_op_id(name, &op));
  const hal_tensor_t *const results[] = {&result->desc};
  hal_op_call_t call = {
      .struct_size = sizeof call, .arg_count = count, .result_count = 1, .args = args, .results = results};
  return run_planned(0, op, stream, &call);
}

/* The logical index in a tensor of `shape`-like sizes of position (i, j, k), with `at` in dimension `dim`. */
static int64_t flat(const tensor_t *t, const int64_t *place, int dim, int64_t at) {
  int64_t index = 0;
  for (int d = 0; d < 3; d++) index = index * t->sizes[d] + (d == dim ? at : place[d]);
  return index;
}

static void unflatten(const tensor_t *t, int64_t index, int64_t *place) {
  for (int d = 2; d >= 0; d--) place[d] = index % t->sizes[d], index /= t->sizes[d];
}

static void check_gather(hal_dtype_t dtype, int dim, enum layout in, enum layout out) {
  const int64_t sizes[] = {4, 3, 5};
  tensor_t *x = tensor_new(dtype, 3, shape, in), *r = tensor_new(dtype, 3, sizes, out);
  tensor_t *index = index_new(sizes, in == REVERSED ? PADDED : in, 0, shape[dim], 3);
  tensor_randomize(x, 1);
  const hal_value_t args[] = {of_tensor(x), of_int(dim), of_tensor(index)};
  must(run("gather", args, 3, r, 0));
  tensor_download(r);
  for (int64_t i = 0; i < r->numel; i++) {
    int64_t place[3];
    unflatten(r, i, place);
    const int64_t from = tensor_place(x, flat(x, place, dim, tensor_get(index, i).i));
    cr_assert_eq(
        memcmp(r->host + tensor_place(r, i) * (int64_t)r->element, x->host + from * (int64_t)x->element, x->element), 0,
        "dtype %d dim %d layouts %d %d element %lld", (int)dtype, dim, (int)in, (int)out, (long long)i);
  }
  tensor_free(x), tensor_free(r), tensor_free(index);
}

Test(op_index, gather_takes_the_elements_that_the_index_names) {
  open_device();
  for (size_t d = 0; d < sizeof dtypes / sizeof dtypes[0]; d++)
    for (int dim = 0; dim < 3; dim++)
      for (int in = 0; in < LAYOUTS; in++)
        for (int out = CONTIGUOUS; out <= FAR; out++) check_gather(dtypes[d], dim, (enum layout)in, (enum layout)out);
}

/* reduce: -1 replaces; otherwise the number of the argument `reduce`. */
static void check_scatter(hal_dtype_t dtype, int dim, enum layout in, enum layout out, int reduce) {
  const int64_t sizes[] = {4, 7, 5};
  tensor_t *r = tensor_new(dtype, 3, shape, out), *src = tensor_new(dtype, 3, sizes, in);
  tensor_t *index = index_new(sizes, in, 0, shape[dim], 5);
  for (int64_t i = 0; i < r->storage; i++)
    store(dtype, r->host + i * (int64_t)r->element, (number_t){i % 5 - 2, (long double)(i % 5 - 2)});
  for (int64_t i = 0; i < src->storage; i++)
    store(dtype, src->host + i * (int64_t)src->element, (number_t){i % 7 - 3, (long double)(i % 7 - 3)});
  tensor_upload(r), tensor_upload(src);
  number_t *want = calloc((size_t)r->numel, sizeof *want);
  for (int64_t i = 0; i < r->numel; i++) want[i] = tensor_get(r, i);
  for (int64_t i = 0; i < src->numel; i++) {
    int64_t place[3];
    unflatten(src, i, place);
    number_t *to = &want[flat(r, place, dim, tensor_get(index, i).i)];
    const number_t v = tensor_get(src, i);
    const int greater = is_floating(dtype) ? v.f > to->f : v.i > to->i;
    if (reduce == 0)
      to->f += v.f, to->i += v.i;
    else if (reduce == 1)
      to->f *= v.f, to->i *= v.i;
    else if (reduce < 0 || greater == (reduce == 2))
      *to = v;
  }
  const hal_value_t args[] = {of_int(dim), of_tensor(index), of_tensor(src), of_int(reduce)};
  must(run(reduce < 0 ? "scatter.src" : "scatter_reduce.lines", args, reduce < 0 ? 3 : 4, r, 0));
  tensor_download(r);
  for (int64_t i = 0; i < r->numel; i++) {
    const number_t got = tensor_get(r, i);
    cr_assert(is_floating(dtype) ? got.f == want[i].f : got.i == want[i].i,
              "dtype %d dim %d layouts %d %d reduce %d element %lld", (int)dtype, dim, (int)in, (int)out, reduce,
              (long long)i);
  }
  free(want), tensor_free(r), tensor_free(src), tensor_free(index);
}

Test(op_index, scatter_goes_in_the_order_of_the_index) {
  open_device();
  static const hal_dtype_t wide[] = {HAL_FLOAT32, HAL_FLOAT64, HAL_INT64};
  for (int dim = 0; dim < 3; dim++)
    for (int in = 0; in < LAYOUTS; in++)
      for (int out = CONTIGUOUS; out <= FAR; out++) {
        for (size_t d = 0; d < sizeof dtypes / sizeof dtypes[0]; d++)
          check_scatter(dtypes[d], dim, (enum layout)in, (enum layout)out, -1);
        for (size_t d = 0; d < 3; d++)
          for (int reduce = 0; reduce < 4; reduce++)
            check_scatter(wide[d], dim, (enum layout)in, (enum layout)out, reduce);
      }
}

/* ---- bad indices ---- */

static void expect_report(hal_status_t status, const char *what) {
  cr_assert_eq(status, HAL_OUT_OF_RANGE, "%s", hal_status_name(status));
  cr_assert(strstr(hal_error_message(), what) != NULL, "%s", hal_error_message());
}

/* A result between guards: the first and the last element are not part of it. */
static tensor_t *guarded(int64_t n) {
  tensor_t *t = tensor_new(HAL_FLOAT32, 1, (int64_t[]){n + 2}, CONTIGUOUS);
  for (int64_t i = 0; i < n + 2; i++) store(HAL_FLOAT32, t->host + i * 4, (number_t){0, 1.0L});
  tensor_upload(t);
  t->sizes[0] = n;
  t->desc.data = (char *)t->desc.data + 4;
  return t;
}

static tensor_t *vector_index(const int64_t *values, int64_t n) {
  tensor_t *t = tensor_new(HAL_INT64, 1, &n, CONTIGUOUS);
  memcpy(t->host, values, (size_t)n * 8);
  tensor_upload(t);
  return t;
}

/* Rows selected by one index each. Dense rows may be copied in wider elements; rows with an odd start or stride may
   not. */
static void check_rows(hal_dtype_t dtype, int64_t width, int64_t room, int64_t shift) {
  const int64_t of[] = {9, width}, taken[] = {6, width};
  tensor_t *x = tensor_new(dtype, 2, (const int64_t[]){9, room + shift}, CONTIGUOUS),
           *r = tensor_new(dtype, 2, taken, CONTIGUOUS), *index = vector_index((int64_t[]){8, 0, 3, 3, 7, 1}, 6);
  tensor_randomize(x, 7);
  tensor_upload(x);
  hal_tensor_t part = x->desc, lines = index->desc;
  part.data = (char *)part.data + (size_t)shift * x->element;
  part.sizes = of;
  lines.ndim = 2, lines.sizes = taken, lines.strides = (const int64_t[]){1, 0};
  const hal_value_t args[] = {
      {.tag = HAL_VALUE_TENSOR, .u.t = &part}, of_int(0), {.tag = HAL_VALUE_TENSOR, .u.t = &lines}};
  must(run("index_select", args, 3, r, 0));
  tensor_download(r);
  for (int64_t row = 0; row < 6; row++) {
    const int64_t from = tensor_get(index, row).i * (room + shift) + shift;
    cr_assert_eq(memcmp(r->host + row * width * (int64_t)r->element, x->host + from * (int64_t)x->element,
                        (size_t)width * x->element),
                 0, "dtype %d, %lld of %lld elements, shifted by %lld: row %lld", (int)dtype, (long long)width,
                 (long long)(room + shift), (long long)shift, (long long)row);
  }
  tensor_free(x), tensor_free(r), tensor_free(index);
}

Test(op_index, rows_of_any_width_and_place_are_moved_whole) {
  static const int64_t widths[] = {1, 2, 3, 4, 8, 12, 16, 18, 48};
  open_device();
  for (size_t d = 0; d < sizeof dtypes / sizeof dtypes[0]; d++)
    for (size_t w = 0; w < sizeof widths / sizeof *widths; w++)
      for (int64_t shift = 0; shift < 4; shift++)
        for (int64_t room = 0; room < 9; room += 4) check_rows(dtypes[d], widths[w], widths[w] + room, shift);
}

Test(op_index, a_bad_index_is_reported_once_and_work_goes_on) {
  open_device();
  tensor_t *x = guarded(5), *src = guarded(3), *bad = vector_index((int64_t[]){0, 5, -1}, 3),
           *good = vector_index((int64_t[]){0, 4, 1}, 3);
  for (int64_t i = 0; i < 5; i++) store(HAL_FLOAT32, src->host + i * 4, (number_t){0, 2.0L});
  tensor_upload(src);
  const hal_value_t args[] = {of_int(0), of_tensor(bad), of_tensor(src)};
  hal_status_t status = run("scatter.src", args, 3, x, 0);
  expect_report(status ? status : hal_device_synchronize(0), "scatter.src: index");
  expect_report(HAL_OUT_OF_RANGE, "out of bounds for dimension 0 with size 5");
  must(hal_device_synchronize(0));
  const hal_value_t fine[] = {of_int(0), of_tensor(good), of_tensor(src)};
  must(run("scatter.src", fine, 3, x, 0));
  tensor_download(x);
  for (int64_t i = 0; i < 7; i++) {
    const int written = i == 1 || i == 2 || i == 5;
    cr_assert_eq(load(HAL_FLOAT32, x->host + i * 4).f, written ? 2.0L : 1.0L, "element %lld", (long long)i);
  }
  tensor_free(x), tensor_free(src), tensor_free(bad), tensor_free(good);
}

Test(op_index, each_stream_reports_its_own) {
  open_device();
  tensor_t *x = guarded(5), *r = guarded(3), *q = guarded(3), *bad = vector_index((int64_t[]){7, 7, 7}, 3);
  hal_stream_t *first, *second;
  must(hal_stream_acquire(0, 0, &first));
  must(hal_stream_acquire(0, 0, &second));
  const hal_value_t args[] = {of_tensor(x), of_int(0), of_tensor(bad)};
  hal_status_t one = run_on(first, "gather", args, 3, r), two = run_on(second, "gather", args, 3, q);
  expect_report(one ? one : hal_stream_synchronize(first), "gather: index 7");
  must(hal_stream_synchronize(first));
  expect_report(two ? two : hal_stream_synchronize(second), "gather: index 7");
  must(hal_stream_synchronize(second));
  one = run_on(first, "gather", args, 3, r);
  expect_report(one ? one : hal_device_synchronize(0), "gather: index 7");
  must(hal_stream_synchronize(first));
  tensor_free(x), tensor_free(r), tensor_free(q), tensor_free(bad);
}

Test(op_index, a_query_reports_when_the_work_is_done) {
  open_device();
  tensor_t *x = guarded(5), *r = guarded(3), *bad = vector_index((int64_t[]){7, 0, 0}, 3);
  hal_stream_t *stream;
  must(hal_stream_acquire(0, 0, &stream));
  const hal_value_t args[] = {of_tensor(x), of_int(0), of_tensor(bad)};
  hal_status_t status = run_on(stream, "gather", args, 3, r);
  if (!status) do
      status = hal_stream_query(stream);
    while (status == HAL_NOT_READY);
  expect_report(status, "gather: index 7");
  must(hal_stream_synchronize(stream));
  tensor_free(x), tensor_free(r), tensor_free(bad);
}

Test(op_index, wrong_calls_are_refused_before_anything_is_queued) {
  open_device();
  tensor_t *x = guarded(5), *r = guarded(3), *index = vector_index((int64_t[]){0, 1, 2}, 3);
  tensor_t *two = tensor_new(HAL_FLOAT32, 2, (int64_t[]){3, 3}, CONTIGUOUS);
  const hal_value_t no_dim[] = {of_tensor(x), of_int(1), of_tensor(index)};
  cr_assert_eq(run("gather", no_dim, 3, r, 0), HAL_INVALID_ARGUMENT);
  const hal_value_t no_index[] = {of_tensor(x), of_int(0), of_tensor(x)};
  cr_assert_eq(run("gather", no_index, 3, r, 0), HAL_INVALID_ARGUMENT);
  const hal_value_t shapes[] = {of_tensor(x), of_int(0), of_tensor(index)};
  cr_assert_eq(run("gather", shapes, 3, two, 0), HAL_INVALID_ARGUMENT);
  const hal_value_t reduce[] = {of_int(0), of_tensor(index), of_tensor(r), of_int(4)};
  cr_assert_eq(run("scatter_reduce.lines", reduce, 4, x, 0), HAL_INVALID_ARGUMENT);
  const hal_value_t src[] = {of_int(0), of_tensor(index), of_tensor(x)};
  cr_assert_eq(run("scatter.src", src, 3, x, 0), HAL_INVALID_ARGUMENT);
  must(hal_device_synchronize(0));
  tensor_free(x), tensor_free(r), tensor_free(index), tensor_free(two);
}
