/* emit_move.c: copies, indexing, sorting, and values that depend on their index. */
#include <math.h>
#include <string.h>

#include "emit.h"

void emit_op_copy(emit_t *e) { emit_write(e, 0, emit_read(e, 0)); }

/* ---- triangles, sequences ---------------------------------------------------------------------------------------- */

static void triangle(emit_t *e, int upper) {
  const value_t a = emit_read(e, 0);
  const value_t row = emit_iota(e, PJRT_S64, a.rank, a.sizes, a.rank - 2);
  const value_t column = emit_iota(e, PJRT_S64, a.rank, a.sizes, a.rank - 1);
  const value_t diagonal = emit_fill(e, (double)emit_int(e, 1, 0), row);
  const value_t distance = emit_binary(e, "stablehlo.subtract", column, row);
  const value_t kept = emit_compare(e, upper ? "GE" : "LE", distance, diagonal);
  emit_write(e, 0, emit_select(e, kept, a, emit_fill(e, 0, a)));
}
void emit_op_tril(emit_t *e) { triangle(e, 0); }
void emit_op_triu(emit_t *e) { triangle(e, 1); }

/* start + index * step, in double precision or i64 */
void emit_op_arange(emit_t *e) {
  const value_t shape = emit_result_shape(e, 0);
  const int32_t type = emit_is_float(shape.type) ? PJRT_F64 : PJRT_S64;
  int64_t count = 1;
  for (int d = 0; d < shape.rank; d++) count *= shape.sizes[d];
  const value_t index = emit_iota(e, type, 1, &count, 0), start = emit_like(e, emit_number(e, 0, type), index);
  const value_t step = emit_like(e, emit_number(e, 1, type), index);
  emit_write(e, 0, emit_binary(e, "stablehlo.add", start, emit_binary(e, "stablehlo.multiply", index, step)));
}

/* ---- indexing: index and result, or source, have one shape ------------------------------------------------------- */

/* Returns the only dimension in which an index varies; -1 = there are several. */
static int varies_along(const hal_tensor_t *index, int dim) {
  for (int d = 0; d < index->ndim; d++)
    if (d != dim && index->sizes[d] != 1 && index->strides[d] != 0) return -1;
  return dim;
}

/* Counts negative indices from the end. */
static value_t from_end(emit_t *e, value_t index, int64_t size) {
  const value_t negative = emit_compare(e, "LT", index, emit_fill(e, 0, index));
  return emit_select(e, negative, emit_binary(e, "stablehlo.add", index, emit_fill(e, (double)size, index)), index);
}

/* Returns whether indices are outside of 0 .. size - 1. */
static value_t outside(emit_t *e, value_t index, int64_t size) {
  return emit_binary(e, "stablehlo.or", emit_compare(e, "LT", index, emit_fill(e, 0, index)),
                     emit_compare(e, "GE", index, emit_fill(e, (double)size, index)));
}

/* Returns the index as one dimension: it varies along `dim` only. */
static value_t index_row(emit_t *e, value_t index, int dim) {
  int64_t from[EMIT_RANK] = {0}, to[EMIT_RANK];
  for (int d = 0; d < index.rank; d++) to[d] = d == dim ? index.sizes[d] : 1;
  return emit_reshape(e, emit_slice(e, index, from, to), 1, &index.sizes[dim]);
}

/* Elements that an invalid index selects are NaN, or 0 if the dtype has none. */
static value_t without_invalid(emit_t *e, value_t v, value_t invalid) {
  return emit_select(e, invalid, emit_fill(e, emit_is_float(v.type) ? NAN : 0, v), v);
}

value_t emit_take_rows(emit_t *e, value_t a, value_t index, int dim, value_t shape) {
  const value_t v = emit_fresh(e, a.type, shape.rank, shape.sizes);
  emit_put(e, "    %s = \"stablehlo.gather\"(%s, %s) {dimension_numbers = #stablehlo.gather<offset_dims = [",
           emit_name(v).s, emit_name(a).s, emit_name(index).s);
  int64_t dims[EMIT_RANK], sizes[EMIT_RANK];
  int count = 0;
  for (int d = 0; d < a.rank; d++) {
    sizes[d] = d == dim ? 1 : shape.sizes[d];
    if (d != dim) dims[count++] = d;
  }
  emit_put(e,
           "%s], collapsed_slice_dims = [%d], start_index_map = [%d], index_vector_dim = 1>, slice_sizes = "
           "array<i64: %s>} : (%s, %s) -> %s\n",
           emit_list(dims, count).s, dim, dim, emit_list(sizes, a.rank).s, emit_type(a).s, emit_type(index).s,
           emit_type(v).s);
  return v;
}

