/* copy.c: broadcast and all_gather. */
#include <string.h>

#include "comm/hierarchy/wide.h"
#include "comm/shm/shm.h"

enum {
  BROADCAST = 2 * 1024 * 1024, /* bytes of a piece: a host forwards one piece while the next one arrives */
  GATHER = 16 * 1024 * 1024,   /* bytes of all blocks in a piece */
};

/* ---- broadcast: within the root's host, to the other hosts by the root's column, within those ---- */

static hal_status_t broadcast_host(hal_hier_run_t *run, int32_t from, void *data, uint64_t bytes) {
  return hal_hier_inner(
      run, (hal_collective_t){
               .op = HAL_COMM_BROADCAST, .dtype = HAL_UINT8, .peer = from, .send = data, .recv = data, .count = bytes});
}

static hal_status_t broadcast_piece(hal_hier_run_t *run, int32_t root, void *data, uint64_t bytes) {
  const hal_hier_layout_t *const at = &run->hier->at;
  const int32_t host = at->host_of[root], gate = hal_hier_column(at, root);
  if (host == at->host) HAL_RETURN_IF_ERROR(broadcast_host(run, at->local_of[root], data, bytes));
  if (at->local == gate)
    HAL_RETURN_IF_ERROR(hal_hier_outer(
        run, (hal_collective_t){.op = HAL_COMM_BROADCAST, .peer = host, .send = data, .recv = data, .count = bytes}));
  return host == at->host ? HAL_OK : broadcast_host(run, gate, data, bytes);
}

hal_status_t hal_hier_run_broadcast(hal_hier_run_t *run, const hal_hier_call_t *call) {
  const hal_collective_t *const desc = &call->desc;
  const uint64_t bytes = desc->count * call->size;
  const int is_root = desc->peer == run->hier->at.rank;
  unsigned char *const data =
      is_root ? (unsigned char *)(uintptr_t)desc->send : desc->recv; /* the root's buffer is only read */
  for (uint64_t at = 0; at < bytes; at += BROADCAST)
    HAL_RETURN_IF_ERROR(
        broadcast_piece(run, desc->peer, data + at, bytes - at < BROADCAST ? bytes - at : (uint64_t)BROADCAST));
  if (is_root && bytes && desc->recv && desc->recv != desc->send) memcpy(desc->recv, desc->send, (size_t)bytes);
  return HAL_OK;
}

/* ---- all_gather: to the columns, between hosts, within the host ---- */

static uint64_t part_of_column(const hal_hier_run_t *run, const hal_hier_piece_t *piece, int32_t column) {
  uint64_t bytes = 0;
  for (int32_t host = 0; host < run->hier->at.hosts; host++) bytes += hal_hier_piece_of_host(run, piece, host, column);
  return bytes;
}

/* Collects the parts of this column's ranks on this host. */
static hal_status_t to_column(hal_hier_run_t *run, const hal_hier_piece_t *piece, const void **out) {
  const hal_hier_layout_t *const at = &run->hier->at;
  const unsigned char *const own = hal_hier_at(piece->call->desc.send, piece->at);
  uint64_t sends[HAL_COMM_SHM_MAX_RANKS] = {0}, receives[HAL_COMM_SHM_MAX_RANKS] = {0}, all = 0;
  void *buffer;
  *out = own;
  if (at->locals == at->columns) return HAL_OK;
  sends[at->local % at->columns] = hal_hier_piece_of(run, piece, at->rank);
  for (int32_t local = at->local; at->local < at->columns && local < at->locals; local += at->columns)
    all += receives[local] = hal_hier_piece_of(run, piece, hal_hier_rank(at, at->host, local));
  HAL_RETURN_IF_ERROR(hal_hier_buffer(run, HAL_HIER_BUFFER_WIDE, (size_t)all, &buffer));
  *out = buffer;
  return hal_hier_inner(run, (hal_collective_t){.op = HAL_COMM_ALL_TO_ALL,
                                                .dtype = HAL_UINT8,
                                                .send = own,
                                                .recv = buffer,
                                                .send_counts = sends,
                                                .recv_counts = receives});
}

