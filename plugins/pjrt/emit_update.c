/* emit_update.c: optimizers, which update their results, and fills. */
#include <string.h>

#include "emit.h"

#define MUL(a, b) emit_binary(e, "stablehlo.multiply", a, b)
#define ADD(a, b) emit_binary(e, "stablehlo.add", a, b)
#define SUB(a, b) emit_binary(e, "stablehlo.subtract", a, b)
#define DIV(a, b) emit_binary(e, "stablehlo.divide", a, b)

/* ---- optimizers -------------------------------------------------------------------------------------------------- */

/* A number that is an argument of the run or a tensor of one element, as a scalar. */
static value_t scalar(emit_t *e, uint32_t argument, int32_t type) {
  if (emit_argument(e, argument)->tag != HAL_VALUE_TENSOR) return emit_number(e, argument, type);
  return emit_convert(e, emit_reshape(e, emit_read(e, argument), 0, NULL), type);
}

static value_t one_minus(emit_t *e, value_t a) { return SUB(emit_fill(e, 1, a), a); }

/* The state of one step. */
typedef struct step_s {
  value_t self, gradient; /* in the type of the computation; the gradient is unscaled and has its sign */
  int has_found, unscales;
  value_t found;    /* i1: nothing changes */
  value_t unscaled; /* the gradient that is stored */
} step_t;

static value_t read_state(emit_t *e, uint32_t result) {
  const value_t a = emit_read_result(e, result);
  return emit_convert(e, a, emit_compute_type(a.type));
}

/* `scale`, `found`: numbers of the arguments grad_scale and found_inf. */
static step_t read_step(emit_t *e, uint32_t scale, uint32_t found, int maximize) {
  step_t step = {.self = read_state(e, 0), .gradient = read_state(e, 1)};
  step.unscales = emit_has(e, scale);
  if (step.unscales) step.gradient = DIV(step.gradient, emit_like(e, scalar(e, scale, step.self.type), step.gradient));
  step.unscaled = step.gradient;
  if (maximize) step.gradient = emit_unary(e, "stablehlo.negate", step.gradient);
  step.has_found = emit_has(e, found);
  if (step.has_found) {
    const value_t number = scalar(e, found, PJRT_F32);
    step.found = emit_compare(e, "NE", number, emit_constant(e, PJRT_F32, 0));
  }
  return step;
}

/* Writes a result, unless the gradients have an infinity. */
static void keep(emit_t *e, const step_t *step, uint32_t result, value_t value) {
  if (step->has_found) value = emit_select(e, emit_like(e, step->found, value), read_state(e, result), value);
  emit_write(e, result, value);
}

/* The numbers of a step are computed in double precision, as by the portable kernel. */
static value_t narrow(emit_t *e, value_t number, value_t shape) {
  return emit_like(e, emit_convert(e, number, shape.type), shape);
}

/* step, lr, grad_scale, found_inf, beta1, beta2, eps, weight_decay, amsgrad, maximize, decoupled; results: the
 * parameter, its gradient, the averages of the gradient and its square, the largest of the latter. */
void emit_op_adam(emit_t *e) {
  const int amsgrad = emit_int(e, 8, 0) != 0, decoupled = emit_int(e, 10, 0) != 0;
  const step_t step = read_step(e, 2, 3, emit_int(e, 9, 0) != 0);
  const value_t was = step.self;
  const value_t rate = scalar(e, 1, PJRT_F64), count = scalar(e, 0, PJRT_F64);
  const value_t beta1 = emit_number(e, 4, PJRT_F64), beta2 = emit_number(e, 5, PJRT_F64);
  const value_t eps = narrow(e, emit_number(e, 6, PJRT_F64), was), decay = emit_number(e, 7, PJRT_F64);
  const value_t rest1 = one_minus(e, emit_binary(e, "stablehlo.power", beta1, count));
  const value_t rest2 = one_minus(e, emit_binary(e, "stablehlo.power", beta2, count));
  const value_t size = narrow(e, DIV(rate, rest1), was);
  const value_t root = narrow(e, emit_unary(e, "stablehlo.sqrt", rest2), was);
  value_t g = step.gradient, kept = was;
  if (decoupled)
    kept = MUL(was, narrow(e, one_minus(e, MUL(rate, decay)), was));
  else
    g = ADD(g, MUL(was, narrow(e, decay, was)));
  const value_t average = read_state(e, 2), square = read_state(e, 3);
  const value_t m = ADD(average, MUL(narrow(e, one_minus(e, beta1), was), SUB(g, average)));
  const value_t v = ADD(MUL(square, narrow(e, beta2, was)), MUL(MUL(narrow(e, one_minus(e, beta2), was), g), g));
  value_t top = v;
  if (amsgrad) top = emit_binary(e, "stablehlo.maximum", read_state(e, 4), v);
  const value_t divisor = ADD(DIV(emit_unary(e, "stablehlo.sqrt", top), root), eps);
  const value_t next = SUB(kept, DIV(MUL(size, m), divisor));
  if (step.unscales) keep(e, &step, 1, step.unscaled);
  keep(e, &step, 2, m);
  keep(e, &step, 3, v);
  if (amsgrad) keep(e, &step, 4, top);
  keep(e, &step, 0, next);
}

