/* emit_norm.c: layer normalization and batch normalization, with their gradients. */
#include "emit.h"

#define MUL(a, b) emit_binary(e, "stablehlo.multiply", a, b)
#define ADD(a, b) emit_binary(e, "stablehlo.add", a, b)
#define SUB(a, b) emit_binary(e, "stablehlo.subtract", a, b)

static value_t read_wide(emit_t *e, uint32_t argument) {
  const value_t a = emit_read(e, argument);
  return emit_convert(e, a, emit_compute_type(a.type));
}

static value_t scaled(emit_t *e, value_t a, double factor) { return MUL(a, emit_fill(e, factor, a)); }

static int64_t count_of(value_t a) {
  int64_t count = 1;
  for (int d = 0; d < a.rank; d++) count *= a.sizes[d];
  return count;
}

/* ---- layer normalization: rows of a matrix ----------------------------------------------------------------------- */

/* Returns an argument as one dimension. */
static value_t flat(emit_t *e, uint32_t argument, int32_t type) {
  const value_t a = emit_read_as(e, argument, type);
  const int64_t count = count_of(a);
  return emit_reshape(e, a, 1, &count);
}

void emit_op_layer_norm(emit_t *e) {
  const value_t input = read_wide(e, 0);
  const int64_t rows = count_of(emit_result_shape(e, 1)), sizes[] = {rows, count_of(input) / rows};
  const value_t a = emit_reshape(e, input, 2, sizes);
  const double share = 1.0 / (double)sizes[1];
  const value_t mean = scaled(e, emit_reduce(e, a, "add", 0, 2), share), center = SUB(a, emit_spread(e, mean, a, 2));
  const value_t variance = scaled(e, emit_reduce(e, MUL(center, center), "add", 0, 2), share);
  const value_t eps = emit_like(e, emit_number(e, 3, a.type), variance);
  const value_t rstd = emit_unary(e, "stablehlo.rsqrt", ADD(variance, eps));
  value_t v = MUL(center, emit_spread(e, rstd, a, 2));
  if (emit_has(e, 1)) v = MUL(v, emit_spread(e, flat(e, 1, a.type), a, 1));
  if (emit_has(e, 2)) v = ADD(v, emit_spread(e, flat(e, 2, a.type), a, 1));
  emit_write(e, 0, v);
  emit_write(e, 1, mean);
  emit_write(e, 2, rstd);
}

void emit_op_layer_norm_backward(emit_t *e) {
  const value_t input = read_wide(e, 1);
  const value_t mean = flat(e, 2, input.type), rstd = flat(e, 3, input.type);
  const int64_t rows = mean.sizes[0], sizes[] = {rows, count_of(input) / rows};
  const value_t a = emit_reshape(e, input, 2, sizes), g = emit_reshape(e, read_wide(e, 0), 2, sizes);
  const value_t scale = emit_spread(e, rstd, a, 2), hat = MUL(SUB(a, emit_spread(e, mean, a, 2)), scale);
  if (emit_wants(e, 0)) {
    const value_t weighted = emit_has(e, 4) ? MUL(g, emit_spread(e, flat(e, 4, a.type), a, 1)) : g;
    const double share = 1.0 / (double)sizes[1];
    const value_t of_sum = emit_spread(e, scaled(e, emit_reduce(e, weighted, "add", 0, 2), share), a, 2);
    const value_t slope = scaled(e, emit_reduce(e, MUL(weighted, hat), "add", 0, 2), share);
    emit_write(e, 0, MUL(SUB(SUB(weighted, of_sum), MUL(hat, emit_spread(e, slope, a, 2))), scale));
  }
  if (emit_wants(e, 1)) emit_write(e, 1, emit_reduce(e, MUL(g, hat), "add", 0, 1));
  if (emit_wants(e, 2)) emit_write(e, 2, emit_reduce(e, g, "add", 0, 1));
}

/* ---- batch normalization: dimension 1 has the channels ----------------------------------------------------------- */

static uint32_t all_but_channels(value_t a) { return ((1u << a.rank) - 1) & ~2u; }

static value_t channels(emit_t *e, value_t c, value_t shape) {
  return emit_spread(e, c, shape, all_but_channels(shape));
}

static value_t inverse_root(emit_t *e, value_t variance, uint32_t eps) {
  return emit_unary(e, "stablehlo.rsqrt", ADD(variance, emit_like(e, emit_number(e, eps, variance.type), variance)));
}

/* Moves a running statistic towards a new value. */
static void update(emit_t *e, uint32_t result, uint32_t argument, value_t value) {
  if (!emit_wants(e, result)) return;
  const value_t old = flat(e, argument, value.type), rate = emit_like(e, emit_number(e, 6, value.type), value);
  emit_write(e, result, ADD(MUL(value, rate), MUL(old, SUB(emit_fill(e, 1, rate), rate))));
}

void emit_op_batch_norm(emit_t *e) {
  const value_t a = read_wide(e, 0);
  const uint32_t mask = all_but_channels(a);
  const double count = (double)(count_of(a) / a.sizes[1]);
  value_t mean, variance, center;
  if (emit_int(e, 5, 0)) {
    mean = scaled(e, emit_reduce(e, a, "add", 0, mask), 1 / count);
    center = SUB(a, channels(e, mean, a));
    variance = scaled(e, emit_reduce(e, MUL(center, center), "add", 0, mask), 1 / count);
    update(e, 3, 3, mean);
    update(e, 4, 4, scaled(e, variance, count > 1 ? count / (count - 1) : 1));
  } else {
    mean = flat(e, 3, a.type), variance = flat(e, 4, a.type);
    center = SUB(a, channels(e, mean, a));
  }
  const value_t rstd = inverse_root(e, variance, 7);
  value_t v = MUL(center, channels(e, rstd, a));
  if (emit_has(e, 1)) v = MUL(v, channels(e, flat(e, 1, a.type), a));
  if (emit_has(e, 2)) v = ADD(v, channels(e, flat(e, 2, a.type), a));
  emit_write(e, 0, v);
  emit_write(e, 1, mean);
  emit_write(e, 2, rstd);
}

/* grad_out, input, weight, running_mean, running_var, save_mean, save_invstd, train, eps */
void emit_op_batch_norm_backward(emit_t *e) {
  const value_t g = read_wide(e, 0), a = read_wide(e, 1);
  const uint32_t mask = all_but_channels(a);
  const int training = emit_int(e, 7, 0) != 0;
  const value_t mean = flat(e, training ? 5 : 3, a.type);
  const value_t rstd = training ? flat(e, 6, a.type) : inverse_root(e, flat(e, 4, a.type), 8);
  const value_t hat = MUL(SUB(a, channels(e, mean, a)), channels(e, rstd, a));
  const value_t sum = emit_reduce(e, g, "add", 0, mask), slope = emit_reduce(e, MUL(g, hat), "add", 0, mask);
  if (emit_wants(e, 1)) emit_write(e, 1, slope);
  if (emit_wants(e, 2)) emit_write(e, 2, sum);
  if (!emit_wants(e, 0)) return;
  value_t rest = g;
  if (training) {
    const double share = (double)a.sizes[1] / (double)count_of(a);
    rest = SUB(g, channels(e, scaled(e, sum, share), a));
    rest = SUB(rest, MUL(hat, channels(e, scaled(e, slope, share), a)));
  }
  const value_t factor = emit_has(e, 2) ? MUL(rstd, flat(e, 2, a.type)) : rstd;
  emit_write(e, 0, MUL(rest, channels(e, factor, a)));
}

int emit_takes_batch_norm(const hal_op_call_t *call) { return call->args[0].u.t->ndim >= 2; }
