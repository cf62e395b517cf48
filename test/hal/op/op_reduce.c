/* op_reduce.c: sum, mean, amax, amin, max, min, argmax and argmin compared with extended precision, in each layout
 * and over each choice of dimensions. */
#include "op_numbers.h"

typedef struct shape_s {
  int32_t ndim;
  int64_t sizes[MAX_DIMS];
} shape_t;

/* The result's shape: dimensions of the mask become 1. */
static void keepdim(const shape_t *in, uint64_t mask, int64_t *sizes) {
  for (int32_t d = 0; d < in->ndim; d++) sizes[d] = mask >> d & 1 ? 1 : in->sizes[d];
}

typedef struct sums_s {
  long double sum, magnitude, high, low;
  uint64_t isum;
  int64_t ihigh, ilow, count;
  int nan;
} sums_t;

static sums_t *reference(const tensor_t *t, uint64_t mask, int64_t outputs) {
  sums_t *sums = calloc((size_t)(outputs ? outputs : 1), sizeof *sums);
  for (int64_t i = 0; i < t->numel; i++) {
    sums_t *s = &sums[output_of(t, mask, i)];
    const number_t x = tensor_get(t, i);
    s->sum += x.f;
    s->magnitude += fabsl(x.f);
    s->isum += (uint64_t)x.i;
    if (!s->count || x.f > s->high) s->high = x.f;
    if (!s->count || x.f < s->low) s->low = x.f;
    if (!s->count || x.i > s->ihigh) s->ihigh = x.i;
    if (!s->count || x.i < s->ilow) s->ilow = x.i;
    s->nan |= isnan(x.f);
    s->count++;
  }
  return sums;
}

/* The error bound of pairwise sums with at most 64 consecutive terms on four levels: far below count * roundoff. */
static long double bound(const sums_t *s, hal_dtype_t dtype) {
  const long double terms = s->count < 300 ? s->count : 300;
  return terms * roundoff(dtype) * s->magnitude;
}

static void check_reduce(const char *op, hal_dtype_t dtype, const shape_t *shape, enum layout in, enum layout out,
                         uint64_t mask) {
  int64_t sizes[MAX_DIMS], list[MAX_DIMS];
  uint32_t count = 0;
  for (int32_t d = 0; d < shape->ndim; d++)
    if (mask >> d & 1) list[count++] = d % 2 ? d : d - shape->ndim; /* negative ones, too */
  keepdim(shape, mask, sizes);
  tensor_t *a = tensor_new(dtype, shape->ndim, shape->sizes, in), *r = tensor_new(dtype, shape->ndim, sizes, out);
  tensor_fill_ordinary(a, (uint64_t)shape->sizes[0] + mask);
  tensor_randomize(r, 3);
  unsigned char *before = malloc((size_t)r->storage * r->element);
  memcpy(before, r->host, (size_t)r->storage * r->element);
  const hal_value_t args[] = {of_tensor(a), of_list(list, count)};
  must(run(op, args, 2, r, 0));
  tensor_download(r);
  sums_t *want = reference(a, mask, r->numel);
  const int mean = !strcmp(op, "mean.dim"), sum = !strcmp(op, "sum.dim_IntList"), high = !strcmp(op, "amax");
  for (int64_t i = 0; i < r->numel; i++) {
    const number_t got = tensor_get(r, i);
    const sums_t *s = &want[i];
    if (!is_floating(dtype)) {
      const int64_t exact = high ? s->ihigh : s->ilow;
      const uint64_t low_bits = dtype == HAL_INT32 ? UINT32_MAX : UINT64_MAX;
      if (sum)
        cr_assert_eq((uint64_t)got.i & low_bits, s->isum & low_bits, "%s dtype %d", op, (int)dtype);
      else
        cr_assert_eq(got.i, exact, "%s dtype %d: got %lld, want %lld", op, (int)dtype, (long long)got.i,
                     (long long)exact);
      continue;
    }
    const long double exact = mean ? s->sum / s->count : sum ? s->sum : high ? s->high : s->low;
    const long double error =
        mean || sum ? bound(s, dtype) / (mean ? s->count : 1) + roundoff(dtype) * fabsl(exact) : 0;
    cr_assert(fabsl(got.f - exact) <= error,
              "%s dtype %d layout %d %d mask %llx output %lld: got %.9Lg, want %.9Lg +- %.2Lg", op, (int)dtype, (int)in,
              (int)out, (unsigned long long)mask, (long long)i, got.f, exact, error);
  }
  for (int64_t i = 0; i < r->numel; i++)
    memcpy(r->host + (size_t)tensor_place(r, i) * r->element, before + (size_t)tensor_place(r, i) * r->element,
           r->element);
  cr_assert_eq(memcmp(before, r->host, (size_t)r->storage * r->element), 0, "%s wrote outside its result", op);
  free(before), free(want), tensor_free(a), tensor_free(r);
}

