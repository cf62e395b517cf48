/* emit_loss.c: the negative log likelihood of classes and its gradient. Inputs are N x classes x positions, targets
 * N x positions. A target that is no class makes NaN. */
#include <math.h>

#include "emit.h"

#define MUL(a, b) emit_binary(e, "stablehlo.multiply", a, b)

enum { NONE = 0, MEAN = 1 }; /* torch's numbers of reductions */

/* A loss: masks and weights of all elements. */
typedef struct loss_s {
  value_t chosen;  /* i1: the element is that of the sample's target */
  value_t weight;  /* of the samples, 0 if it is ignored, NaN if its target is no class */
  value_t samples; /* the shape of the samples */
} loss_t;

static loss_t read_loss(emit_t *e, value_t shape, uint32_t target, uint32_t weight, uint32_t ignored) {
  loss_t loss;
  const value_t classes = emit_iota(e, PJRT_S64, 3, shape.sizes, 1);
  value_t named = emit_read_as(e, target, PJRT_S64), samples = named;
  samples.type = shape.type;
  const value_t ignore = emit_constant(e, PJRT_S64, (double)emit_int(e, ignored, -100));
  loss.samples = samples;
  loss.chosen = emit_compare(e, "EQ", classes, emit_spread(e, named, classes, 2));
  value_t weights = emit_fill(e, 1, samples);
  if (emit_has(e, weight)) {
    const value_t all = emit_broadcast(e, emit_read_as(e, weight, shape.type), (int64_t[]){1}, 3, shape.sizes);
    weights = emit_reduce(e, emit_select(e, loss.chosen, all, emit_fill(e, 0, all)), "add", 0, 2);
  }
  const value_t below = emit_compare(e, "LT", named, emit_fill(e, 0, named));
  const value_t above = emit_compare(e, "GE", named, emit_fill(e, (double)shape.sizes[1], named));
  weights = emit_select(e, emit_binary(e, "stablehlo.or", below, above), emit_fill(e, NAN, samples), weights);
  const value_t skipped = emit_compare(e, "EQ", named, emit_like(e, ignore, named));
  loss.weight = emit_select(e, skipped, emit_fill(e, 0, samples), weights);
  return loss;
}

static value_t divide_safely(emit_t *e, value_t a, value_t b) { return emit_binary(e, "stablehlo.divide", a, b); }

void emit_op_nll_forward(emit_t *e) {
  const value_t input = emit_read(e, 0), a = emit_convert(e, input, emit_compute_type(input.type));
  const loss_t loss = read_loss(e, a, 1, 2, 4);
  const value_t picked = emit_reduce(e, emit_select(e, loss.chosen, a, emit_fill(e, 0, a)), "add", 0, 2);
  const value_t ignored = emit_compare(e, "EQ", loss.weight, emit_fill(e, 0, loss.weight));
  const value_t product = emit_unary(e, "stablehlo.negate", MUL(picked, loss.weight));
  const value_t each = emit_select(e, ignored, emit_fill(e, 0, product), product);
  if (emit_int(e, 3, MEAN) == NONE) {
    emit_write(e, 0, each);
    return;
  }
  const value_t sum = emit_reduce(e, each, "add", 0, 3), total = emit_reduce(e, loss.weight, "add", 0, 3);
  emit_write(e, 0, emit_int(e, 3, MEAN) == MEAN ? divide_safely(e, sum, total) : sum);
  emit_write(e, 1, total);
}

void emit_op_nll_backward(emit_t *e) {
  value_t shape = emit_result_shape(e, 0);
  shape.type = emit_compute_type(shape.type);
  const loss_t loss = read_loss(e, shape, 1, 2, 5);
  value_t g = emit_read_as(e, 0, shape.type);
  const int64_t reduction = emit_int(e, 4, MEAN);
  if (reduction != NONE) g = emit_like(e, emit_reshape(e, g, 0, NULL), loss.samples);
  g = emit_reshape(e, g, loss.samples.rank, loss.samples.sizes);
  value_t each = emit_unary(e, "stablehlo.negate", MUL(g, loss.weight));
  if (reduction == MEAN) {
    const value_t total = emit_reshape(e, emit_read_as(e, 3, shape.type), 0, NULL);
    each = divide_safely(e, each, emit_like(e, total, each));
  }
  const value_t ignored = emit_compare(e, "EQ", loss.weight, emit_fill(e, 0, loss.weight));
  each = emit_select(e, ignored, emit_fill(e, 0, each), each);
  const value_t spread = emit_spread(e, each, shape, 2);
  emit_write(e, 0, emit_select(e, loss.chosen, spread, emit_fill(e, 0, spread)));
}

int emit_takes_nll_forward(const hal_op_call_t *call) {
  return call->args[0].u.t->ndim == 3 && call->args[1].u.t->ndim == 2 &&
         (call->arg_count < 4 || call->args[3].tag == HAL_VALUE_INT);
}
int emit_takes_nll_backward(const hal_op_call_t *call) {
  return call->results[0]->ndim == 3 && call->args[1].u.t->ndim == 2;
}
