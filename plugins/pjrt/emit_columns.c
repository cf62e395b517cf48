/* emit_columns.c: the windows of an image as columns of a matrix (im2col), and back (col2im). The matrix is (batch,
 * channel x position in the window, window). Each position in the window is a slice of the image with steps. */
#include <string.h>

#include "emit.h"

enum { MOST_POSITIONS = 256 }; /* in a window; each is several lines of text */

typedef struct columns_s {
  int spatial, positions; /* in a window */
  int64_t batch, channels, in[3], out[3], size[3], dilation[3], padding[3], stride[3];
} columns_t;

static int64_t of_list(const hal_value_t *list, int d) {
  if (list->tag == HAL_VALUE_INT) return list->u.i;
  return list->tag == HAL_VALUE_INT_LIST && list->count ? list->u.il[list->count == 1 ? 0 : d] : 1;
}

/* `first`: the number of the argument kernel_size; dilation, padding and stride follow. The image has a batch dimension
 * if the matrix has three dimensions. */
static columns_t read_columns(const hal_op_call_t *call, uint32_t first, const hal_tensor_t *image, int batched) {
  columns_t c = {.spatial = image->ndim - 1 - batched, .positions = 1, .batch = batched ? image->sizes[0] : 1};
  c.channels = image->sizes[batched];
  for (int d = 0; d < c.spatial && d < 3; d++) {
    c.in[d] = image->sizes[1 + batched + d];
    c.size[d] = of_list(&call->args[first], d), c.dilation[d] = of_list(&call->args[first + 1], d);
    c.padding[d] = of_list(&call->args[first + 2], d), c.stride[d] = of_list(&call->args[first + 3], d);
    c.out[d] = (c.in[d] + 2 * c.padding[d] - c.dilation[d] * (c.size[d] - 1) - 1) / c.stride[d] + 1;
    c.positions *= (int)c.size[d];
  }
  return c;
}

/* Returns the coordinates of a position in the window. */
static void coordinates(const columns_t *c, int position, int64_t *out) {
  for (int d = c->spatial - 1; d >= 0; d--) {
    out[d] = position % c->size[d];
    position /= (int)c->size[d];
  }
}

/* Returns an image padded on both sides, with `interior` elements between neighbors; negative padding removes. */
static value_t pad(emit_t *e, value_t a, int spatial, const int64_t *low, const int64_t *high,
                   const int64_t *interior) {
  int64_t lows[EMIT_RANK] = {0}, highs[EMIT_RANK] = {0}, insides[EMIT_RANK] = {0}, sizes[EMIT_RANK];
  memcpy(sizes, a.sizes, sizeof sizes);
  for (int s = 0; s < spatial; s++) {
    const int d = a.rank - spatial + s;
    lows[d] = low[s], highs[d] = high[s], insides[d] = interior[s];
    sizes[d] = (a.sizes[d] - 1) * (interior[s] + 1) + 1 + low[s] + high[s];
  }
  const value_t zero = emit_constant(e, a.type, 0), v = emit_fresh(e, a.type, a.rank, sizes);
  emit_put(e, "    %s = stablehlo.pad %s, %s, low = [%s], high = [%s], interior = [%s] : (%s, %s) -> %s\n",
           emit_name(v).s, emit_name(a).s, emit_name(zero).s, emit_list(lows, a.rank).s, emit_list(highs, a.rank).s,
           emit_list(insides, a.rank).s, emit_type(a).s, emit_type(zero).s, emit_type(v).s);
  return v;
}

static value_t slice_with_steps(emit_t *e, value_t a, const columns_t *c, const int64_t *position) {
  int64_t from[EMIT_RANK] = {0}, step[EMIT_RANK], sizes[EMIT_RANK];
  for (int d = 0; d < a.rank; d++) step[d] = 1, sizes[d] = a.sizes[d];
  for (int s = 0; s < c->spatial; s++) {
    const int d = a.rank - c->spatial + s;
    from[d] = position[s] * c->dilation[s], step[d] = c->stride[s], sizes[d] = c->out[s];
  }
  const value_t v = emit_fresh(e, a.type, a.rank, sizes);
  emit_put(e, "    %s = stablehlo.slice %s [", emit_name(v).s, emit_name(a).s);
  for (int d = 0; d < a.rank; d++)
    emit_put(e, "%s%lld:%lld:%lld", d ? ", " : "", (long long)from[d],
             (long long)(from[d] + (sizes[d] - 1) * step[d] + 1), (long long)step[d]);
  emit_put(e, "] : (%s) -> %s\n", emit_type(a).s, emit_type(v).s);
  return v;
}