static const shape_t shapes[] = {
    {1, {1}},        {1, {1000}},       {2, {3, 70}},       {2, {70, 3}},         {2, {130, 257}},
    {3, {5, 33, 7}}, {4, {4, 6, 7, 7}}, {4, {2, 1, 65, 3}}, {5, {3, 2, 4, 2, 5}}, {6, {2, 3, 2, 3, 2, 40}}};
#define SHAPES (sizeof shapes / sizeof shapes[0])

Test(op_reduce, every_choice_of_dimensions_in_every_layout, .timeout = 600) {
  open_device();
  static const char *const ops[] = {"sum.dim_IntList", "mean.dim", "amax", "amin"};
  for (size_t o = 0; o < 4; o++)
    for (size_t s = 0; s < SHAPES; s++)
      for (enum layout in = CONTIGUOUS; in < LAYOUTS; in++)
        for (uint64_t mask = 1; mask < UINT64_C(1) << shapes[s].ndim; mask++)
          if (is_sampled(o + s + (size_t)in + mask))
            check_reduce(ops[o], HAL_FLOAT32, &shapes[s], in, (enum layout)(mask % BROADCAST_ALL), mask);
}

Test(op_reduce, every_dtype) {
  open_device();
  static const hal_dtype_t dtypes[] = {HAL_FLOAT64, HAL_INT64, HAL_INT32, HAL_INT16, HAL_INT8, HAL_UINT8};
  for (size_t t = 0; t < 6; t++)
    for (size_t s = 0; s < SHAPES; s++)
      for (uint64_t mask = 1; mask < UINT64_C(1) << shapes[s].ndim; mask++) {
        if (t < 3) check_reduce("sum.dim_IntList", dtypes[t], &shapes[s], CONTIGUOUS, CONTIGUOUS, mask);
        if (t < 1) check_reduce("mean.dim", dtypes[t], &shapes[s], CONTIGUOUS, CONTIGUOUS, mask);
        check_reduce("amax", dtypes[t], &shapes[s], REVERSED, PADDED, mask);
        check_reduce("amin", dtypes[t], &shapes[s], CONTIGUOUS, CONTIGUOUS, mask);
      }
}

Test(op_reduce, long_dimensions_are_cut_and_stay_accurate) {
  open_device();
  static const shape_t long_shapes[] = {
      {1, {3000001}}, {2, {3, 300007}}, {2, {300007, 3}}, {2, {40009, 70}}, {3, {3, 40009, 5}}};
  for (size_t s = 0; s < 5; s++)
    for (uint64_t mask = 1; mask < UINT64_C(1) << long_shapes[s].ndim; mask++) {
      check_reduce("sum.dim_IntList", HAL_FLOAT32, &long_shapes[s], CONTIGUOUS, CONTIGUOUS, mask);
      check_reduce("mean.dim", HAL_FLOAT32, &long_shapes[s], REVERSED, CONTIGUOUS, mask);
      check_reduce("amax", HAL_FLOAT32, &long_shapes[s], CONTIGUOUS, CONTIGUOUS, mask);
    }
}

Test(op_reduce, an_empty_list_means_all_dimensions) {
  open_device();
  static const int64_t sizes[] = {7, 9}, one[] = {1, 1};
  tensor_t *a = tensor_new(HAL_INT64, 2, sizes, PADDED), *r = tensor_new(HAL_INT64, 2, one, CONTIGUOUS);
  tensor_fill_ordinary(a, 5);
  int64_t want = 0;
  for (int64_t i = 0; i < a->numel; i++) want += tensor_get(a, i).i;
  const hal_value_t args[] = {of_tensor(a), of_list(NULL, 0)};
  must(run("sum.dim_IntList", args, 2, r, 0));
  tensor_download(r);
  cr_assert_eq(tensor_get(r, 0).i, want);
  tensor_free(a), tensor_free(r);
}

Test(op_reduce, an_empty_reduction_is_the_neutral_element_or_an_error) {
  open_device();
  static const int64_t sizes[] = {4, 0}, kept[] = {4, 1}, dim[] = {1};
  tensor_t *a = tensor_new(HAL_FLOAT32, 2, sizes, CONTIGUOUS), *r = tensor_new(HAL_FLOAT32, 2, kept, CONTIGUOUS);
  const hal_value_t args[] = {of_tensor(a), of_list(dim, 1)};
  tensor_randomize(r, 1);
  must(run("sum.dim_IntList", args, 2, r, 0));
  tensor_download(r);
  for (int64_t i = 0; i < 4; i++) cr_assert_eq(tensor_get(r, i).f, 0);
  must(run("mean.dim", args, 2, r, 0));
  tensor_download(r);
  for (int64_t i = 0; i < 4; i++) cr_assert(isnan(tensor_get(r, i).f));
  cr_assert_eq(run("amax", args, 2, r, 0), HAL_INVALID_ARGUMENT);
  cr_assert(strstr(hal_error_message(), "amax") != NULL, "%s", hal_error_message());
  tensor_free(a), tensor_free(r);
}

