/* emit_resample.c: interpolation and adaptive average pooling, forward and backward: a sparse linear map along
 * each of the last dimensions in turn. Element o of a map is the sum of some positions ("taps") times weights. Weights
 * and positions are computed by the program, since scales are numbers of the run. */
#include <math.h>
#include <string.h>

#include "emit.h"

#define ADD(a, b) emit_binary(e, "stablehlo.add", a, b)
#define SUB(a, b) emit_binary(e, "stablehlo.subtract", a, b)
#define MUL(a, b) emit_binary(e, "stablehlo.multiply", a, b)
#define DIV(a, b) emit_binary(e, "stablehlo.divide", a, b)
#define MIN(a, b) emit_binary(e, "stablehlo.minimum", a, b)
#define MAX(a, b) emit_binary(e, "stablehlo.maximum", a, b)

typedef enum { NEAREST_EXACT, NEAREST, LINEAR, CUBIC, LINEAR_WIDE, CUBIC_WIDE, ADAPTIVE } kind_t;

/* A map along a dimension, from `in` positions to `out` elements. */
typedef struct map_s {
  kind_t kind;
  int64_t in, out, taps;
  int align_corners;
  uint32_t scale; /* number of the argument */
  int32_t type;   /* in which it is computed */
} map_t;

/* The taps of a map as matrices of out x taps. */
typedef struct taps_s {
  value_t index;  /* i64, valid */
  value_t weight; /* 0 where a tap is not used */
  value_t used;   /* i1, if has_used: weights that are 0 hide infinities */
  int has_weight, has_used;
} taps_t;

static kind_t kind_of(const char *name) {
  static const struct {
    const char *part;
    kind_t kind;
  } kinds[] = {{"nearest_exact", NEAREST_EXACT}, {"nearest", NEAREST}, {"linear2d_aa", LINEAR_WIDE},
               {"cubic2d_aa", CUBIC_WIDE},       {"linear", LINEAR},   {"cubic", CUBIC}};
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (strstr(name, kinds[i].part)) return kinds[i].kind;
  return ADAPTIVE;
}

static int spatial_of(const char *name) { return strstr(name, "3d") ? 3 : strstr(name, "2d") ? 2 : 1; }
static int is_backward(const char *name) { return strstr(name, "_backward") != NULL; }

/* Returns the number of the argument with the first scale. */
static uint32_t first_scale(const char *name) {
  const kind_t kind = kind_of(name);
  return 2 + (uint32_t)is_backward(name) + (kind >= LINEAR);
}

/* ---- positions and weights --------------------------------------------------------------------------------------- */

/* Returns the number of input positions per element of the result as a scalar, computed as in ATen. */
static value_t ratio_of(emit_t *e, const map_t *m) {
  const int narrow = m->type != PJRT_F64;
  if (m->kind >= LINEAR && m->align_corners && m->out <= 1) return emit_constant(e, m->type, 0);
  if (m->kind >= LINEAR && m->align_corners)
    return emit_constant(
        e, m->type,
        narrow ? (double)((float)(m->in - 1) / (float)(m->out - 1)) : (double)(m->in - 1) / (double)(m->out - 1));
  const double fixed = narrow ? (double)((float)m->in / (float)m->out) : (double)m->in / (double)m->out;
  const value_t of_sizes = emit_constant(e, m->type, fixed);
  if (!emit_has(e, m->scale)) return of_sizes;
  const value_t scale = emit_number(e, m->scale, PJRT_F64);
  const value_t inverse = emit_convert(e, DIV(emit_constant(e, PJRT_F64, 1), scale), m->type);
  return emit_select(e, emit_compare(e, "GT", scale, emit_constant(e, PJRT_F64, 0)), inverse, of_sizes);
}

static value_t plus(emit_t *e, value_t a, double number) { return ADD(a, emit_fill(e, number, a)); }
static value_t times(emit_t *e, value_t a, double number) { return MUL(a, emit_fill(e, number, a)); }

static value_t between(emit_t *e, value_t a, double least, double most) {
  return MIN(MAX(a, emit_fill(e, least, a)), emit_fill(e, most, a));
}

/* Returns element o and tap t of each place of the matrices. */
static value_t elements(emit_t *e, const map_t *m, int32_t type, int dim) {
  return emit_iota(e, type, 2, (int64_t[]){m->out, m->taps}, dim);
}

static taps_t nearest(emit_t *e, const map_t *m) {
  taps_t taps = {.has_weight = 0};
  const value_t o = elements(e, m, PJRT_S64, 0);
  map_t narrow = *m;
  narrow.type = PJRT_F32;
  value_t place = emit_convert(e, o, PJRT_F32);
  if (m->kind == NEAREST_EXACT) place = plus(e, place, 0.5);
  place = MUL(place, emit_like(e, ratio_of(e, &narrow), place));
  taps.index = between(e, emit_convert(e, place, PJRT_S64), 0, (double)(m->in - 1));
  return taps;
}

