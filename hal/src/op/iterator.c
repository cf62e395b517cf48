/* iterator.c: merges many dimensions into a few long ones: sorts them by the result's strides and merges neighbors. */
#include "op/iterator.h"

#include <stdlib.h>
#include <string.h>

static hal_status_t check_shapes(const hal_op_context_t *context, const hal_tensor_t *const *tensors,
                                 const char *const *names, int32_t operands) {
  const hal_tensor_t *result = tensors[0];
  for (int32_t k = 1; k < operands; k++) {
    if (tensors[k]->ndim != result->ndim)
      return hal_op_invalid(context,
                            "%s has %d dimensions, %s has %d; expand operands to the result's shape (stride 0)",
                            names[k], (int)tensors[k]->ndim, names[0], (int)result->ndim);
    for (int32_t d = 0; d < result->ndim; d++)
      if (tensors[k]->sizes[d] != result->sizes[d])
        return hal_op_invalid(
            context, "%s has size %lld in dimension %d, %s has %lld; expand operands to the result's shape (stride 0)",
            names[k], (long long)tensors[k]->sizes[d], (int)d, names[0], (long long)result->sizes[d]);
  }
  for (int32_t d = 0; d < result->ndim; d++)
    if (result->sizes[d] == 0) return HAL_OK; /* no elements: nothing can overlap */
  for (int32_t d = 0; d < result->ndim; d++)
    if (result->strides[d] == 0 && result->sizes[d] > 1)
      return hal_op_invalid(context,
                            "%s has stride 0 in dimension %d of size %lld: several elements have the same address",
                            names[0], (int)d, (long long)result->sizes[d]);
  return HAL_OK;
}

static int64_t magnitude(int64_t stride) { return stride < 0 ? -stride : stride; }

/* Returns whether dimension x is inside dimension y: by the result's strides, then by those of the operands. */
static int is_inner(const hal_op_iterator_t *it, const int64_t *x, const int64_t *y) {
  for (int32_t k = 0; k < it->operands; k++) {
    const int64_t a = magnitude(x[k]), b = magnitude(y[k]);
    if (a != b) return k > 0 && (a == 0 || b == 0) ? a != 0 : a < b;
  }
  return 0;
}

/* Inserts the dimensions with more than one element in order, the last one first. */
static void sort_dims(hal_op_iterator_t *it) {
  for (int32_t d = it->tensors[0]->ndim - 1; d >= 0; d--) {
    const int64_t size = it->tensors[0]->sizes[d];
    if (size == 1) continue;
    int64_t mine[HAL_OP_MAX_OPERANDS], theirs[HAL_OP_MAX_OPERANDS];
    for (int32_t k = 0; k < it->operands; k++) mine[k] = it->tensors[k]->strides[d];
    int32_t place = it->ndim++;
    for (; place > 0; place--) {
      for (int32_t k = 0; k < it->operands; k++) theirs[k] = it->stride[k][place - 1];
      if (!is_inner(it, mine, theirs)) break;
      it->size[place] = it->size[place - 1];
      for (int32_t k = 0; k < it->operands; k++) it->stride[k][place] = theirs[k];
    }
    it->size[place] = size;
    for (int32_t k = 0; k < it->operands; k++) it->stride[k][place] = mine[k];
  }
}

static int can_merge(const hal_op_iterator_t *it, int32_t inner, int32_t outer) {
  for (int32_t k = 0; k < it->operands; k++)
    if (it->stride[k][outer] != it->size[inner] * it->stride[k][inner]) return 0;
  return 1;
}

static void merge_dims(hal_op_iterator_t *it) {
  int32_t last = 0;
  for (int32_t d = 1; d < it->ndim; d++) {
    if (can_merge(it, last, d)) {
      it->size[last] *= it->size[d];
      continue;
    }
    last++;
    it->size[last] = it->size[d];
    for (int32_t k = 0; k < it->operands; k++) it->stride[k][last] = it->stride[k][d];
  }
  it->ndim = it->ndim ? last + 1 : 0;
}

hal_status_t hal_op_iterate(const hal_op_context_t *context, const hal_tensor_t *const *tensors,
                            const char *const *names, int32_t operands, hal_op_iterator_t *out_iterator) {
  hal_op_iterator_t *it = out_iterator;
  HAL_RETURN_IF_ERROR(check_shapes(context, tensors, names, operands));
  HAL_RETURN_IF_ERROR(hal_op_numel(context, tensors[0], names[0], &it->numel));
  it->ndim = 0;
  it->operands = operands;
  for (int32_t k = 0; k < operands; k++) it->tensors[k] = tensors[k], it->start[k] = 0;
  if (it->numel == 0) return HAL_OK;
  sort_dims(it);
  merge_dims(it);
  if (it->ndim == 0) { /* one element */
    it->ndim = 1;
    it->size[0] = 1;
    for (int32_t k = 0; k < operands; k++) it->stride[k][0] = 1;
  }
  return HAL_OK;
}

