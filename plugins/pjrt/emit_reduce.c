/* emit_reduce.c: reductions and softmax. Results of reductions keep the reduced dimensions with size 1, or not; their
 * elements are the same. */
#include <math.h>
#include <string.h>

#include "emit.h"

static uint32_t mask_of(const emit_t *e, uint32_t argument, value_t a) {
  return emit_dims(e->node->call, argument, a.rank);
}

static double count_of(value_t a, uint32_t mask) {
  double count = 1;
  for (int d = 0; d < a.rank; d++)
    if (mask >> d & 1) count *= (double)a.sizes[d];
  return count;
}

static value_t read_wide(emit_t *e, uint32_t argument) {
  const value_t a = emit_read(e, argument);
  return emit_convert(e, a, emit_compute_type(a.type));
}

static value_t sum_of(emit_t *e, value_t a, uint32_t mask) { return emit_reduce(e, a, "add", 0, mask); }

void emit_op_sum(emit_t *e) {
  const value_t a = read_wide(e, 0);
  emit_write(e, 0, sum_of(e, a, mask_of(e, 1, a)));
}

void emit_op_mean(emit_t *e) {
  const value_t a = read_wide(e, 0);
  const uint32_t mask = mask_of(e, 1, a);
  const value_t total = sum_of(e, a, mask);
  emit_write(e, 0, emit_binary(e, "stablehlo.divide", total, emit_fill(e, count_of(a, mask), total)));
}

void emit_op_product(emit_t *e) {
  const value_t a = read_wide(e, 0);
  emit_write(e, 0, emit_reduce(e, a, "multiply", 1, mask_of(e, 1, a)));
}

static value_t extreme(emit_t *e, value_t a, uint32_t mask, int sign) {
  return emit_reduce_from(e, a, sign > 0 ? "maximum" : "minimum", emit_limit(e, a.type, -sign), mask);
}

void emit_op_amax(emit_t *e) {
  const value_t a = emit_read(e, 0);
  emit_write(e, 0, extreme(e, a, mask_of(e, 1, a), 1));
}

void emit_op_amin(emit_t *e) {
  const value_t a = emit_read(e, 0);
  emit_write(e, 0, extreme(e, a, mask_of(e, 1, a), -1));
}

void emit_op_aminmax(emit_t *e) {
  const value_t a = emit_read(e, 0);
  emit_write(e, 0, extreme(e, a, mask_of(e, 1, a), -1));
  emit_write(e, 1, extreme(e, a, mask_of(e, 1, a), 1));
}

void emit_op_any(emit_t *e) {
  const value_t a = emit_read_as(e, 0, PJRT_PRED);
  emit_write(e, 0, emit_reduce(e, a, "or", 0, mask_of(e, 1, a)));
}

void emit_op_all(emit_t *e) {
  const value_t a = emit_read_as(e, 0, PJRT_PRED);
  emit_write(e, 0, emit_reduce(e, a, "and", 1, mask_of(e, 1, a)));
}

void emit_op_count(emit_t *e) {
  const value_t a = emit_convert(e, emit_read_as(e, 0, PJRT_PRED), PJRT_S64);
  emit_write(e, 0, sum_of(e, a, mask_of(e, 1, a)));
}

void emit_op_nansum(emit_t *e) {
  const value_t a = read_wide(e, 0);
  const value_t known = emit_select(e, emit_compare(e, "EQ", a, a), a, emit_fill(e, 0, a));
  emit_write(e, 0, sum_of(e, known, mask_of(e, 1, a)));
}

/* ---- norms ------------------------------------------------------------------------------------------------------- */

static value_t read_absolute(emit_t *e) { return emit_unary(e, "stablehlo.abs", read_wide(e, 0)); }

static value_t zero_norm(emit_t *e, value_t a, uint32_t mask) {
  return sum_of(e, emit_convert(e, emit_compare(e, "NE", a, emit_fill(e, 0, a)), a.type), mask);
}

