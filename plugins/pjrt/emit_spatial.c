/* emit_spatial.c: pooling and padding, with their gradients. Windows cover the last dimensions of
 * (batch, channel, ...). */
#include <math.h>
#include <string.h>

#include "emit.h"

#define ADD(a, b) emit_binary(e, "stablehlo.add", a, b)
#define MUL(a, b) emit_binary(e, "stablehlo.multiply", a, b)
#define DIV(a, b) emit_binary(e, "stablehlo.divide", a, b)

enum { FIRST_LIST = 1 }; /* kernel_size, stride, padding, dilation */

static int64_t of_list(const hal_value_t *list, int d, int64_t absent) {
  if (list->tag == HAL_VALUE_INT) return list->u.i;
  if (list->tag != HAL_VALUE_INT_LIST || !list->count) return absent;
  return list->u.il[list->count == 1 ? 0 : d];
}

/* Returns the number of dimensions with windows, by the operator's name. */
static int spatial_of(const emit_t *e) { return strstr(e->node->name, "3d") ? 3 : 2; }

/* Returns the position of each element in its image, as i64. */
static value_t positions(emit_t *e, value_t a, int spatial) {
  value_t sum = a;
  int64_t step = 1;
  for (int d = a.rank - 1; d >= a.rank - spatial; d--) {
    const value_t index = emit_iota(e, PJRT_S64, a.rank, a.sizes, d);
    const value_t part = emit_binary(e, "stablehlo.multiply", index, emit_fill(e, (double)step, index));
    sum = d == a.rank - 1 ? part : emit_binary(e, "stablehlo.add", sum, part);
    step *= a.sizes[d];
  }
  return sum;
}

static void put_lists(emit_t *e, value_t a, value_t result, int spatial) {
  int64_t size[EMIT_RANK], stride[EMIT_RANK], dilation[EMIT_RANK], low[EMIT_RANK], high[EMIT_RANK];
  for (int d = 0; d < a.rank; d++) {
    const int s = d - (a.rank - spatial);
    size[d] = stride[d] = dilation[d] = 1, low[d] = high[d] = 0;
    if (s < 0) continue;
    size[d] = of_list(emit_argument(e, FIRST_LIST), s, 1);
    stride[d] = of_list(emit_argument(e, FIRST_LIST + 1), s, size[d]);
    low[d] = of_list(emit_argument(e, FIRST_LIST + 2), s, 0);
    dilation[d] = of_list(emit_argument(e, FIRST_LIST + 3), s, 1);
    high[d] = (result.sizes[d] - 1) * stride[d] + dilation[d] * (size[d] - 1) + 1 - a.sizes[d] - low[d];
  }
  emit_put(e,
           "window_dimensions = array<i64: %s>, window_strides = array<i64: %s>, window_dilations = array<i64: %s>, "
           "padding = dense<[",
           emit_list(size, a.rank).s, emit_list(stride, a.rank).s, emit_list(dilation, a.rank).s);
  for (int d = 0; d < a.rank; d++) emit_put(e, "%s[%lld, %lld]", d ? ", " : "", (long long)low[d], (long long)high[d]);
  emit_put(e, "]> : tensor<%dx2xi64>", a.rank);
}

/* The largest element of each window, with its position: the first of equal ones, and NaN before all numbers. */
void emit_op_max_pool(emit_t *e) {
  const value_t a = emit_read(e, 0);
  const int spatial = spatial_of(e);
  value_t values = emit_result_shape(e, 0);
  const value_t index = positions(e, a, spatial);
  const value_t start = emit_limit(e, a.type, -1), none = emit_no_index(e);
  const value_t pair = emit_fresh(e, a.type, values.rank, values.sizes);
  value_t places = pair;
  places.type = PJRT_S64;
  emit_put(e, "    %s:2 = \"stablehlo.reduce_window\"(%s, %s, %s, %s) (", emit_name(pair).s, emit_name(a).s,
           emit_name(index).s, emit_name(start).s, emit_name(none).s);
  emit_better(e, a.type, 1, EMIT_FIRST_LAST_NAN);
  emit_put(e, ") {");
  put_lists(e, a, values, spatial);
  emit_put(e, "} : (%s, %s, %s, tensor<i64>) -> (%s, %s)\n", emit_type(a).s, emit_type(index).s, emit_type(start).s,
           emit_type(pair).s, emit_type(places).s);
  emit_write(e, 0, emit_result_of(e, pair, 0, a.type));
  emit_write(e, 1, emit_result_of(e, pair, 1, PJRT_S64));
}

