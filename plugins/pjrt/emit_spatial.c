/* emit_spatial.c: max pooling and its gradient. Windows cover the last dimensions of (batch, channel, ...). */
#include <math.h>
#include <string.h>

#include "emit.h"

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
static void max_pool(emit_t *e) {
  const value_t a = emit_read(e, 0);
  const int spatial = spatial_of(e);
  value_t values = emit_result_shape(e, 0);
  const value_t index = positions(e, a, spatial);
  const value_t start = emit_constant(e, a.type, -INFINITY), none = emit_constant(e, PJRT_S64, 9e18);
  const value_t pair = emit_fresh(e, a.type, values.rank, values.sizes);
  value_t places = pair;
  places.type = PJRT_S64;
  emit_put(e, "    %s:2 = \"stablehlo.reduce_window\"(%s, %s, %s, %s) (", emit_name(pair).s, emit_name(a).s,
           emit_name(index).s, emit_name(start).s, emit_name(none).s);
  emit_better(e, a.type, 1);
  emit_put(e, ") {");
  put_lists(e, a, values, spatial);
  emit_put(e, "} : (%s, %s, %s, tensor<i64>) -> (%s, %s)\n", emit_type(a).s, emit_type(index).s, emit_type(start).s,
           emit_type(pair).s, emit_type(places).s);
  emit_write(e, 0, emit_result_of(e, pair, 0, a.type));
  emit_write(e, 1, emit_result_of(e, pair, 1, PJRT_S64));
}

/* grad_output, indices */
static void max_pool_backward(emit_t *e) {
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

static int takes_pool(const hal_op_call_t *call) {
  return emit_is_float(emit_type_of(call->results[0]->dtype)) && call->results[0]->ndim >= 3 &&
         call->results[0]->ndim <= 5;
}

const emit_operator_t emit_spatial_operators[] = {{"max_pool2d_with_indices", takes_pool, max_pool},
                                                  {"max_pool3d_with_indices", takes_pool, max_pool},
                                                  {"max_pool2d_with_indices_backward", takes_pool, max_pool_backward},
                                                  {"max_pool3d_with_indices_backward", takes_pool, max_pool_backward},
                                                  {NULL, NULL, NULL}};
