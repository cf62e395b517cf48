/* op_gemm.c: mm, addmm, bmm and baddbmm compared with extended precision: sizes around the blocks, each
 * transposition, strided and broadcast operands. */
#include "op_numbers.h"

typedef struct problem_s {
  int64_t batch, m, n, k; /* batch 0: matrices */
  hal_dtype_t dtype;
  enum layout a, b, self, result; /* of the matrices; BROADCAST_* for self only */
  double beta, alpha;
  int with_self;
} problem_t;

static tensor_t *matrices(const problem_t *p, int64_t rows, int64_t columns, enum layout layout) {
  const int64_t sizes[] = {p->batch, rows, columns};
  return p->batch ? tensor_new(p->dtype, 3, sizes, layout) : tensor_new(p->dtype, 2, sizes + 1, layout);
}

static hal_status_t run_problem(const problem_t *p, tensor_t *self, tensor_t *a, tensor_t *b, tensor_t *r) {
  const hal_value_t plain[] = {of_tensor(a), of_tensor(b)};
  if (!p->with_self) return run(p->batch ? "bmm" : "mm", plain, 2, r, 0);
  const hal_value_t add[] = {of_tensor(self), of_tensor(a), of_tensor(b), of_double(p->beta), of_double(p->alpha)};
  return run(p->batch ? "baddbmm" : "addmm", add, 5, r, 0);
}

/* Each element is within the error of a sum of k products: k roundings of the sum of magnitudes, and the final
 * roundings.
 */
static void check(const problem_t *p) {
  tensor_t *a = matrices(p, p->m, p->k, p->a), *b = matrices(p, p->k, p->n, p->b),
           *r = matrices(p, p->m, p->n, p->result), *self = matrices(p, p->m, p->n, p->self);
  tensor_fill_ordinary(a, 1), tensor_fill_ordinary(b, 2), tensor_fill_ordinary(self, 3);
  tensor_randomize(r, 4); /* NaN and infinity, which must not propagate into the result */
  unsigned char *before = malloc((size_t)r->storage * r->element + 1);
  memcpy(before, r->host, (size_t)r->storage * r->element);
  must(run_problem(p, self, a, b, r));
  tensor_download(r);
  const double alpha = p->with_self ? p->alpha : 1, beta = p->with_self ? p->beta : 0;
  const int64_t batches = p->batch ? p->batch : 1;
  for (int64_t i = 0; i < batches * p->m; i++)
    for (int64_t j = 0; j < p->n; j++) {
      const int64_t at = i * p->n + j;
      long double sum = 0, magnitude = 0;
      for (int64_t k = 0; k < p->k; k++) {
        const long double x = tensor_get(a, i * p->k + k).f * tensor_get(b, (i / p->m * p->k + k) * p->n + j).f;
        sum += x;
        magnitude += fabsl(x);
      }
      const long double start = beta == 0 ? 0 : (long double)beta * tensor_get(self, at).f;
      const long double want = start + (long double)alpha * sum;
      const long double computing = is_half(p->dtype) ? roundoff(HAL_FLOAT32) : roundoff(p->dtype);
      long double error = computing * ((long double)(p->k + 4) * fabs(alpha) * magnitude + 4 * fabsl(start));
      if (is_half(p->dtype)) error += roundoff(p->dtype) * fabsl(want) + 0x1p-25L; /* rounded once */
      const long double got = tensor_get(r, at).f;
      cr_assert(fabsl(got - want) <= error,
                "%lld x (%lld %lld %lld) layouts %d %d %d %d at %lld %lld: got %.9Lg, want %.9Lg +- %.2Lg",
                (long long)p->batch, (long long)p->m, (long long)p->n, (long long)p->k, p->a, p->b, p->self, p->result,
                (long long)i, (long long)j, got, want, error);
    }
  for (int64_t i = 0; i < r->numel; i++)
    memcpy(r->host + (size_t)tensor_place(r, i) * r->element, before + (size_t)tensor_place(r, i) * r->element,
           r->element);
  cr_assert_eq(memcmp(before, r->host, (size_t)r->storage * r->element), 0, "wrote outside the result");
  free(before), tensor_free(a), tensor_free(b), tensor_free(r), tensor_free(self);
}

static const hal_dtype_t dtypes[] = {HAL_FLOAT32, HAL_FLOAT64, HAL_FLOAT16, HAL_BFLOAT16};

