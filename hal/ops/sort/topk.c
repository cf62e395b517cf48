/* topk.c: the first k elements of rows in the order of sort: selected, and then sorted if the caller requests it. Of
 * equal elements those with the lowest indices are selected.
 *
 * args: self, k, dim, largest, sorted. Results: values and int64 indices, in self's shape except for size k along
 * dim. */
#include "hal_op_variants.h"
#include "ops/sort/sort.h"
#include "ops/sort/sort_args.h"

HAL_OP_LAUNCHER(queue_select, loops, TOPK_SELECT_ARGS)
HAL_OP_LAUNCHER(queue_choose, loops, TOPK_CHOOSE_ARGS)

#define MANY_ROWS 16 /* with more rows all threads work without dividing a row */
#define WANTED_CHUNKS INT64_C(64)
#define LEAST_CHUNK INT64_C(16384) /* elements of a chunk */
#define PER_ENTRY 64               /* minimum number of elements for each entry of a chunk */

/* The division of rows, and the memory of the selection: for the entries of an item, and for those of the chunks of a
 * row. */
typedef struct selection_s {
  int64_t n, k, chunk, chunks, room;
  uint64_t units, per_item, items;
  hal_op_scratch_t scratch;
  void *room_keys, *room_places, *keys, *places;
} selection_t;

static hal_status_t check_result(const hal_op_context_t *context, const hal_tensor_t *self, const hal_tensor_t *result,
                                 int64_t dim, int64_t k, hal_dtype_t dtype, const char *what) {
  int fits = result->ndim == self->ndim && result->dtype == dtype;
  for (int32_t d = 0; fits && d < self->ndim; d++) fits = result->sizes[d] == (d == dim ? k : self->sizes[d]);
  if (fits) return HAL_OK;
  return hal_op_invalid(context, "%s must be %s of the shape of self with %lld elements along dimension %lld", what,
                        hal_op_dtype_name(dtype), (long long)k, (long long)dim);
}

/* Reads the call: the rows are those of self, and n is k. */
static hal_status_t read_call(const hal_op_context_t *context, const hal_op_call_t *call, hal_op_sort_t *s,
                              selection_t *in, int64_t *out_sorted) {
  const hal_tensor_t *self, *values, *indices;
  int64_t dim = 0, largest;
  HAL_RETURN_IF_ERROR(hal_op_tensor(context, call, 0, &self));
  HAL_RETURN_IF_ERROR(hal_op_int(context, call, 1, &in->k));
  if (self->ndim > 0) HAL_RETURN_IF_ERROR(hal_op_read_dim(context, call, 2, self, &dim));
  HAL_RETURN_IF_ERROR(hal_op_int(context, call, 3, &largest));
  HAL_RETURN_IF_ERROR(hal_op_int(context, call, 4, out_sorted));
  HAL_RETURN_IF_ERROR(hal_op_result(context, call, 0, &values));
  HAL_RETURN_IF_ERROR(hal_op_result(context, call, 1, &indices));
  in->n = self->ndim ? self->sizes[dim] : 1;
  if (in->k < 0 || in->k > in->n)
    return hal_op_invalid(context, "k is %lld; rows have %lld elements", (long long)in->k, (long long)in->n);
  HAL_RETURN_IF_ERROR(check_result(context, self, values, dim, in->k, self->dtype, "the values"));
  HAL_RETURN_IF_ERROR(check_result(context, self, indices, dim, in->k, HAL_INT64, "the indices"));
  if (!hal_op_has_dtype(context, self->dtype)) return HAL_UNIMPLEMENTED;
  hal_tensor_t like[] = {*values, *self, *indices}; /* one shape, for the iteration over the rows */
  like[0].sizes = like[2].sizes = self->sizes;
  s->tensors[0] = values, s->tensors[1] = self, s->tensors[2] = indices;
  hal_op_sort_keys(s, self->dtype, largest != 0, 64);
  HAL_RETURN_IF_ERROR(hal_op_sort_dims(s, (const hal_tensor_t *const[]){&like[0], &like[1], &like[2]}, dim));
  s->n = in->k;
  return in->n > UINT32_MAX ? hal_op_too_large(context, (uint64_t)in->n) : HAL_OK;
}

