/* emit_product.c: matrix products, convolutions and attention. Half precision is multiplied into float32. */
#include <math.h>
#include <string.h>

#include "emit.h"

/* ---- matrix products --------------------------------------------------------------------------------------------- */

/* a [..., m, k] times b [..., k, n], or b [..., n, k] if `turned`; leading dimensions are equal. */
value_t emit_multiply(emit_t *e, value_t a, value_t b, int turned) {
  const int rank = a.rank, batch = rank - 2;
  int64_t sizes[EMIT_RANK], dims[EMIT_RANK];
  memcpy(sizes, a.sizes, sizeof sizes);
  sizes[rank - 1] = b.sizes[turned ? rank - 2 : rank - 1];
  for (int d = 0; d < batch; d++) dims[d] = d;
  const value_t v = emit_fresh(e, emit_compute_type(a.type), rank, sizes);
  emit_put(e, "    %s = stablehlo.dot_general %s, %s, ", emit_name(v).s, emit_name(a).s, emit_name(b).s);
  if (batch) emit_put(e, "batching_dims = [%s] x [%s], ", emit_list(dims, batch).s, emit_list(dims, batch).s);
  emit_put(e, "contracting_dims = [%d] x [%d], precision = [HIGHEST, HIGHEST] : (%s, %s) -> %s\n", rank - 1,
           turned ? rank - 1 : rank - 2, emit_type(a).s, emit_type(b).s, emit_type(v).s);
  return v;
}

static value_t transposed(emit_t *e, value_t a) { /* the last two dimensions */
  int64_t order[EMIT_RANK];
  for (int d = 0; d < a.rank; d++) order[d] = d;
  order[a.rank - 2] = a.rank - 1, order[a.rank - 1] = a.rank - 2;
  return emit_transpose(e, a, order);
}

/* Broadcasts a bias to the shape of a product: its dimensions are the last ones. */
static value_t spread_bias(emit_t *e, value_t bias, value_t shape) {
  int64_t dims[EMIT_RANK], kept[EMIT_RANK], sizes[EMIT_RANK];
  int count = 0;
  for (int d = 0; d < bias.rank; d++) {
    if (bias.sizes[d] == 1) continue; /* also where the product has one element */
    dims[count] = shape.rank - bias.rank + d;
    kept[count++] = bias.sizes[d];
  }
  memcpy(sizes, shape.sizes, sizeof sizes);
  return emit_broadcast(e, emit_reshape(e, bias, count, kept), dims, shape.rank, sizes);
}

static int takes_product(const hal_op_call_t *call, uint32_t first) {
  const hal_tensor_t *const a = call->args[first].u.t, *const b = call->args[first + 1].u.t;
  if (call->args[first].tag != HAL_VALUE_TENSOR || call->args[first + 1].tag != HAL_VALUE_TENSOR) return 0;
  if (a->dtype != b->dtype || a->ndim != b->ndim || a->ndim < 2 || !emit_is_float(emit_type_of(a->dtype))) return 0;
  for (int32_t d = 0; d < a->ndim - 2; d++)
    if (a->sizes[d] != b->sizes[d]) return 0;
  return 1;
}

int emit_takes_mm(const hal_op_call_t *call) { return takes_product(call, 0); }
int emit_takes_addmm(const hal_op_call_t *call) {
  return call->args[0].tag == HAL_VALUE_TENSOR && call->args[0].u.t->ndim <= call->results[0]->ndim &&
         takes_product(call, 1);
}

void emit_op_mm(emit_t *e) { emit_write(e, 0, emit_multiply(e, emit_read(e, 0), emit_read(e, 1), 0)); }