/* Returns ratio * a, which no sum is fused with: positions are computed in several places and must agree. */
static value_t scaled(emit_t *e, value_t ratio, value_t a) {
  return emit_unary(e, "stablehlo.optimization_barrier", MUL(ratio, a));
}

/* Returns the position before the source of each element, and the distance of the source from it. */
static value_t position_before(emit_t *e, const map_t *m, value_t *out_share) {
  const value_t o = elements(e, m, m->type, 0), ratio = emit_like(e, ratio_of(e, m), o);
  value_t source = m->align_corners ? scaled(e, ratio, o) : plus(e, scaled(e, ratio, plus(e, o, 0.5)), -0.5);
  if (m->kind == LINEAR) source = MAX(source, emit_fill(e, 0, source));
  const value_t below = emit_unary(e, "stablehlo.floor", source);
  const value_t place = MIN(below, emit_fill(e, (double)(m->in - 1), below));
  *out_share = between(e, SUB(source, place), 0, 1);
  return emit_convert(e, place, PJRT_S64);
}

static taps_t linear(emit_t *e, const map_t *m) {
  taps_t taps = {.has_weight = 1, .has_used = 1};
  value_t share;
  const value_t place = position_before(e, m, &share), t = elements(e, m, PJRT_S64, 1);
  const value_t first = emit_compare(e, "EQ", t, emit_fill(e, 0, t));
  taps.index = between(e, ADD(place, t), 0, (double)(m->in - 1));
  taps.weight = emit_select(e, first, plus(e, emit_unary(e, "stablehlo.negate", share), 1), share);
  taps.used = emit_compare(e, "GT", taps.weight, emit_fill(e, 0, taps.weight));
  return taps;
}

/* Keys' cubic kernel, at x >= 0 positions from its middle, up to 2. */
static value_t cubic_kernel(emit_t *e, value_t x, double a) {
  value_t near = plus(e, times(e, x, a + 2), -(a + 3));
  near = plus(e, MUL(MUL(near, x), x), 1);
  value_t far = plus(e, times(e, x, a), -5 * a);
  far = plus(e, MUL(plus(e, MUL(far, x), 8 * a), x), -4 * a);
  return emit_select(e, emit_compare(e, "LE", x, emit_fill(e, 1, x)), near, far);
}

static taps_t cubic(emit_t *e, const map_t *m) {
  taps_t taps = {.has_weight = 1};
  value_t share;
  const value_t place = position_before(e, m, &share), j = plus(e, elements(e, m, PJRT_S64, 1), -1);
  const value_t distance = SUB(share, emit_convert(e, j, m->type));
  taps.index = between(e, ADD(place, j), 0, (double)(m->in - 1));
  taps.weight = cubic_kernel(e, emit_unary(e, "stablehlo.abs", distance), -0.75);
  return taps;
}

/* Antialiased: the filter is as wide as the input positions per element of the result. */
static taps_t wide(emit_t *e, const map_t *m) {
  taps_t taps = {.has_weight = 1, .has_used = 1};
  const value_t o = elements(e, m, m->type, 0), ratio = emit_like(e, ratio_of(e, m), o);
  const value_t width = MAX(ratio, emit_fill(e, 1, ratio)), center = scaled(e, ratio, plus(e, o, 0.5));
  const value_t support = times(e, width, m->kind == LINEAR_WIDE ? 1 : 2);
  const value_t from = emit_convert(e, plus(e, SUB(center, support), 0.5), PJRT_S64);
  const value_t to = emit_convert(e, plus(e, ADD(center, support), 0.5), PJRT_S64);
  const value_t begin = between(e, from, 0, (double)m->in), end = between(e, to, 0, (double)m->in);
  const value_t index = ADD(begin, elements(e, m, PJRT_S64, 1));
  const value_t distance = plus(e, SUB(emit_convert(e, index, m->type), center), 0.5);
  const value_t x = emit_unary(e, "stablehlo.abs", DIV(distance, width));
  value_t weight, zero = emit_fill(e, 0, x);
  if (m->kind == LINEAR_WIDE)
    weight = MAX(plus(e, emit_unary(e, "stablehlo.negate", x), 1), zero);
  else
    weight = emit_select(e, emit_compare(e, "LT", x, emit_fill(e, 2, x)), cubic_kernel(e, x, -0.5), zero);
  taps.used = emit_compare(e, "LT", index, end);
  weight = emit_select(e, taps.used, weight, zero);
  const value_t total = emit_reduce_like(e, weight, "add", 0, 2);
  const value_t divisor = emit_select(e, emit_compare(e, "EQ", total, zero), emit_fill(e, 1, total), total);
  taps.weight = DIV(weight, divisor);
  taps.index = between(e, index, 0, (double)(m->in - 1));
  return taps;
}