static hal_status_t between_hosts(hal_hier_run_t *run, const hal_hier_piece_t *piece, const void *send, uint64_t bytes,
                                  void **out) {
  const hal_hier_layout_t *const at = &run->hier->at;
  void *arrays;
  HAL_RETURN_IF_ERROR(hal_hier_buffer(run, HAL_HIER_BUFFER_PART, (size_t)bytes, out));
  if (!bytes) return HAL_OK;
  HAL_RETURN_IF_ERROR(hal_hier_buffer(run, HAL_HIER_BUFFER_ALL, (size_t)at->hosts * sizeof(uint64_t), &arrays));
  uint64_t *const receives = arrays;
  int is_even = 1;
  for (int32_t host = 0; host < at->hosts; host++) {
    receives[host] = hal_hier_piece_of_host(run, piece, host, at->local);
    is_even &= receives[host] == receives[0];
  }
  return hal_hier_outer(run, (hal_collective_t){.op = HAL_COMM_ALL_GATHER,
                                                .send = send,
                                                .recv = *out,
                                                .count = receives[at->host],
                                                .recv_counts = is_even ? NULL : receives});
}

/* Copies the parts, which are in the order of columns, hosts and ranks, to the caller's buffer. */
static void unpack(const hal_hier_run_t *run, const hal_hier_piece_t *piece, const void *gathered) {
  const hal_hier_layout_t *const at = &run->hier->at;
  const unsigned char *from = gathered;
  for (int32_t column = 0; column < at->columns; column++)
    for (int32_t host = 0; host < at->hosts; host++)
      for (int32_t local = column; local < hal_hier_locals(at, host); local += at->columns) {
        const int32_t rank = hal_hier_rank(at, host, local);
        const uint64_t bytes = hal_hier_piece_of(run, piece, rank);
        unsigned char *const to = (unsigned char *)piece->call->desc.recv +
                                  hal_hier_recv_at(run->hier, piece->call, rank) * piece->call->size + piece->at;
        if (bytes) memcpy(to, from, (size_t)bytes);
        from += bytes;
      }
}

static hal_status_t gather_piece(hal_hier_run_t *run, const hal_hier_piece_t *piece) {
  const hal_hier_layout_t *const at = &run->hier->at;
  uint64_t counts[HAL_COMM_SHM_MAX_RANKS] = {0}, all = 0;
  const void *send;
  void *part = NULL, *gathered;
  for (int32_t column = 0; column < at->columns; column++) all += counts[column] = part_of_column(run, piece, column);
  HAL_RETURN_IF_ERROR(to_column(run, piece, &send));
  if (at->local < at->columns) HAL_RETURN_IF_ERROR(between_hosts(run, piece, send, counts[at->local], &part));
  HAL_RETURN_IF_ERROR(hal_hier_buffer(run, HAL_HIER_BUFFER_TAKEN, (size_t)all, &gathered));
  HAL_RETURN_IF_ERROR(hal_hier_inner(run, (hal_collective_t){.op = HAL_COMM_ALL_GATHER,
                                                             .dtype = HAL_UINT8,
                                                             .send = part,
                                                             .recv = gathered,
                                                             .count = counts[at->local],
                                                             .recv_counts = counts}));
  unpack(run, piece, gathered);
  return HAL_OK;
}

hal_status_t hal_hier_run_all_gather(hal_hier_run_t *run, const hal_hier_call_t *call) {
  hal_hier_piece_t piece = hal_hier_piece_first(run, call, -1, call->size, GATHER);
  for (; hal_hier_piece_is_any(run, &piece); piece.at += piece.most) HAL_RETURN_IF_ERROR(gather_piece(run, &piece));
  return HAL_OK;
}
