/* reduce.c: all_reduce and reduce, in pieces, so that intermediate results need a bounded amount of memory.
 *
 * all_reduce of small pieces, or with one column: the host reduces to its leader, the leaders reduce, and each leader
 * broadcasts. With several columns: each column reduces its part of the elements, between a reduce_scatter and an
 * all_gather within the host. */
#include <string.h>

#include "comm/hierarchy/wide.h"
#include "comm/shm/shm.h"

enum {
  PIECE = 4 * 1024 * 1024, /* bytes of a column in a piece */
  SINGLE = 128 * 1024,     /* bytes up to which the leaders reduce everything */
  ALIGNED = 64,            /* elements */
};

/* Elements of one piece, and their memory. */
typedef struct piece_s {
  const hal_hier_call_t *call;
  const hal_hier_wide_t *wide;
  uint64_t at, count;
} piece_t;

static hal_status_t operand(hal_hier_run_t *run, const piece_t *piece, const void **out) {
  const void *const send = hal_hier_at(piece->call->desc.send, piece->at * piece->wide->size);
  void *buffer = NULL;
  if (piece->wide->halves.load)
    HAL_RETURN_IF_ERROR(hal_hier_buffer(run, HAL_HIER_BUFFER_WIDE, (size_t)piece->count * piece->wide->wide, &buffer));
  *out = hal_hier_widen(piece->wide, send, piece->count, buffer);
  return HAL_OK;
}

static hal_status_t part_buffer(hal_hier_run_t *run, const piece_t *piece, uint64_t count, void **out) {
  return hal_hier_buffer(run, HAL_HIER_BUFFER_PART, (size_t)hal_hier_divided(run, count) * piece->wide->wide, out);
}

/* Reduces a piece of the host to one of its ranks. `*out_part` is NULL on the others. */
static hal_status_t reduce_host(hal_hier_run_t *run, const piece_t *piece, int32_t to, void **out_part) {
  const void *send;
  *out_part = NULL;
  HAL_RETURN_IF_ERROR(operand(run, piece, &send));
  if (run->hier->at.local == to) HAL_RETURN_IF_ERROR(part_buffer(run, piece, piece->count, out_part));
  return hal_hier_inner(run, (hal_collective_t){.op = HAL_COMM_REDUCE,
                                                .reduce = piece->wide->within,
                                                .dtype = piece->wide->dtype,
                                                .peer = to,
                                                .send = send,
                                                .recv = *out_part,
                                                .count = piece->count,
                                                .scale = piece->wide->scale});
}

static hal_status_t all_reduce_by_leaders(hal_hier_run_t *run, const piece_t *piece) {
  unsigned char *const recv = hal_hier_at(piece->call->desc.recv, piece->at * piece->wide->size);
  void *part, *result;
  HAL_RETURN_IF_ERROR(reduce_host(run, piece, 0, &part));
  if (part) {
    HAL_RETURN_IF_ERROR(hal_hier_reduce_column(run, piece->wide, part, piece->count, -1, &result));
    hal_hier_finish(run, piece->wide, result, piece->count, recv);
  }
  return hal_hier_inner(run, (hal_collective_t){.op = HAL_COMM_BROADCAST,
                                                .dtype = HAL_UINT8,
                                                .send = recv,
                                                .recv = recv,
                                                .count = piece->count * piece->wide->size});
}