/* beta * self + alpha * mat1 @ mat2; with beta 0, NaN in self is ignored. */
void emit_op_addmm(emit_t *e) {
  const value_t product = emit_multiply(e, emit_read(e, 1), emit_read(e, 2), 0);
  const value_t self = emit_read_as(e, 0, product.type);
  const value_t beta = emit_number(e, 3, product.type), alpha = emit_number(e, 4, product.type);
  const value_t scaled = emit_binary(e, "stablehlo.multiply", self, emit_like(e, beta, self));
  value_t ignored = emit_compare(e, "EQ", beta, emit_constant(e, beta.type, 0));
  ignored = emit_like(e, ignored, scaled);
  const value_t bias = emit_select(e, ignored, emit_fill(e, 0, scaled), scaled);
  const value_t weighted = emit_binary(e, "stablehlo.multiply", product, emit_like(e, alpha, product));
  emit_write(e, 0, emit_binary(e, "stablehlo.add", weighted, spread_bias(e, bias, product)));
}

int emit_takes_int_mm(const hal_op_call_t *call) {
  return call->args[0].tag == HAL_VALUE_TENSOR && call->args[1].tag == HAL_VALUE_TENSOR &&
         call->args[0].u.t->dtype == HAL_INT8 && call->args[1].u.t->dtype == HAL_INT8;
}

/* Bytes multiplied into int32. */
void emit_op_int_mm(emit_t *e) {
  const value_t a = emit_read(e, 0), b = emit_read(e, 1);
  const value_t v = emit_fresh(e, PJRT_S32, 2, (int64_t[]){a.sizes[0], b.sizes[1]});
  emit_put(e, "    %s = stablehlo.dot_general %s, %s, contracting_dims = [1] x [0] : (%s, %s) -> %s\n", emit_name(v).s,
           emit_name(a).s, emit_name(b).s, emit_type(a).s, emit_type(b).s, emit_type(v).s);
  emit_write(e, 0, v);
}

/* ---- convolutions ------------------------------------------------------------------------------------------------ */

/* The arguments of a convolution from `first` on: stride, padding, dilation, transposed, output_padding, groups. */
typedef struct convolution_s {
  int spatial, transposed;
  int64_t stride[3], padding[3], dilation[3], groups;
} convolution_t;

static int64_t of_list(const hal_value_t *list, int d, int64_t absent) {
  if (list->tag != HAL_VALUE_INT_LIST || !list->count) return absent;
  return list->u.il[list->count == 1 ? 0 : d];
}

static convolution_t read_convolution(const emit_t *e, uint32_t first, int rank) {
  convolution_t c = {.spatial = rank - 2, .groups = emit_int(e, first + 5, 1)};
  c.transposed = emit_int(e, first + 3, 0) != 0;
  for (int d = 0; d < c.spatial; d++) {
    c.stride[d] = of_list(emit_argument(e, first), d, 1);
    c.padding[d] = of_list(emit_argument(e, first + 1), d, 0);
    c.dilation[d] = of_list(emit_argument(e, first + 2), d, 1);
  }
  return c;
}

static int takes_convolution_at(const hal_op_call_t *call, uint32_t input) {
  const hal_tensor_t *const a = call->args[input].u.t, *const w = call->args[input + 1].u.t;
  if (!emit_is_float(emit_type_of(a->dtype)) || a->dtype != w->dtype) return 0;
  return a->ndim >= 3 && a->ndim <= 5 && w->ndim == a->ndim;
}
int emit_takes_convolution(const hal_op_call_t *call) { return takes_convolution_at(call, 0); }
int emit_takes_convolution_backward(const hal_op_call_t *call) { return takes_convolution_at(call, 1); }

/* A window: per spatial dimension the padding on both sides, the stride, and the dilation of both operands. */
typedef struct window_s {
  int64_t low[3], high[3], stride[3], lhs[3], rhs[3];
} window_t;

static void put_dims(emit_t *e, const char *lead, int spatial) {
  emit_put(e, "[%s", lead);
  for (int d = 0; d < spatial; d++) emit_put(e, ", %d", d);
  emit_put(e, "]");
}

