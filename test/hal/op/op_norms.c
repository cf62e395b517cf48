/* op_norms.c: norms, variances, inner products, products, counts, any and all over each choice of dimensions in each
 * layout, compared with extended precision. */
#include "op_numbers.h"

static const struct {
  int32_t ndim;
  int64_t sizes[MAX_DIMS];
} shapes[] = {{1, {1}},        {1, {9001}},        {2, {3, 70}},         {2, {70, 3}},   {2, {130, 257}},
              {3, {5, 33, 7}}, {4, {2, 1, 65, 3}}, {5, {3, 2, 4, 2, 5}}, {2, {20011, 3}}};
#define SHAPES (sizeof shapes / sizeof shapes[0])

/* The sums of one output. */
typedef struct sums_s {
  long double sum, square, power, dot, magnitude, high, low;
  int64_t count, nonzero;
} sums_t;

/* The operand, a second one of its shape, and their sums; `power` is the order of a norm. */
typedef struct sample_s {
  tensor_t *a, *b;
  sums_t *sums;
  int64_t outputs, kept[MAX_DIMS], list[MAX_DIMS];
  uint32_t listed;
  uint64_t mask;
} sample_t;

static sample_t sample_new(hal_dtype_t dtype, size_t shape, enum layout layout, uint64_t mask, long double power) {
  sample_t s = {.mask = mask, .outputs = 1};
  s.a = tensor_new(dtype, shapes[shape].ndim, shapes[shape].sizes, layout);
  s.b = tensor_new(dtype, shapes[shape].ndim, shapes[shape].sizes, layout == CONTIGUOUS ? CONTIGUOUS : PADDED);
  tensor_fill_ordinary(s.a, shape + 17 * mask);
  tensor_fill_ordinary(s.b, shape + 3);
  for (int32_t d = 0; d < shapes[shape].ndim; d++) {
    s.kept[d] = mask >> d & 1 ? 1 : shapes[shape].sizes[d];
    s.outputs *= s.kept[d];
    if (mask >> d & 1) s.list[s.listed++] = d % 2 ? d : d - shapes[shape].ndim;
  }
  s.sums = calloc((size_t)s.outputs, sizeof *s.sums);
  for (int64_t i = 0; i < s.a->numel; i++) {
    sums_t *x = &s.sums[output_of(s.a, mask, i)];
    const long double v = tensor_get(s.a, i).f, m = fabsl(v);
    x->sum += v, x->square += v * v, x->magnitude += m, x->dot += v * tensor_get(s.b, i).f;
    x->power += powl(m, power);
    if (!x->count || m > x->high) x->high = m;
    if (!x->count || m < x->low) x->low = m;
    x->nonzero += v != 0;
    x->count++;
  }
  return s;
}

static void sample_free(sample_t *s) { tensor_free(s->a), tensor_free(s->b), free(s->sums); }

static void near(const char *op, const sample_t *s, const tensor_t *r, int64_t i, long double want, long double error) {
  const long double got = tensor_get(r, i).f;
  cr_assert(fabsl(got - want) <= error, "%s mask %llx output %lld of %lld: got %.10Lg, want %.10Lg +- %.2Lg", op,
            (unsigned long long)s->mask, (long long)i, (long long)s->outputs, got, want, error);
}

static void check_norm(hal_dtype_t dtype, size_t shape, enum layout layout, uint64_t mask, double order) {
  sample_t s = sample_new(dtype, shape, layout, mask, order == 0 || isinf(order) ? 1 : order);
  tensor_t *r = tensor_new(dtype, s.a->desc.ndim, s.kept, PADDED);
  const hal_value_t args[] = {of_tensor(s.a), of_list(s.list, s.listed), of_double(order)};
  must(run("linalg_vector_norm", args, 3, r, 0));
  tensor_download(r);
  for (int64_t i = 0; i < s.outputs; i++) {
    const sums_t *x = &s.sums[i];
    const long double want = order == 0     ? x->nonzero
                             : isinf(order) ? (order > 0 ? x->high : x->low)
                                            : powl(x->power, 1 / (long double)order);
    near("linalg_vector_norm", &s, r, i, want, isinf(order) ? 0 : 40 * roundoff(dtype) * (want + 1e-30L));
  }
  tensor_free(r), sample_free(&s);
}

Test(op_norms, of_every_order, .timeout = 120) {
  open_device();
  static const double orders[] = {0, 1, 2, 3, 2.5, -1, INFINITY, -INFINITY};
  for (size_t o = 0; o < 8; o++)
    for (size_t shape = 0; shape < SHAPES; shape++)
      for (uint64_t mask = 1; mask < UINT64_C(1) << shapes[shape].ndim; mask++) {
        check_norm(HAL_FLOAT32, shape, (enum layout)(mask % BROADCAST_ALL), mask, orders[o]);
        check_norm(HAL_FLOAT64, shape, CONTIGUOUS, mask, orders[o]);
      }
}