static hal_status_t all_reduce_by_columns(hal_hier_run_t *run, const piece_t *piece) {
  const hal_hier_layout_t *const at = &run->hier->at;
  const hal_hier_wide_t *const wide = piece->wide;
  const uint64_t columns = (uint64_t)at->columns;
  const uint64_t share = ((piece->count + columns - 1) / columns + ALIGNED - 1) / ALIGNED * ALIGNED;
  uint64_t counts[HAL_COMM_SHM_MAX_RANKS], starts[HAL_COMM_SHM_MAX_RANKS];
  unsigned char *const recv = hal_hier_at(piece->call->desc.recv, piece->at * wide->size);
  const void *send;
  void *part, *result;
  for (int32_t local = 0; local < at->locals; local++) {
    starts[local] = (uint64_t)local * share < piece->count ? (uint64_t)local * share : piece->count;
    const uint64_t left = piece->count - starts[local];
    counts[local] = local >= at->columns ? 0 : left < share ? left : share;
  }
  const uint64_t own = counts[at->local], start = starts[at->local];
  HAL_RETURN_IF_ERROR(operand(run, piece, &send));
  HAL_RETURN_IF_ERROR(part_buffer(run, piece, own, &part));
  HAL_RETURN_IF_ERROR(hal_hier_inner(run, (hal_collective_t){.op = HAL_COMM_REDUCE_SCATTER,
                                                             .reduce = wide->within,
                                                             .dtype = wide->dtype,
                                                             .send = send,
                                                             .recv = part,
                                                             .count = own,
                                                             .send_counts = counts,
                                                             .scale = wide->scale}));
  if (own) {
    HAL_RETURN_IF_ERROR(hal_hier_reduce_column(run, wide, part, own, -1, &result));
    hal_hier_finish(run, wide, result, own, recv + start * wide->size);
  }
  for (int32_t local = 0; local < at->locals; local++) counts[local] *= wide->size, starts[local] *= wide->size;
  return hal_hier_inner(run, (hal_collective_t){.op = HAL_COMM_ALL_GATHER,
                                                .dtype = HAL_UINT8,
                                                .send = recv + starts[at->local],
                                                .recv = recv,
                                                .count = counts[at->local],
                                                .recv_counts = counts,
                                                .recv_displs = starts});
}

/* The result passes through the root's column, and within its host to the root. */
static hal_status_t reduce(hal_hier_run_t *run, const piece_t *piece) {
  const hal_hier_layout_t *const at = &run->hier->at;
  const int32_t root = piece->call->desc.peer, to = hal_hier_column(at, root), host = at->host_of[root];
  const uint64_t bytes = piece->count * piece->wide->size;
  unsigned char *const recv = hal_hier_at(piece->call->desc.recv, piece->at * piece->wide->size);
  void *part, *result = NULL, *buffer = NULL;
  HAL_RETURN_IF_ERROR(reduce_host(run, piece, to, &part));
  if (part) {
    HAL_RETURN_IF_ERROR(hal_hier_reduce_column(run, piece->wide, part, piece->count, host, &result));
    if (host == at->host && at->rank != root)
      HAL_RETURN_IF_ERROR(hal_hier_buffer(run, HAL_HIER_BUFFER_RESULT, (size_t)bytes, &buffer));
    if (host == at->host)
      hal_hier_finish(run, piece->wide, result, piece->count, at->rank == root ? (void *)recv : buffer);
  }
  if (host != at->host || to == at->local_of[root]) return HAL_OK;
  uint64_t counts[HAL_COMM_SHM_MAX_RANKS] = {0};
  counts[at->local_of[root]] = bytes;
  return hal_hier_inner(run, (hal_collective_t){.op = HAL_COMM_SCATTER,
                                                .dtype = HAL_UINT8,
                                                .peer = to,
                                                .send = at->local == to ? buffer : NULL,
                                                .recv = at->rank == root ? recv : NULL,
                                                .count = counts[at->local],
                                                .send_counts = at->local == to ? counts : NULL});
}

hal_status_t hal_hier_run_reduction(hal_hier_run_t *run, const hal_hier_call_t *call) {
  const hal_hier_wide_t wide = hal_hier_wide(call);
  const uint64_t columns = (uint64_t)run->hier->at.columns, all = call->desc.count;
  const int by_columns = call->desc.op == HAL_COMM_ALL_REDUCE && columns > 1 && all * wide.wide > SINGLE;
  const uint64_t most = (uint64_t)PIECE * (by_columns ? columns : 1) / wide.wide;
  for (uint64_t at = 0; at < all; at += most) {
    const piece_t piece = {call, &wide, at, all - at < most ? all - at : most};
    if (call->desc.op == HAL_COMM_REDUCE)
      HAL_RETURN_IF_ERROR(reduce(run, &piece));
    else
      HAL_RETURN_IF_ERROR((by_columns ? all_reduce_by_columns : all_reduce_by_leaders)(run, &piece));
  }
  return HAL_OK;
}
