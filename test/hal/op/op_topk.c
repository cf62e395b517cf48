/* op_topk.c: the first k elements of rows compared with an insertion sort. NaN is the largest value; equal elements
   keep their order. */
#include "op_numbers.h"

static int comes_before(const tensor_t *t, int64_t x, int64_t y, int largest) {
  const number_t a = tensor_get(t, x), b = tensor_get(t, y);
  if (!is_floating(t->desc.dtype)) return a.i == b.i ? x < y : largest ? a.i > b.i : a.i < b.i;
  const int nan_a = isnan(a.f), nan_b = isnan(b.f);
  if (nan_a || nan_b) return nan_a == nan_b ? x < y : largest ? nan_a : nan_b;
  return a.f == b.f ? x < y : largest ? a.f > b.f : a.f < b.f;
}

static const tensor_t *sorted_tensor;
static int sorted_largest;
static int by_order(const void *x, const void *y) {
  const int64_t a = *(const int64_t *)x, b = *(const int64_t *)y;
  return a == b ? 0 : comes_before(sorted_tensor, a, b, sorted_largest) ? -1 : 1;
}

static hal_status_t topk(const tensor_t *self, int64_t k, int64_t dim, int largest, int sorted, const tensor_t *values,
                         const tensor_t *indices) {
  const hal_value_t args[] = {of_tensor(self), of_int(k), of_int(dim), of_int(largest), of_int(sorted)};
  return run_two("topk", args, 5, values, indices);
}

static void check(tensor_t *self, int64_t k, int largest, int sorted, enum layout layout) {
  const int64_t rows = self->sizes[0], n = self->sizes[1], sizes[] = {rows, k};
  tensor_t *values = tensor_new(self->desc.dtype, 2, sizes, layout), *indices = tensor_new(HAL_INT64, 2, sizes, layout);
  must(topk(self, k, 1, largest, sorted, values, indices));
  tensor_download(values), tensor_download(indices);
  int64_t *order = calloc((size_t)n, sizeof *order), *got = calloc((size_t)k + 1, sizeof *got);
  sorted_tensor = self, sorted_largest = largest;
  for (int64_t r = 0; r < rows; r++) {
    for (int64_t j = 0; j < n; j++) order[j] = r * n + j;
    qsort(order, (size_t)n, sizeof *order, by_order);
    for (int64_t j = 0; j < k; j++) {
      got[j] = r * n + tensor_get(indices, r * k + j).i;
      const number_t value = tensor_get(values, r * k + j), from = tensor_get(self, got[j]);
      cr_assert(is_floating(self->desc.dtype) ? value.f == from.f || (isnan(value.f) && isnan(from.f))
                                              : value.i == from.i);
    }
    if (!sorted) qsort(got, (size_t)k, sizeof *got, by_order);
    for (int64_t j = 0; j < k; j++)
      cr_assert_eq(got[j], order[j], "row %lld, place %lld of %lld: index %lld, want %lld", (long long)r, (long long)j,
                   (long long)k, (long long)(got[j] - r * n), (long long)(order[j] - r * n));
  }
  free(order), free(got), tensor_free(values), tensor_free(indices);
}

static const hal_dtype_t dtypes[] = {HAL_FLOAT32, HAL_FLOAT64, HAL_INT64};

Test(op_topk, first_elements_in_order, .timeout = 120) {
  open_device();
  static const struct {
    int64_t rows, n, k;
  } shapes[] = {{1, 1, 1},     {3, 5, 2},     {2, 64, 64},      {40, 300, 7},
                {1, 40000, 5}, {2, 70000, 1}, {1, 50000, 3000}, {1, 3000, 2900}};
  for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
    for (int d = 0; d < 3; d++)
      for (int way = 0; way < 4; way++) {
        const int64_t sizes[] = {shapes[i].rows, shapes[i].n};
        tensor_t *self = tensor_new(dtypes[d], 2, sizes, way & 1 ? REVERSED : CONTIGUOUS);
        tensor_randomize(self, (unsigned)(i * 10 + (size_t)way)); /* includes NaN, infinities and both zeros */
        check(self, shapes[i].k, way & 1, way >> 1, way & 1 ? PADDED : CONTIGUOUS);
        tensor_free(self);
      }
}

/* Rows in which every element is a candidate, and rows of few values. */
Test(op_topk, ordered_rows_and_ties, .timeout = 120) {
  open_device();
  for (int kind = 0; kind < 3; kind++) {
    const int64_t sizes[] = {2, 20000};
    tensor_t *self = tensor_new(HAL_FLOAT32, 2, sizes, CONTIGUOUS);
    for (int64_t i = 0; i < self->numel; i++) {
      const long double value = kind == 0 ? (long double)i : kind == 1 ? (long double)-i : (long double)(i * 7 % 5);
      store(HAL_FLOAT32, self->host + i * 4, (number_t){0, value});
    }
    tensor_upload(self);
    for (int64_t k = 1; k < 20000; k *= 9)
      for (int largest = 0; largest < 2; largest++) check(self, k, largest, 1, CONTIGUOUS);
    tensor_free(self);
  }
}

Test(op_topk, wrong_calls_are_refused_with_a_message) {
  open_device();
  const int64_t sizes[] = {2, 4}, wanted[] = {2, 3};
  tensor_t *self = tensor_new(HAL_FLOAT32, 2, sizes, CONTIGUOUS),
           *values = tensor_new(HAL_FLOAT32, 2, wanted, CONTIGUOUS),
           *indices = tensor_new(HAL_INT64, 2, wanted, CONTIGUOUS);
  cr_assert_eq(topk(self, 5, 1, 1, 1, values, indices), HAL_INVALID_ARGUMENT);
  cr_assert(strstr(hal_error_message(), "k is 5; rows have 4 elements") != NULL, "%s", hal_error_message());
  cr_assert_eq(topk(self, 2, 1, 1, 1, values, indices), HAL_INVALID_ARGUMENT);
  cr_assert_eq(topk(self, 3, 1, 1, 1, values, values), HAL_INVALID_ARGUMENT);
  tensor_free(self), tensor_free(values), tensor_free(indices);
}
