/* sort.c: launcher of the family `sort`: stable, NaN as the largest element.
 *
 * args: self, dim, descending, bits: the bits that integers have been cast from (8 for int8; 64 otherwise), which saves
 * passes. bits < 64 with `bias` in the kernel: -2^(bits-1) becomes 0. Results: values, int64 indices. */
#include <string.h>

#include "hal_op_ids.h"
#include "hal_op_variants.h"
#include "ops/sort/sort.h"
#include "ops/sort/sort_args.h"

HAL_OP_LAUNCHER(queue_search, loops, SEARCH_ROWS_ARGS)
HAL_OP_LAUNCHER(queue_sort_keys, loops, SORT_KEYS_ARGS)
HAL_OP_LAUNCHER(queue_sort_values, loops, SORT_VALUES_ARGS)
HAL_OP_LAUNCHER(queue_sort_merge, loops, SORT_MERGE_ARGS)
HAL_OP_LAUNCHER(queue_sort_tally, loops, SORT_TALLY_ARGS)
HAL_OP_LAUNCHER(queue_sort_offsets, groups, SORT_OFFSETS_ARGS)
HAL_OP_LAUNCHER(queue_sort_move, loops, SORT_MOVE_ARGS)

#define RUN PK_SORT_RUN
/* Maximum number of chunks of a row, and their minimum number of elements, for which a tally of 256 counts is
 * worthwhile. */
#define MOST_CHUNKS INT64_C(64)
#define LEAST_CHUNK INT64_C(16384)
#define LEAST_SIMT_CHUNK INT64_C(128)

void hal_op_sort_keys(hal_op_sort_t *s, hal_dtype_t dtype, int descending, int64_t bits) {
  s->dtype = dtype;
  s->bytes = dtype == HAL_FLOAT32 ? 4u : dtype == HAL_INT64 ? (uint32_t)(bits + 7) / 8 : 8u;
  s->bias = dtype == HAL_INT64 ? UINT64_C(1) << (bits - 1) : 0;
  s->invert = descending ? UINT64_MAX : 0;
}

hal_status_t hal_op_sort_dims(hal_op_sort_t *s, const hal_tensor_t *const tensors[3], int64_t dim) {
  hal_op_dims_t dims;
  hal_op_dims_init(tensors, 3, tensors[1]->ndim ? UINT64_C(1) << dim : 0, &dims);
  s->dim = (hal_op_dim_t){.size = 1};
  for (int32_t i = 0; i < dims.count; i++)
    if (dims.dim[i].reduced) {
      s->dim = hal_op_dims_take(&dims, i);
      break;
    }
  hal_op_dims_merge(&dims);
  s->n = s->dim.size;
  s->rows = hal_op_dims_numel(&dims);
  return hal_op_dims_rows(&dims, &s->kept);
}

static hal_status_t read_call(const hal_op_context_t *context, const hal_op_call_t *call, hal_op_sort_t *s) {
  int64_t dim = 0, descending, bits;
  HAL_RETURN_IF_ERROR(hal_op_tensor(context, call, 0, &s->tensors[1]));
  HAL_RETURN_IF_ERROR(hal_op_result(context, call, 0, &s->tensors[0]));
  HAL_RETURN_IF_ERROR(hal_op_result(context, call, 1, &s->tensors[2]));
  const hal_tensor_t *self = s->tensors[1];
  if (self->ndim > 0) HAL_RETURN_IF_ERROR(hal_op_read_dim(context, call, 1, self, &dim));
  HAL_RETURN_IF_ERROR(hal_op_int(context, call, 2, &descending));
  HAL_RETURN_IF_ERROR(hal_op_int(context, call, 3, &bits));
  HAL_RETURN_IF_ERROR(hal_op_check_same_shape(context, self, "self", s->tensors[0], "the values"));
  HAL_RETURN_IF_ERROR(hal_op_check_same_shape(context, self, "self", s->tensors[2], "the indices"));
  if (s->tensors[0]->dtype != self->dtype || s->tensors[2]->dtype != HAL_INT64)
    return hal_op_invalid(context, "the values are %s and the indices %s; expected %s and int64",
                          hal_op_dtype_name(s->tensors[0]->dtype), hal_op_dtype_name(s->tensors[2]->dtype),
                          hal_op_dtype_name(self->dtype));
  if (bits < 1 || bits > 64)
    return hal_op_invalid(context, "invalid number of bits %lld; expected 1 to 64", (long long)bits);
  if (!hal_op_has_dtype(context, self->dtype)) return HAL_UNIMPLEMENTED;
  hal_op_sort_keys(s, self->dtype, descending != 0, bits);
  return hal_op_sort_dims(s, s->tensors, dim);
}

