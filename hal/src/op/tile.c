/* tile.c: iterates over operands in tiles if their innermost dimensions differ, as in the copy of a transposed matrix.
 *
 * In the order of the result, such an operand is read one element per cache line, which is evicted before its next
 * element is read. Splitting two dimensions into tiles changes only the iteration space, so that every row-form kernel
 * can run this way unchanged. */
#include "op/iterator.h"

/* A tile is one item of a row-form kernel on a CPU: ALONG elements of the result's rows times ACROSS elements of the
 * operand's rows, which is one cache line of float32. Below 2^16 elements the operands stay in the second-level cache
 * (256 KiB each in float32) in any order. */
#define ALONG 64
#define ACROSS 16
#define TILE_FEWEST ((int64_t)1 << 16)

static int64_t magnitude(int64_t stride) { return stride < 0 ? -stride : stride; }

/* Returns the innermost dimension of an operand whose innermost one is not dimension 0; 0 if there is none of
 * sufficient length. */
static int32_t crossing_dim(const hal_op_iterator_t *it) {
  for (int32_t k = 1; k < it->operands; k++) {
    int32_t inner = 0;
    for (int32_t d = 1; d < it->ndim; d++)
      if (it->stride[k][d] != 0 && magnitude(it->stride[k][d]) < magnitude(it->stride[k][inner])) inner = d;
    if (inner > 0 && it->size[inner] >= 2 * ACROSS) return inner;
  }
  return 0;
}

/* Inserts a dimension at `place`. */
static void insert_dim(hal_op_iterator_t *it, int32_t place, int64_t size, const int64_t *strides, int64_t factor) {
  for (int32_t d = it->ndim++; d > place; d--) {
    it->size[d] = it->size[d - 1];
    for (int32_t k = 0; k < it->operands; k++) it->stride[k][d] = it->stride[k][d - 1];
  }
  it->size[place] = size;
  for (int32_t k = 0; k < it->operands; k++) it->stride[k][place] = strides[k] * factor;
}

static void remove_dim(hal_op_iterator_t *it, int32_t place) {
  it->ndim--;
  for (int32_t d = place; d < it->ndim; d++) {
    it->size[d] = it->size[d + 1];
    for (int32_t k = 0; k < it->operands; k++) it->stride[k][d] = it->stride[k][d + 1];
  }
}

/* Creates the iteration over the complete tiles of dimensions 0 and `cross`: within a tile, tiles along `cross`, tiles
 * along 0. */
static void split(hal_op_iterator_t *it, int32_t cross) {
  int64_t along[HAL_OP_MAX_OPERANDS], across[HAL_OP_MAX_OPERANDS];
  const int64_t rows = it->size[0] / ALONG, columns = it->size[cross] / ACROSS;
  for (int32_t k = 0; k < it->operands; k++) along[k] = it->stride[k][0], across[k] = it->stride[k][cross];
  remove_dim(it, cross);
  remove_dim(it, 0);
  insert_dim(it, 0, rows, along, ALONG);
  insert_dim(it, 0, columns, across, ACROSS);
  insert_dim(it, 0, ACROSS, across, 1);
  insert_dim(it, 0, ALONG, along, 1);
}

/* Queues the part from `begin` along dimension d with `size` elements there. */
static hal_status_t launch_rest(hal_op_context_t *context, const hal_op_iterator_t *whole, int32_t d, int64_t begin,
                                int64_t size, const hal_op_rows_call_t *call) {
  hal_op_iterator_t rest = *whole;
  if (size == 0) return HAL_OK;
  rest.size[d] = size;
  for (int32_t k = 0; k < rest.operands; k++) rest.start[k] += begin * rest.stride[k][d];
  const hal_status_t status = hal_op_launch_lines(context, &rest, call);
  return status == HAL_UNIMPLEMENTED ? HAL_INTERNAL : status; /* the tiles are queued already */
}

hal_status_t hal_op_launch_rows(hal_op_context_t *context, const hal_op_iterator_t *it,
                                const hal_op_rows_call_t *call) {
  const int32_t cross =
      it->numel >= TILE_FEWEST && it->ndim >= 2 && it->size[0] >= 2 * ALONG && hal_op_target(context)->row_block > 1
          ? crossing_dim(it)
          : 0;
  if (cross == 0 || it->ndim + 2 > HAL_OP_MAX_DIMS) return hal_op_launch_lines(context, it, call);
  hal_op_iterator_t part = *it;
  const int64_t rows = it->size[0] / ALONG * ALONG, columns = it->size[cross] / ACROSS * ACROSS;
  split(&part, cross);
  HAL_RETURN_IF_ERROR(hal_op_launch_lines(context, &part, call));
  HAL_RETURN_IF_ERROR(launch_rest(context, it, 0, rows, it->size[0] - rows, call));
  part = *it;
  part.size[0] = rows;
  return launch_rest(context, &part, cross, columns, it->size[cross] - columns, call);
}