Test(op_reduce, nan_propagates_wherever_it_stands) {
  open_device();
  static const int64_t lengths[] = {1, 31, 64, 65, 300, 9000};
  for (size_t n = 0; n < 6; n++)
    for (int64_t at = 0; at < lengths[n]; at += 1 + lengths[n] / 37)
      for (int rows = 0; rows < 2; rows++) {
        const int64_t sizes[] = {rows ? 3 : lengths[n], rows ? lengths[n] : 3}, kept[] = {rows ? 3 : 1, rows ? 1 : 3};
        const int64_t dim = rows;
        tensor_t *a = tensor_new(HAL_FLOAT32, 2, sizes, CONTIGUOUS), *r = tensor_new(HAL_FLOAT32, 2, kept, CONTIGUOUS);
        tensor_fill_ordinary(a, 9);
        const float nan = NAN;
        memcpy(a->host + 4 * tensor_place(a, rows ? lengths[n] + at : at * 3 + 1), &nan, 4);
        tensor_upload(a);
        static const char *const ops[] = {"amax", "amin", "sum.dim_IntList", "mean.dim"};
        const hal_value_t args[] = {of_tensor(a), of_list(&dim, 1)};
        for (int o = 0; o < 4; o++) {
          must(run(ops[o], args, 2, r, 0));
          tensor_download(r);
          cr_assert(isnan(tensor_get(r, 1).f) && !isnan(tensor_get(r, 0).f) && !isnan(tensor_get(r, 2).f),
                    "%s over %lld elements, NaN at %lld", ops[o], (long long)lengths[n], (long long)at);
        }
        tensor_free(a), tensor_free(r);
      }
}

/* ---- values and indices ---- */

/* The first extreme element of each output, as PyTorch defines it: NaN is more extreme than numbers, and the first
   of equal elements is returned. */
static void check_index(const char *op, hal_dtype_t dtype, const shape_t *shape, enum layout in, enum layout out,
                        int dim, int special) {
  const uint64_t mask = dim < 0 ? (UINT64_C(1) << shape->ndim) - 1 : UINT64_C(1) << dim;
  int64_t sizes[MAX_DIMS];
  const int64_t list[] = {dim};
  keepdim(shape, mask, sizes);
  tensor_t *a = tensor_new(dtype, shape->ndim, shape->sizes, in), *v = tensor_new(dtype, shape->ndim, sizes, out),
           *x = tensor_new(HAL_INT64, shape->ndim, sizes, out);
  if (special)
    tensor_randomize(a, (uint64_t)shape->sizes[0] * 31);
  else
    tensor_fill_ordinary(a, (uint64_t)shape->sizes[0]); /* many equal elements in integers */
  const hal_value_t args[] = {of_tensor(a), of_list(list, dim < 0 ? 0 : 1)};
  must(op[0] == 'm' ? run_two(op, args, 2, v, x) : run(op, args, 2, x, 0)); /* max.dim, argmax */
  tensor_download(v), tensor_download(x);
  const int high = strstr(op, "max") != NULL;
  int64_t *best = malloc((size_t)(x->numel + 1) * sizeof *best),
          *place = malloc((size_t)(x->numel + 1) * sizeof *place), *seen = calloc((size_t)x->numel + 1, sizeof *seen);
  for (int64_t i = 0; i < a->numel; i++) {
    const int64_t o = output_of(a, mask, i), at = seen[o]++;
    const number_t now = tensor_get(a, i), old = at ? tensor_get(a, best[o]) : now;
    const int better = is_floating(dtype) ? (high ? now.f > old.f : now.f < old.f) || (isnan(now.f) && !isnan(old.f))
                                          : (high ? now.i > old.i : now.i < old.i);
    if (!at || better) best[o] = i, place[o] = at;
  }
  for (int64_t o = 0; o < x->numel; o++) {
    cr_assert_eq(tensor_get(x, o).i, place[o], "%s dtype %d dim %d layout %d output %lld: got %lld, want %lld", op,
                 (int)dtype, dim, (int)in, (long long)o, (long long)tensor_get(x, o).i, (long long)place[o]);
    if (op[0] != 'm') continue;
    const number_t got = tensor_get(v, o), want = tensor_get(a, best[o]);
    cr_assert(got.i == want.i && (got.f == want.f || (isnan(got.f) && isnan(want.f))), "%s: the value", op);
  }
  free(best), free(place), free(seen), tensor_free(a), tensor_free(v), tensor_free(x);
}