static taps_t adaptive(emit_t *e, const map_t *m) {
  taps_t taps = {.has_weight = 1, .has_used = 1};
  const value_t o = elements(e, m, PJRT_S64, 0), in = emit_fill(e, (double)m->in, o),
                out = emit_fill(e, (double)m->out, o);
  const value_t begin = DIV(MUL(o, in), out), after = MUL(plus(e, o, 1), in);
  const value_t end = DIV(plus(e, after, (double)(m->out - 1)), out), index = ADD(begin, elements(e, m, PJRT_S64, 1));
  taps.used = emit_compare(e, "LT", index, end);
  const value_t size = emit_convert(e, SUB(end, begin), m->type);
  const value_t share = DIV(emit_fill(e, 1, size), size);
  taps.weight = emit_select(e, taps.used, share, emit_fill(e, 0, share));
  taps.index = between(e, index, 0, (double)(m->in - 1));
  return taps;
}

static taps_t make_taps(emit_t *e, const map_t *m) {
  if (m->kind <= NEAREST) return nearest(e, m);
  if (m->kind == LINEAR) return linear(e, m);
  if (m->kind == CUBIC) return cubic(e, m);
  return m->kind == ADAPTIVE ? adaptive(e, m) : wide(e, m);
}

/* ---- maps -------------------------------------------------------------------------------------------------------- */

/* Multiplies [..., out, taps, ...] by the weights of `dim` and `dim` + 1. */
static value_t weigh(emit_t *e, value_t a, const taps_t *taps, int dim) {
  const int64_t dims[] = {dim, dim + 1};
  if (!taps->has_weight) return a;
  const value_t product = MUL(a, emit_broadcast(e, taps->weight, dims, a.rank, a.sizes));
  if (!taps->has_used) return product;
  return emit_select(e, emit_broadcast(e, taps->used, dims, a.rank, a.sizes), product, emit_fill(e, 0, product));
}

/* Returns the shape of `a` with dimension `dim` in two parts. */
static value_t split(value_t a, int dim, int64_t first, int64_t second) {
  value_t parts = a;
  parts.rank = a.rank + 1;
  for (int d = dim + 1; d < a.rank; d++) parts.sizes[d + 1] = a.sizes[d];
  parts.sizes[dim] = first, parts.sizes[dim + 1] = second;
  return parts;
}

static value_t map_forward(emit_t *e, value_t a, int dim, const map_t *m) {
  const taps_t taps = make_taps(e, m);
  const int64_t count = m->out * m->taps;
  const value_t rows = emit_take_along(e, a, emit_reshape(e, taps.index, 1, &count), dim);
  const value_t shape = split(rows, dim, m->out, m->taps);
  return emit_reduce(e, weigh(e, emit_reshape(e, rows, shape.rank, shape.sizes), &taps, dim), "add", 0,
                     1u << (dim + 1));
}

static value_t map_backward(emit_t *e, value_t g, int dim, const map_t *m) {
  const taps_t taps = make_taps(e, m);
  const int64_t count = m->out * m->taps;
  const value_t shape = split(g, dim, m->out, m->taps);
  const value_t parts = weigh(e, emit_spread(e, g, shape, 1u << (dim + 1)), &taps, dim);
  value_t flat = g, result = g;
  flat.sizes[dim] = count, result.sizes[dim] = m->in;
  return emit_add_rows(e, emit_fill(e, 0, result), emit_reshape(e, taps.index, 1, &count),
                       emit_reshape(e, parts, flat.rank, flat.sizes), dim);
}

/* ---- runs: each element has a run of adjacent positions of its own, or the other way round ----------------------- */

/* Returns `dim` with each element repeated `times` times. */
static value_t repeat(emit_t *e, value_t a, int dim, int64_t times) {
  const value_t shape = split(a, dim, a.sizes[dim], times);
  value_t flat = a;
  flat.sizes[dim] *= times;
  return emit_reshape(e, emit_spread(e, a, shape, 1u << (dim + 1)), flat.rank, flat.sizes);
}

/* Returns the sums of runs of `count` elements along `dim`. */
static value_t add_runs(emit_t *e, value_t a, int dim, int64_t count) {
  const value_t shape = split(a, dim, a.sizes[dim] / count, count);
  return emit_reduce(e, emit_reshape(e, a, shape.rank, shape.sizes), "add", 0, 1u << (dim + 1));
}

