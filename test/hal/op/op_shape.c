/* op_shape.c: numbers computed from their index, triangles of matrices, permutations and dropout, compared with
 * plain C; and the calls that their launchers reject. */
#include "op_testing.h"

#define NUMEL 1000

static tensor_t *vector(hal_dtype_t dtype, int64_t n) { return tensor_new(dtype, 1, &n, CONTIGUOUS); }

static hal_status_t run_random(const char *name, const hal_value_t *args, uint32_t arg_count, tensor_t *const *results,
                               uint32_t result_count, uint64_t seed, uint64_t offset) {
  uint32_t op;
  const hal_tensor_t *descs[2];
  must(hal_op_id(name, &op));
  for (uint32_t i = 0; i < result_count; i++) descs[i] = &results[i]->desc;
  hal_op_call_t call = {.struct_size = sizeof call,
                        .arg_count = arg_count,
                        .result_count = result_count,
                        .args = args,
                        .results = descs,
                        .seed = seed,
                        .offset = offset};
  return run_planned(0, op, NULL, &call);
}

Test(op_shape, arange_adds_steps_and_wraps) {
  open_device();
  tensor_t *f = vector(HAL_FLOAT32, NUMEL), *d = vector(HAL_FLOAT64, NUMEL), *i = vector(HAL_INT64, NUMEL);
  const hal_value_t fractions[] = {of_double(-2.5), of_double(0.1)}, integers[] = {of_int(INT64_MAX - 10), of_int(3)};
  must(run("arange.start_step", fractions, 2, f, 0));
  must(run("arange.start_step", fractions, 2, d, 0));
  must(run("arange.start_step", integers, 2, i, 0));
  tensor_download(f), tensor_download(d), tensor_download(i);
  for (int64_t k = 0; k < NUMEL; k++) {
    const double x = -2.5 + (double)k * 0.1;
    cr_assert_eq(tensor_get(d, k).f, x);
    cr_assert_eq(tensor_get(f, k).f, (float)x);
    cr_assert_eq(tensor_get(i, k).i, (int64_t)((uint64_t)(INT64_MAX - 10) + 3 * (uint64_t)k));
  }
  tensor_free(f), tensor_free(d), tensor_free(i);
}

Test(op_shape, linspace_meets_both_ends_exactly) {
  open_device();
  for (int64_t n = 1; n < 40; n++) {
    tensor_t *t = vector(HAL_FLOAT64, n);
    const hal_value_t ends[] = {of_double(0.1), of_double(0.7)};
    must(run("linspace", ends, 2, t, 0));
    tensor_download(t);
    cr_assert_eq(tensor_get(t, 0).f, 0.1);
    if (n > 1) cr_assert_eq(tensor_get(t, n - 1).f, 0.7);
    for (int64_t k = 1; k < n; k++)
      cr_assert_float_eq(tensor_get(t, k).f - tensor_get(t, k - 1).f, 0.6 / (double)(n - 1), 1e-15);
    tensor_free(t);
  }
}

/* Returns element (i, j) of a matrix if it is in the triangle, else zero. */
static void check_triangle(int lower, int64_t diagonal, enum layout from, enum layout to, const int64_t *sizes,
                           int32_t ndim) {
  tensor_t *a = tensor_new(HAL_INT32, ndim, sizes, from), *r = tensor_new(HAL_INT32, ndim, sizes, to);
  tensor_randomize(a, 5), tensor_randomize(r, 6);
  const hal_value_t args[] = {of_tensor(a), of_int(diagonal)};
  must(run(lower ? "tril" : "triu", args, 2, r, 0));
  tensor_download(r);
  const int64_t rows = sizes[ndim - 2], columns = sizes[ndim - 1];
  for (int64_t k = 0; k < a->numel; k++) {
    const int64_t i = k / columns % rows, j = k % columns;
    const int kept = lower ? j - i <= diagonal : j - i >= diagonal;
    cr_assert_eq(tensor_get(r, k).i, kept ? tensor_get(a, k).i : 0, "element %lld", (long long)k);
  }
  tensor_free(a), tensor_free(r);
}