static const char *const index_ops[] = {"max.dim", "min.dim", "argmax", "argmin"};

Test(op_reduce_index, first_extreme_in_every_layout_and_dtype, .timeout = 600) {
  open_device();
  static const hal_dtype_t dtypes[] = {HAL_FLOAT32, HAL_FLOAT64, HAL_INT64, HAL_INT32, HAL_INT16, HAL_INT8, HAL_UINT8};
  for (size_t o = 0; o < 4; o++)
    for (size_t t = 0; t < 7; t++)
      for (size_t s = 0; s < SHAPES; s++)
        for (enum layout in = CONTIGUOUS; in < LAYOUTS; in++)
          for (int dim = -1; dim < shapes[s].ndim; dim++)
            for (int special = 0; is_sampled(o + t + s + (size_t)in + (size_t)dim) && special < 2; special++)
              check_index(index_ops[o], dtypes[t], &shapes[s], in, (enum layout)((dim + 1) % BROADCAST_ALL), dim,
                          special);
}

Test(op_reduce_index, long_dimensions_are_cut_and_merged) {
  open_device();
  static const shape_t long_shapes[] = {{1, {300007}}, {2, {3, 100003}}, {2, {100003, 3}}, {3, {40009, 2, 3}}};
  for (size_t o = 0; o < 4; o++)
    for (size_t s = 0; s < 4; s++)
      for (enum layout in = CONTIGUOUS; in <= PADDED; in++)
        for (int dim = -1; dim < long_shapes[s].ndim; dim++)
          for (int special = 0; special < 2; special++)
            check_index(index_ops[o], HAL_FLOAT32, &long_shapes[s], in, CONTIGUOUS, dim, special);
}

/* ---- refusals and bits ---- */

Test(op_reduce, wrong_calls_are_refused_with_a_message) {
  open_device();
  static const int64_t sizes[] = {4, 5}, kept[] = {4, 1}, bad_dim[] = {2}, twice[] = {1, -1}, good[] = {1};
  tensor_t *a = tensor_new(HAL_FLOAT32, 2, sizes, CONTIGUOUS), *r = tensor_new(HAL_FLOAT32, 2, kept, CONTIGUOUS),
           *whole = tensor_new(HAL_FLOAT32, 2, sizes, CONTIGUOUS), *wrong = tensor_new(HAL_INT32, 2, kept, CONTIGUOUS);
  hal_value_t args[] = {of_tensor(a), of_list(bad_dim, 1)};
  cr_assert_eq(run("sum.dim_IntList", args, 2, r, 0), HAL_INVALID_ARGUMENT);
  cr_assert(strstr(hal_error_message(), "dimension 2") != NULL, "%s", hal_error_message());
  args[1] = of_list(twice, 2);
  cr_assert_eq(run("sum.dim_IntList", args, 2, r, 0), HAL_INVALID_ARGUMENT);
  args[1] = of_list(good, 1);
  cr_assert_eq(run("sum.dim_IntList", args, 2, whole, 0), HAL_INVALID_ARGUMENT);
  cr_assert_eq(run("sum.dim_IntList", args, 2, wrong, 0), HAL_INVALID_ARGUMENT);
  cr_assert_eq(run("argmax", args, 2, wrong, 0), HAL_INVALID_ARGUMENT);
  tensor_free(a), tensor_free(r), tensor_free(whole), tensor_free(wrong);
}

static void compute_sums(unsigned char *out, size_t size) {
  static const int64_t sizes[] = {1000, 1003}, shapes_out[3][2] = {{1000, 1}, {1, 1003}, {1, 1}}, dims[] = {0, 1};
  tensor_t *a = tensor_new(HAL_FLOAT32, 2, sizes, CONTIGUOUS);
  tensor_fill_ordinary(a, 77);
  size_t at = 0;
  for (int i = 0; i < 3; i++) {
    tensor_t *r = tensor_new(HAL_FLOAT32, 2, shapes_out[i], CONTIGUOUS);
    const hal_value_t args[] = {of_tensor(a), i == 0 ? of_list(dims + 1, 1) : of_list(dims, i == 1 ? 1 : 2)};
    must(run("sum.dim_IntList", args, 2, r, 0));
    tensor_download(r);
    cr_assert_leq(at + (size_t)r->numel * 4, size);
    memcpy(out + at, r->host, (size_t)r->numel * 4);
    at += (size_t)r->numel * 4;
    tensor_free(r);
  }
  tensor_free(a);
}

Test(op_reduce, bits_do_not_depend_on_threads_or_mode) { assert_same_bits(compute_sums, (1000 + 1003 + 1) * 4); }
