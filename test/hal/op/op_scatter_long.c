/* op_scatter_long.c: scatter along long dimensions, for which devices with many threads sort the indices first,
 * compared with loops on the host. Cases: many or few equal indices, one list for all columns or one per column, and
 * invalid indices. */
#include "op_testing.h"

/* A case: src and index are (n, columns), the result (bound, columns). */
typedef struct case_s {
  int64_t n, bound, columns;
  int shared; /* one list of indices for all columns */
} case_t;
static const case_t cases[] = {{20011, 10, 1, 0}, {70001, 1, 1, 0},  {5003, 100000, 1, 0}, {4097, 300, 3, 1},
                               {4097, 300, 3, 0}, {2049, 64, 17, 1}, {8192, 8192, 2, 1}};

static tensor_t *index_new(const case_t *in, uint64_t seed) {
  tensor_t *t = tensor_new(HAL_INT64, 2, (int64_t[]){in->n, in->columns}, in->shared ? BROADCAST_LAST : CONTIGUOUS);
  uint64_t state = seed;
  for (int64_t i = 0; i < t->storage; i++) {
    const int64_t value = (int64_t)(next_random(&state) % (uint64_t)in->bound);
    memcpy(t->host + i * 8, &value, 8);
  }
  tensor_upload(t);
  return t;
}

static void fill(tensor_t *t, int64_t period, int64_t low) {
  for (int64_t i = 0; i < t->storage; i++) {
    const int64_t value = i * 7 % period + low;
    store(t->desc.dtype, t->host + i * (int64_t)t->element, (number_t){value, (long double)value});
  }
  tensor_upload(t);
}

static number_t joined(hal_dtype_t dtype, int reduce, number_t old, number_t v) {
  const int greater = is_floating(dtype) ? v.f > old.f : v.i > old.i;
  if (reduce == 0) return (number_t){old.i + v.i, old.f + v.f};
  if (reduce == 1) return (number_t){old.i * v.i, old.f * v.f};
  return reduce < 0 || greater == (reduce == 2) ? v : old;
}

/* reduce: -1 replaces; otherwise the number of the argument `reduce`. */
static void check(const case_t *in, hal_dtype_t dtype, int reduce, enum layout layout) {
  tensor_t *r = tensor_new(dtype, 2, (int64_t[]){in->bound, in->columns}, layout);
  tensor_t *src = tensor_new(dtype, 2, (int64_t[]){in->n, in->columns}, layout), *index = index_new(in, 5);
  fill(r, 5, reduce == 1 ? 1 : -2);
  fill(src, reduce == 1 ? 2 : 97, reduce == 1 ? 0 : -50); /* products of ones and zeros */
  number_t *const want = calloc((size_t)r->numel, sizeof *want);
  for (int64_t i = 0; i < r->numel; i++) want[i] = tensor_get(r, i);
  for (int64_t i = 0; i < src->numel; i++) {
    number_t *const to = &want[tensor_get(index, i).i * in->columns + i % in->columns];
    *to = joined(dtype, reduce, *to, tensor_get(src, i));
  }
  const hal_value_t args[] = {of_int(0), of_tensor(index), of_tensor(src), of_int(reduce)};
  must(run(reduce < 0 ? "scatter.src" : "scatter_reduce.lines", args, reduce < 0 ? 3 : 4, r, 0));
  tensor_download(r);
  for (int64_t i = 0; i < r->numel; i++) {
    const number_t got = tensor_get(r, i);
    cr_assert(is_floating(dtype) ? got.f == want[i].f : got.i == want[i].i,
              "n %lld bound %lld columns %lld shared %d dtype %d layout %d reduce %d element %lld: %Lg %lld",
              (long long)in->n, (long long)in->bound, (long long)in->columns, in->shared, (int)dtype, (int)layout,
              reduce, (long long)i, got.f, (long long)got.i);
  }
  free(want), tensor_free(r), tensor_free(src), tensor_free(index);
}

Test(op_scatter_long, equal_indices_are_combined) {
  open_device();
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    for (int reduce = 0; reduce < 4; reduce++) check(&cases[i], HAL_FLOAT32, reduce, i % 2 ? REVERSED : CONTIGUOUS);
  check(&cases[0], HAL_INT64, 0, PADDED), check(&cases[4], HAL_INT64, 0, FAR);
}