Test(op_shape, triangles_of_every_layout) {
  open_device();
  static const int64_t matrix[] = {7, 5}, many[] = {2, 3, 1, 4, 2, 5, 6};
  static const int64_t diagonals[] = {INT64_MIN, -8, -2, 0, 1, 9, INT64_MAX};
  for (int lower = 0; lower < 2; lower++)
    for (size_t d = 0; d < sizeof diagonals / sizeof diagonals[0]; d++)
      for (enum layout layout = CONTIGUOUS; layout < BROADCAST_ALL; layout++) {
        check_triangle(lower, diagonals[d], layout, CONTIGUOUS, matrix, 2);
        check_triangle(lower, diagonals[d], CONTIGUOUS, layout, many, 7);
        check_triangle(lower, diagonals[d], layout, layout, many, 7);
      }
}

Test(op_shape, places_of_triangles_in_the_order_of_rows) {
  open_device();
  for (int lower = 0; lower < 2; lower++)
    for (int64_t rows = 0; rows < 7; rows++)
      for (int64_t columns = 0; columns < 7; columns++)
        for (int64_t offset = -9; offset < 10; offset++) {
          int64_t want[2][49], n = 0;
          for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < columns; j++)
              if (lower ? j - i <= offset : j - i >= offset) want[0][n] = i, want[1][n++] = j;
          const int64_t sizes[] = {2, n};
          tensor_t *t = tensor_new(HAL_INT64, 2, sizes, CONTIGUOUS);
          const hal_value_t args[] = {of_int(rows), of_int(columns), of_int(offset)};
          must(run(lower ? "tril_indices" : "triu_indices", args, 3, t, 0));
          tensor_download(t);
          for (int64_t k = 0; k < 2 * n; k++) cr_assert_eq(tensor_get(t, k).i, want[k / n][k % n]);
          tensor_free(t);
        }
}

Test(op_shape, a_list_of_places_of_the_wrong_length_is_refused) {
  open_device();
  const int64_t sizes[] = {2, 7};
  tensor_t *t = tensor_new(HAL_INT64, 2, sizes, CONTIGUOUS);
  const hal_value_t args[] = {of_int(3), of_int(3), of_int(0)};
  cr_assert_eq(run("tril_indices", args, 3, t, 0), HAL_INVALID_ARGUMENT);
  cr_assert(strstr(hal_error_message(), "6 elements") != NULL, "%s", hal_error_message());
  tensor_free(t);
}

Test(op_shape, permutations_hold_every_number_once_and_differ_by_seed) {
  open_device();
  static const int64_t counts[] = {1, 2, 63, 4096, 4097, 16384, 16385, 50000};
  for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
    const int64_t n = counts[c];
    tensor_t *a = vector(HAL_INT64, n), *b = vector(HAL_INT64, n);
    unsigned char *seen = calloc((size_t)n, 1);
    must(run_random("randperm", NULL, 0, &a, 1, 7, 3));
    must(run_random("randperm", NULL, 0, &b, 1, 8, 3));
    tensor_download(a), tensor_download(b);
    int64_t same = 0;
    for (int64_t k = 0; k < n; k++) {
      const int64_t x = tensor_get(a, k).i;
      cr_assert(x >= 0 && x < n && !seen[x]);
      seen[x] = 1;
      same += x == tensor_get(b, k).i;
    }
    if (n > 60) cr_assert_lt(same, 12); /* about one by chance */
    free(seen), tensor_free(a), tensor_free(b);
  }
}

Test(op_shape, dropout_scales_what_the_mask_keeps) {
  open_device();
  for (int64_t n = 1; n < 1200; n += 1 + n / 3) {
    tensor_t *a = vector(HAL_FLOAT32, n), *r = vector(HAL_FLOAT32, n), *mask = vector(HAL_BOOL, n),
             *b = vector(HAL_BOOL, n);
    tensor_t *const results[] = {r, mask};
    for (int64_t k = 0; k < n; k++) ((float *)(void *)a->host)[k] = (float)(k + 1);
    tensor_upload(a);
    const hal_value_t args[] = {of_tensor(a), of_double(0.25)}, kept[] = {of_double(0.75)};
    must(run_random("native_dropout", args, 2, results, 2, 5, 9));
    must(run_random("bernoulli.p", kept, 1, &b, 1, 5, 9));
    tensor_download(r), tensor_download(mask), tensor_download(b);
    for (int64_t k = 0; k < n; k++) {
      cr_assert_eq(mask->host[k], b->host[k]);
      cr_assert_eq(tensor_get(r, k).f, mask->host[k] ? (float)(k + 1) * (float)(1 / 0.75) : 0.0f);
    }
    tensor_free(a), tensor_free(r), tensor_free(mask), tensor_free(b);
  }
}
