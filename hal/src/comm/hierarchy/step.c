/* step.c: the steps of a collective: one collective of a level. */
#define _POSIX_C_SOURCE 200809L
#include <string.h>

#include "base/clock.h"
#include "base/dtype.h"
#include "base/host_malloc.h"
#include "comm/hierarchy/internal.h"

enum { PADDING = 64, KEPT = 32 * 1024 * 1024 /* bytes of a buffer */ };
static const int64_t least_ns = 1000 * 1000;

hal_status_t hal_hier_buffer(hal_hier_run_t *run, int buffer, size_t bytes, void **out) {
  hal_hier_t *const hier = run->hier;
  *out = NULL;
  if (hier->buffer_bytes[buffer] < bytes || !hier->buffers[buffer]) {
    hal_free(hier->buffers[buffer]);
    hier->buffer_bytes[buffer] = 0;
    hier->buffers[buffer] = bytes < PTRDIFF_MAX - PADDING ? hal_malloc_aligned(bytes + PADDING, PADDING) : NULL;
    if (!hier->buffers[buffer]) {
      hal_error_set(HAL_RESOURCE_EXHAUSTED, "no host memory for %zu bytes of intermediate results; free some memory",
                    bytes);
      return hal_hier_fail_by_last(run, HAL_RESOURCE_EXHAUSTED);
    }
    hier->buffer_bytes[buffer] = bytes;
  }
  *out = hier->buffers[buffer];
  return HAL_OK;
}

void hal_hier_buffers_trim(hal_hier_t *hier) {
  for (int buffer = 0; buffer < HAL_HIER_BUFFERS; buffer++) {
    if (hier->buffer_bytes[buffer] <= KEPT) continue;
    hal_free(hier->buffers[buffer]);
    hier->buffers[buffer] = NULL;
    hier->buffer_bytes[buffer] = 0;
  }
}

static int64_t left_of(const hal_hier_run_t *run, int64_t extra_ns) {
  int64_t left = run->deadline_ns - hal_clock_ns();
  if (__builtin_add_overflow(left, extra_ns, &left)) left = INT64_MAX;
  return left > least_ns ? left : least_ns;
}

/* ---- within the host ---- */

/* For a rank that is alone on its host: copies its block from `send` to `recv`, with the factor of PREMUL_SUM. */
static void alone(const hal_collective_t *call) {
  const size_t size = hal_dtype_size(call->dtype);
  const hal_comm_op_t *const op = &hal_comm_ops[call->op];
  const int is_broadcast = call->op == HAL_COMM_BROADCAST;
  uint64_t count = call->count;
  if (op->send == HAL_COMM_EACH && call->send_counts) count = call->send_counts[0];
  if (op->recv == HAL_COMM_EACH && call->recv_counts) count = call->recv_counts[0];
  const void *const from = hal_hier_at(call->send, (call->send_displs ? call->send_displs[0] : 0) * size);
  void *const to = hal_hier_at(call->recv, (call->recv_displs ? call->recv_displs[0] : 0) * size);
  if (!count || (is_broadcast && !call->recv)) return;
  if (from != to) memmove(to, from, count * size);
  if (!op->reduces || call->reduce != HAL_REDUCE_PREMUL_SUM) return;
  hal_shm_reducer_t reducer;
  if (hal_shm_reducer_find(call->dtype, call->reduce, &reducer)) reducer.arithmetic.scale(to, call->scale, count);
}

hal_status_t hal_hier_inner(hal_hier_run_t *run, hal_collective_t call) {
  const hal_hier_t *const hier = run->hier;
  call.struct_size = sizeof call;
  if (!hier->inner.run) {
    alone(&call);
    return HAL_OK;
  }
  const hal_status_t status =
      hier->inner.run(hier->inner.context, &call, 1, left_of(run, run->late ? 2 * run->grace_ns : 0));
  return status ? hal_hier_fail_inside(run, status) : HAL_OK;
}

/* ---- between hosts ---- */

hal_status_t hal_hier_outer(hal_hier_run_t *run, hal_collective_t call) {
  hal_hier_t *const hier = run->hier;
  const hal_comm_transport_t *const outer = hal_comm_op_is_message(call.op) ? &hier->messages : &hier->outer;
  call.struct_size = sizeof call;
  if (!hal_comm_op_is_message(call.op)) call.dtype = HAL_UINT8;
  const int64_t left_ns = left_of(run, run->is_message ? 0 : run->grace_ns);
  const hal_status_t status = run->is_message ? hal_comm_run_message(outer, hier->at.rank, &call, left_ns)
                                              : outer->run(outer->context, &call, 1, left_ns);
  return status ? hal_hier_fail_outside(run, status) : HAL_OK;
}

hal_status_t hal_hier_whole(hal_hier_run_t *run, const hal_collective_t *calls, uint32_t count) {
  const hal_comm_transport_t *const outer = &run->hier->outer;
  if (count == 1 && calls->op == HAL_COMM_BARRIER) return HAL_OK; /* the comparison was a barrier */
  const hal_status_t status = outer->run(outer->context, calls, count, left_of(run, run->grace_ns));
  return status && status != HAL_UNIMPLEMENTED ? hal_hier_fail_outside(run, status) : status;
}

/* ---- a few bytes of every rank ---- */

hal_status_t hal_hier_share(hal_hier_run_t *run, const void *own, size_t bytes, const void **out_all) {
  const hal_hier_layout_t *const at = &run->hier->at;
  const size_t of_host = (size_t)at->most * bytes;
  void *all, *padded;
  HAL_RETURN_IF_ERROR(hal_hier_buffer(run, HAL_HIER_BUFFER_ALL, (size_t)at->size * bytes, &all));
  HAL_RETURN_IF_ERROR(hal_hier_buffer(run, HAL_HIER_BUFFER_PADDED, (size_t)at->hosts * of_host, &padded));
  unsigned char *const mine = (unsigned char *)padded + (size_t)at->host * of_host;
  if (!at->local) memset(mine, 0, of_host);
  HAL_RETURN_IF_ERROR(hal_hier_inner(
      run,
      (hal_collective_t){
          .op = HAL_COMM_GATHER, .dtype = HAL_UINT8, .send = own, .recv = at->local ? NULL : mine, .count = bytes}));
  run->late = 1;
  if (!at->local)
    HAL_RETURN_IF_ERROR(hal_hier_outer(
        run, (hal_collective_t){.op = HAL_COMM_ALL_GATHER, .send = mine, .recv = padded, .count = of_host}));
  HAL_RETURN_IF_ERROR(hal_hier_inner(run, (hal_collective_t){.op = HAL_COMM_BROADCAST,
                                                             .dtype = HAL_UINT8,
                                                             .send = padded,
                                                             .recv = padded,
                                                             .count = (size_t)at->hosts * of_host}));
  for (int32_t rank = 0; rank < at->size; rank++)
    memcpy((unsigned char *)all + (size_t)rank * bytes,
           (unsigned char *)padded + (size_t)at->host_of[rank] * of_host + (size_t)at->local_of[rank] * bytes, bytes);
  *out_all = all;
  return HAL_OK;
}