/* lr, grad_scale, found_inf, weight_decay, momentum, dampening, maximize, momentum_buffer, is_first_step, nesterov;
 * results: the parameter, its gradient, the momentum. */
void emit_op_sgd(emit_t *e) {
  const step_t step = read_step(e, 1, 2, emit_int(e, 6, 0) != 0);
  const value_t was = step.self, rate = narrow(e, scalar(e, 0, PJRT_F64), was);
  const value_t decay = narrow(e, emit_number(e, 3, PJRT_F64), was);
  const value_t factor = narrow(e, emit_number(e, 4, PJRT_F64), was);
  const value_t fresh = narrow(e, one_minus(e, emit_number(e, 5, PJRT_F64)), was);
  const value_t g = ADD(step.gradient, MUL(was, decay));
  const int keeps = emit_int(e, 7, 0) != 0, first = emit_int(e, 8, 0) != 0, nesterov = emit_int(e, 9, 0) != 0;
  value_t b = g, change = g;
  if (keeps && !first) b = ADD(MUL(factor, read_state(e, 2)), MUL(fresh, g));
  if (keeps) change = nesterov ? ADD(g, MUL(factor, b)) : b;
  const value_t next = SUB(was, MUL(rate, change));
  if (step.unscales) keep(e, &step, 1, step.unscaled);
  if (keeps) keep(e, &step, 2, b);
  keep(e, &step, 0, next);
}

/* step, lr, grad_scale, found_inf, lr_decay, weight_decay, eps, maximize; results: the parameter, its gradient, the sum
 * of squares. */
void emit_op_adagrad(emit_t *e) {
  const step_t step = read_step(e, 2, 3, emit_int(e, 7, 0) != 0);
  const value_t was = step.self, count = scalar(e, 0, PJRT_F64), rate = scalar(e, 1, PJRT_F64);
  const value_t before = SUB(count, emit_fill(e, 1, count));
  const value_t slowed = ADD(emit_fill(e, 1, count), MUL(before, emit_number(e, 4, PJRT_F64)));
  const value_t size = narrow(e, DIV(rate, slowed), was);
  const value_t g = ADD(step.gradient, MUL(was, narrow(e, emit_number(e, 5, PJRT_F64), was)));
  const value_t sum = ADD(read_state(e, 2), MUL(g, g)), eps = narrow(e, emit_number(e, 6, PJRT_F64), was);
  const value_t next = SUB(was, DIV(MUL(size, g), ADD(emit_unary(e, "stablehlo.sqrt", sum), eps)));
  if (step.unscales) keep(e, &step, 1, step.unscaled);
  keep(e, &step, 2, sum);
  keep(e, &step, 0, next);
}

/* ---- gradient scaling -------------------------------------------------------------------------------------------- */

/* inv_scale; results: a gradient, and whether an element of one is infinite or NaN. */
void emit_op_unscale(emit_t *e) {
  const value_t g = read_state(e, 0), found = read_state(e, 1);
  const value_t factor = emit_like(e, scalar(e, 0, g.type), g);
  const value_t finite = emit_fresh(e, PJRT_PRED, g.rank, g.sizes);
  emit_put(e, "    %s = stablehlo.is_finite %s : (%s) -> %s\n", emit_name(finite).s, emit_name(g).s, emit_type(g).s,
           emit_type(finite).s);
  const value_t all = emit_reduce(e, finite, "and", 1, (1u << g.rank) - 1);
  const value_t one = emit_fill(e, 1, found);
  emit_write(e, 0, MUL(g, factor));
  emit_write(e, 1, emit_select(e, emit_broadcast(e, all, NULL, found.rank, found.sizes), found, one));
}

/* ---- fills ------------------------------------------------------------------------------------------------------- */

void emit_op_fill(emit_t *e) {
  const value_t shape = emit_result_shape(e, 0);
  if (emit_argument(e, 0)->tag == HAL_VALUE_DOUBLE && shape.type == PJRT_PRED) { /* 0.5 is true */
    emit_write(e, 0, emit_like(e, emit_number(e, 0, PJRT_F64), shape));
    return;
  }
  emit_write(e, 0, emit_like(e, emit_number(e, 0, shape.type), shape));
}
