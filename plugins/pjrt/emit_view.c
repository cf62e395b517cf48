/* emit_view.c: tensors as parts of buffers. A buffer is a value of one dimension. A tensor is read by slices, reshapes
 * and a transposition where its strides allow that, else by a gather. A written tensor is pending until a part of it is
 * read with other memory, so that most temporaries are values and never memory. */
#include <string.h>

#include "emit.h"

/* A tensor in elements of its buffer. Its strides are not negative: a dimension that is reversed, as those of copies
 * for flip are, begins at its last element. */
typedef struct view_s {
  uint32_t buffer;
  int32_t type;
  int rank;
  int64_t offset, sizes[EMIT_RANK], strides[EMIT_RANK];
  int64_t reversed[EMIT_RANK]; /* dimensions */
  int reversed_count;
} view_t;

static int64_t count_of(const view_t *v) {
  int64_t count = 1;
  for (int d = 0; d < v->rank; d++) count *= v->sizes[d];
  return count;
}

/* Returns the element after the last one. */
static int64_t end_of(const view_t *v) {
  int64_t last = v->offset;
  for (int d = 0; d < v->rank; d++) last += (v->sizes[d] - 1) * v->strides[d];
  return last + 1;
}

static view_t view_of(emit_t *e, const hal_ir_use_t *use) {
  const hal_tensor_t *const tensor = use->tensor;
  view_t v = {.buffer = use->buffer, .type = emit_type_of(tensor->dtype), .rank = tensor->ndim};
  const int32_t bytes = emit_bytes(v.type);
  v.offset = (int64_t)(use->offset / (uint64_t)bytes);
  for (int d = 0; d < v.rank; d++) {
    v.sizes[d] = tensor->sizes[d];
    v.strides[d] = tensor->sizes[d] == 1 ? 0 : tensor->strides[d];
    if (v.strides[d] >= 0) continue;
    v.offset += (v.sizes[d] - 1) * v.strides[d];
    v.strides[d] = -v.strides[d];
    v.reversed[v.reversed_count++] = d;
  }
  const emit_buffer_t *const buffer = &e->buffers[v.buffer];
  if (emit_bytes(buffer->type) != bytes || use->offset % (uint64_t)bytes)
    emit_refuse(e, "memory is used with dtypes of different sizes");
  return v;
}

/* Lists the dimensions with several elements in descending order of their strides. */
static int list_dims(const view_t *v, int *order) {
  int n = 0;
  for (int d = 0; d < v->rank; d++) {
    if (v->sizes[d] == 1 || !v->strides[d]) continue;
    int at = n++;
    for (; at > 0 && v->strides[order[at - 1]] < v->strides[d]; at--) order[at] = order[at - 1];
    order[at] = d;
  }
  return n;
}