value_t emit_take_along(emit_t *e, value_t a, value_t index, int dim) {
  value_t shape = a;
  shape.sizes[dim] = index.sizes[0];
  return emit_take_rows(e, a, index, dim, shape);
}

value_t emit_add_rows(emit_t *e, value_t a, value_t index, value_t source, int dim) {
  const value_t v = emit_fresh(e, a.type, a.rank, a.sizes);
  const char *const t = emit_element(a.type);
  int64_t dims[EMIT_RANK];
  int count = 0;
  for (int d = 0; d < a.rank; d++)
    if (d != dim) dims[count++] = d;
  emit_put(e,
           "    %s = \"stablehlo.scatter\"(%s, %s, %s) ({\n    ^bb0(%%x: tensor<%s>, %%y: tensor<%s>):\n      %%z = "
           "stablehlo.add %%x, %%y : tensor<%s>\n      stablehlo.return %%z : tensor<%s>\n    }) "
           "{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [%s], inserted_window_dims = [%d], "
           "scatter_dims_to_operand_dims = [%d], index_vector_dim = 1>} : (%s, %s, %s) -> %s\n",
           emit_name(v).s, emit_name(a).s, emit_name(index).s, emit_name(source).s, t, t, t, t,
           emit_list(dims, count).s, dim, dim, emit_type(a).s, emit_type(index).s, emit_type(source).s, emit_type(v).s);
  return v;
}

/* Returns the place of each element of `index`: its own coordinates, with the index in place of `dim`. */
static value_t places(emit_t *e, value_t index, int dim) {
  int64_t sizes[EMIT_RANK];
  memcpy(sizes, index.sizes, sizeof sizes);
  sizes[index.rank] = 1;
  value_t parts[EMIT_RANK];
  for (int d = 0; d < index.rank; d++)
    parts[d] =
        d == dim ? emit_reshape(e, index, index.rank + 1, sizes) : emit_iota(e, PJRT_S64, index.rank + 1, sizes, d);
  return emit_concatenate(e, parts, index.rank, index.rank);
}

value_t emit_take_elements(emit_t *e, value_t a, value_t index, int dim) {
  const value_t at = places(e, index, dim), v = emit_fresh(e, a.type, index.rank, index.sizes);
  int64_t dims[EMIT_RANK], ones[EMIT_RANK];
  for (int d = 0; d < a.rank; d++) dims[d] = d, ones[d] = 1;
  emit_put(e,
           "    %s = \"stablehlo.gather\"(%s, %s) {dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [%s], "
           "start_index_map = [%s], index_vector_dim = %d>, slice_sizes = array<i64: %s>} : (%s, %s) -> %s\n",
           emit_name(v).s, emit_name(a).s, emit_name(at).s, emit_list(dims, a.rank).s, emit_list(dims, a.rank).s,
           at.rank - 1, emit_list(ones, a.rank).s, emit_type(a).s, emit_type(at).s, emit_type(v).s);
  return v;
}

/* self, dim, index */
void emit_op_take(emit_t *e) {
  const value_t a = emit_read(e, 0);
  value_t index = emit_read_as(e, 2, PJRT_S64), shape = emit_result_shape(e, 0);
  const int dim = emit_dim(emit_int(e, 1, 0), a.rank);
  shape.type = a.type;
  if (strcmp(e->node->name, "index.lines") == 0) index = from_end(e, index, a.sizes[dim]);
  const value_t invalid = outside(e, index, a.sizes[dim]);
  value_t v;
  if (varies_along(e->node->call->args[2].u.t, dim) == dim)
    v = emit_take_rows(e, a, index_row(e, index, dim), dim, shape);
  else
    v = emit_take_elements(e, a, index, dim);
  emit_write(e, 0, without_invalid(e, v, invalid));
}