static value_t share(emit_t *e, value_t a, int64_t count) { return DIV(a, emit_fill(e, (double)count, a)); }

static value_t map_dim(emit_t *e, value_t a, int dim, const map_t *m, int backward) {
  const int64_t run = m->in / m->out;
  if (m->kind == ADAPTIVE && m->in % m->out == 0)
    return backward ? repeat(e, share(e, a, run), dim, run) : share(e, add_runs(e, a, dim, run), run);
  if (m->kind == NEAREST && m->out == 2 * m->in) return backward ? add_runs(e, a, dim, 2) : repeat(e, a, dim, 2);
  return backward ? map_backward(e, a, dim, m) : map_forward(e, a, dim, m);
}

static int64_t taps_of(kind_t kind, int64_t in, int64_t out) {
  const double support = ceil((kind == CUBIC_WIDE ? 2 : 1) * fmax((double)in / (double)out, 1)) + 1; /* of any scale */
  int64_t taps = 1;
  if (kind == LINEAR) return 2;
  if (kind == CUBIC) return 4;
  if (kind == ADAPTIVE) taps = in / out + 2;
  if (kind == LINEAR_WIDE || kind == CUBIC_WIDE) taps = 2 * (int64_t)support + 2;
  return taps < in ? taps : in;
}

void emit_op_resample(emit_t *e) {
  const char *const name = e->node->name;
  const int backward = is_backward(name), spatial = spatial_of(name);
  const value_t operand = emit_read(e, 0), shape = emit_result_shape(e, 0);
  value_t a = emit_convert(e, operand, emit_compute_type(operand.type));
  map_t m = {.kind = kind_of(name), .type = a.type};
  if (m.kind >= LINEAR && m.kind != ADAPTIVE) m.align_corners = emit_int(e, first_scale(name) - 1, 0) != 0;
  for (int s = 0; s < spatial; s++) {
    const int dim = a.rank - spatial + s;
    m.in = (backward ? shape : a).sizes[dim], m.out = (backward ? a : shape).sizes[dim];
    m.scale = m.kind == ADAPTIVE ? 0 : first_scale(name) + (uint32_t)s;
    m.taps = taps_of(m.kind, m.in, m.out);
    if (m.in == m.out && (m.kind == NEAREST || m.kind == LINEAR || m.kind == ADAPTIVE)) continue;
    a = map_dim(e, a, dim, &m, backward);
  }
  emit_write(e, 0, a);
}

/* ---- calls ------------------------------------------------------------------------------------------------------- */

/* The number of taps of a wide filter follows from the sizes, so the scale must be theirs. */
static int has_scale_of_sizes(const hal_op_call_t *call, uint32_t argument, int64_t in, int64_t out) {
  if (argument >= call->arg_count || call->args[argument].tag != HAL_VALUE_DOUBLE) return 1;
  const double scale = call->args[argument].u.d;
  return scale <= 0 || 1 / scale <= (double)in / (double)out + 0.5;
}

static int takes_map(const hal_op_call_t *call, int spatial, int backward, int is_wide, uint32_t scale) {
  const hal_tensor_t *const a = call->args[0].u.t, *const result = call->results[0];
  if (!emit_is_float(emit_type_of(a->dtype)) || a->ndim != result->ndim || a->ndim < spatial || a->ndim > 5) return 0;
  for (int s = 0; s < spatial; s++) {
    const int dim = a->ndim - spatial + s;
    const int64_t in = (backward ? result : a)->sizes[dim], out = (backward ? a : result)->sizes[dim];
    if (in > INT32_MAX || out > INT32_MAX) return 0;
    if (is_wide && !has_scale_of_sizes(call, scale + (uint32_t)s, in, out)) return 0;
  }
  return 1;
}

int emit_takes_map_1d(const hal_op_call_t *call) { return takes_map(call, 1, 0, 0, 0); }
int emit_takes_map_2d(const hal_op_call_t *call) { return takes_map(call, 2, 0, 0, 0); }
int emit_takes_map_3d(const hal_op_call_t *call) { return takes_map(call, 3, 0, 0, 0); }
int emit_takes_map_1d_backward(const hal_op_call_t *call) { return takes_map(call, 1, 1, 0, 0); }
int emit_takes_map_2d_backward(const hal_op_call_t *call) { return takes_map(call, 2, 1, 0, 0); }
int emit_takes_map_3d_backward(const hal_op_call_t *call) { return takes_map(call, 3, 1, 0, 0); }
int emit_takes_map_wide(const hal_op_call_t *call) { return takes_map(call, 2, 0, 1, 3); }
int emit_takes_map_wide_backward(const hal_op_call_t *call) { return takes_map(call, 2, 1, 1, 4); }