/* grad_output, indices */
void emit_op_max_pool_backward(emit_t *e) {
  const value_t shape = emit_result_shape(e, 0);
  const int spatial = spatial_of(e);
  value_t g = emit_read(e, 0), index = emit_read_as(e, 1, PJRT_S64);
  int64_t images = 1, elements = 1, windows = 1;
  for (int d = 0; d < shape.rank; d++) {
    const int inside = d >= shape.rank - spatial;
    images *= inside ? 1 : shape.sizes[d];
    elements *= inside ? shape.sizes[d] : 1;
    windows *= inside ? g.sizes[d] : 1;
  }
  const int64_t rows[] = {images, windows}, all[] = {images, elements};
  value_t flat = {.type = emit_compute_type(shape.type), .rank = 2, .sizes = {all[0], all[1]}};
  g = emit_reshape(e, emit_convert(e, g, flat.type), 2, rows);
  index = emit_reshape(e, index, 2, rows);
  emit_write(e, 0, emit_scatter(e, emit_fill(e, 0, flat), index, g, 1, "add"));
}

/* ---- average pooling: self, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override ------ */

/* A sum over windows, in the last dimensions. */
typedef struct sum_s {
  int64_t size[3], stride[3], spread[3], low[3], high[3]; /* `spread`: distance of the operand's elements */
} sum_t;

static value_t sum_windows(emit_t *e, value_t a, const sum_t *sum, int spatial) {
  int64_t sizes[EMIT_RANK], window[EMIT_RANK], stride[EMIT_RANK], spread[EMIT_RANK];
  for (int d = 0; d < a.rank; d++) {
    const int s = d - (a.rank - spatial);
    window[d] = s < 0 ? 1 : sum->size[s], stride[d] = s < 0 ? 1 : sum->stride[s],
    spread[d] = s < 0 ? 1 : sum->spread[s];
    const int64_t extent = s < 0 ? a.sizes[d] : (a.sizes[d] - 1) * spread[d] + 1 + sum->low[s] + sum->high[s];
    sizes[d] = (extent - window[d]) / stride[d] + 1;
  }
  const value_t zero = emit_constant(e, a.type, 0), v = emit_fresh(e, a.type, a.rank, sizes);
  const char *const t = emit_element(a.type);
  emit_put(e,
           "    %s = \"stablehlo.reduce_window\"(%s, %s) ({\n    ^bb0(%%x: tensor<%s>, %%y: tensor<%s>):\n      %%z = "
           "stablehlo.add %%x, %%y : tensor<%s>\n      stablehlo.return %%z : tensor<%s>\n    }) {",
           emit_name(v).s, emit_name(a).s, emit_name(zero).s, t, t, t, t);
  emit_put(e,
           "window_dimensions = array<i64: %s>, window_strides = array<i64: %s>, base_dilations = array<i64: %s>, "
           "padding = dense<[",
           emit_list(window, a.rank).s, emit_list(stride, a.rank).s, emit_list(spread, a.rank).s);
  for (int d = 0; d < a.rank; d++) {
    const int s = d - (a.rank - spatial);
    emit_put(e, "%s[%lld, %lld]", d ? ", " : "", (long long)(s < 0 ? 0 : sum->low[s]),
             (long long)(s < 0 ? 0 : sum->high[s]));
  }
  emit_put(e, "]> : tensor<%dx2xi64>} : (%s, %s) -> %s\n", a.rank, emit_type(a).s, emit_type(zero).s, emit_type(v).s);
  return v;
}

/* The windows of a pooling operator whose lists begin at argument `first`; `a` and `windows` are the shapes. */
static sum_t read_windows(const emit_t *e, uint32_t first, value_t a, value_t windows, int spatial) {
  sum_t sum;
  for (int s = 0; s < spatial; s++) {
    const int d = a.rank - spatial + s;
    sum.size[s] = of_list(emit_argument(e, first), s, 1);
    sum.stride[s] = of_list(emit_argument(e, first + 1), s, sum.size[s]);
    sum.spread[s] = 1, sum.low[s] = of_list(emit_argument(e, first + 2), s, 0);
    sum.high[s] = (windows.sizes[d] - 1) * sum.stride[s] + sum.size[s] - a.sizes[d] - sum.low[s];
    if (sum.high[s] < 0) sum.high[s] = 0; /* elements after the last window */
  }
  return sum;
}

/* Returns the number of elements of each window that counts, as torch's: with the padding, or without. */
static value_t window_counts(emit_t *e, uint32_t first, value_t a, value_t windows, int spatial) {
  sum_t sum = read_windows(e, first, a, windows, spatial);
  value_t ones = a, shape = windows;
  const int padded = emit_int(e, first + 4, 1) != 0;
  for (int d = 0; d < a.rank - spatial; d++) ones.sizes[d] = 1;
  for (int s = 0; s < spatial && padded; s++) {
    const int d = a.rank - spatial + s;
    ones.sizes[d] += 2 * sum.low[s];
    sum.high[s] = sum.high[s] > sum.low[s] ? sum.high[s] - sum.low[s] : 0;
    sum.low[s] = 0;
  }
  int64_t dims[EMIT_RANK];
  for (int d = 0; d < spatial; d++) dims[d] = a.rank - spatial + d;
  const value_t counts = sum_windows(e, emit_fill(e, 1, ones), &sum, spatial);
  const value_t flat = emit_reshape(e, counts, spatial, &counts.sizes[a.rank - spatial]);
  shape.type = a.type;
  return emit_broadcast(e, flat, dims, shape.rank, shape.sizes);
}