int hal_op_iterator_is_dense(const hal_op_iterator_t *it) {
  if (it->ndim != 1) return 0;
  for (int32_t k = 0; k < it->operands; k++)
    if (it->stride[k][0] != 1) return 0;
  return 1;
}

/* Queues the kernel once for each index of the dimensions that do not fit into pk_rows_t. */
static hal_status_t launch_whole(hal_op_context_t *context, const hal_op_iterator_t *it,
                                 const hal_op_rows_call_t *call) {
  hal_op_line_t line = {.n = 1, .block = hal_op_target(context)->row_block};
  uint64_t launches = 1;
  pk_rows_t *const rows = &line.rows;
  rows->ndim = it->ndim < PK_MAXD ? it->ndim : PK_MAXD;
  for (int32_t d = 0; d < rows->ndim; d++) {
    rows->size[d] = it->size[d];
    line.n *= (uint64_t)it->size[d];
    for (int32_t k = 0; k < it->operands; k++) rows->stride[k][d] = it->stride[k][d];
  }
  for (int32_t d = rows->ndim; d < it->ndim; d++) launches *= (uint64_t)it->size[d];
  line.items = line.n / line.block + (line.n % line.block != 0);

  for (uint64_t launch = 0; launch < launches; launch++) {
    uint64_t rest = launch;
    int64_t offset[HAL_OP_MAX_OPERANDS];
    for (int32_t k = 0; k < it->operands; k++) offset[k] = it->start[k];
    for (int32_t d = rows->ndim; d < it->ndim; d++) {
      const int64_t index = (int64_t)(rest % (uint64_t)it->size[d]);
      rest /= (uint64_t)it->size[d];
      for (int32_t k = 0; k < it->operands; k++) offset[k] += index * it->stride[k][d];
    }
    for (int32_t k = 0; k < it->operands; k++)
      line.address[k] = (char *)it->tensors[k]->data + offset[k] * (int64_t)call->elements[k];
    const hal_status_t status = call->queue(context, call->kernel, &line, call->given);
    /* UNIMPLEMENTED guarantees unwritten results, which is true only for the first launch */
    if (status) return status == HAL_UNIMPLEMENTED && launch > 0 ? HAL_INTERNAL : status;
  }
  return HAL_OK;
}

/* Returns whether a launch over the dimensions of pk_rows_t has at most `most` elements, with each operand within that
 * distance; otherwise the dimension to split: the one with the largest extent. */
static int stays_within(const hal_op_iterator_t *it, int64_t most, int32_t *out_widest) {
  const int32_t ndim = it->ndim < PK_MAXD ? it->ndim : PK_MAXD;
  int64_t count = 1, reach[HAL_OP_MAX_OPERANDS] = {0}, widest = 0;
  int within = 1;
  for (int32_t d = 0; d < ndim; d++) {
    int64_t farthest = it->size[d] - 1;
    within &= !__builtin_mul_overflow(count, it->size[d], &count);
    for (int32_t k = 0; k < it->operands; k++) {
      int64_t along;
      if (__builtin_mul_overflow(it->size[d] - 1, magnitude(it->stride[k][d]), &along)) along = INT64_MAX;
      within &= !__builtin_add_overflow(reach[k], along, &reach[k]);
      within &= reach[k] <= most;
      if (along > farthest) farthest = along;
    }
    if (farthest > widest) widest = farthest, *out_widest = d;
  }
  return within && count <= most;
}

/* Queues the two halves one after the other, recursively. */
static hal_status_t launch_halves(hal_op_context_t *context, const hal_op_iterator_t *it,
                                  const hal_op_rows_call_t *call) {
  int32_t d = 0;
  if (stays_within(it, hal_op_target(context)->most_reach, &d)) return launch_whole(context, it, call);
  hal_op_iterator_t half = *it;
  half.size[d] = it->size[d] / 2;
  HAL_RETURN_IF_ERROR(launch_halves(context, &half, call));
  for (int32_t k = 0; k < it->operands; k++) half.start[k] += half.size[d] * it->stride[k][d];
  half.size[d] = it->size[d] - half.size[d];
  const hal_status_t status = launch_halves(context, &half, call);
  return status == HAL_UNIMPLEMENTED ? HAL_INTERNAL : status; /* the first half is queued already */
}

hal_status_t hal_op_launch_lines(hal_op_context_t *context, const hal_op_iterator_t *it,
                                 const hal_op_rows_call_t *call) {
  return (hal_op_target(context)->most_reach == INT64_MAX ? launch_whole : launch_halves)(context, it, call);
}