/* Returns the number of elements of a chunk of a long row. On devices with many threads, an item reads a chunk twice,
 * and one of the 64 items of a group reads four tallies of each chunk twice: the square root of 4n minimizes the sum of
 * both. */
static int64_t chunk_of(const hal_op_context_t *context, int64_t n) {
  if (hal_op_target(context)->form != HAL_FORM_SIMT) {
    const int64_t wanted = n / MOST_CHUNKS + 1;
    return wanted > LEAST_CHUNK ? wanted : LEAST_CHUNK;
  }
  int64_t chunk = LEAST_SIMT_CHUNK;
  while (chunk < n / chunk * 4) chunk *= 2;
  return chunk;
}

/* Both pairs of buffers and, for long rows, the tallies in one block; 64-bit parts first. */
hal_status_t hal_op_sort_allocate(const hal_op_context_t *context, hal_op_sort_t *s) {
  size_t entries, tallies = 0, size;
  s->chunk = s->n;
  s->chunks = 1;
  if (s->n > HAL_OP_SORT_SHORT) {
    s->chunk = chunk_of(context, s->n);
    s->chunks = s->n / s->chunk + (s->n % s->chunk != 0);
  }
  if (s->n > UINT32_MAX || __builtin_mul_overflow((size_t)s->rows, (size_t)s->n, &entries) ||
      (s->n > HAL_OP_SORT_SHORT && __builtin_mul_overflow((size_t)s->rows * 256, (size_t)s->chunks, &tallies)) ||
      __builtin_mul_overflow(entries, 2 * (sizeof(uint64_t) + sizeof(uint32_t)), &size) ||
      __builtin_add_overflow(size, tallies * sizeof(uint32_t), &size))
    return hal_op_too_large(context, (uint64_t)s->n);
  HAL_RETURN_IF_ERROR(hal_op_scratch(context, size, &s->scratch));
  char *at = s->scratch.address;
  s->keys[0] = at;
  s->keys[1] = at + entries * sizeof(uint64_t);
  at += 2 * entries * sizeof(uint64_t);
  s->places[0] = at;
  s->places[1] = at + entries * sizeof(uint32_t);
  s->tallies = at + 2 * entries * sizeof(uint32_t);
  return HAL_OK;
}

/* How rows are divided for kernels that process each element separately: in chunks, or one element per item on devices
 * with many threads. */
static hal_op_sort_t cut_for_elements(const hal_op_context_t *context, const hal_op_sort_t *s) {
  hal_op_sort_t cut = *s;
  if (hal_op_target(context)->form == HAL_FORM_SIMT) cut.chunk = 1, cut.chunks = s->n;
  return cut;
}

static hal_status_t make_keys(hal_op_context_t *context, const hal_op_sort_t *whole) {
  const hal_op_sort_t cut = cut_for_elements(context, whole), *const s = &cut;
  hal_plugin_kernel_t *kernel;
  HAL_RETURN_IF_ERROR(hal_op_kernel(context, s->dtype, HAL_SORT_VARIANT_KEYS, &kernel));
  uint64_t units = (uint64_t)s->rows * (uint64_t)s->chunks;
  uint64_t per_item = hal_op_units_per_group(context, (uint64_t)s->chunk);
  return queue_sort_keys(context, kernel, (units + per_item - 1) / per_item, s->keys[0], s->places[0],
                         s->tensors[1]->data, &s->kept, units, per_item, s->n, s->chunk, s->chunks, s->dim.stride[1],
                         s->bias, s->invert);
}