static value_t convolve(emit_t *e, value_t a, value_t w, const char *const dims[3], const window_t *window, int spatial,
                        int64_t groups, int64_t batch_groups, value_t shape) {
  const value_t v = emit_fresh(e, emit_compute_type(a.type), shape.rank, shape.sizes);
  emit_put(e, "    %s = stablehlo.convolution(%s, %s) dim_numbers = ", emit_name(v).s, emit_name(a).s, emit_name(w).s);
  put_dims(e, dims[0], spatial);
  emit_put(e, "x");
  put_dims(e, dims[1], spatial);
  emit_put(e, "->");
  put_dims(e, dims[2], spatial);
  emit_put(e, ", window = {stride = [%s], pad = [", emit_list(window->stride, spatial).s);
  for (int d = 0; d < spatial; d++)
    emit_put(e, "%s[%lld, %lld]", d ? ", " : "", (long long)window->low[d], (long long)window->high[d]);
  emit_put(e, "], lhs_dilate = [%s], rhs_dilate = [%s]", emit_list(window->lhs, spatial).s,
           emit_list(window->rhs, spatial).s);
  emit_put(e,
           "} {batch_group_count = %lld : i64, feature_group_count = %lld : i64, precision_config = "
           "[#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]} : (%s, %s) -> %s\n",
           (long long)batch_groups, (long long)groups, emit_type(a).s, emit_type(w).s, emit_type(v).s);
  return v;
}

static const char *const forward_dims[3] = {"b, f", "o, i", "b, f"};
static const char *const input_dims[3] = {"b, f", "i, o", "b, f"};
static const char *const weight_dims[3] = {"f, b", "i, o", "f, b"};

/* [o, i / g, ...] to [o / g, i, ...]: the weight of the gradient of the input. */
static value_t swap_groups(emit_t *e, value_t w, int64_t groups) {
  if (groups == 1) return w;
  int64_t split[EMIT_RANK] = {groups, w.sizes[0] / groups}, order[EMIT_RANK] = {1, 0}, sizes[EMIT_RANK];
  for (int d = 1; d < w.rank; d++) split[d + 1] = w.sizes[d], order[d + 1] = d + 1;
  const value_t parts = emit_transpose(e, emit_reshape(e, w, w.rank + 1, split), order);
  memcpy(sizes, w.sizes, sizeof sizes);
  sizes[0] = w.sizes[0] / groups, sizes[1] = w.sizes[1] * groups;
  return emit_reshape(e, parts, w.rank, sizes);
}

/* The convolution of `a`, whose result has the spatial sizes of `shape`. */
static value_t forward(emit_t *e, value_t a, value_t w, const convolution_t *c, value_t shape) {
  window_t window;
  for (int d = 0; d < c->spatial; d++) {
    window.low[d] = c->padding[d], window.stride[d] = c->stride[d], window.lhs[d] = 1, window.rhs[d] = c->dilation[d];
    const int64_t reach = c->dilation[d] * (w.sizes[d + 2] - 1);
    window.high[d] = (shape.sizes[d + 2] - 1) * c->stride[d] + reach + 1 - a.sizes[d + 2] - window.low[d];
  }
  return convolve(e, a, w, forward_dims, &window, c->spatial, c->groups, 1, shape);
}

/* The gradient of a convolution's input, of the shape `a`: the transposed convolution of `g`. The weight is reversed
 * by an operator of its own, because XLA compiles a convolution with a reversed window for the CPU to plain loops,
 * which take up to 36 times as long. */
static value_t gradient_of_input(emit_t *e, value_t g, value_t a, value_t w, const convolution_t *c) {
  window_t window;
  for (int d = 0; d < c->spatial; d++) {
    const int64_t reach = c->dilation[d] * (w.sizes[d + 2] - 1);
    const int64_t spread = (g.sizes[d + 2] - 1) * c->stride[d] + 1;
    window.stride[d] = 1, window.lhs[d] = c->stride[d], window.rhs[d] = c->dilation[d];
    window.low[d] = reach - c->padding[d];
    window.high[d] = a.sizes[d + 2] - spread - window.low[d] + reach;
  }
  const value_t weight = emit_reverse(e, swap_groups(e, w, c->groups), (int64_t[]){2, 3, 4}, c->spatial);
  return convolve(e, g, weight, input_dims, &window, c->spatial, c->groups, 1, a);
}