/* Returns whether the elements are all elements of a range, in the order of the dimensions `order`. */
static int is_dense(const view_t *v, const int *order, int n) {
  int64_t stride = 1;
  for (int i = n - 1; i >= 0; i--) {
    if (v->strides[order[i]] != stride) return 0;
    stride *= v->sizes[order[i]];
  }
  return stride == count_of(v); /* no repeated elements */
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* Takes the dimensions one by one: [stride * size] is reshaped to [size, stride], of which inner dimensions need the
 * first elements. Returns 0 if the dimensions do not nest. `part` has the elements from the first one on. */
static int slice_dims(emit_t *e, value_t *part, const view_t *v, const int *order, int n) {
  int64_t sizes[EMIT_RANK];
  for (int i = 0; i < n; i++) {
    const int64_t stride = v->strides[order[i]];
    const int64_t inner = i + 1 < n ? v->strides[order[i + 1]] * v->sizes[order[i + 1]] : 1;
    if (inner > stride) return 0;
  }
  for (int i = 0; i < n; i++) {
    const int64_t stride = v->strides[order[i]];
    const int64_t inner = i + 1 < n ? v->strides[order[i + 1]] * v->sizes[order[i + 1]] : 1;
    sizes[i] = v->sizes[order[i]], sizes[i + 1] = stride;
    *part = emit_reshape(e, *part, i + 2, sizes);
    if (inner == stride) continue;
    int64_t from[EMIT_RANK] = {0}, to[EMIT_RANK];
    memcpy(to, sizes, sizeof to);
    to[i + 1] = inner;
    *part = emit_slice(e, *part, from, to);
  }
  *part = emit_reshape(e, *part, n, sizes);
  return 1;
}

/* Returns the numbers of a view's elements in its buffer, as i64 in the shape of the view. */
static value_t element_numbers(emit_t *e, const view_t *v) {
  value_t shape = {.type = PJRT_S64, .rank = v->rank};
  memcpy(shape.sizes, v->sizes, sizeof v->sizes);
  value_t sum = emit_fill(e, (double)v->offset, shape);
  for (int d = 0; d < v->rank; d++) {
    if (!v->strides[d]) continue;
    const value_t index = emit_iota(e, PJRT_S64, v->rank, v->sizes, d);
    sum = emit_binary(e, "stablehlo.add", sum,
                      emit_binary(e, "stablehlo.multiply", index, emit_fill(e, (double)v->strides[d], shape)));
  }
  return sum;
}

static value_t gather(emit_t *e, value_t flat, const view_t *v) {
  const value_t numbers = element_numbers(e, v), result = emit_fresh(e, flat.type, v->rank, v->sizes);
  emit_put(e,
           "    %s = \"stablehlo.gather\"(%s, %s) {dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0], "
           "start_index_map = [0], index_vector_dim = %d>, slice_sizes = array<i64: 1>} : (%s, %s) -> %s\n",
           emit_name(result).s, emit_name(flat).s, emit_name(numbers).s, v->rank, emit_type(flat).s,
           emit_type(numbers).s, emit_type(result).s);
  return result;
}

/* Reads a view of a value of one dimension with `count` elements. */
static value_t read_flat(emit_t *e, value_t flat, int64_t count, const view_t *v) {
  int order[EMIT_RANK];
  const int n = list_dims(v, order);
  const int64_t extent = n ? v->strides[order[0]] * v->sizes[order[0]] : 1;
  const int64_t end = v->offset + extent;
  value_t part = flat;
  if (n >= EMIT_RANK) return gather(e, flat, v);
  if (end <= count) {
    part = emit_slice(e, flat, &v->offset, &end);
  } else { /* the last row ends before its stride */
    const value_t zero = emit_constant(e, flat.type, 0);
    part = emit_slice(e, flat, &v->offset, &count);
    const value_t padded = emit_fresh(e, flat.type, 1, &extent);
    emit_put(e, "    %s = stablehlo.pad %s, %s, low = [0], high = [%lld], interior = [0] : (%s, %s) -> %s\n",
             emit_name(padded).s, emit_name(part).s, emit_name(zero).s, (long long)(end - count), emit_type(part).s,
             emit_type(zero).s, emit_type(padded).s);
    part = padded;
  }
  if (!slice_dims(e, &part, v, order, n)) return gather(e, flat, v);
  int64_t turn[EMIT_RANK], dims[EMIT_RANK];
  int k = 0;
  for (int d = 0; d < v->rank; d++)
    for (int i = 0; i < n; i++)
      if (order[i] == d) turn[k] = i, dims[k++] = d;
  part = emit_transpose(e, part, turn);
  int64_t sizes[EMIT_RANK];
  int same = 1; /* only dimensions of one element are missing */
  for (int d = 0; d < v->rank; d++) same &= v->sizes[d] == 1 || v->strides[d] != 0;
  memcpy(sizes, v->sizes, sizeof sizes);
  return same ? emit_reshape(e, part, v->rank, sizes) : emit_broadcast(e, part, dims, v->rank, sizes);
}

/* Returns whether a view has the elements of a pending write, in their order. */
static int is_contiguous(const view_t *v) {
  int64_t stride = 1;
  for (int d = v->rank - 1; d >= 0; d--) {
    if (v->sizes[d] != 1 && v->strides[d] != stride) return 0;
    stride *= v->sizes[d];
  }
  return 1;
}

static value_t read_pending(emit_t *e, const emit_pending_t *pending, const view_t *v) {
  view_t inner = *v;
  inner.offset -= pending->low;
  const value_t *const shaped = &pending->shaped;
  if (shaped->rank == v->rank && !inner.offset && count_of(v) == pending->high - pending->low && is_contiguous(v) &&
      memcmp(shaped->sizes, v->sizes, (size_t)v->rank * sizeof *v->sizes) == 0)
    return *shaped;
  return read_flat(e, pending->value, pending->high - pending->low, &inner);
}

static value_t read_view(emit_t *e, const view_t *v) {
  emit_buffer_t *const buffer = &e->buffers[v->buffer];
  const int64_t end = end_of(v);
  for (uint32_t i = e->pending_count; i-- > 0;) {
    const emit_pending_t *const pending = &e->pending[i];
    if (pending->buffer != v->buffer || end <= pending->low || pending->high <= v->offset) continue;
    if (pending->low <= v->offset && end <= pending->high) return emit_bits(e, read_pending(e, pending, v), v->type);
    emit_flush(e, v->buffer);
    break;
  }
  if (!buffer->written) buffer->read = 1;
  return emit_bits(e, read_flat(e, buffer->now, buffer->count, v), v->type);
}

/* Reverses the dimensions of a view that have negative strides. */
static value_t turn_back(emit_t *e, value_t value, const view_t *v) {
  return v->reversed_count ? emit_reverse(e, value, v->reversed, v->reversed_count) : value;
}

static value_t read_use(emit_t *e, const hal_ir_use_t *use) {
  const view_t v = view_of(e, use);
  return e->status ? emit_constant(e, v.type, 0) : turn_back(e, read_view(e, &v), &v);
}

/* Returns the number of the use of a tensor argument. */
static uint32_t use_of(const emit_t *e, uint32_t argument) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < argument; i++) {
    const hal_value_t *const value = &e->node->call->args[i];
    if (value->tag == HAL_VALUE_TENSOR) count += value->u.t != NULL;
    if (value->tag == HAL_VALUE_TENSOR_LIST) count += value->count;
  }
  return count;
}

