/* emit_scan.c: running values along a dimension, searching, sequences, and the indices of triangles. */
#include <math.h>
#include <string.h>

#include "emit.h"

#define ADD(a, b) emit_binary(e, "stablehlo.add", a, b)
#define SUB(a, b) emit_binary(e, "stablehlo.subtract", a, b)
#define MUL(a, b) emit_binary(e, "stablehlo.multiply", a, b)
#define DIV(a, b) emit_binary(e, "stablehlo.divide", a, b)

/* ---- scans: self, dim -------------------------------------------------------------------------------------------- */

/* Writes the windows of a scan: all elements up to each one. */
static void put_windows(emit_t *e, value_t a, int dim) {
  int64_t window[EMIT_RANK];
  for (int d = 0; d < a.rank; d++) window[d] = d == dim ? a.sizes[d] : 1;
  emit_put(e, "{window_dimensions = array<i64: %s>, padding = dense<[", emit_list(window, a.rank).s);
  for (int d = 0; d < a.rank; d++) emit_put(e, "%s[%lld, 0]", d ? ", " : "", (long long)(window[d] - 1));
  emit_put(e, "]> : tensor<%dx2xi64>}", a.rank);
}

/* Scans by an operator of StableHLO, "add" ... */
static value_t scan_with(emit_t *e, value_t a, int dim, const char *op, double start) {
  const value_t init = emit_constant(e, a.type, start), v = emit_fresh(e, a.type, a.rank, a.sizes);
  const char *const t = emit_element(a.type);
  emit_put(e,
           "    %s = \"stablehlo.reduce_window\"(%s, %s) ({\n    ^bb0(%%x: tensor<%s>, %%y: tensor<%s>):\n      %%z = "
           "stablehlo.%s %%x, %%y : tensor<%s>\n      stablehlo.return %%z : tensor<%s>\n    }) ",
           emit_name(v).s, emit_name(a).s, emit_name(init).s, t, t, op, t, t);
  put_windows(e, a, dim);
  emit_put(e, " : (%s, %s) -> %s\n", emit_type(a).s, emit_type(init).s, emit_type(v).s);
  return v;
}

static value_t read_scanned(emit_t *e, int *out_dim) {
  const value_t a = emit_read(e, 0);
  *out_dim = a.rank ? emit_dim(emit_int(e, 1, 0), a.rank) : 0;
  return a;
}

static void scan(emit_t *e, const char *op, double start) {
  int dim;
  const value_t input = read_scanned(e, &dim), a = emit_convert(e, input, emit_compute_type(input.type));
  emit_write(e, 0, a.rank ? scan_with(e, a, dim, op, start) : a);
}
void emit_op_cumsum(emit_t *e) { scan(e, "add", 0); }
void emit_op_cumprod(emit_t *e) { scan(e, "multiply", 1); }

/* Returns the elements `by` places earlier, and `start` before the first one. The other scans combine elements at
 * distances of 1, 2, 4 ... with those, because the compile time of windows over pairs grows with their size. */
static value_t earlier(emit_t *e, value_t a, int dim, int64_t by, value_t start) {
  int64_t from[EMIT_RANK] = {0}, to[EMIT_RANK];
  value_t head = a;
  memcpy(to, a.sizes, sizeof to);
  to[dim] -= by, head.sizes[dim] = by;
  const value_t parts[] = {emit_like(e, start, head), emit_slice(e, a, from, to)};
  return emit_concatenate(e, parts, 2, dim);
}

/* The larger one plus log1p(exp(smaller - larger)); an infinite larger one, and NaN, remain. */
static value_t add_logarithms(emit_t *e, value_t x, value_t y) {
  const value_t top = emit_binary(e, "stablehlo.maximum", x, y), low = emit_binary(e, "stablehlo.minimum", x, y);
  const value_t rest = emit_unary(e, "stablehlo.log_plus_one", emit_unary(e, "stablehlo.exponential", SUB(low, top)));
  const value_t finite = emit_compare(e, "EQ", SUB(top, top), emit_fill(e, 0, top));
  return emit_select(e, finite, ADD(top, rest), top);
}

