/* op_lstm_cell.c: a step of an LSTM and of a GRU, and their gradients, compared with extended precision. */
#include "op_numbers.h"

enum { INPUT, HIDDEN, CX, BIAS_A, BIAS_B, GRAD_HY, GRAD_CY, HY, CY, WORK, GATES, BEFORE, TENSORS };

typedef struct sample_s {
  int64_t rows, width;
  tensor_t *t[TENSORS];
} sample_t;

static sample_t sample_new(hal_dtype_t dtype, int64_t rows, int64_t width) {
  sample_t s = {.rows = rows, .width = width};
  const int64_t state[] = {rows, width}, gates[] = {rows, 4 * width}, row = 4 * width;
  for (int i = 0; i < TENSORS; i++) {
    if (i == BIAS_A || i == BIAS_B)
      s.t[i] = tensor_new(dtype, 1, &row, CONTIGUOUS);
    else
      s.t[i] = tensor_new(dtype, 2, i == INPUT || i == HIDDEN || i == WORK || i == GATES ? gates : state, CONTIGUOUS);
    tensor_fill_ordinary(s.t[i], (uint64_t)i + 1);
  }
  return s;
}

static void sample_free(sample_t *s) {
  for (int i = 0; i < TENSORS; i++) tensor_free(s->t[i]);
}

static hal_status_t run_cell(const char *name, const hal_value_t *args, uint32_t arg_count, tensor_t *const *results,
                             uint32_t count) {
  uint32_t op;
  must(hal_op_id(name, &op));
  const hal_tensor_t *pointers[3];
  for (uint32_t i = 0; i < count; i++) pointers[i] = &results[i]->desc;
  hal_op_call_t call = {
      .struct_size = sizeof call, .arg_count = arg_count, .result_count = count, .args = args, .results = pointers};
  return run_planned(0, op, NULL, &call);
}

static hal_status_t forward(const sample_t *s, int with_bias) {
  const hal_value_t none = {0};
  const hal_value_t args[] = {of_tensor(s->t[INPUT]), of_tensor(s->t[HIDDEN]), of_tensor(s->t[CX]),
                              with_bias ? of_tensor(s->t[BIAS_A]) : none, with_bias ? of_tensor(s->t[BIAS_B]) : none};
  return run_cell("_thnn_fused_lstm_cell", args, 5, &s->t[HY], 3);
}

static hal_status_t backward(const sample_t *s, int with_hy, int with_cy) {
  const hal_value_t none = {0};
  const hal_value_t args[] = {with_hy ? of_tensor(s->t[GRAD_HY]) : none, with_cy ? of_tensor(s->t[GRAD_CY]) : none,
                              of_tensor(s->t[CX]), of_tensor(s->t[CY]), of_tensor(s->t[WORK])};
  return run_cell("_thnn_fused_lstm_cell_backward_impl", args, 5, &s->t[GATES], 2);
}

static void near(const char *what, const tensor_t *t, int64_t i, long double want, long double error) {
  const long double got = tensor_get(t, i).f;
  cr_assert(fabsl(got - want) <= error, "%s[%lld]: got %.10Lg, want %.10Lg", what, (long long)i, got, want);
}

static long double sigmoid(long double x) { return 1 / (1 + expl(-x)); }

/* Checks element (r, k) of results and gradients; `u` is the tolerance of a result. */
static void check_element(const sample_t *s, int64_t r, int64_t k, int with_bias, int with_hy, int with_cy,
                          long double u) {
  const int64_t at = r * s->width + k;
  long double gate[4];
  for (int g = 0; g < 4; g++) {
    const int64_t column = g * s->width + k, place = r * 4 * s->width + column;
    long double sum = tensor_get(s->t[INPUT], place).f + tensor_get(s->t[HIDDEN], place).f;
    if (with_bias) sum += tensor_get(s->t[BIAS_A], column).f + tensor_get(s->t[BIAS_B], column).f;
    gate[g] = g == 2 ? tanhl(sum) : sigmoid(sum);
    near("workspace", s->t[WORK], place, gate[g], u);
  }
  const long double cx = tensor_get(s->t[CX], at).f, cy = gate[1] * cx + gate[0] * gate[2], squashed = tanhl(cy);
  near("cy", s->t[CY], at, cy, u), near("hy", s->t[HY], at, gate[3] * squashed, u);
  const long double above = with_hy ? tensor_get(s->t[GRAD_HY], at).f : 0;
  const long double state =
      above * gate[3] * (1 - squashed * squashed) + (with_cy ? tensor_get(s->t[GRAD_CY], at).f : 0);
  const long double want[] = {state * gate[2] * gate[0] * (1 - gate[0]), state * cx * gate[1] * (1 - gate[1]),
                              state * gate[0] * (1 - gate[2] * gate[2]), above * squashed * gate[3] * (1 - gate[3])};
  for (int g = 0; g < 4; g++) near("gradient", s->t[GATES], r * 4 * s->width + g * s->width + k, want[g], 4 * u);
  near("gradient of cx", s->t[BEFORE], at, state * gate[1], 4 * u);
}