static void check_moments(hal_dtype_t dtype, size_t shape, enum layout layout, uint64_t mask, int root) {
  static const char *const ops[] = {"var_mean.correction", "std_mean.correction"};
  sample_t s = sample_new(dtype, shape, layout, mask, 2);
  tensor_t *r = tensor_new(dtype, s.a->desc.ndim, s.kept, PADDED),
           *mean = tensor_new(dtype, s.a->desc.ndim, s.kept, REVERSED);
  uint32_t op;
  must(hal_op_id(ops[root], &op));
  const hal_value_t args[] = {of_tensor(s.a), of_list(s.list, s.listed), of_double(0.5)};
  const hal_tensor_t *const results[] = {&r->desc, &mean->desc};
  for (uint32_t count = 1; count <= 2; count++) {
    hal_op_call_t call = {
        .struct_size = sizeof call, .arg_count = 3, .result_count = count, .args = args, .results = results};
    must(run_planned(0, op, NULL, &call));
    tensor_download(r), tensor_download(mean);
    for (int64_t i = 0; i < s.outputs; i++) {
      const sums_t *x = &s.sums[i];
      const long double n = x->count, center = x->sum / n, var = (x->square - x->sum * center) / (n - 0.5L);
      const long double want = root ? sqrtl(var < 0 ? 0 : var) : var;
      near(ops[root], &s, r, i, want, root && var < 1e-10L ? 1e-5L : 100 * roundoff(dtype) * (want + 1e-3L));
      if (count == 2) near("the mean", &s, mean, i, center, 300 * roundoff(dtype) * (x->magnitude / n + 1e-30L));
    }
  }
  tensor_free(r), tensor_free(mean), sample_free(&s);
}

Test(op_norms, variances_and_means, .timeout = 120) {
  open_device();
  for (int root = 0; root < 2; root++)
    for (size_t shape = 0; shape < SHAPES; shape++)
      for (uint64_t mask = 1; mask < UINT64_C(1) << shapes[shape].ndim; mask++) {
        check_moments(HAL_FLOAT32, shape, (enum layout)(mask % BROADCAST_ALL), mask, root);
        check_moments(HAL_FLOAT64, shape, CONTIGUOUS, mask, root);
      }
}

Test(op_norms, inner_products, .timeout = 120) {
  open_device();
  for (size_t shape = 0; shape < SHAPES; shape++)
    for (enum layout layout = CONTIGUOUS; layout < BROADCAST_ALL; layout++)
      for (uint64_t mask = 1; mask < UINT64_C(1) << shapes[shape].ndim; mask++)
        for (int centered = 0; centered < 2; centered++) {
          sample_t s = sample_new(HAL_FLOAT32, shape, layout, mask, 2);
          tensor_t *r = tensor_new(HAL_FLOAT32, s.a->desc.ndim, s.kept, PADDED),
                   *c = tensor_new(HAL_FLOAT32, s.a->desc.ndim, s.kept, REVERSED);
          tensor_fill_ordinary(c, 5);
          const hal_value_t args[] = {of_tensor(s.a), of_tensor(s.b), centered ? of_tensor(c) : (hal_value_t){0},
                                      of_list(s.list, s.listed)};
          must(run("centered_dot", args, 4, r, 0));
          tensor_download(r);
          for (int64_t i = 0; i < s.outputs; i++) {
            const sums_t *x = &s.sums[i];
            const long double want = x->dot - (centered ? tensor_get(c, i).f * x->sum : 0);
            near("centered_dot", &s, r, i, want, 300 * roundoff(HAL_FLOAT32) * (2 * x->magnitude + 1e-30L));
          }
          tensor_free(r), tensor_free(c), sample_free(&s);
        }
}

Test(op_norms, truth_and_counts) {
  open_device();
  static const char *const ops[] = {"any.dims", "all.dims", "count_nonzero.dim_IntList"};
  for (size_t o = 0; o < 3; o++)
    for (size_t shape = 0; shape < SHAPES; shape++)
      for (uint64_t mask = 1; mask < UINT64_C(1) << shapes[shape].ndim; mask++) {
        sample_t s = sample_new(HAL_BOOL, shape, (enum layout)(mask % BROADCAST_ALL), mask, 1);
        for (int64_t i = 0; i < s.a->storage; i++) s.a->host[i] = o == 1 ? i % 11 != 0 : i % 11 == 0;
        tensor_upload(s.a);
        memset(s.sums, 0, (size_t)s.outputs * sizeof *s.sums);
        for (int64_t i = 0; i < s.a->numel; i++) {
          sums_t *x = &s.sums[output_of(s.a, mask, i)];
          x->nonzero += tensor_get(s.a, i).i;
          x->count++;
        }
        tensor_t *r = tensor_new(o == 2 ? HAL_INT64 : HAL_BOOL, s.a->desc.ndim, s.kept, PADDED);
        const hal_value_t args[] = {of_tensor(s.a), of_list(s.list, s.listed)};
        must(run(ops[o], args, 2, r, 0));
        tensor_download(r);
        for (int64_t i = 0; i < s.outputs; i++) {
          const sums_t *x = &s.sums[i];
          const int64_t want = o == 0 ? x->nonzero != 0 : o == 1 ? x->nonzero == x->count : x->nonzero;
          cr_assert_eq(tensor_get(r, i).i, want, "%s output %lld: got %lld, want %lld", ops[o], (long long)i,
                       (long long)tensor_get(r, i).i, (long long)want);
        }
        tensor_free(r), sample_free(&s);
      }
}