value_t emit_read_item(emit_t *e, uint32_t argument, uint32_t item) {
  return read_use(e, hal_ir_read(e->node, use_of(e, argument) + item));
}
value_t emit_read(emit_t *e, uint32_t argument) {
  if (emit_argument(e, argument)->tag == HAL_VALUE_TENSOR) return emit_read_item(e, argument, 0);
  emit_refuse(e, "an argument is not a tensor");
  return emit_constant(e, PJRT_F32, 0);
}
value_t emit_read_as(emit_t *e, uint32_t argument, int32_t type) {
  return emit_convert(e, emit_read(e, argument), type);
}
value_t emit_read_result(emit_t *e, uint32_t result) { return read_use(e, hal_ir_write(e->node, result)); }

/* ---- writing ----------------------------------------------------------------------------------------------------- */

int emit_wants(const emit_t *e, uint32_t result) {
  return result < e->node->write_count && hal_ir_write(e->node, result)->tensor != NULL;
}

int32_t emit_result_type(const emit_t *e, uint32_t result) {
  return emit_type_of(hal_ir_write(e->node, result)->tensor->dtype);
}

value_t emit_result_shape(const emit_t *e, uint32_t result) {
  const hal_tensor_t *const tensor = hal_ir_write(e->node, result)->tensor;
  value_t shape = {.type = emit_type_of(tensor->dtype), .rank = tensor->ndim};
  if (tensor->ndim) memcpy(shape.sizes, tensor->sizes, (size_t)tensor->ndim * sizeof *tensor->sizes);
  return shape;
}

/* Replaces `update` from element `low` on. */
static value_t update_range(emit_t *e, value_t all, value_t update, int64_t low) {
  const value_t at = emit_constant(e, PJRT_S64, (double)low), v = emit_fresh(e, all.type, 1, all.sizes);
  emit_put(e, "    %s = stablehlo.dynamic_update_slice %s, %s, %s : (%s, %s, %s) -> %s\n", emit_name(v).s,
           emit_name(all).s, emit_name(update).s, emit_name(at).s, emit_type(all).s, emit_type(update).s,
           emit_type(at).s, emit_type(v).s);
  return v;
}