int emit_takes_take(const hal_op_call_t *call) {
  const hal_tensor_t *const self = call->args[0].u.t, *const result = call->results[0],
                            *const index = call->args[2].u.t;
  if (call->args[0].tag != HAL_VALUE_TENSOR || call->args[2].tag != HAL_VALUE_TENSOR) return 0;
  if (self->ndim < 1 || self->ndim != result->ndim || index->ndim != self->ndim || self->ndim + 1 > EMIT_RANK) return 0;
  const int dim = emit_dim(call->args[1].u.i, self->ndim);
  for (int d = 0; d < self->ndim; d++)
    if (d != dim && self->sizes[d] < result->sizes[d]) return 0; /* a repeated dimension */
  return 1;
}

value_t emit_scatter(emit_t *e, value_t a, value_t index, value_t source, int dim, const char *op) {
  const value_t at = places(e, index, dim), v = emit_fresh(e, a.type, a.rank, a.sizes);
  int64_t dims[EMIT_RANK];
  const char *const t = emit_element(a.type);
  for (int d = 0; d < a.rank; d++) dims[d] = d;
  emit_put(e, "    %s = \"stablehlo.scatter\"(%s, %s, %s) ({\n    ^bb0(%%x: tensor<%s>, %%y: tensor<%s>):\n",
           emit_name(v).s, emit_name(a).s, emit_name(at).s, emit_name(source).s, t, t);
  if (*op) emit_put(e, "      %%z = stablehlo.%s %%x, %%y : tensor<%s>\n", op, t);
  emit_put(e,
           "      stablehlo.return %%%s : tensor<%s>\n    }) {scatter_dimension_numbers = "
           "#stablehlo.scatter<inserted_window_dims = [%s], scatter_dims_to_operand_dims = [%s], index_vector_dim = "
           "%d>} : (%s, %s, %s) -> %s\n",
           *op ? "z" : "y", t, emit_list(dims, a.rank).s, emit_list(dims, a.rank).s, at.rank - 1, emit_type(a).s,
           emit_type(at).s, emit_type(source).s, emit_type(v).s);
  return v;
}

/* Combines the result with a source: dim, index, source. `ends`: negative indices count from the end. */
static void scatter_with(emit_t *e, const char *op, int ends) {
  value_t a = emit_read_result(e, 0), index = emit_read_as(e, 1, PJRT_S64);
  const int32_t type = *op ? emit_compute_type(a.type) : a.type;
  const int dim = emit_dim(emit_int(e, 0, 0), a.rank);
  if (ends) index = from_end(e, index, a.sizes[dim]);
  a = emit_convert(e, a, type);
  emit_write(e, 0, emit_scatter(e, a, index, emit_read_as(e, 2, type), dim, op));
}

void emit_op_scatter(emit_t *e) { scatter_with(e, "", strcmp(e->node->name, "index_put") == 0); }

/* dim, index, source, reduce: 0 sum, 1 product, 2 maximum, 3 minimum */
void emit_op_scatter_reduce(emit_t *e) {
  static const char *const ops[] = {"add", "multiply", "maximum", "minimum"};
  scatter_with(e, ops[emit_int(e, 3, 0) & 3], strcmp(e->node->name, "_index_put_impl_.lines") == 0);
}

int emit_takes_scatter(const hal_op_call_t *call) {
  const hal_tensor_t *const result = call->results[0];
  if (call->args[1].tag != HAL_VALUE_TENSOR || call->args[2].tag != HAL_VALUE_TENSOR) return 0;
  return result->ndim >= 1 && result->ndim + 1 <= EMIT_RANK && call->args[1].u.t->ndim == result->ndim &&
         call->args[2].u.t->ndim == result->ndim;
}

/* ---- several indices as one: index, size, stride, dim, first ----------------------------------------------------- */