void emit_op_logcumsumexp(emit_t *e) {
  int dim;
  const value_t input = read_scanned(e, &dim);
  value_t a = emit_convert(e, input, emit_compute_type(input.type));
  const value_t start = emit_constant(e, a.type, -INFINITY);
  for (int64_t by = 1; a.rank && by < a.sizes[dim]; by *= 2) a = add_logarithms(e, earlier(e, a, dim, by, start), a);
  emit_write(e, 0, a);
}

/* Running extremes and their indices: the last of equal ones, and NaN remains. */
static void scan_extreme(emit_t *e, int sign) {
  int dim;
  value_t a = read_scanned(e, &dim), index = a;
  index.type = PJRT_S64;
  const value_t start = emit_limit(e, a.type, -sign), none = emit_constant(e, PJRT_S64, 0);
  index = a.rank ? emit_iota(e, PJRT_S64, a.rank, a.sizes, dim) : none;
  for (int64_t by = 1; a.rank && by < a.sizes[dim]; by *= 2) {
    const value_t x = earlier(e, a, dim, by, start), of_x = earlier(e, index, dim, by, none);
    const value_t above = emit_compare(e, sign > 0 ? "GE" : "LE", a, x), number = emit_compare(e, "EQ", x, x);
    const value_t wins = emit_binary(e, "stablehlo.and", number, above), nan = emit_compare(e, "NE", a, a);
    const value_t taken = emit_binary(e, "stablehlo.or", nan, wins);
    a = emit_select(e, taken, a, x), index = emit_select(e, taken, index, of_x);
  }
  emit_write(e, 0, a);
  emit_write(e, 1, index);
}
void emit_op_cummax(emit_t *e) { scan_extreme(e, 1); }
void emit_op_cummin(emit_t *e) { scan_extreme(e, -1); }

/* ---- search: sorted_sequence, self, right ------------------------------------------------------------------------ */

/* Reads the sequence's element `at` of each value's row. */
static value_t element_at(emit_t *e, value_t sequence, value_t at) {
  if (sequence.rank == at.rank && at.rank > 1) return emit_take_elements(e, sequence, at, at.rank - 1);
  int64_t count = 1;
  for (int d = 0; d < at.rank; d++) count *= at.sizes[d];
  const value_t flat = emit_reshape(e, sequence, 1, &sequence.sizes[sequence.rank - 1]);
  return emit_reshape(e, emit_take_along(e, flat, emit_reshape(e, at, 1, &count), 0), at.rank, at.sizes);
}

/* Halves the range of each value's place as often as the longest range needs. */
void emit_op_search(emit_t *e) {
  const value_t sequence = emit_read(e, 0), x = emit_read(e, 1);
  const int64_t n = sequence.sizes[sequence.rank - 1];
  value_t place = x;
  place.type = PJRT_S64;
  value_t low = emit_fill(e, 0, place), high = emit_fill(e, (double)n, place);
  const value_t last = emit_fill(e, (double)(n - 1), place), one = emit_fill(e, 1, place), two = emit_fill(e, 2, place);
  for (int64_t range = n; range > 0; range /= 2) {
    const value_t middle = DIV(ADD(low, high), two), at = emit_binary(e, "stablehlo.minimum", middle, last);
    const value_t y = element_at(e, sequence, at);
    const value_t after = emit_compare(e, emit_int(e, 2, 0) ? "GT" : "GE", y, x),
                  open = emit_compare(e, "LT", low, high);
    const value_t up = emit_binary(e, "stablehlo.and", open, emit_unary(e, "stablehlo.not", after));
    const value_t down = emit_binary(e, "stablehlo.and", open, after);
    low = emit_select(e, up, ADD(middle, one), low);
    high = emit_select(e, down, middle, high);
  }
  emit_write(e, 0, low);
}