static value_t gradient_of_weight(emit_t *e, value_t g, value_t a, value_t w, const convolution_t *c) {
  window_t window;
  for (int d = 0; d < c->spatial; d++) {
    const int64_t spread = (g.sizes[d + 2] - 1) * c->stride[d] + 1;
    window.stride[d] = c->dilation[d], window.lhs[d] = 1, window.rhs[d] = c->stride[d];
    window.low[d] = c->padding[d];
    window.high[d] = c->dilation[d] * (w.sizes[d + 2] - 1) + spread - a.sizes[d + 2] - window.low[d];
  }
  return convolve(e, a, g, weight_dims, &window, c->spatial, 1, c->groups, w);
}

void emit_op_convolution(emit_t *e) {
  const value_t a = emit_read(e, 0), w = emit_read(e, 1), shape = emit_result_shape(e, 0);
  const convolution_t c = read_convolution(e, 3, a.rank);
  value_t v = c.transposed ? gradient_of_input(e, a, shape, w, &c) : forward(e, a, w, &c, shape);
  if (emit_has(e, 2)) {
    const value_t bias = emit_read_as(e, 2, v.type);
    v = emit_binary(e, "stablehlo.add", v, emit_broadcast(e, bias, (int64_t[]){1}, v.rank, v.sizes));
  }
  emit_write(e, 0, v);
}

/* In a transposed convolution the input and the gradient have each other's place. */
void emit_op_convolution_backward(emit_t *e) {
  const value_t g = emit_read(e, 0), a = emit_read(e, 1), w = emit_read(e, 2);
  const convolution_t c = read_convolution(e, 3, a.rank);
  if (emit_wants(e, 0)) emit_write(e, 0, c.transposed ? forward(e, g, w, &c, a) : gradient_of_input(e, g, a, w, &c));
  if (emit_wants(e, 1))
    emit_write(e, 1, c.transposed ? gradient_of_weight(e, a, g, w, &c) : gradient_of_weight(e, g, a, w, &c));
  if (!emit_wants(e, 2)) return;
  const value_t wide = emit_convert(e, g, emit_compute_type(g.type));
  emit_write(e, 2, emit_reduce(e, wide, "add", 0, ((1u << g.rank) - 1) & ~2u));
}

/* ---- attention: operands are (batch, head, row, number) ---------------------------------------------------------- */

typedef struct attention_s {
  value_t query, key, value, scores, scale; /* in float32 or float64; heads of key and value are those of query */
} attention_t;

/* Repeats the heads that several heads of the query share. */
static value_t repeat_heads(emit_t *e, value_t a, int64_t heads) {
  if (a.sizes[1] == heads) return a;
  const int64_t sizes[] = {a.sizes[0], a.sizes[1], heads / a.sizes[1], a.sizes[2], a.sizes[3]};
  const value_t spread = emit_broadcast(e, a, (int64_t[]){0, 1, 3, 4}, 5, sizes);
  return emit_reshape(e, spread, 4, (int64_t[]){a.sizes[0], heads, a.sizes[2], a.sizes[3]});
}

/* Adds up the heads that share one of key and value. */
static value_t add_heads(emit_t *e, value_t a, int64_t heads) {
  if (a.sizes[1] == heads) return a;
  const int64_t sizes[] = {a.sizes[0], heads, a.sizes[1] / heads, a.sizes[2], a.sizes[3]};
  return emit_reduce(e, emit_reshape(e, a, 5, sizes), "add", 0, 4);
}

static value_t read_wide(emit_t *e, uint32_t argument) {
  const value_t a = emit_read(e, argument);
  return emit_convert(e, a, emit_compute_type(a.type));
}

/* Reads the arguments from `first` on, and computes the scores. */
static attention_t read_attention(emit_t *e, uint32_t first, uint32_t causal) {
  attention_t at;
  at.query = read_wide(e, first);
  const int64_t heads = at.query.sizes[1];
  at.key = repeat_heads(e, read_wide(e, first + 1), heads);
  at.value = repeat_heads(e, read_wide(e, first + 2), heads);
  const value_t product = emit_multiply(e, at.query, at.key, 1);
  at.scale = emit_like(e, emit_number(e, causal + 1, product.type), product);
  at.scores = emit_binary(e, "stablehlo.multiply", product, at.scale);
  if (emit_has(e, first + 3))
    at.scores = emit_binary(e, "stablehlo.add", at.scores, emit_read_as(e, first + 3, product.type));
  if (!emit_int(e, causal, 0)) return at;
  const value_t row = emit_iota(e, PJRT_S64, 4, product.sizes, 2), column = emit_iota(e, PJRT_S64, 4, product.sizes, 3);
  at.scores = emit_select(e, emit_compare(e, "LE", column, row), at.scores, emit_fill(e, -INFINITY, at.scores));
  return at;
}

