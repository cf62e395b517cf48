/* scatter_sorted.c: scatter for devices with many threads, with work that is proportional to the input: indices are
 * sorted with their positions, and equal ones, now adjacent in their original order, are processed as runs. Of equal
 * indices the last one wins, and sums have one order, which the chunks of a row of entries determine. */
#include <string.h>

#include "hal_op_ids.h"
#include "hal_op_variants.h"
#include "ops/index/index_args.h"
#include "ops/index/scatter.h"
#include "ops/sort/sort.h"

HAL_OP_LAUNCHER(queue_keys, items, INDEX_KEYS_ARGS)
HAL_OP_LAUNCHER(queue_last, items, SCATTER_LAST_ARGS)
HAL_OP_LAUNCHER(queue_runs, items, SCATTER_RUNS_ARGS)
HAL_OP_LAUNCHER(queue_ends, items, SCATTER_RUNS_ARGS)

_Static_assert(HAL_SCATTER_REDUCE_VARIANT_SUM_RUNS == HAL_OP_SCATTER_REDUCTIONS &&
                   HAL_SCATTER_REDUCE_VARIANT_SUM_ENDS == 2 * HAL_OP_SCATTER_REDUCTIONS,
               "runs and ends of each reduction follow it in one order");

/* Entries of a chunk. A run longer than two chunks is added up chunk by chunk by one item, so these are not too
 * small. */
#define LEAST_CHUNK INT64_C(32)
#define MOST_CHUNK INT64_C(1024)

/* Number of positions of the kept dimensions that occupies a device. */
static uint64_t enough(const hal_op_context_t *context) { return hal_op_target(context)->wanted_groups * PK_LSIZE; }

int hal_op_scatter_sorts(const hal_op_context_t *context, const hal_op_scatter_t *s) {
  return hal_op_target(context)->form == HAL_FORM_SIMT && s->n > HAL_OP_SORT_SHORT && s->n <= UINT32_MAX &&
         s->kept.numel > 0 && s->kept.ndim <= PK_MAXD && (uint64_t)s->kept.numel < enough(context);
}

/* Orders the kept dimensions so that those along which the index does not vary are first; returns their number of
 * positions. */
static int64_t order(const hal_op_scatter_t *s, pk_rows_t *out_kept) {
  int64_t shared = 1;
  memset(out_kept, 0, sizeof *out_kept);
  for (int varies = 0; varies < 2; varies++)
    for (int32_t d = 0; d < s->kept.ndim; d++) {
      if ((s->kept.stride[2][d] != 0) != varies) continue;
      const int32_t to = out_kept->ndim++;
      out_kept->size[to] = s->kept.size[d];
      for (int32_t k = 0; k < 3; k++) out_kept->stride[k][to] = s->kept.stride[k][d];
      if (!varies) shared *= s->kept.size[d];
    }
  return shared;
}

static pk_scatter_t plan(const hal_op_context_t *context, const hal_op_scatter_t *s, int64_t shared) {
  pk_scatter_t how = {.places = s->kept.numel,
                      .shared = shared,
                      .n = s->n,
                      .chunk = LEAST_CHUNK,
                      .b_step = s->src_step,
                      .bound = s->limit.bound,
                      .step = s->limit.step};
  const uint64_t entries = (uint64_t)s->kept.numel * (uint64_t)s->n;
  while (how.chunk < MOST_CHUNK && entries / (uint64_t)how.chunk > 2 * enough(context)) how.chunk *= 2;
  how.chunks = (s->n + how.chunk - 1) / how.chunk;
  return how;
}

/* Writes the keys of all lists of indices and sorts them by as many bytes as they have; returns the buffer that they
 * end in. */
static hal_status_t sort_keys(hal_op_context_t *context, const hal_op_scatter_t *s, const pk_rows_t *kept,
                              int64_t shared, hal_op_sort_t *sort, void *error, int *out_buffer) {
  hal_op_context_t keys, sorts;
  hal_plugin_kernel_t *kernel;
  hal_op_context_of(context, HAL_OP_ID__INDEX_OFFSET, &keys);
  hal_op_context_of(context, HAL_OP_ID_SORT_LINES, &sorts);
  HAL_RETURN_IF_ERROR(hal_op_kernel(&keys, HAL_INT64, HAL_INDEX_OFFSET_VARIANT_KEYS, &kernel));
  HAL_RETURN_IF_ERROR(queue_keys(&keys, kernel, (uint64_t)sort->rows * (uint64_t)s->n, sort->keys[0], sort->places[0],
                                 s->kept.tensors[2]->data, &s->limit, error, kept, (uint64_t)sort->rows, s->n, shared,
                                 s->index_step));
  return hal_op_sort_by_radix(&sorts, sort, out_buffer);
}

static hal_status_t combine(hal_op_context_t *context, const hal_op_scatter_t *s, const pk_rows_t *kept,
                            const pk_scatter_t *how, const void *keys, const void *places) {
  hal_plugin_kernel_t *runs, *ends;
  hal_op_scratch_t partial = {.block = NULL};
  size_t size;
  const uint64_t items = (uint64_t)how->places * (uint64_t)how->chunks;
  if (__builtin_mul_overflow((size_t)items, (size_t)hal_op_dtype_size(s->dtype), &size))
    return hal_op_too_large(context, items);
  HAL_RETURN_IF_ERROR(hal_op_kernel(context, s->dtype, s->variant + HAL_OP_SCATTER_REDUCTIONS, &runs));
  HAL_RETURN_IF_ERROR(hal_op_kernel(context, s->dtype, s->variant + 2 * HAL_OP_SCATTER_REDUCTIONS, &ends));
  HAL_RETURN_IF_ERROR(hal_op_scratch(context, size, &partial));
  void *const out = s->kept.tensors[0]->data;
  const void *const b = s->kept.tensors[1]->data;
  hal_status_t status = queue_runs(context, runs, items, out, partial.address, b, keys, places, how, kept);
  if (!status && how->chunks > 1)
    status = queue_ends(context, ends, items - (uint64_t)how->places, out, partial.address, b, keys, places, how, kept);
  hal_op_scratch_release(&partial);
  return status;
}

static hal_status_t replace(hal_op_context_t *context, const hal_op_scatter_t *s, const pk_rows_t *kept,
                            const pk_scatter_t *how, const void *keys, const void *places) {
  hal_plugin_kernel_t *kernel;
  HAL_RETURN_IF_ERROR(hal_op_kernel(context, s->dtype, HAL_SCATTER_VARIANT_LAST, &kernel));
  return queue_last(context, kernel, (uint64_t)how->places * (uint64_t)how->n, s->kept.tensors[0]->data,
                    s->kept.tensors[1]->data, keys, places, how, kept);
}

hal_status_t hal_op_scatter_sorted(hal_op_context_t *context, const hal_op_scatter_t *s, void *error) {
  pk_rows_t kept;
  const int64_t shared = order(s, &kept);
  const pk_scatter_t how = plan(context, s, shared);
  hal_op_sort_t sort = {.n = s->n, .rows = how.places / shared, .dtype = HAL_INT64, .bytes = 1};
  while (sort.bytes < 8 && how.bound >> 8 * sort.bytes) sort.bytes++;
  int buffer;
  HAL_RETURN_IF_ERROR(hal_op_sort_allocate(context, &sort));
  hal_status_t status = sort_keys(context, s, &kept, shared, &sort, error, &buffer);
  if (!status) status = (s->moves ? replace : combine)(context, s, &kept, &how, sort.keys[buffer], sort.places[buffer]);
  hal_op_scratch_release(&sort.scratch);
  return status;
}