int emit_takes_search(const hal_op_call_t *call) {
  const hal_tensor_t *const sequence = call->args[0].u.t, *const x = call->args[1].u.t;
  if (call->args[0].tag != HAL_VALUE_TENSOR || call->args[1].tag != HAL_VALUE_TENSOR || !sequence->ndim) return 0;
  return sequence->ndim == 1 || (sequence->ndim == x->ndim && x->ndim < EMIT_RANK);
}

/* ---- sequences: in double precision, from both ends, which are exact --------------------------------------------- */

static value_t between(emit_t *e, value_t shape) {
  int64_t count = 1;
  for (int d = 0; d < shape.rank; d++) count *= shape.sizes[d];
  const value_t index = emit_iota(e, PJRT_F64, 1, &count, 0), start = emit_number(e, 0, PJRT_F64);
  const value_t end = emit_number(e, 1, PJRT_F64), last = emit_fill(e, (double)(count - 1), index);
  const value_t span = SUB(end, start), parts = emit_constant(e, PJRT_F64, count > 1 ? (double)(count - 1) : INFINITY);
  const value_t step = emit_like(e, DIV(span, parts), index);
  const value_t front = ADD(emit_like(e, start, index), MUL(index, step));
  const value_t back = SUB(emit_like(e, end, index), MUL(SUB(last, index), step));
  const value_t middle = emit_fill(e, count > 1 ? (double)(count / 2) : 1, index);
  return emit_select(e, emit_compare(e, "LT", index, middle), front, back);
}

void emit_op_linspace(emit_t *e) { emit_write(e, 0, between(e, emit_result_shape(e, 0))); }

void emit_op_logspace(emit_t *e) {
  const value_t x = between(e, emit_result_shape(e, 0));
  emit_write(e, 0, emit_binary(e, "stablehlo.power", emit_like(e, emit_number(e, 2, PJRT_F64), x), x));
}

/* ---- triangles: row, col, offset; the result is 2 x n ------------------------------------------------------------ */

static value_t limited(emit_t *e, value_t a, int64_t most) {
  const value_t above = emit_binary(e, "stablehlo.maximum", a, emit_fill(e, 0, a));
  return emit_binary(e, "stablehlo.minimum", above, emit_fill(e, (double)most, a));
}

/* The row of element k is the number of rows that begin at or before k, minus 1. */
static void triangle_indices(emit_t *e, int lower) {
  const int64_t rows = emit_int(e, 0, 0), columns = emit_int(e, 1, 0), offset = emit_int(e, 2, 0);
  const int64_t n = emit_result_shape(e, 0).sizes[1], pair[] = {1, n};
  const value_t row = emit_iota(e, PJRT_S64, 1, &rows, 0);
  const value_t split = limited(e, ADD(row, emit_fill(e, (double)(offset + lower), row)), columns);
  const value_t counts = lower ? split : SUB(emit_fill(e, (double)columns, split), split);
  const value_t starts = SUB(scan_with(e, counts, 0, "add", 0), counts);
  value_t marks = {.type = PJRT_S64, .rank = 1, .sizes = {n}};
  marks = emit_add_rows(e, emit_fill(e, 0, marks), starts, emit_fill(e, 1, row), 0);
  const value_t k = emit_iota(e, PJRT_S64, 1, &n, 0);
  const value_t mine = SUB(scan_with(e, marks, 0, "add", 0), emit_fill(e, 1, k));
  value_t column = SUB(k, emit_take_along(e, starts, mine, 0));
  if (!lower) column = ADD(column, emit_take_along(e, split, mine, 0));
  const value_t both[] = {emit_reshape(e, mine, 2, pair), emit_reshape(e, column, 2, pair)};
  emit_write(e, 0, emit_concatenate(e, both, 2, 0));
}
void emit_op_tril_indices(emit_t *e) { triangle_indices(e, 1); }
void emit_op_triu_indices(emit_t *e) { triangle_indices(e, 0); }