/* Squares of large numbers overflow, so they are divided by the largest one. */
static value_t two_norm(emit_t *e, value_t a, uint32_t mask) {
  const value_t largest = emit_reduce(e, a, "maximum", 0, mask), zero = emit_fill(e, 0, largest);
  const value_t infinity = emit_fill(e, INFINITY, largest), one = emit_fill(e, 1, largest);
  const value_t special =
      emit_binary(e, "stablehlo.or", emit_compare(e, "EQ", largest, zero), emit_compare(e, "EQ", largest, infinity));
  const value_t scale = emit_select(e, special, one, largest);
  const value_t scaled = emit_binary(e, "stablehlo.divide", a, emit_spread(e, scale, a, mask));
  const value_t squares = sum_of(e, emit_binary(e, "stablehlo.multiply", scaled, scaled), mask);
  return emit_binary(e, "stablehlo.multiply", scale, emit_unary(e, "stablehlo.sqrt", squares));
}

static value_t norm_of_order(emit_t *e, value_t a, uint32_t mask, value_t order) {
  const value_t total = sum_of(e, emit_binary(e, "stablehlo.power", a, emit_like(e, order, a)), mask);
  const value_t inverse = emit_binary(e, "stablehlo.divide", emit_fill(e, 1, total), emit_like(e, order, total));
  return emit_binary(e, "stablehlo.power", total, inverse);
}

void emit_op_norm_zero(emit_t *e) {
  const value_t a = read_absolute(e);
  emit_write(e, 0, zero_norm(e, a, mask_of(e, 1, a)));
}
void emit_op_norm_one(emit_t *e) {
  const value_t a = read_absolute(e);
  emit_write(e, 0, sum_of(e, a, mask_of(e, 1, a)));
}
void emit_op_norm_two(emit_t *e) {
  const value_t a = read_absolute(e);
  emit_write(e, 0, two_norm(e, a, mask_of(e, 1, a)));
}
void emit_op_norm_p(emit_t *e) {
  const value_t a = read_absolute(e);
  emit_write(e, 0, norm_of_order(e, a, mask_of(e, 1, a), emit_number(e, 2, a.type)));
}
void emit_op_norm_largest(emit_t *e) {
  const value_t a = read_absolute(e);
  emit_write(e, 0, extreme(e, a, mask_of(e, 1, a), 1));
}
void emit_op_norm_smallest(emit_t *e) {
  const value_t a = read_absolute(e);
  emit_write(e, 0, extreme(e, a, mask_of(e, 1, a), -1));
}

/* Writes a branch of stablehlo.case: norm number `kind`. */
static void put_norm(emit_t *e, int kind, value_t a, uint32_t mask, value_t order) {
  emit_put(e, "%s{\n", kind ? ", " : "");
  const value_t v = kind == 0   ? two_norm(e, a, mask)
                    : kind == 1 ? sum_of(e, a, mask)
                    : kind == 2 ? zero_norm(e, a, mask)
                    : kind == 5 ? norm_of_order(e, a, mask, order)
                                : extreme(e, a, mask, kind == 3 ? 1 : -1);
  emit_put(e, "    stablehlo.return %s : %s\n    }", emit_name(v).s, emit_type(v).s);
}

/* self, dim, ord: a number of the run, so the program has all norms and runs the one that it selects. */
void emit_op_vector_norm(emit_t *e) {
  static const double orders[] = {2, 1, 0, INFINITY, -INFINITY};
  enum { NAMED = sizeof orders / sizeof *orders };
  const hal_value_t *const given = e->node->call->arg_count > 2 ? emit_argument(e, 2) : NULL;
  if (!given || given->tag == HAL_VALUE_NONE) {
    emit_op_norm_two(e);
    return;
  }
  const value_t a = read_absolute(e), order = emit_number(e, 2, a.type);
  const uint32_t mask = mask_of(e, 1, a);
  value_t kind = emit_constant(e, PJRT_S32, NAMED), result = a;
  for (int i = 0; i < NAMED; i++)
    kind = emit_select(e, emit_compare(e, "EQ", order, emit_constant(e, a.type, orders[i])),
                       emit_constant(e, PJRT_S32, i), kind);
  result.rank = emit_kept_sizes(a, mask, result.sizes);
  const value_t v = emit_fresh(e, result.type, result.rank, result.sizes);
  emit_put(e, "    %s = \"stablehlo.case\"(%s) (", emit_name(v).s, emit_name(kind).s);
  for (int i = 0; i <= NAMED; i++) put_norm(e, i, a, mask, order);
  emit_put(e, ") : (tensor<i32>) -> %s\n", emit_type(v).s);
  emit_write(e, 0, v);
}