Test(op_norms, products_wrap_and_the_empty_product_is_one) {
  open_device();
  static const int64_t sizes[] = {3, 40}, kept[] = {3, 1}, none[] = {3, 0}, dim[] = {1};
  tensor_t *a = tensor_new(HAL_INT64, 2, sizes, REVERSED), *r = tensor_new(HAL_INT64, 2, kept, CONTIGUOUS),
           *empty = tensor_new(HAL_INT64, 2, none, CONTIGUOUS);
  tensor_fill_ordinary(a, 11);
  const hal_value_t args[] = {of_tensor(a), of_list(dim, 1)}, nothing[] = {of_tensor(empty), of_list(dim, 1)};
  must(run("prod.dim_int", args, 2, r, 0));
  tensor_download(r);
  for (int64_t i = 0; i < 3; i++) {
    uint64_t want = 1;
    for (int64_t j = 0; j < 40; j++) want *= (uint64_t)tensor_get(a, i * 40 + j).i;
    cr_assert_eq((uint64_t)tensor_get(r, i).i, want);
  }
  must(run("prod.dim_int", nothing, 2, r, 0));
  tensor_download(r);
  for (int64_t i = 0; i < 3; i++) cr_assert_eq(tensor_get(r, i).i, 1);
  tensor_free(a), tensor_free(r), tensor_free(empty);
}

Test(op_norms, wrong_calls_are_refused_with_a_message) {
  open_device();
  static const int64_t sizes[] = {4, 5}, kept[] = {4, 1}, other[] = {5, 4}, dim[] = {1};
  tensor_t *a = tensor_new(HAL_FLOAT32, 2, sizes, CONTIGUOUS), *r = tensor_new(HAL_FLOAT32, 2, kept, CONTIGUOUS),
           *b = tensor_new(HAL_FLOAT32, 2, other, CONTIGUOUS), *d = tensor_new(HAL_FLOAT64, 2, kept, CONTIGUOUS);
  const hal_value_t shape[] = {of_tensor(a), of_tensor(b), {0}, of_list(dim, 1)};
  cr_assert_eq(run("centered_dot", shape, 4, r, 0), HAL_INVALID_ARGUMENT);
  cr_assert(strstr(hal_error_message(), "other has size 5 in dimension 0") != NULL, "%s", hal_error_message());
  const hal_value_t center[] = {of_tensor(a), of_tensor(a), of_tensor(d), of_list(dim, 1)};
  cr_assert_eq(run("centered_dot", center, 4, r, 0), HAL_INVALID_ARGUMENT);
  cr_assert(strstr(hal_error_message(), "center has dtype float64") != NULL, "%s", hal_error_message());
  const hal_value_t order[] = {of_tensor(a), of_list(dim, 1), {0}};
  cr_assert_eq(run("linalg_vector_norm", order, 3, r, 0), HAL_INVALID_ARGUMENT);
  const hal_value_t result[] = {of_tensor(a), of_list(dim, 1), of_double(2)};
  cr_assert_eq(run("linalg_vector_norm", result, 3, d, 0), HAL_INVALID_ARGUMENT);
  tensor_free(a), tensor_free(b), tensor_free(r), tensor_free(d);
}

static void compute_norms(unsigned char *out, size_t size) {
  static const int64_t sizes[] = {1000, 1003}, one[] = {1, 1};
  tensor_t *a = tensor_new(HAL_FLOAT32, 2, sizes, CONTIGUOUS), *r = tensor_new(HAL_FLOAT32, 2, one, CONTIGUOUS);
  tensor_fill_ordinary(a, 77);
  const hal_value_t norm[] = {of_tensor(a), of_list(NULL, 0), of_double(2)},
                    dot[] = {of_tensor(a), of_tensor(a), {0}, of_list(NULL, 0)};
  cr_assert_eq(size, 12);
  must(run("linalg_vector_norm", norm, 3, r, 0)), tensor_download(r), memcpy(out, r->host, 4);
  must(run("std_mean.correction", norm, 3, r, 0)), tensor_download(r), memcpy(out + 4, r->host, 4);
  must(run("centered_dot", dot, 4, r, 0)), tensor_download(r), memcpy(out + 8, r->host, 4);
  tensor_free(a), tensor_free(r);
}

Test(op_norms, same_bits_however_the_work_is_divided, .timeout = 60) { assert_same_bits(compute_norms, 12); }