static void check(hal_dtype_t dtype, int64_t rows, int64_t width, int with_bias, int with_hy, int with_cy) {
  sample_t s = sample_new(dtype, rows, width);
  must(forward(&s, with_bias));
  must(backward(&s, with_hy, with_cy));
  for (int i = HY; i < TENSORS; i++) tensor_download(s.t[i]);
  for (int64_t r = 0; r < rows; r++)
    for (int64_t k = 0; k < width; k++) check_element(&s, r, k, with_bias, with_hy, with_cy, 16 * roundoff(dtype));
  sample_free(&s);
}

Test(op_lstm_cell, results_and_gradients, .timeout = 60) {
  open_device();
  static const int64_t shapes[][2] = {{1, 1}, {3, 7}, {16, 64}, {200, 5}, {2, 1024}, {3, 1025}, {33, 300}};
  static const hal_dtype_t dtypes[] = {HAL_FLOAT32, HAL_FLOAT64, HAL_FLOAT16, HAL_BFLOAT16};
  for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
    for (size_t d = 0; d < 4; d++)
      for (int how = 0; how < 3; how++) check(dtypes[d], shapes[i][0], shapes[i][1], how % 2, how != 1, how != 2);
}

Test(op_lstm_cell, nothing_to_compute_is_no_error) {
  open_device();
  static const int64_t shapes[][2] = {{0, 4}, {4, 0}, {0, 0}};
  for (int i = 0; i < 3; i++) {
    sample_t s = sample_new(HAL_FLOAT32, shapes[i][0], shapes[i][1]);
    must(forward(&s, 1));
    must(backward(&s, 1, 1));
    sample_free(&s);
  }
}

Test(op_lstm_cell, wrong_calls_are_refused_with_a_message) {
  open_device();
  sample_t s = sample_new(HAL_FLOAT32, 3, 5), other = sample_new(HAL_FLOAT32, 4, 6);
  tensor_t *const right = s.t[HIDDEN], *const bias = s.t[BIAS_B];
  s.t[HIDDEN] = other.t[HIDDEN];
  cr_assert_eq(forward(&s, 1), HAL_INVALID_ARGUMENT);
  cr_assert(strstr(hal_error_message(), "hidden_gates has 96 elements") != NULL, "%s", hal_error_message());
  s.t[HIDDEN] = right, s.t[BIAS_B] = other.t[BIAS_B];
  cr_assert_eq(forward(&s, 1), HAL_INVALID_ARGUMENT);
  s.t[BIAS_B] = bias;
  cr_assert_eq(backward(&s, 0, 0), HAL_INVALID_ARGUMENT);
  cr_assert(strstr(hal_error_message(), "pass at least one") != NULL, "%s", hal_error_message());
  sample_free(&s), sample_free(&other);
}

/* ---- a step of a GRU ---- */

enum {
  G_INPUT,
  G_HIDDEN,
  G_HX,
  G_BIAS_A,
  G_BIAS_B,
  G_GRAD,
  G_HY,
  G_WORK,
  G_OF_INPUT,
  G_OF_HIDDEN,
  G_BEFORE,
  G_TENSORS
};

static void gru_new(hal_dtype_t dtype, int64_t rows, int64_t width, tensor_t *t[G_TENSORS]) {
  static const int times[G_TENSORS] = {3, 3, 1, 3, 3, 1, 1, 5, 3, 3, 1};
  for (int i = 0; i < G_TENSORS; i++) {
    const int64_t sizes[] = {rows, times[i] * width};
    const int row = i == G_BIAS_A || i == G_BIAS_B;
    t[i] = tensor_new(dtype, row ? 1 : 2, row ? &sizes[1] : sizes, CONTIGUOUS);
    tensor_fill_ordinary(t[i], (uint64_t)i + 1);
  }
}

static void gru_free(tensor_t *const t[G_TENSORS]) {
  for (int i = 0; i < G_TENSORS; i++) tensor_free(t[i]);
}

static hal_status_t gru_forward(tensor_t *const t[G_TENSORS], int with_bias) {
  const hal_value_t none = {0};
  const hal_value_t args[] = {of_tensor(t[G_INPUT]), of_tensor(t[G_HIDDEN]), of_tensor(t[G_HX]),
                              with_bias ? of_tensor(t[G_BIAS_A]) : none, with_bias ? of_tensor(t[G_BIAS_B]) : none};
  return run_cell("_thnn_fused_gru_cell", args, 5, &t[G_HY], 2);
}