/* An order may be a number or absent. */
int emit_takes_vector_norm(const hal_op_call_t *call) {
  const uint32_t tag = call->arg_count > 2 ? call->args[2].tag : HAL_VALUE_NONE;
  return tag == HAL_VALUE_NONE || tag == HAL_VALUE_DOUBLE || tag == HAL_VALUE_INT;
}

/* ---- pairs: self, other, center, dim, divisor -------------------------------------------------------------------- */

/* Returns self or other minus the center, which has the reduced dimensions with size 1, or none. */
static value_t centered(emit_t *e, value_t a, uint32_t mask) {
  if (!emit_has(e, 2)) return a;
  value_t center = emit_convert(e, emit_read(e, 2), a.type);
  int64_t sizes[EMIT_RANK];
  const int rank = emit_kept_sizes(a, mask, sizes);
  center = emit_reshape(e, center, rank, sizes);
  return emit_binary(e, "stablehlo.subtract", a, emit_spread(e, center, a, mask));
}

void emit_op_centered_dot(emit_t *e) {
  const value_t a = read_wide(e, 0), b = read_wide(e, 1);
  const uint32_t mask = mask_of(e, 3, a);
  emit_write(e, 0, sum_of(e, emit_binary(e, "stablehlo.multiply", a, centered(e, b, mask)), mask));
}

static value_t share(emit_t *e, value_t total) {
  return emit_binary(e, "stablehlo.divide", total, emit_like(e, emit_number(e, 4, total.type), total));
}

void emit_op_mean_about(emit_t *e) {
  const value_t a = read_wide(e, 0);
  const uint32_t mask = mask_of(e, 3, a);
  emit_write(e, 0, share(e, sum_of(e, centered(e, a, mask), mask)));
}

static value_t variance(emit_t *e) {
  const value_t a = read_wide(e, 0);
  const uint32_t mask = mask_of(e, 3, a);
  const value_t deviation = centered(e, a, mask);
  return share(e, sum_of(e, emit_binary(e, "stablehlo.multiply", deviation, deviation), mask));
}

void emit_op_var_about(emit_t *e) { emit_write(e, 0, variance(e)); }
void emit_op_std_about(emit_t *e) { emit_write(e, 0, emit_unary(e, "stablehlo.sqrt", variance(e))); }

/* ---- moments: self, dim, correction ------------------------------------------------------------------------------ */

static void moments(emit_t *e, int root) {
  const value_t a = read_wide(e, 0);
  const uint32_t mask = mask_of(e, 1, a);
  const double elements = count_of(a, mask);
  const value_t total = sum_of(e, a, mask);
  const value_t center = emit_binary(e, "stablehlo.divide", total, emit_fill(e, elements, total));
  const value_t deviation = emit_binary(e, "stablehlo.subtract", a, emit_spread(e, center, a, mask));
  const value_t squares = sum_of(e, emit_binary(e, "stablehlo.multiply", deviation, deviation), mask);
  value_t freedom = emit_fill(e, elements, squares);
  if (emit_has(e, 2))
    freedom = emit_binary(e, "stablehlo.subtract", freedom, emit_like(e, emit_number(e, 2, squares.type), squares));
  else
    freedom = emit_fill(e, elements - 1, squares);
  freedom = emit_binary(e, "stablehlo.maximum", freedom, emit_fill(e, 0, squares));
  const value_t result = emit_binary(e, "stablehlo.divide", squares, freedom);
  emit_write(e, 0, root ? emit_unary(e, "stablehlo.sqrt", result) : result);
  emit_write(e, 1, center);
}

void emit_op_var_mean(emit_t *e) { moments(e, 0); }
void emit_op_std_mean(emit_t *e) { moments(e, 1); }

/* ---- indices of extremes ----------------------------------------------------------------------------------------- */