Test(op_scatter_long, of_equal_indices_the_last_one_wins) {
  open_device();
  static const hal_dtype_t dtypes[] = {HAL_FLOAT32, HAL_UINT8, HAL_INT16, HAL_FLOAT64};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check(&cases[i], HAL_FLOAT32, -1, CONTIGUOUS);
  for (size_t d = 1; d < sizeof dtypes / sizeof *dtypes; d++) check(&cases[0], dtypes[d], -1, PADDED);
}

/* Numbers whose sum depends on the order. */
Test(op_scatter_long, sums_are_the_same_in_every_run_and_near_those_in_double) {
  open_device();
  const case_t in = {50021, 3, 1, 0};
  tensor_t *r = tensor_new(HAL_FLOAT32, 2, (int64_t[]){3, 1}, CONTIGUOUS), *index = index_new(&in, 9);
  tensor_t *src = tensor_new(HAL_FLOAT32, 2, (int64_t[]){in.n, 1}, CONTIGUOUS);
  uint64_t state = 4;
  for (int64_t i = 0; i < in.n; i++)
    store(HAL_FLOAT32, src->host + i * 4, (number_t){0, (long double)(next_random(&state) % 2000003) / 1000003 - 1});
  tensor_upload(src);
  double want[3] = {0}, sizes[3] = {0};
  for (int64_t i = 0; i < in.n; i++) {
    const int64_t at = tensor_get(index, i).i;
    want[at] += (double)tensor_get(src, i).f, sizes[at] += fabs((double)tensor_get(src, i).f);
  }
  const hal_value_t args[] = {of_int(0), of_tensor(index), of_tensor(src), of_int(0)};
  float first[3];
  for (int round = 0; round < 3; round++) {
    memset(r->host, 0, 12);
    tensor_upload(r);
    must(run("scatter_reduce.lines", args, 4, r, 0));
    tensor_download(r);
    if (round == 0) memcpy(first, r->host, 12);
    cr_assert_eq(memcmp(first, r->host, 12), 0, "round %d", round);
  }
  for (int k = 0; k < 3; k++) cr_assert_lt(fabs(first[k] - want[k]), sizes[k] * 1e-5, "%g %g", first[k], want[k]);
  tensor_free(r), tensor_free(src), tensor_free(index);
}

Test(op_scatter_long, bad_indices_are_reported_and_passed_over) {
  open_device();
  static const char *const ops[] = {"scatter_reduce.lines", "scatter.src"};
  const case_t in = {4099, 50, 2, 0};
  for (int moves = 0; moves < 2; moves++) {
    tensor_t *r = tensor_new(HAL_FLOAT32, 2, (int64_t[]){50, 2}, CONTIGUOUS), *index = index_new(&in, 2);
    tensor_t *src = tensor_new(HAL_FLOAT32, 2, (int64_t[]){in.n, 2}, CONTIGUOUS);
    fill(r, 1, 0), fill(src, 1, 1);
    const int64_t bad[] = {50, -1, INT64_MAX, INT64_MIN};
    for (int k = 0; k < 4; k++) memcpy(index->host + (k * 1000 + k) * 8, &bad[k], 8);
    tensor_upload(index);
    double want[100] = {0};
    for (int64_t i = 0; i < src->numel; i++) {
      const int64_t at = tensor_get(index, i).i;
      if (at >= 0 && at < 50) want[at * 2 + i % 2] = moves ? 1 : want[at * 2 + i % 2] + 1;
    }
    const hal_value_t args[] = {of_int(0), of_tensor(index), of_tensor(src), of_int(0)};
    hal_status_t status = run(ops[moves], args, moves ? 3 : 4, r, 0);
    if (!status) status = hal_device_synchronize(0);
    cr_assert_eq(status, HAL_OUT_OF_RANGE, "%s", hal_status_name(status));
    cr_assert(strstr(hal_error_message(), "out of bounds for dimension 0 with size 50"), "%s", hal_error_message());
    tensor_download(r);
    for (int64_t i = 0; i < 100; i++)
      cr_assert_eq((double)tensor_get(r, i).f, want[i], "%s, element %lld", ops[moves], (long long)i);
    tensor_free(r), tensor_free(src), tensor_free(index);
  }
}