static hal_status_t put_values(hal_op_context_t *context, const hal_op_sort_t *whole, const void *places) {
  const hal_op_sort_t cut = cut_for_elements(context, whole), *const s = &cut;
  hal_plugin_kernel_t *kernel;
  HAL_RETURN_IF_ERROR(hal_op_kernel(context, s->dtype, HAL_SORT_VARIANT_VALUES, &kernel));
  uint64_t units = (uint64_t)s->rows * (uint64_t)s->chunks;
  uint64_t per_item = hal_op_units_per_group(context, (uint64_t)s->chunk);
  return queue_sort_values(context, kernel, (units + per_item - 1) / per_item, s->tensors[0]->data, s->tensors[2]->data,
                           s->tensors[1]->data, places, &s->kept, units, per_item, s->n, s->chunk, s->chunks,
                           s->dim.stride[0], s->dim.stride[1], s->dim.stride[2]);
}

/* Sorts short rows; returns the buffer that contains the entries afterwards. */
static hal_status_t sort_short(hal_op_context_t *context, const hal_op_sort_t *s, int *out_buffer) {
  hal_plugin_kernel_t *kernel;
  HAL_RETURN_IF_ERROR(hal_op_kernel(context, s->dtype, HAL_SORT_VARIANT_MERGE, &kernel));
  int32_t passes = 0;
  for (int64_t width = RUN; width < s->n; width *= 2) passes++;
  uint64_t rows = (uint64_t)s->rows, per_item = hal_op_units_per_group(context, (uint64_t)s->n * 8);
  *out_buffer = passes & 1;
  return queue_sort_merge(context, kernel, (rows + per_item - 1) / per_item, s->keys[0], s->places[0], s->keys[1],
                          s->places[1], rows, per_item, s->n, passes);
}

hal_status_t hal_op_sort_by_radix(hal_op_context_t *context, const hal_op_sort_t *s, int *out_buffer) {
  hal_plugin_kernel_t *tally, *offsets, *move;
  HAL_RETURN_IF_ERROR(hal_op_kernel(context, s->dtype, HAL_SORT_VARIANT_TALLY, &tally));
  HAL_RETURN_IF_ERROR(hal_op_kernel(context, s->dtype, HAL_SORT_VARIANT_OFFSETS, &offsets));
  HAL_RETURN_IF_ERROR(hal_op_kernel(context, s->dtype, HAL_SORT_VARIANT_MOVE, &move));
  uint64_t rows = (uint64_t)s->rows, units = rows * (uint64_t)s->chunks;
  int from = 0;
  for (uint32_t byte = 0; byte < s->bytes; byte++, from = !from) {
    uint32_t shift = 8 * byte;
    HAL_RETURN_IF_ERROR(
        queue_sort_tally(context, tally, units, s->tallies, s->keys[from], units, s->n, s->chunk, s->chunks, shift));
    HAL_RETURN_IF_ERROR(queue_sort_offsets(context, offsets, rows, s->tallies, s->chunks));
    HAL_RETURN_IF_ERROR(queue_sort_move(context, move, units, s->keys[!from], s->places[!from], s->keys[from],
                                        s->places[from], s->tallies, units, s->n, s->chunk, s->chunks, shift));
  }
  *out_buffer = from;
  return HAL_OK;
}

hal_status_t hal_op_sort_finish(hal_op_context_t *context, const hal_op_sort_t *s, int sorted) {
  int buffer = 0;
  if (sorted && s->n > 1)
    HAL_RETURN_IF_ERROR(s->n > HAL_OP_SORT_SHORT ? hal_op_sort_by_radix(context, s, &buffer)
                                                 : sort_short(context, s, &buffer));
  return put_values(context, s, s->places[buffer]);
}