Test(op_gemm, sizes_around_the_blocks, .timeout = 120) {
  open_device();
  static const int64_t ms[] = {1, 2, 3, 4, 5, 7, 8, 9, 16, 31, 33, 67},
                       ns[] = {1, 2, 3, 7, 8, 15, 16, 17, 31, 32, 33, 65}, ks[] = {1, 2, 3, 7, 8, 9, 31, 33};
  for (size_t t = 0; t < sizeof dtypes / sizeof dtypes[0]; t++)
    for (size_t i = 0; i < 12; i++)
      for (size_t j = 0; j < 12; j++)
        for (size_t k = 0; k < 8; k++)
          for (enum layout b = CONTIGUOUS; b <= REVERSED; b++)
            check(&(problem_t){
                .m = ms[i], .n = ns[j], .k = ks[k], .dtype = dtypes[t], .a = (enum layout)(k % 2), .b = b});
}

Test(op_gemm, every_layout_of_every_operand, .timeout = 120) {
  open_device();
  for (size_t t = 0; t < sizeof dtypes / sizeof dtypes[0]; t++)
    for (enum layout a = CONTIGUOUS; a < BROADCAST_ALL; a++)
      for (enum layout b = CONTIGUOUS; b < BROADCAST_ALL; b++)
        for (enum layout r = CONTIGUOUS; r < BROADCAST_ALL; r++)
          for (enum layout self = CONTIGUOUS; self < LAYOUTS; self++)
            for (int64_t batch = 0; batch < 3; batch += 2)
              check(&(problem_t){.batch = batch,
                                 .m = 13,
                                 .n = 37,
                                 .k = 29,
                                 .dtype = dtypes[t],
                                 .a = a,
                                 .b = b,
                                 .self = self,
                                 .result = r,
                                 .beta = 0.75,
                                 .alpha = -1.5,
                                 .with_self = 1});
}

Test(op_gemm, several_tiles_and_several_blocks_of_k, .timeout = 120) {
  open_device();
  static const int64_t shapes[][3] = {{200, 300, 70}, {70, 130, 600}, {33, 10, 1030},
                                      {385, 40, 257}, {1, 513, 515},  {500, 1, 300}};
  for (size_t t = 0; t < sizeof dtypes / sizeof dtypes[0]; t++)
    for (size_t s = 0; s < 6; s++)
      for (int way = 0; way < 8; way++)
        check(&(problem_t){.m = shapes[s][0],
                           .n = shapes[s][1],
                           .k = shapes[s][2],
                           .dtype = dtypes[t],
                           .a = (enum layout)(way & 1),
                           .b = (enum layout)(way >> 1 & 1),
                           .result = (enum layout)(way >> 2 & 1),
                           .beta = 1,
                           .alpha = 2,
                           .with_self = way % 3 == 0});
}

Test(op_gemm, batches_of_small_matrices) {
  open_device();
  for (int way = 0; way < 8; way++)
    check(&(problem_t){.batch = 300,
                       .m = 5,
                       .n = 9,
                       .k = 6,
                       .dtype = HAL_FLOAT32,
                       .a = (enum layout)(way & 1),
                       .b = (enum layout)(way >> 1 & 1),
                       .result = (enum layout)(way >> 2 & 1),
                       .with_self = way % 2,
                       .beta = 1,
                       .alpha = 1});
}

Test(op_gemm, a_bias_is_broadcast_over_rows) {
  open_device();
  static const int64_t bias_sizes[] = {1, 37};
  const problem_t p = {.m = 20, .n = 37, .k = 11, .dtype = HAL_FLOAT32, .beta = 1, .alpha = 1, .with_self = 1};
  tensor_t *a = matrices(&p, 20, 11, CONTIGUOUS), *b = matrices(&p, 11, 37, REVERSED),
           *r = matrices(&p, 20, 37, CONTIGUOUS), *bias = tensor_new(HAL_FLOAT32, 2, bias_sizes, CONTIGUOUS);
  tensor_fill_ordinary(a, 1), tensor_fill_ordinary(b, 2), tensor_fill_ordinary(bias, 3);
  must(run_problem(&p, bias, a, b, r));
  tensor_download(r);
  for (int64_t i = 0; i < 20 * 37; i++) {
    long double want = tensor_get(bias, i % 37).f;
    for (int64_t k = 0; k < 11; k++) want += tensor_get(a, i / 37 * 11 + k).f * tensor_get(b, k * 37 + i % 37).f;
    cr_assert_float_eq((double)tensor_get(r, i).f, (double)want, 2e-6);
  }
  tensor_free(a), tensor_free(b), tensor_free(r), tensor_free(bias);
}