static value_t divide_by_count(emit_t *e, value_t v, uint32_t first, value_t a, value_t windows, int spatial) {
  const hal_value_t *const divisor = emit_argument(e, first + 5);
  const value_t count = divisor->tag == HAL_VALUE_INT ? emit_fill(e, (double)divisor->u.i, v)
                                                      : window_counts(e, first, a, windows, spatial);
  return emit_binary(e, "stablehlo.divide", v, count);
}

void emit_op_avg_pool(emit_t *e) {
  const value_t input = emit_read(e, 0), a = emit_convert(e, input, emit_compute_type(input.type));
  const int spatial = spatial_of(e);
  const value_t windows = emit_result_shape(e, 0);
  const sum_t sum = read_windows(e, 1, a, windows, spatial);
  emit_write(e, 0, divide_by_count(e, sum_windows(e, a, &sum, spatial), 1, a, windows, spatial));
}

/* grad_output, self and the same: each element gets the shares of all windows that contain it. */
void emit_op_avg_pool_backward(emit_t *e) {
  const value_t output = emit_read(e, 0), g = emit_convert(e, output, emit_compute_type(output.type));
  const int spatial = spatial_of(e);
  value_t a = emit_result_shape(e, 0);
  a.type = g.type;
  sum_t sum = read_windows(e, 2, a, g, spatial);
  const value_t share = divide_by_count(e, g, 2, a, g, spatial);
  for (int s = 0; s < spatial; s++) {
    const int d = a.rank - spatial + s;
    const int64_t extent = (g.sizes[d] - 1) * sum.stride[s] + 1;
    sum.low[s] = sum.size[s] - 1 - sum.low[s];
    sum.high[s] = a.sizes[d] - extent - sum.low[s] + sum.size[s] - 1;
    sum.spread[s] = sum.stride[s], sum.stride[s] = 1;
  }
  emit_write(e, 0, sum_windows(e, share, &sum, spatial));
}

int emit_takes_avg_pool(const hal_op_call_t *call) {
  return emit_is_float(emit_type_of(call->results[0]->dtype)) && call->args[0].u.t->ndim >= 3 &&
         call->args[0].u.t->ndim <= 5;
}
int emit_takes_avg_pool_backward(const hal_op_call_t *call) { /* with ceil_mode windows end after the padding */
  return emit_takes_avg_pool(call) && call->arg_count > 5 && !call->args[5].u.i;
}

/* ---- adaptive max pooling ---------------------------------------------------------------------------------------- */

/* Returns the positions of each window of a dimension as out x taps; after its end a window's last one is repeated. */
static value_t window_positions(emit_t *e, int64_t in, int64_t out) {
  int64_t taps = 1;
  for (int64_t o = 0; o < out; o++) {
    const int64_t count = ((o + 1) * in + out - 1) / out - o * in / out;
    if (count > taps) taps = count;
  }
  const int64_t sizes[] = {out, taps};
  const value_t o = emit_iota(e, PJRT_S64, 2, sizes, 0), t = emit_iota(e, PJRT_S64, 2, sizes, 1);
  const value_t scale = emit_fill(e, (double)in, o), divisor = emit_fill(e, (double)out, o);
  const value_t begin = DIV(MUL(o, scale), divisor),
                after = ADD(MUL(o, scale), emit_fill(e, (double)(in + out - 1), o));
  const value_t last = ADD(DIV(after, divisor), emit_fill(e, -1, o));
  return emit_binary(e, "stablehlo.minimum", ADD(begin, t), last);
}