/* ---- greatest common divisors ------------------------------------------------------------------------------------ */

/* Euclid's algorithm on all elements until none has a remainder. */
static value_t common_divisor(emit_t *e, value_t a, value_t b) {
  const value_t v = emit_fresh(e, PJRT_U64, 1, a.sizes);
  const shown_t t = emit_type(v);
  const long long n = (long long)a.sizes[0];
  emit_put(e,
           "    %s, %s_rest = \"stablehlo.while\"(%s, %s) ({\n    ^bb0(%%a: %s, %%b: %s):\n"
           "      %%zero = stablehlo.constant dense<0> : %s\n"
           "      %%false = stablehlo.constant dense<false> : tensor<i1>\n"
           "      %%rest = stablehlo.compare NE, %%b, %%zero : (%s, %s) -> tensor<%lldxi1>\n"
           "      %%more = stablehlo.reduce(%%rest init: %%false) applies stablehlo.or across dimensions = [0] : "
           "(tensor<%lldxi1>, tensor<i1>) -> tensor<i1>\n      stablehlo.return %%more : tensor<i1>\n    }, {\n",
           emit_name(v).s, emit_name(v).s, emit_name(a).s, emit_name(b).s, t.s, t.s, t.s, t.s, t.s, n, n);
  emit_put(e,
           "    ^bb0(%%a: %s, %%b: %s):\n      %%zero = stablehlo.constant dense<0> : %s\n"
           "      %%one = stablehlo.constant dense<1> : %s\n"
           "      %%done = stablehlo.compare EQ, %%b, %%zero : (%s, %s) -> tensor<%lldxi1>\n"
           "      %%divisor = stablehlo.select %%done, %%one, %%b : tensor<%lldxi1>, %s\n"
           "      %%remainder = stablehlo.remainder %%a, %%divisor : %s\n"
           "      %%next = stablehlo.select %%done, %%a, %%b : tensor<%lldxi1>, %s\n"
           "      %%left = stablehlo.select %%done, %%zero, %%remainder : tensor<%lldxi1>, %s\n"
           "      stablehlo.return %%next, %%left : %s, %s\n    }) : (%s, %s) -> (%s, %s)\n",
           t.s, t.s, t.s, t.s, t.s, t.s, n, n, t.s, t.s, n, t.s, n, t.s, t.s, t.s, t.s, t.s, t.s, t.s);
  return v;
}

/* Returns the magnitudes of an operand as one dimension. */
static value_t magnitudes(emit_t *e, uint32_t argument, int64_t count) {
  const value_t a = emit_reshape(e, emit_read(e, argument), 1, &count);
  return emit_bits(e, emit_unary(e, "stablehlo.abs", a), PJRT_U64);
}

static void common(emit_t *e, int multiple) {
  const value_t shape = emit_result_shape(e, 0);
  int64_t count = 1;
  for (int d = 0; d < shape.rank; d++) count *= shape.sizes[d];
  const value_t a = magnitudes(e, 0, count), b = magnitudes(e, 1, count), zero = emit_fill(e, 0, a);
  const value_t divisor = common_divisor(e, a, b), none = emit_compare(e, "EQ", divisor, zero);
  value_t v = divisor;
  if (multiple) v = MUL(DIV(a, emit_select(e, none, emit_fill(e, 1, divisor), divisor)), b);
  v = emit_bits(e, v, PJRT_S64);
  emit_write(e, 0, multiple ? emit_unary(e, "stablehlo.abs", v) : v);
}
void emit_op_gcd(emit_t *e) { common(e, 0); }
void emit_op_lcm(emit_t *e) { common(e, 1); }

int emit_takes_integers(const hal_op_call_t *call) {
  for (int i = 0; i < 2; i++)
    if (call->args[i].tag != HAL_VALUE_TENSOR || call->args[i].u.t->dtype != HAL_INT64) return 0;
  return call->results[0]->dtype == HAL_INT64;
}
