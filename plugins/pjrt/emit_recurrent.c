/* emit_recurrent.c: the computations of LSTM and GRU cells between their matrix products, and their gradients. Matrices
 * have a row for each sample; gates are next to each other in the columns. */
#include "emit.h"

#define ADD(a, b) emit_binary(e, "stablehlo.add", a, b)
#define SUB(a, b) emit_binary(e, "stablehlo.subtract", a, b)
#define MUL(a, b) emit_binary(e, "stablehlo.multiply", a, b)

static value_t read_wide(emit_t *e, uint32_t argument) {
  const value_t a = emit_read(e, argument);
  return emit_convert(e, a, emit_compute_type(a.type));
}

/* Returns part `number` of the columns of a matrix. */
static value_t part(emit_t *e, value_t a, int number, int64_t width) {
  return emit_slice(e, a, (int64_t[]){0, number * width}, (int64_t[]){a.sizes[0], (number + 1) * width});
}

/* Adds the bias, if there is one, to each row. */
static value_t with_bias(emit_t *e, value_t a, uint32_t bias) {
  if (!emit_has(e, bias)) return a;
  const value_t b = emit_reshape(e, emit_read_as(e, bias, a.type), 1, &a.sizes[1]);
  return ADD(a, emit_spread(e, b, a, 1));
}

static value_t one_minus(emit_t *e, value_t a) { return SUB(emit_fill(e, 1, a), a); }

/* The slopes of sigmoid and tanh, by their values. */
static value_t sigmoid_slope(emit_t *e, value_t y) { return MUL(y, one_minus(e, y)); }
static value_t tanh_slope(emit_t *e, value_t y) { return one_minus(e, MUL(y, y)); }

static void write_parts(emit_t *e, uint32_t result, const value_t *parts, int count) {
  if (emit_wants(e, result)) emit_write(e, result, emit_concatenate(e, parts, count, 1));
}

/* ---- LSTM: input_gates, hidden_gates, cx, input_bias, hidden_bias; hy, cy, workspace ----------------------------- */

void emit_op_lstm(emit_t *e) {
  const value_t gates = ADD(with_bias(e, read_wide(e, 0), 3), with_bias(e, read_wide(e, 1), 4)), cx = read_wide(e, 2);
  const int64_t width = cx.sizes[1];
  value_t parts[4];
  for (int i = 0; i < 4; i++)
    parts[i] = emit_unary(e, i == 2 ? "stablehlo.tanh" : "stablehlo.logistic", part(e, gates, i, width));
  const value_t state = ADD(MUL(parts[1], cx), MUL(parts[0], parts[2]));
  emit_write(e, 0, MUL(parts[3], emit_unary(e, "stablehlo.tanh", state)));
  emit_write(e, 1, state);
  write_parts(e, 2, parts, 4);
}

/* grad_hy, grad_cy, cx, cy, workspace; the gradients of the gates and of cx */
void emit_op_lstm_backward(emit_t *e) {
  const value_t cx = read_wide(e, 2), work = read_wide(e, 4);
  const int64_t width = cx.sizes[1];
  const value_t input = part(e, work, 0, width), forget = part(e, work, 1, width), cell = part(e, work, 2, width);
  const value_t output = part(e, work, 3, width), zero = emit_fill(e, 0, cx);
  value_t state = emit_has(e, 1) ? read_wide(e, 1) : zero, of_output = zero;
  if (emit_has(e, 0)) {
    const value_t above = read_wide(e, 0), squashed = emit_unary(e, "stablehlo.tanh", read_wide(e, 3));
    state = ADD(MUL(MUL(above, output), tanh_slope(e, squashed)), state);
    of_output = MUL(MUL(above, squashed), sigmoid_slope(e, output));
  }
  const value_t gates[] = {MUL(MUL(state, cell), sigmoid_slope(e, input)),
                           MUL(MUL(state, cx), sigmoid_slope(e, forget)), MUL(MUL(state, input), tanh_slope(e, cell)),
                           of_output};
  write_parts(e, 0, gates, 4);
  emit_write(e, 1, MUL(state, forget));
}

/* ---- GRU: input_gates, hidden_gates, hx, input_bias, hidden_bias; hy, workspace ------------------------------- */

void emit_op_gru(emit_t *e) {
  const value_t a = with_bias(e, read_wide(e, 0), 3), b = with_bias(e, read_wide(e, 1), 4), hx = read_wide(e, 2);
  const int64_t width = hx.sizes[1];
  const value_t reset = emit_unary(e, "stablehlo.logistic", ADD(part(e, a, 0, width), part(e, b, 0, width)));
  const value_t update = emit_unary(e, "stablehlo.logistic", ADD(part(e, a, 1, width), part(e, b, 1, width)));
  const value_t hidden = part(e, b, 2, width);
  const value_t fresh = emit_unary(e, "stablehlo.tanh", ADD(part(e, a, 2, width), MUL(reset, hidden)));
  const value_t work[] = {reset, update, fresh, hx, hidden};
  emit_write(e, 0, ADD(MUL(SUB(hx, fresh), update), fresh));
  write_parts(e, 1, work, 5);
}

/* grad_hy, workspace; the gradients of the input gates, the hidden gates and hx */
void emit_op_gru_backward(emit_t *e) {
  const value_t above = read_wide(e, 0), work = read_wide(e, 1);
  const int64_t width = above.sizes[1];
  const value_t reset = part(e, work, 0, width), update = part(e, work, 1, width), fresh = part(e, work, 2, width);
  const value_t before = part(e, work, 3, width), hidden = part(e, work, 4, width);
  const value_t of_update = MUL(MUL(above, SUB(before, fresh)), sigmoid_slope(e, update));
  const value_t of_new = MUL(MUL(above, one_minus(e, update)), tanh_slope(e, fresh));
  const value_t of_reset = MUL(MUL(of_new, hidden), sigmoid_slope(e, reset));
  write_parts(e, 0, (value_t[]){of_reset, of_update, of_new}, 3);
  write_parts(e, 1, (value_t[]){of_reset, of_update, MUL(of_new, reset)}, 3);
  emit_write(e, 2, MUL(above, update));
}

static int is_matrix(const hal_value_t *value) { return value->tag == HAL_VALUE_TENSOR && value->u.t->ndim == 2; }
int emit_takes_cell(const hal_op_call_t *call) {
  return is_matrix(&call->args[0]) && is_matrix(&call->args[1]) && is_matrix(&call->args[2]);
}
int emit_takes_lstm_backward(const hal_op_call_t *call) {
  return is_matrix(&call->args[2]) && is_matrix(&call->args[4]);
}
int emit_takes_gru_backward(const hal_op_call_t *call) {
  return is_matrix(&call->args[0]) && is_matrix(&call->args[1]);
}
