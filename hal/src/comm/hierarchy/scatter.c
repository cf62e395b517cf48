/* scatter.c: reduce_scatter. Each column reduces the blocks of its ranks, first within the host, then between hosts,
 * where each host receives the blocks of its own ranks. Finally the columns send results to the ranks without a column.
 * The work is divided into pieces of every block, so that intermediate results need a bounded amount of memory. */
#include <string.h>

#include "comm/hierarchy/wide.h"
#include "comm/shm/shm.h"

enum { PIECE = 8 * 1024 * 1024 /* bytes of all blocks in a piece */ };

/* A piece, and how it is reduced. */
typedef struct part_s {
  hal_hier_piece_t piece;
  const hal_hier_wide_t *wide;
} part_t;

/* Copies the operands by column, host and rank. Fills in the elements of each column; locals without a column get 0. */
static hal_status_t pack(hal_hier_run_t *run, const part_t *of, uint64_t *counts, void **out) {
  const hal_hier_layout_t *const at = &run->hier->at;
  const hal_hier_wide_t *const wide = of->wide;
  uint64_t all = 0;
  for (int32_t rank = 0; rank < at->size; rank++) all += hal_hier_piece_of(run, &of->piece, rank);
  HAL_RETURN_IF_ERROR(hal_hier_buffer(run, HAL_HIER_BUFFER_WIDE, (size_t)all * wide->wide, out));
  unsigned char *to = *out;
  for (int32_t column = 0; column < at->locals; column++) {
    counts[column] = 0;
    for (int32_t host = 0; host < at->hosts && column < at->columns; host++)
      for (int32_t local = column; local < hal_hier_locals(at, host); local += at->columns) {
        const int32_t rank = hal_hier_rank(at, host, local);
        const uint64_t count = hal_hier_piece_of(run, &of->piece, rank);
        const void *const from = hal_hier_at(
            of->piece.call->desc.send, (hal_hier_send_at(run->hier, of->piece.call, rank) + of->piece.at) * wide->size);
        if (count && hal_hier_widen(wide, from, count, to) == from) memcpy(to, from, (size_t)count * wide->wide);
        to += count * wide->wide;
        counts[column] += count;
      }
  }
  return HAL_OK;
}

/* Exchanges the parts of the hosts, and reduces the parts of this host. */
static hal_status_t reduce_hosts(hal_hier_run_t *run, const part_t *of, void *part, uint64_t count, void *out) {
  const hal_hier_layout_t *const at = &run->hier->at;
  const size_t wide = of->wide->wide;
  const uint64_t own = hal_hier_piece_of_host(run, &of->piece, at->host, at->local);
  void *taken, *arrays;
  if (!count) return HAL_OK; /* the same on all hosts */
  HAL_RETURN_IF_ERROR(hal_hier_buffer(run, HAL_HIER_BUFFER_TAKEN, (size_t)own * wide * (size_t)at->hosts, &taken));
  HAL_RETURN_IF_ERROR(hal_hier_buffer(run, HAL_HIER_BUFFER_ALL, 2 * (size_t)at->hosts * sizeof(uint64_t), &arrays));
  uint64_t *const sends = arrays, *const receives = sends + at->hosts;
  for (int32_t host = 0; host < at->hosts; host++) {
    sends[host] = hal_hier_piece_of_host(run, &of->piece, host, at->local) * wide;
    receives[host] = own * wide;
  }
  HAL_RETURN_IF_ERROR(hal_hier_outer(
      run, (hal_collective_t){
               .op = HAL_COMM_ALL_TO_ALL, .send = part, .recv = taken, .send_counts = sends, .recv_counts = receives}));
  hal_hier_reduce_hosts(run, of->wide, taken, own, part);
  hal_hier_finish(run, of->wide, part, own, out);
  return HAL_OK;
}

/* Sends results to the ranks without a column. */
static hal_status_t deliver(hal_hier_run_t *run, const part_t *of, const void *results, void *recv) {
  const hal_hier_layout_t *const at = &run->hier->at;
  uint64_t sends[HAL_COMM_SHM_MAX_RANKS] = {0}, receives[HAL_COMM_SHM_MAX_RANKS] = {0};
  for (int32_t local = at->local; at->local < at->columns && local < at->locals; local += at->columns)
    sends[local] = hal_hier_piece_of(run, &of->piece, hal_hier_rank(at, at->host, local)) * of->wide->size;
  receives[at->local % at->columns] = hal_hier_piece_of(run, &of->piece, at->rank) * of->wide->size;
  return hal_hier_inner(run, (hal_collective_t){.op = HAL_COMM_ALL_TO_ALL,
                                                .dtype = HAL_UINT8,
                                                .send = results,
                                                .recv = recv,
                                                .send_counts = sends,
                                                .recv_counts = receives});
}

static hal_status_t run_piece(hal_hier_run_t *run, const part_t *of) {
  const hal_hier_layout_t *const at = &run->hier->at;
  const hal_hier_wide_t *const wide = of->wide;
  unsigned char *const recv = hal_hier_at(of->piece.call->desc.recv, of->piece.at * wide->size);
  uint64_t counts[HAL_COMM_SHM_MAX_RANKS];
  void *packed, *part, *results = recv;
  const int delivers = at->locals > at->columns;
  HAL_RETURN_IF_ERROR(pack(run, of, counts, &packed));
  const uint64_t own = counts[at->local];
  HAL_RETURN_IF_ERROR(hal_hier_buffer(run, HAL_HIER_BUFFER_PART, (size_t)own * wide->wide, &part));
  if (delivers) HAL_RETURN_IF_ERROR(hal_hier_buffer(run, HAL_HIER_BUFFER_RESULT, (size_t)own * wide->size, &results));
  HAL_RETURN_IF_ERROR(hal_hier_inner(run, (hal_collective_t){.op = HAL_COMM_REDUCE_SCATTER,
                                                             .reduce = wide->within,
                                                             .dtype = wide->dtype,
                                                             .send = packed,
                                                             .recv = part,
                                                             .count = own,
                                                             .send_counts = counts,
                                                             .scale = wide->scale}));
  if (at->local < at->columns) HAL_RETURN_IF_ERROR(reduce_hosts(run, of, part, own, results));
  return delivers ? deliver(run, of, results, recv) : HAL_OK;
}

hal_status_t hal_hier_run_reduce_scatter(hal_hier_run_t *run, const hal_hier_call_t *call) {
  const hal_hier_wide_t wide = hal_hier_wide(call);
  part_t of = {hal_hier_piece_first(run, call, run->hier->at.rank, 1, (uint64_t)PIECE / wide.wide), &wide};
  for (; hal_hier_piece_is_any(run, &of.piece); of.piece.at += of.piece.most) HAL_RETURN_IF_ERROR(run_piece(run, &of));
  return HAL_OK;
}