Test(op_gemm, beta_0_ignores_self_and_k_0_is_beta_times_self) {
  open_device();
  problem_t p = {.m = 9, .n = 40, .k = 5, .dtype = HAL_FLOAT32, .alpha = 1, .with_self = 1};
  tensor_t *a = matrices(&p, 9, 5, CONTIGUOUS), *b = matrices(&p, 5, 40, CONTIGUOUS),
           *r = matrices(&p, 9, 40, CONTIGUOUS), *self = matrices(&p, 9, 40, CONTIGUOUS),
           *a0 = matrices(&p, 9, 0, CONTIGUOUS), *b0 = matrices(&p, 0, 40, CONTIGUOUS);
  tensor_fill_ordinary(a, 1), tensor_fill_ordinary(b, 2);
  for (int64_t i = 0; i < self->numel; i++) ((float *)(void *)self->host)[i] = NAN;
  tensor_upload(self);
  must(run_problem(&p, self, a, b, r)); /* beta 0 */
  tensor_download(r);
  for (int64_t i = 0; i < r->numel; i++) cr_assert(!isnan(tensor_get(r, i).f));
  p.k = 0, p.beta = 3;
  tensor_fill_ordinary(self, 4);
  must(run_problem(&p, self, a0, b0, r));
  tensor_download(r);
  for (int64_t i = 0; i < r->numel; i++) cr_assert_eq((float)tensor_get(r, i).f, 3 * (float)tensor_get(self, i).f);
  p.with_self = 0;
  must(run_problem(&p, self, a0, b0, r));
  tensor_download(r);
  for (int64_t i = 0; i < r->numel; i++) cr_assert_eq(tensor_get(r, i).f, 0);
  tensor_free(a), tensor_free(b), tensor_free(r), tensor_free(self), tensor_free(a0), tensor_free(b0);
}

Test(op_gemm, self_may_be_the_result) {
  open_device();
  const problem_t p = {.m = 50, .n = 70, .k = 600, .dtype = HAL_FLOAT64, .beta = 2, .alpha = 1, .with_self = 1};
  tensor_t *a = matrices(&p, p.m, p.k, CONTIGUOUS), *b = matrices(&p, p.k, p.n, CONTIGUOUS),
           *r = matrices(&p, p.m, p.n, CONTIGUOUS), *apart = matrices(&p, p.m, p.n, CONTIGUOUS);
  tensor_fill_ordinary(a, 1), tensor_fill_ordinary(b, 2), tensor_fill_ordinary(r, 3);
  must(run_problem(&p, r, a, b, apart));
  must(run_problem(&p, r, a, b, r));
  tensor_download(r), tensor_download(apart);
  cr_assert_eq(memcmp(r->host, apart->host, (size_t)r->storage * 8), 0);
  tensor_free(a), tensor_free(b), tensor_free(r), tensor_free(apart);
}

Test(op_gemm, empty_results_and_wrong_shapes) {
  open_device();
  problem_t p = {.m = 0, .n = 4, .k = 3, .dtype = HAL_FLOAT32};
  tensor_t *a = matrices(&p, 0, 3, CONTIGUOUS), *b = matrices(&p, 3, 4, CONTIGUOUS),
           *r = matrices(&p, 0, 4, CONTIGUOUS), *wrong = matrices(&p, 5, 4, CONTIGUOUS);
  must(run_problem(&p, NULL, a, b, r));
  cr_assert_eq(run_problem(&p, NULL, a, b, wrong), HAL_INVALID_ARGUMENT);
  cr_assert(strstr(hal_error_message(), "mm: the result must be a matrix of 0 x 4") != NULL, "%s", hal_error_message());
  cr_assert_eq(run_problem(&p, NULL, a, wrong, r), HAL_INVALID_ARGUMENT);
  tensor_free(a), tensor_free(b), tensor_free(r), tensor_free(wrong);
}

static void compute_product(unsigned char *out, size_t size) {
  const problem_t p = {.m = 300, .n = 290, .k = 700, .dtype = HAL_FLOAT32};
  tensor_t *a = matrices(&p, p.m, p.k, CONTIGUOUS), *b = matrices(&p, p.k, p.n, REVERSED),
           *r = matrices(&p, p.m, p.n, CONTIGUOUS);
  tensor_fill_ordinary(a, 1), tensor_fill_ordinary(b, 2);
  must(run_problem(&p, NULL, a, b, r));
  tensor_download(r);
  cr_assert_eq(size, (size_t)r->storage * 4);
  memcpy(out, r->host, size);
  tensor_free(a), tensor_free(b), tensor_free(r);
}

Test(op_gemm, bits_do_not_depend_on_threads_or_mode) { assert_same_bits(compute_product, 300 * 290 * 4); }
