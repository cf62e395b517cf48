/* wide.c: see wide.h. */
#include "comm/hierarchy/wide.h"

#include <string.h>

#include "base/dtype.h"

enum {
  SMALL = 64 * 1024, /* bytes up to which every host reduces all elements: one step instead of two */
  ALIGNED = 64,      /* elements; whole cache lines for every size */
};

static int is_widened(hal_dtype_t dtype, uint32_t reduce) {
  if (dtype != HAL_FLOAT16 && dtype != HAL_BFLOAT16) return 0;
  return reduce == HAL_REDUCE_SUM || reduce == HAL_REDUCE_AVG || reduce == HAL_REDUCE_PREMUL_SUM ||
         reduce == HAL_REDUCE_PROD;
}

hal_hier_wide_t hal_hier_wide(const hal_hier_call_t *call) {
  const uint32_t reduce = call->desc.reduce;
  const hal_dtype_t dtype = call->desc.dtype;
  hal_hier_wide_t wide = {.dtype = dtype, .size = call->size, .within = reduce, .scale = call->desc.scale};
  hal_shm_reducer_t reducer;
  if (is_widened(dtype, reduce)) {
    wide.dtype = HAL_FLOAT32;
    if (hal_shm_reducer_find(dtype, HAL_REDUCE_SUM, &reducer)) wide.halves = reducer.arithmetic;
  }
  wide.wide = hal_dtype_size(wide.dtype);
  wide.is_average = reduce == HAL_REDUCE_AVG;
  if (wide.is_average) wide.within = HAL_REDUCE_SUM;
  if (wide.is_average && hal_shm_reducer_find(wide.dtype, HAL_REDUCE_AVG, &reducer)) wide.average = reducer.arithmetic;
  const uint32_t between = reduce == HAL_REDUCE_PREMUL_SUM ? HAL_REDUCE_SUM : wide.within;
  if (hal_shm_reducer_find(wide.dtype, between, &reducer)) wide.between = reducer;
  return wide;
}

const void *hal_hier_widen(const hal_hier_wide_t *wide, const void *elements, uint64_t count, void *buffer) {
  if (!wide->halves.load || !count) return elements;
  wide->halves.load(buffer, elements, (size_t)count);
  return buffer;
}

void hal_hier_finish(const hal_hier_run_t *run, const hal_hier_wide_t *wide, void *results, uint64_t count, void *out) {
  if (!count) return;
  if (wide->is_average)
    wide->average.divide(results, (size_t)run->hier->at.size, (size_t)count * wide->between.numbers);
  if (wide->halves.store)
    wide->halves.store(out, results, (size_t)count);
  else if (out != results)
    memcpy(out, results, (size_t)count * wide->size);
}

void hal_hier_reduce_hosts(const hal_hier_run_t *run, const hal_hier_wide_t *wide, const void *in, uint64_t count,
                           void *out) {
  const void *inputs[HAL_SHM_INPUTS];
  const size_t stride = (size_t)count * wide->wide;
  int32_t inputs_now = 0;
  for (int32_t host = 0; host < run->hier->at.hosts; host++) {
    inputs[inputs_now++] = (const unsigned char *)in + (size_t)host * stride;
    if (inputs_now < HAL_SHM_INPUTS && host + 1 < run->hier->at.hosts) continue;
    hal_shm_reduce(&wide->between, inputs, NULL, inputs_now, (size_t)count, out, NULL);
    inputs[0] = out;
    inputs_now = 1;
  }
}

uint64_t hal_hier_divided(const hal_hier_run_t *run, uint64_t count) {
  const uint64_t hosts = (uint64_t)run->hier->at.hosts;
  return ((count + hosts - 1) / hosts + ALIGNED - 1) / ALIGNED * ALIGNED * hosts;
}

static hal_status_t reduce_small(hal_hier_run_t *run, const hal_hier_wide_t *wide, void *part, uint64_t count,
                                 int32_t root, void **out) {
  const hal_hier_layout_t *const at = &run->hier->at;
  const size_t bytes = (size_t)count * wide->wide;
  void *taken;
  HAL_RETURN_IF_ERROR(hal_hier_buffer(run, HAL_HIER_BUFFER_TAKEN, bytes * (size_t)at->hosts, &taken));
  hal_collective_t gather = {.op = HAL_COMM_ALL_GATHER, .send = part, .recv = taken, .count = bytes};
  if (root >= 0) gather.op = HAL_COMM_GATHER, gather.peer = root;
  if (root >= 0 && root != at->host) gather.recv = NULL;
  HAL_RETURN_IF_ERROR(hal_hier_outer(run, gather));
  if (gather.recv) hal_hier_reduce_hosts(run, wide, taken, count, part);
  *out = part;
  return HAL_OK;
}

/* Each host reduces one share for all hosts. */
static hal_status_t reduce_large(hal_hier_run_t *run, const hal_hier_wide_t *wide, void *part, uint64_t count,
                                 int32_t root, void **out) {
  const hal_hier_layout_t *const at = &run->hier->at;
  const uint64_t all = hal_hier_divided(run, count), share = all / (uint64_t)at->hosts;
  const size_t bytes = (size_t)share * wide->wide;
  unsigned char *const own = (unsigned char *)part + (size_t)at->host * bytes;
  void *taken;
  HAL_RETURN_IF_ERROR(hal_hier_buffer(run, HAL_HIER_BUFFER_TAKEN, bytes * (size_t)at->hosts, &taken));
  memset((unsigned char *)part + (size_t)count * wide->wide, 0, (size_t)(all - count) * wide->wide);
  HAL_RETURN_IF_ERROR(
      hal_hier_outer(run, (hal_collective_t){.op = HAL_COMM_ALL_TO_ALL, .send = part, .recv = taken, .count = bytes}));
  hal_hier_reduce_hosts(run, wide, taken, share, own);
  *out = root >= 0 ? taken : part;
  if (root < 0)
    return hal_hier_outer(run,
                          (hal_collective_t){.op = HAL_COMM_ALL_GATHER, .send = own, .recv = part, .count = bytes});
  return hal_hier_outer(
      run,
      (hal_collective_t){
          .op = HAL_COMM_GATHER, .peer = root, .send = own, .recv = root == at->host ? taken : NULL, .count = bytes});
}

hal_status_t hal_hier_reduce_column(hal_hier_run_t *run, const hal_hier_wide_t *wide, void *part, uint64_t count,
                                    int32_t root, void **out) {
  *out = part;
  if (!count) return HAL_OK;
  return (count * wide->wide <= SMALL ? reduce_small : reduce_large)(run, wide, part, count, root, out);
}