hal_status_t hal_op_launch_sort(hal_op_context_t *context, const hal_op_call_t *call) {
  hal_op_sort_t s = {.chunks = 1};
  int64_t numel;
  if (context->op == HAL_OP_ID_TOPK) return hal_op_topk(context, call);
  HAL_RETURN_IF_ERROR(read_call(context, call, &s));
  HAL_RETURN_IF_ERROR(hal_op_numel(context, s.tensors[1], "self", &numel));
  if (numel == 0) return HAL_OK;
  HAL_RETURN_IF_ERROR(hal_op_sort_allocate(context, &s));
  hal_status_t status = make_keys(context, &s);
  if (!status) status = hal_op_sort_finish(context, &s, 1);
  hal_op_scratch_release(&s.scratch);
  return status;
}

/* ---- search ------------------------------------------------------------------------------------------------------ */

/* Arguments of the kernel of search in addition to its operands. */
typedef struct searched_s {
  int64_t n, step;
  int32_t right;
} searched_t;

static hal_status_t search_line(hal_op_context_t *context, hal_plugin_kernel_t *kernel, const hal_op_line_t *line,
                                const void *given) {
  const searched_t *const in = given;
  return queue_search(context, kernel, line->items, line->address[0], line->address[1], line->address[2], in->n,
                      in->step, in->right, line->n, line->block, &line->rows);
}

/* args: sorted_sequence, self, right. Result and self have one shape; the sequence is a vector, or has the same
 * dimensions and, except for the last, the same sizes (stride 0 is possible). */
hal_status_t hal_op_launch_search(hal_op_context_t *context, const hal_op_call_t *call) {
  static const char *const names[] = {"the result", "the sequence", "self"};
  const hal_tensor_t *sequence, *tensors[3];
  hal_tensor_t starts;
  int64_t right, strides[HAL_OP_MAX_DIMS];
  HAL_RETURN_IF_ERROR(hal_op_tensor(context, call, 0, &sequence));
  HAL_RETURN_IF_ERROR(hal_op_tensor(context, call, 1, &tensors[2]));
  HAL_RETURN_IF_ERROR(hal_op_int(context, call, 2, &right));
  HAL_RETURN_IF_ERROR(hal_op_result(context, call, 0, &tensors[0]));
  if (sequence->ndim != 1 && sequence->ndim != tensors[0]->ndim)
    return hal_op_invalid(context, "the sequence has %d dimensions, self %d", (int)sequence->ndim,
                          (int)tensors[0]->ndim);
  if (tensors[0]->dtype != HAL_INT64 || tensors[2]->dtype != sequence->dtype)
    return hal_op_invalid(context, "result, sequence and self are %s, %s and %s; expected int64 and one dtype",
                          hal_op_dtype_name(tensors[0]->dtype), hal_op_dtype_name(sequence->dtype),
                          hal_op_dtype_name(tensors[2]->dtype));
  if (!hal_op_has_dtype(context, sequence->dtype)) return HAL_UNIMPLEMENTED;
  int64_t n = sequence->sizes[sequence->ndim - 1], step = sequence->strides[sequence->ndim - 1];
  starts = *sequence;
  for (int32_t d = 0; d < tensors[0]->ndim; d++)
    strides[d] = sequence->ndim == tensors[0]->ndim && d + 1 < sequence->ndim ? sequence->strides[d] : 0;
  starts.ndim = tensors[0]->ndim;
  starts.sizes = tensors[0]->sizes;
  starts.strides = strides;
  tensors[1] = &starts;
  hal_op_iterator_t it;
  hal_plugin_kernel_t *kernel;
  HAL_RETURN_IF_ERROR(hal_op_iterate(context, tensors, names, 3, &it));
  HAL_RETURN_IF_ERROR(hal_op_kernel(context, sequence->dtype, HAL_SEARCH_VARIANT_ROWS, &kernel));
  if (it.numel == 0) return HAL_OK;
  if (!sequence->data) starts.data = tensors[0]->data; /* an empty sequence: a valid address, not read */
  const searched_t in = {.n = n, .step = step, .right = right != 0};
  const uint32_t size = hal_op_dtype_size(sequence->dtype);
  const hal_op_rows_call_t rows = {.kernel = kernel, .queue = search_line, .given = &in, .elements = {8, size, size}};
  return hal_op_launch_rows(context, &it, &rows);
}