value_t emit_no_index(emit_t *e) { return emit_constant(e, PJRT_S64, 9e18); }

void emit_better(emit_t *e, int32_t type, int sign, int order) {
  const char *const t = emit_element(type);
  emit_put(e,
           "{\n    ^bb0(%%x: tensor<%s>, %%i: tensor<i64>, %%y: tensor<%s>, %%j: tensor<i64>):\n"
           "      %%better = stablehlo.compare %s, %%x, %%y : (tensor<%s>, tensor<%s>) -> tensor<i1>\n"
           "      %%equal = stablehlo.compare EQ, %%x, %%y : (tensor<%s>, tensor<%s>) -> tensor<i1>\n"
           "      %%xn = stablehlo.compare NE, %%x, %%x : (tensor<%s>, tensor<%s>) -> tensor<i1>\n"
           "      %%yn = stablehlo.compare NE, %%y, %%y : (tensor<%s>, tensor<%s>) -> tensor<i1>\n",
           t, t, sign > 0 ? "GT" : "LT", t, t, t, t, t, t, t, t);
  emit_put(e,
           "      %%prior = stablehlo.compare LT, %%i, %%j : (tensor<i64>, tensor<i64>) -> tensor<i1>\n"
           "      %%prior_nan = stablehlo.compare %s, %%i, %%j : (tensor<i64>, tensor<i64>) -> tensor<i1>\n"
           "      %%both = stablehlo.and %%xn, %%yn : tensor<i1>\n"
           "      %%same = stablehlo.and %%equal, %%prior : tensor<i1>\n"
           "      %%same_nan = stablehlo.and %%both, %%prior_nan : tensor<i1>\n"
           "      %%first = stablehlo.or %%same, %%same_nan : tensor<i1>\n"
           "      %%number = stablehlo.not %%yn : tensor<i1>\n"
           "      %%nan = stablehlo.and %%xn, %%number : tensor<i1>\n"
           "      %%wins = stablehlo.or %%better, %%first : tensor<i1>\n"
           "      %%taken = stablehlo.or %%wins, %%nan : tensor<i1>\n"
           "      %%value = stablehlo.select %%taken, %%x, %%y : tensor<i1>, tensor<%s>\n"
           "      %%place = stablehlo.select %%taken, %%i, %%j : tensor<i1>, tensor<i64>\n"
           "      stablehlo.return %%value, %%place : tensor<%s>, tensor<i64>\n    }",
           order == EMIT_FIRST ? "LT" : "GT", t, t);
}

value_t emit_result_of(emit_t *e, value_t pair, int number, int32_t type) {
  const value_t v = emit_fresh(e, type, pair.rank, pair.sizes);
  emit_put(e, "    %s = stablehlo.reshape %s#%d : (%s) -> %s\n", emit_name(v).s, emit_name(pair).s, number,
           emit_type(v).s, emit_type(v).s);
  return v;
}

void emit_reduce_index(emit_t *e, value_t a, value_t index, uint32_t mask, int sign, int order, value_t *out_value,
                       value_t *out_index) {
  int64_t sizes[EMIT_RANK], dims[EMIT_RANK];
  const int count = emit_reduced_dims(a, mask, dims), rank = emit_kept_sizes(a, mask, sizes);
  const value_t start = emit_limit(e, a.type, -sign), none = emit_no_index(e);
  const value_t pair = emit_fresh(e, a.type, rank, sizes);
  value_t places = pair;
  places.type = PJRT_S64;
  emit_put(e, "    %s:2 = \"stablehlo.reduce\"(%s, %s, %s, %s) (", emit_name(pair).s, emit_name(a).s,
           emit_name(index).s, emit_name(start).s, emit_name(none).s);
  emit_better(e, a.type, sign, order);
  emit_put(e, ") {dimensions = array<i64: %s>} : (%s, %s, %s, tensor<i64>) -> (%s, %s)\n", emit_list(dims, count).s,
           emit_type(a).s, emit_type(index).s, emit_type(start).s, emit_type(pair).s, emit_type(places).s);
  *out_value = emit_result_of(e, pair, 0, a.type);
  *out_index = emit_result_of(e, pair, 1, PJRT_S64);
}