void emit_flush(emit_t *e, uint32_t number) {
  emit_buffer_t *const buffer = &e->buffers[number];
  uint32_t kept = 0;
  for (uint32_t i = 0; i < e->pending_count; i++) {
    const emit_pending_t *const pending = &e->pending[i];
    if (pending->buffer != number) {
      e->pending[kept++] = *pending;
      continue;
    }
    const value_t value = emit_bits(e, pending->value, buffer->type);
    const int whole = pending->high - pending->low == buffer->count;
    if (!whole && !buffer->written) buffer->read = 1;
    buffer->now = whole ? value : update_range(e, buffer->now, value, pending->low);
    buffer->written = 1;
  }
  e->pending_count = kept;
}

static void add_pending(emit_t *e, emit_pending_t added) {
  uint32_t kept = 0;
  int crosses = 0;
  for (uint32_t i = 0; i < e->pending_count; i++) {
    const emit_pending_t *const pending = &e->pending[i];
    const int same = pending->buffer == added.buffer;
    if (same && added.low <= pending->low && pending->high <= added.high) continue; /* overwritten */
    crosses |= same && added.low < pending->high && pending->low < added.high;
    e->pending[kept++] = *pending;
  }
  e->pending_count = kept;
  if (crosses) emit_flush(e, added.buffer);
  if (e->pending_count == e->pending_room) {
    const uint32_t room = 2 * e->pending_room + 64;
    emit_pending_t *const grown = hal_host->mem_alloc(room * sizeof *grown, 16);
    if (!grown) {
      if (!e->status) e->status = HAL_RESOURCE_EXHAUSTED;
      return;
    }
    if (e->pending_count) memcpy(grown, e->pending, e->pending_count * sizeof *grown);
    hal_host->mem_free(e->pending);
    e->pending = grown;
    e->pending_room = room;
  }
  e->pending[e->pending_count++] = added;
}

/* Writes single elements, by their numbers. */
static void scatter(emit_t *e, const view_t *v, value_t value) {
  emit_flush(e, v->buffer);
  emit_buffer_t *const buffer = &e->buffers[v->buffer];
  if (!buffer->written) buffer->read = 1;
  const value_t numbers = element_numbers(e, v), result = emit_fresh(e, buffer->type, 1, &buffer->count);
  const char *const element = emit_element(buffer->type);
  value = emit_bits(e, value, buffer->type);
  emit_put(e,
           "    %s = \"stablehlo.scatter\"(%s, %s, %s) ({\n    ^bb0(%%x: tensor<%s>, %%y: tensor<%s>):\n      "
           "stablehlo.return %%y : tensor<%s>\n    }) {scatter_dimension_numbers = "
           "#stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = "
           "%d>, unique_indices = true} : (%s, %s, %s) -> %s\n",
           emit_name(result).s, emit_name(buffer->now).s, emit_name(numbers).s, emit_name(value).s, element, element,
           element, v->rank, emit_type(buffer->now).s, emit_type(numbers).s, emit_type(value).s, emit_type(result).s);
  buffer->now = result;
  buffer->written = 1;
}

void emit_write(emit_t *e, uint32_t result, value_t value) {
  if (!emit_wants(e, result) || e->status) return;
  const view_t v = view_of(e, hal_ir_write(e->node, result));
  int order[EMIT_RANK];
  const int n = list_dims(&v, order);
  const int64_t count = count_of(&v);
  value = turn_back(e, emit_reshape(e, emit_convert(e, value, v.type), v.rank, v.sizes), &v);
  if (!is_dense(&v, order, n)) {
    scatter(e, &v, value);
    return;
  }
  emit_pending_t added = {.buffer = v.buffer, .low = v.offset, .high = v.offset + count, .shaped = value};
  if (!is_contiguous(&v)) { /* transposed: to the order of memory */
    int64_t turn[EMIT_RANK];
    int k = 0;
    for (int d = 0; d < v.rank; d++)
      if (v.sizes[d] == 1) turn[k++] = d;
    for (int i = 0; i < n; i++) turn[k++] = order[i];
    value = emit_transpose(e, value, turn);
    added.shaped.rank = -1;
  }
  added.value = emit_reshape(e, value, 1, &count);
  add_pending(e, added);
}