static hal_status_t gru_backward(tensor_t *const t[G_TENSORS]) {
  const hal_value_t none = {0};
  const hal_value_t args[] = {of_tensor(t[G_GRAD]), of_tensor(t[G_WORK]), none};
  return run_cell("_thnn_fused_gru_cell_backward", args, 3, &t[G_OF_INPUT], 3);
}

static void gru_check_element(tensor_t *const t[G_TENSORS], int64_t r, int64_t k, int64_t width, int with_bias,
                              long double u) {
  long double a[3], b[3];
  for (int g = 0; g < 3; g++) {
    const int64_t column = g * width + k, place = r * 3 * width + column;
    a[g] = tensor_get(t[G_INPUT], place).f + (with_bias ? tensor_get(t[G_BIAS_A], column).f : 0);
    b[g] = tensor_get(t[G_HIDDEN], place).f + (with_bias ? tensor_get(t[G_BIAS_B], column).f : 0);
  }
  const int64_t at = r * width + k;
  const long double reset = sigmoid(a[0] + b[0]), update = sigmoid(a[1] + b[1]), fresh = tanhl(a[2] + reset * b[2]);
  const long double hx = tensor_get(t[G_HX], at).f, grad = tensor_get(t[G_GRAD], at).f;
  const long double kept[] = {reset, update, fresh, hx, b[2]};
  for (int g = 0; g < 5; g++)
    near("workspace", t[G_WORK], r * 5 * width + g * width + k, kept[g], u * (1 + fabsl(b[2])));
  near("hy", t[G_HY], at, (hx - fresh) * update + fresh, u * (1 + fabsl(hx) + fabsl(b[2])));
  const long double of_new = grad * (1 - update) * (1 - fresh * fresh);
  const long double want[] = {of_new * b[2] * reset * (1 - reset), grad * (hx - fresh) * update * (1 - update), of_new};
  const long double error = 4 * u * (1 + fabsl(grad)) * (1 + fabsl(hx)) * (1 + fabsl(b[2])) * (1 + fabsl(b[2]));
  for (int g = 0; g < 3; g++) {
    const int64_t place = r * 3 * width + g * width + k;
    near("gradient of the input's gates", t[G_OF_INPUT], place, want[g], error);
    near("gradient of the hidden gates", t[G_OF_HIDDEN], place, g == 2 ? of_new * reset : want[g], error);
  }
  near("gradient of hx", t[G_BEFORE], at, grad * update, error);
}

Test(op_gru_cell, results_and_gradients, .timeout = 60) {
  open_device();
  static const int64_t shapes[][2] = {{1, 1}, {3, 7}, {16, 64}, {200, 5}, {2, 1024}, {3, 1025}, {33, 300}};
  static const hal_dtype_t dtypes[] = {HAL_FLOAT32, HAL_FLOAT64, HAL_FLOAT16, HAL_BFLOAT16};
  for (size_t i = 0; i < 8 * sizeof shapes / sizeof shapes[0]; i++) {
    const int64_t rows = shapes[i / 8][0], width = shapes[i / 8][1];
    const hal_dtype_t dtype = dtypes[i % 4];
    tensor_t *t[G_TENSORS];
    gru_new(dtype, rows, width, t);
    must(gru_forward(t, i % 8 < 4));
    must(gru_backward(t));
    for (int k = G_HY; k < G_TENSORS; k++) tensor_download(t[k]);
    for (int64_t at = 0; at < rows * width; at++)
      gru_check_element(t, at / width, at % width, width, i % 8 < 4, 16 * roundoff(dtype));
    gru_free(t);
  }
}

Test(op_gru_cell, nothing_to_compute_and_wrong_calls) {
  open_device();
  tensor_t *empty[G_TENSORS], *t[G_TENSORS], *other[G_TENSORS];
  gru_new(HAL_FLOAT32, 0, 4, empty), gru_new(HAL_FLOAT32, 3, 5, t), gru_new(HAL_FLOAT32, 4, 6, other);
  must(gru_forward(empty, 1));
  must(gru_backward(empty));
  tensor_t *const right = t[G_WORK];
  t[G_WORK] = other[G_WORK];
  cr_assert_eq(gru_backward(t), HAL_INVALID_ARGUMENT);
  cr_assert(strstr(hal_error_message(), "workspace has 120 elements") != NULL, "%s", hal_error_message());
  t[G_WORK] = right;
  gru_free(empty), gru_free(t), gru_free(other);
}