/* Without a dimension the operand is one row. */
static void index_of(emit_t *e, int sign, value_t *out_value, value_t *out_index) {
  value_t a = emit_read(e, 0);
  const hal_value_t *const dim = emit_argument(e, 1);
  int64_t elements = 1;
  for (int d = 0; d < a.rank; d++) elements *= a.sizes[d];
  int at = 0;
  if (dim->tag == HAL_VALUE_INT && a.rank)
    at = emit_dim(dim->u.i, a.rank);
  else if (dim->tag == HAL_VALUE_INT_LIST && dim->count == 1 && a.rank)
    at = emit_dim(dim->u.il[0], a.rank);
  else
    a = emit_reshape(e, a, 1, &elements);
  const value_t index = emit_iota(e, PJRT_S64, a.rank, a.sizes, at);
  emit_reduce_index(e, a, index, 1u << at, sign, EMIT_FIRST, out_value, out_index);
}

int emit_takes_extreme(const hal_op_call_t *call) {
  const hal_value_t *const dim = call->arg_count > 1 ? &call->args[1] : NULL;
  if (dim && dim->tag == HAL_VALUE_INT_LIST && dim->count > 1 && dim->count != (uint32_t)call->args[0].u.t->ndim)
    return 0;
  return 1;
}

void emit_op_max_dim(emit_t *e) {
  value_t value, index;
  index_of(e, 1, &value, &index);
  emit_write(e, 0, value);
  emit_write(e, 1, index);
}

void emit_op_min_dim(emit_t *e) {
  value_t value, index;
  index_of(e, -1, &value, &index);
  emit_write(e, 0, value);
  emit_write(e, 1, index);
}

void emit_op_argmax(emit_t *e) {
  value_t value, index;
  index_of(e, 1, &value, &index);
  emit_write(e, 0, index);
}

void emit_op_argmin(emit_t *e) {
  value_t value, index;
  index_of(e, -1, &value, &index);
  emit_write(e, 0, index);
}

/* ---- softmax ----------------------------------------------------------------------------------------------------- */

static void softmax_of(emit_t *e, int logarithm) {
  const value_t a = read_wide(e, 0);
  const uint32_t mask = a.rank ? 1u << emit_dim(emit_int(e, 1, 0), a.rank) : 0;
  const value_t shifted = emit_binary(e, "stablehlo.subtract", a, emit_reduce_like(e, a, "maximum", -INFINITY, mask));
  const value_t powers = emit_unary(e, "stablehlo.exponential", shifted), total = sum_of(e, powers, mask);
  if (!logarithm) {
    emit_write(e, 0, emit_binary(e, "stablehlo.divide", powers, emit_spread(e, total, a, mask)));
    return;
  }
  const value_t log = emit_spread(e, emit_unary(e, "stablehlo.log", total), a, mask);
  emit_write(e, 0, emit_binary(e, "stablehlo.subtract", shifted, log));
}

void emit_op_softmax(emit_t *e) { softmax_of(e, 0); }
void emit_op_log_softmax(emit_t *e) { softmax_of(e, 1); }

void emit_op_softmax_backward(emit_t *e) {
  const value_t g = read_wide(e, 0), y = read_wide(e, 1);
  const uint32_t mask = g.rank ? 1u << emit_dim(emit_int(e, 2, 0), g.rank) : 0;
  const value_t product = emit_binary(e, "stablehlo.multiply", g, y);
  const value_t rest = emit_binary(e, "stablehlo.multiply", y, emit_reduce_like(e, product, "add", 0, mask));
  emit_write(e, 0, emit_binary(e, "stablehlo.subtract", product, rest));
}

void emit_op_log_softmax_backward(emit_t *e) {
  const value_t g = read_wide(e, 0), y = read_wide(e, 1);
  const uint32_t mask = g.rank ? 1u << emit_dim(emit_int(e, 2, 0), g.rank) : 0;
  const value_t rest = emit_binary(e, "stablehlo.multiply", emit_unary(e, "stablehlo.exponential", y),
                                   emit_reduce_like(e, g, "add", 0, mask));
  emit_write(e, 0, emit_binary(e, "stablehlo.subtract", g, rest));
}