/* Windows become dimensions of their own, which are reduced with the positions of their elements. */
void emit_op_adaptive_max_pool(emit_t *e) {
  value_t a = emit_read(e, 0), places = emit_constant(e, PJRT_S64, 0);
  const value_t input = a, result = emit_result_shape(e, 0);
  const int spatial = spatial_of(e), first = a.rank - spatial;
  uint32_t mask = 0;
  for (int s = 0; s < spatial; s++) {
    const int dim = first + 2 * s;
    const value_t index = window_positions(e, input.sizes[first + s], result.sizes[first + s]);
    const int64_t count = index.sizes[0] * index.sizes[1];
    value_t shape = emit_take_along(e, a, emit_reshape(e, index, 1, &count), dim);
    a = shape;
    shape.rank++;
    for (int d = a.rank - 1; d > dim; d--) shape.sizes[d + 1] = a.sizes[d];
    shape.sizes[dim] = index.sizes[0], shape.sizes[dim + 1] = index.sizes[1];
    a = emit_reshape(e, a, shape.rank, shape.sizes);
    mask |= 1u << (dim + 1);
    const int64_t grown = places.rank + 2;
    int64_t sizes[EMIT_RANK], before[EMIT_RANK];
    for (int d = 0; d < places.rank; d++) sizes[d] = places.sizes[d], before[d] = d;
    sizes[grown - 2] = index.sizes[0], sizes[grown - 1] = index.sizes[1];
    const value_t scaled = MUL(places, emit_fill(e, (double)input.sizes[first + s], places));
    places = ADD(emit_broadcast(e, scaled, before, (int)grown, sizes),
                 emit_broadcast(e, index, (int64_t[]){grown - 2, grown - 1}, (int)grown, sizes));
  }
  int64_t dims[EMIT_RANK];
  for (int d = 0; d < places.rank; d++) dims[d] = first + d;
  value_t values, indices;
  emit_reduce_index(e, a, emit_broadcast(e, places, dims, a.rank, a.sizes), mask, 1, EMIT_FIRST_LAST_NAN, &values,
                    &indices);
  emit_write(e, 0, values);
  emit_write(e, 1, indices);
}

/* ---- padding: self, padding, the last dimension first ------------------------------------------------------------ */

/* Returns the element that each position of a padded dimension shows; a negative padding removes elements. */
static value_t padded_index(emit_t *e, int64_t size, int64_t before, int64_t after, int reflects) {
  const int64_t count = before + size + after;
  const value_t place = emit_iota(e, PJRT_S64, 1, &count, 0);
  value_t index = emit_binary(e, "stablehlo.subtract", place, emit_fill(e, (double)before, place));
  const value_t last = emit_fill(e, (double)(size - 1), place), zero = emit_fill(e, 0, place);
  if (!reflects) return emit_binary(e, "stablehlo.minimum", emit_binary(e, "stablehlo.maximum", index, zero), last);
  index = emit_unary(e, "stablehlo.abs", index);
  const value_t beyond = emit_binary(e, "stablehlo.subtract", index, last);
  const value_t back = emit_binary(e, "stablehlo.subtract", last, beyond);
  return emit_select(e, emit_compare(e, "GT", beyond, zero), back, index);
}

void emit_op_pad(emit_t *e) {
  value_t a = emit_read(e, 0);
  const hal_value_t *const list = emit_argument(e, 1);
  for (uint32_t i = 0; i + 1 < list->count; i += 2) {
    const int dim = a.rank - 1 - (int)(i / 2);
    value_t shape = a;
    const value_t index = padded_index(e, a.sizes[dim], list->u.il[i], list->u.il[i + 1], e->node->name[2] == 'f');
    shape.sizes[dim] = index.sizes[0];
    a = emit_take_rows(e, a, index, dim, shape);
  }
  emit_write(e, 0, a);
}

/* grad_output, self, padding */
void emit_op_pad_backward(emit_t *e) {
  const value_t output = emit_read(e, 0), result = emit_result_shape(e, 0);
  value_t g = emit_convert(e, output, emit_compute_type(output.type));
  const hal_value_t *const list = emit_argument(e, 2);
  for (uint32_t i = 0; i + 1 < list->count; i += 2) {
    const int dim = g.rank - 1 - (int)(i / 2);
    value_t shape = g;
    shape.sizes[dim] = result.sizes[dim];
    const value_t index = padded_index(e, shape.sizes[dim], list->u.il[i], list->u.il[i + 1], e->node->name[2] == 'f');
    const int64_t along = dim;
    const value_t spread = emit_broadcast(e, index, &along, g.rank, g.sizes);
    g = emit_scatter(e, emit_fill(e, 0, shape), spread, g, dim, "add");
  }
  emit_write(e, 0, g);
}

static int takes_pad_of(const hal_value_t *list, const hal_tensor_t *tensor) {
  if (list->tag != HAL_VALUE_INT_LIST || list->count / 2 > (uint32_t)tensor->ndim || tensor->ndim + 1 > EMIT_RANK)
    return 0;
  return 1;
}
int emit_takes_pad(const hal_op_call_t *call) { return takes_pad_of(&call->args[1], call->args[0].u.t); }
int emit_takes_pad_backward(const hal_op_call_t *call) { return takes_pad_of(&call->args[2], call->results[0]); }

/* ---- the table --------------------------------------------------------------------------------------------------- */

int emit_takes_pool(const hal_op_call_t *call) { return call->results[0]->ndim >= 3 && call->results[0]->ndim <= 5; }
