/* op_optimizer.c: one step of the fused optimizers compared with extended precision, rounded to the parameter's
   dtype. */
#include "op_numbers.h"

enum { MOST = 5, N = 1000 };

typedef struct step_s {
  tensor_t *state[MOST]; /* the parameter, its gradient, its state */
  tensor_t *step;
  int count;
} step_t;

static step_t step_new(hal_dtype_t dtype, int count) {
  static const int64_t n = N, one = 1;
  step_t s = {.count = count, .step = tensor_new(HAL_FLOAT32, 1, &one, CONTIGUOUS)};
  for (int i = 0; i < count; i++) {
    s.state[i] = tensor_new(dtype, 1, &n, CONTIGUOUS);
    tensor_fill_ordinary(s.state[i], (unsigned)i + 1);
    if (i > 2) { /* averages of squares */
      for (int64_t j = 0; j < N; j++)
        store(dtype, s.state[i]->host + (size_t)j * s.state[i]->element, (number_t){0, 0.5L + (long double)(j % 7)});
      tensor_upload(s.state[i]);
    }
  }
  store(HAL_FLOAT32, s.step->host, (number_t){0, 3});
  tensor_upload(s.step);
  return s;
}

static void step_free(step_t *s) {
  for (int i = 0; i < s->count; i++) tensor_free(s->state[i]);
  tensor_free(s->step);
}

static hal_status_t run_step(const char *name, const hal_value_t *args, uint32_t count, const step_t *s) {
  uint32_t op;
  must(hal_op_id(name, &op));
  const hal_tensor_t *results[MOST];
  for (int i = 0; i < s->count; i++) results[i] = &s->state[i]->desc;
  hal_op_call_t call = {.struct_size = sizeof call,
                        .arg_count = count,
                        .result_count = (uint32_t)s->count,
                        .args = args,
                        .results = results};
  return run_planned(0, op, NULL, &call);
}

static void near(const char *what, const tensor_t *t, int64_t i, long double want) {
  const long double got = tensor_get(t, i).f, u = roundoff(t->desc.dtype), single = 64 * roundoff(HAL_FLOAT32);
  cr_assert(fabsl(got - want) <= (u + single) * (fabsl(want) + 1) * 1.01L, "%s[%lld]: got %.10Lg, want %.10Lg", what,
            (long long)i, got, want);
}

static const hal_dtype_t dtypes[] = {HAL_FLOAT32, HAL_FLOAT64, HAL_FLOAT16, HAL_BFLOAT16};
static const long double lr = 0.01L, beta1 = 0.9L, beta2 = 0.99L, eps = 1e-3L, decay = 0.1L;

Test(op_optimizer, a_step_of_adamw_in_every_dtype) {
  open_device();
  for (int d = 0; d < 4; d++) {
    step_t s = step_new(dtypes[d], 5);
    number_t before[4][N];
    for (int i = 0; i < 4; i++)
      for (int64_t j = 0; j < N; j++) before[i][j] = tensor_get(s.state[i], j);
    const hal_value_t args[] = {of_tensor(s.step),
                                of_double((double)lr),
                                {0},
                                {0},
                                of_double((double)beta1),
                                of_double((double)beta2),
                                of_double((double)eps),
                                of_double((double)decay),
                                of_int(0),
                                of_int(0),
                                of_int(1)};
    must(run_step("_fused_adam_", args, 11, &s));
    for (int i = 0; i < 4; i++) tensor_download(s.state[i]);
    const long double first = 1 - powl(beta1, 3), second = 1 - powl(beta2, 3);
    for (int64_t j = 0; j < N; j++) {
      const long double g = before[1][j].f, m = beta1 * before[2][j].f + (1 - beta1) * g;
      const long double v = beta2 * before[3][j].f + (1 - beta2) * g * g;
      near("average", s.state[2], j, m), near("square", s.state[3], j, v);
      near("parameter", s.state[0], j,
           before[0][j].f * (1 - lr * decay) - lr * (m / first) / (sqrtl(v / second) + eps));
    }
    step_free(&s);
  }
}

Test(op_optimizer, a_step_of_sgd_in_every_dtype) {
  open_device();
  for (int d = 0; d < 4; d++) {
    step_t s = step_new(dtypes[d], 3);
    number_t before[3][N];
    for (int i = 0; i < 3; i++)
      for (int64_t j = 0; j < N; j++) before[i][j] = tensor_get(s.state[i], j);
    const hal_value_t args[] = {of_double((double)lr),
                                {0},
                                {0},
                                of_double((double)decay),
                                of_double(0.9),
                                of_double(0.5),
                                of_int(0),
                                of_int(1),
                                of_int(0),
                                of_int(0)};
    must(run_step("_fused_sgd_", args, 10, &s));
    for (int i = 0; i < 3; i++) tensor_download(s.state[i]);
    for (int64_t j = 0; j < N; j++) {
      const long double g = before[1][j].f + decay * before[0][j].f, b = 0.9L * before[2][j].f + 0.5L * g;
      near("momentum", s.state[2], j, b), near("parameter", s.state[0], j, before[0][j].f - lr * b);
    }
    step_free(&s);
  }
}

Test(op_optimizer, state_of_another_dtype_is_refused_with_a_message) {
  open_device();
  step_t s = step_new(HAL_FLOAT16, 3), other = step_new(HAL_FLOAT32, 3);
  tensor_t *const momentum = s.state[2];
  s.state[2] = other.state[2];
  const hal_value_t args[] = {of_double(0.1), {0},       {0},       of_double(0), of_double(0.9),
                              of_double(0),   of_int(0), of_int(1), of_int(0),    of_int(0)};
  cr_assert_eq(run_step("_fused_sgd_", args, 10, &s), HAL_INVALID_ARGUMENT);
  cr_assert(strstr(hal_error_message(), "result 2 is not dense like the parameter: dtype float32") != NULL, "%s",
            hal_error_message());
  s.state[2] = momentum;
  step_free(&s), step_free(&other);
}