static int64_t count_of(const columns_t *c, const int64_t *sizes) {
  int64_t count = 1;
  for (int s = 0; s < c->spatial; s++) count *= sizes[s];
  return count;
}

static void shape_of(const columns_t *c, const int64_t *space, int64_t *out) {
  out[0] = c->batch, out[1] = c->channels;
  for (int s = 0; s < c->spatial; s++) out[2 + s] = space[s];
}

static void im2col(emit_t *e, uint32_t first) {
  const hal_op_call_t *const call = e->node->call;
  const columns_t c = read_columns(call, first, call->args[0].u.t, call->results[0]->ndim == 3);
  const int64_t none[3] = {0}, row[] = {c.batch, c.channels, 1, count_of(&c, c.out)};
  int64_t image[EMIT_RANK], position[3];
  shape_of(&c, c.in, image);
  const value_t a =
      pad(e, emit_reshape(e, emit_read(e, 0), 2 + c.spatial, image), c.spatial, c.padding, c.padding, none);
  value_t rows[MOST_POSITIONS];
  for (int p = 0; p < c.positions; p++) {
    coordinates(&c, p, position);
    rows[p] = emit_reshape(e, slice_with_steps(e, a, &c, position), 4, row);
  }
  emit_write(e, 0, emit_concatenate(e, rows, c.positions, 2));
}

/* Each row of the matrix is spread to its places in the image; the sum of all is the result. */
static void col2im(emit_t *e, uint32_t first) {
  const hal_op_call_t *const call = e->node->call;
  const columns_t c = read_columns(call, first, call->results[0], call->args[0].u.t->ndim == 3);
  const value_t matrix = emit_read(e, 0);
  const int64_t parts[] = {c.batch, c.channels, c.positions, count_of(&c, c.out)};
  const value_t a = emit_reshape(e, emit_convert(e, matrix, emit_compute_type(matrix.type)), 4, parts);
  int64_t windows[EMIT_RANK], position[3], low[3], high[3], interior[3];
  shape_of(&c, c.out, windows);
  value_t sum = a;
  for (int p = 0; p < c.positions; p++) {
    const int64_t from[] = {0, 0, p, 0}, to[] = {parts[0], parts[1], p + 1, parts[3]};
    coordinates(&c, p, position);
    for (int s = 0; s < c.spatial; s++) {
      interior[s] = c.stride[s] - 1, low[s] = position[s] * c.dilation[s] - c.padding[s];
      high[s] = c.in[s] - low[s] - ((c.out[s] - 1) * c.stride[s] + 1);
    }
    const value_t row = emit_reshape(e, emit_slice(e, a, from, to), 2 + c.spatial, windows);
    const value_t spread = pad(e, row, c.spatial, low, high, interior);
    sum = p ? emit_binary(e, "stablehlo.add", sum, spread) : spread;
  }
  emit_write(e, 0, sum);
}

void emit_op_unfold(emit_t *e) { im2col(e, 1); }
void emit_op_unfold_windows(emit_t *e) { im2col(e, 2); }
void emit_op_fold(emit_t *e) { col2im(e, 2); }

static int takes(const hal_op_call_t *call, uint32_t first, const hal_tensor_t *image, const hal_tensor_t *matrix) {
  if (!emit_is_float(emit_type_of(image->dtype)) || matrix->ndim < 2 || matrix->ndim > 3) return 0;
  const columns_t c = read_columns(call, first, image, matrix->ndim == 3);
  return c.spatial >= 1 && c.spatial <= 3 && c.positions <= MOST_POSITIONS &&
         matrix->sizes[matrix->ndim - 1] == count_of(&c, c.out);
}
int emit_takes_unfold(const hal_op_call_t *call) { return takes(call, 1, call->args[0].u.t, call->results[0]); }
int emit_takes_unfold_windows(const hal_op_call_t *call) { return takes(call, 2, call->args[0].u.t, call->results[0]); }
int emit_takes_fold(const hal_op_call_t *call) { return takes(call, 2, call->results[0], call->args[0].u.t); }