/* Divides rows only by their sizes, so that results do not depend on threads. */
static void cut(const hal_op_context_t *context, int64_t rows, selection_t *in) {
  const int64_t wanted = in->n / WANTED_CHUNKS + 1;
  in->chunk = wanted > LEAST_CHUNK ? wanted : LEAST_CHUNK;
  if (in->chunk / PER_ENTRY < in->k) in->chunk = PER_ENTRY * in->k;
  if (rows >= MANY_ROWS || in->chunk > in->n) in->chunk = in->n;
  in->chunks = (in->n + in->chunk - 1) / in->chunk;
  in->room = 2 * in->k + 128 < in->chunk ? 2 * in->k + 128 : in->chunk;
  in->units = (uint64_t)rows * (uint64_t)in->chunks;
  in->per_item = hal_op_units_per_group(context, (uint64_t)in->chunk);
  in->items = (in->units + in->per_item - 1) / in->per_item;
}

static hal_status_t allocate(const hal_op_context_t *context, selection_t *in) {
  const size_t entry = sizeof(uint64_t) + sizeof(uint32_t);
  const size_t given = in->chunks > 1 ? (size_t)in->units * (size_t)in->k : 0; /* at most n / PER_ENTRY of a row */
  size_t room, size;
  if (__builtin_mul_overflow((size_t)in->items, (size_t)in->room, &room) ||
      __builtin_mul_overflow(room + given, entry, &size))
    return hal_op_too_large(context, (uint64_t)in->n);
  HAL_RETURN_IF_ERROR(hal_op_scratch(context, size, &in->scratch));
  char *const at = in->scratch.address;
  in->room_keys = at;
  in->keys = at + room * sizeof(uint64_t);
  in->room_places = at + (room + given) * sizeof(uint64_t);
  in->places = (char *)in->room_places + room * sizeof(uint32_t);
  return HAL_OK;
}

/* Selects the k entries of each row into the buffer where they are sorted. */
static hal_status_t select_entries(hal_op_context_t *context, const hal_op_sort_t *s, const selection_t *in) {
  hal_plugin_kernel_t *select, *choose;
  const int cuts = in->chunks > 1;
  HAL_RETURN_IF_ERROR(hal_op_kernel(context, s->dtype, HAL_SORT_VARIANT_PICK, &select));
  HAL_RETURN_IF_ERROR(hal_op_kernel(context, s->dtype, HAL_SORT_VARIANT_CHOOSE, &choose));
  HAL_RETURN_IF_ERROR(queue_select(context, select, in->items, cuts ? in->keys : s->keys[0],
                                   cuts ? in->places : s->places[0], in->room_keys, in->room_places,
                                   s->tensors[1]->data, &s->kept, in->units, in->per_item, in->n, in->k, in->room,
                                   in->chunk, in->chunks, s->dim.stride[1], s->bias, s->invert));
  if (!cuts) return HAL_OK;
  return queue_choose(context, choose, (uint64_t)s->rows, s->keys[0], s->places[0], in->keys, in->places,
                      (uint64_t)s->rows, in->chunks * in->k, in->k);
}

hal_status_t hal_op_topk(hal_op_context_t *context, const hal_op_call_t *call) {
  hal_op_sort_t s = {.chunks = 1};
  selection_t in = {.k = 0};
  int64_t sorted = 1, numel;
  HAL_RETURN_IF_ERROR(read_call(context, call, &s, &in, &sorted));
  HAL_RETURN_IF_ERROR(hal_op_numel(context, s.tensors[0], "the values", &numel));
  if (numel == 0) return HAL_OK;
  cut(context, s.rows, &in);
  HAL_RETURN_IF_ERROR(hal_op_sort_allocate(context, &s));
  hal_status_t status = allocate(context, &in);
  if (!status) status = select_entries(context, &s, &in);
  if (!status) status = hal_op_sort_finish(context, &s, sorted != 0);
  hal_op_scratch_release(&in.scratch);
  hal_op_scratch_release(&s.scratch);
  return status;
}