static int takes_attention_at(const hal_op_call_t *call, uint32_t first, uint32_t count) {
  for (uint32_t i = first; i < first + 3; i++)
    if (call->args[i].tag != HAL_VALUE_TENSOR || call->args[i].u.t->ndim != 4) return 0;
  if (call->arg_count > count && call->args[count].tag == HAL_VALUE_DOUBLE && call->args[count].u.d != 0)
    return 0; /* dropout */
  return call->args[first + 3].tag != HAL_VALUE_TENSOR || call->args[first + 3].u.t->ndim == 4;
}
int emit_takes_attention(const hal_op_call_t *call) { return takes_attention_at(call, 0, 6); }
int emit_takes_attention_backward(const hal_op_call_t *call) { return takes_attention_at(call, 1, 9); }

void emit_op_attention(emit_t *e) {
  const attention_t at = read_attention(e, 0, 4);
  const value_t top = emit_reduce(e, at.scores, "maximum", -INFINITY, 8), zero = emit_fill(e, 0, top);
  /* a row without a key that it may see has the result 0 */
  const value_t none = emit_compare(e, "EQ", top, emit_fill(e, -INFINITY, top)),
                origin = emit_select(e, none, zero, top);
  const value_t shifted = emit_binary(e, "stablehlo.subtract", at.scores, emit_spread(e, origin, at.scores, 8));
  const value_t powers = emit_unary(e, "stablehlo.exponential", shifted), total = emit_reduce(e, powers, "add", 0, 8);
  const value_t divisor = emit_select(e, none, emit_fill(e, 1, total), total);
  const value_t product = emit_multiply(e, powers, at.value, 0);
  emit_write(e, 0, emit_binary(e, "stablehlo.divide", product, emit_spread(e, divisor, product, 8)));
  const value_t log = emit_binary(e, "stablehlo.add", emit_unary(e, "stablehlo.log", total), origin);
  emit_write(e, 1, log);
}

void emit_op_attention_backward(emit_t *e) {
  const attention_t at = read_attention(e, 1, 7);
  const value_t g = read_wide(e, 0), out = read_wide(e, 5);
  value_t log = emit_read_as(e, 6, at.scores.type);
  log = emit_reshape(e, log, 3, at.scores.sizes);
  const value_t none = emit_compare(e, "EQ", log, emit_fill(e, -INFINITY, log));
  log = emit_select(e, none, emit_fill(e, 0, log), log);
  const value_t weights = emit_unary(
      e, "stablehlo.exponential", emit_binary(e, "stablehlo.subtract", at.scores, emit_spread(e, log, at.scores, 8)));
  const value_t of_weights = emit_multiply(e, g, at.value, 1);
  const value_t share = emit_reduce(e, emit_binary(e, "stablehlo.multiply", g, out), "add", 0, 8);
  const value_t centered = emit_binary(e, "stablehlo.subtract", of_weights, emit_spread(e, share, of_weights, 8));
  const value_t of_scores = emit_binary(e, "stablehlo.multiply", weights, centered);
  const value_t scaled = emit_binary(e, "stablehlo.multiply", of_scores, at.scale);
  emit_write(e, 0, emit_multiply(e, scaled, at.key, 0));
  if (emit_wants(e, 1))
    emit_write(e, 1,
               add_heads(e, emit_multiply(e, transposed(e, scaled), at.query, 0), emit_result_shape(e, 1).sizes[1]));
  if (emit_wants(e, 2))
    emit_write(e, 2, add_heads(e, emit_multiply(e, transposed(e, weights), g, 0), emit_result_shape(e, 2).sizes[1]));
  emit_write(e, 3, of_scores);
}