/* An invalid index makes the sum -1, and the sum of -1 remains. */
void emit_op_index_offset(emit_t *e) {
  const int64_t size = emit_int(e, 1, 0);
  const value_t index = from_end(e, emit_read(e, 0), size);
  value_t invalid = outside(e, index, size);
  value_t sum = emit_binary(e, "stablehlo.multiply", index, emit_fill(e, (double)emit_int(e, 2, 1), index));
  if (!emit_int(e, 4, 0)) {
    const value_t before = emit_read_result(e, 0);
    invalid = emit_binary(e, "stablehlo.or", invalid, emit_compare(e, "LT", before, emit_fill(e, 0, before)));
    sum = emit_binary(e, "stablehlo.add", before, sum);
  }
  emit_write(e, 0, emit_select(e, invalid, emit_fill(e, -1, sum), sum));
}

int emit_takes_index_offset(const hal_op_call_t *call) {
  const hal_tensor_t *const index = call->args[0].u.t, *const result = call->results[0];
  return index->ndim == result->ndim && memcmp(index->sizes, result->sizes, (size_t)index->ndim * 8) == 0;
}

/* ---- sorting ----------------------------------------------------------------------------------------------------- */

/* Sorts values with their indices along a dimension: equal ones keep their order, NaN is larger than all numbers. */
static void sort_pairs(emit_t *e, value_t a, int dim, int descending, value_t *out_values, value_t *out_indices) {
  const value_t index = emit_iota(e, PJRT_S64, a.rank, a.sizes, dim), pair = emit_fresh(e, a.type, a.rank, a.sizes);
  const char *const t = emit_element(a.type);
  emit_put(e,
           "    %s:2 = \"stablehlo.sort\"(%s, %s) ({\n    ^bb0(%%x: tensor<%s>, %%y: tensor<%s>, %%i: tensor<i64>, "
           "%%j: tensor<i64>):\n      %%before = stablehlo.compare %s, %%x, %%y : (tensor<%s>, tensor<%s>) -> "
           "tensor<i1>\n",
           emit_name(pair).s, emit_name(a).s, emit_name(index).s, t, t, descending ? "GT" : "LT", t, t);
  const char *const first = descending ? "x" : "y", *const second = descending ? "y" : "x";
  emit_put(e,
           "      %%nan = stablehlo.compare NE, %%%s, %%%s : (tensor<%s>, tensor<%s>) -> tensor<i1>\n"
           "      %%number = stablehlo.compare EQ, %%%s, %%%s : (tensor<%s>, tensor<%s>) -> tensor<i1>\n"
           "      %%last = stablehlo.and %%nan, %%number : tensor<i1>\n"
           "      %%less = stablehlo.or %%before, %%last : tensor<i1>\n"
           "      stablehlo.return %%less : tensor<i1>\n    }) {dimension = %d : i64, is_stable = true} : (%s, %s) -> "
           "(%s, %s)\n",
           first, first, t, t, second, second, t, t, dim, emit_type(a).s, emit_type(index).s, emit_type(a).s,
           emit_type(index).s);
  *out_values = emit_result_of(e, pair, 0, a.type);
  *out_indices = emit_result_of(e, pair, 1, PJRT_S64);
}

/* self, dim, descending */
void emit_op_sort(emit_t *e) {
  const value_t a = emit_read(e, 0);
  value_t values, indices;
  sort_pairs(e, a, emit_dim(emit_int(e, 1, -1), a.rank), emit_int(e, 2, 0) != 0, &values, &indices);
  emit_write(e, 0, values);
  emit_write(e, 1, indices);
}

/* self, k, dim, largest */
void emit_op_topk(emit_t *e) {
  const value_t a = emit_read(e, 0), shape = emit_result_shape(e, 0);
  const int64_t from[EMIT_RANK] = {0};
  value_t values, indices;
  sort_pairs(e, a, emit_dim(emit_int(e, 2, -1), a.rank), emit_int(e, 3, 1) != 0, &values, &indices);
  emit_write(e, 0, emit_slice(e, values, from, shape.sizes));
  emit_write(e, 1, emit_slice(e, indices, from, shape.sizes));
}

int emit_takes_sort(const hal_op_call_t *call) {
  return call->args[0].u.t->ndim >= 1 && call->result_count > 1 && call->results[0] && call->results[1] &&
         call->results[0]->ndim == call->args[0].u.t->ndim;
}
