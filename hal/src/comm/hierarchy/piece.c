/* piece.c: a part of every block. */
#include "comm/hierarchy/internal.h"

static uint64_t block_of(const hal_hier_run_t *run, const hal_hier_piece_t *piece, int32_t rank) {
  return hal_hier_gives(run->hier, piece->call, piece->from < 0 ? rank : piece->from, rank) * piece->unit;
}

hal_hier_piece_t hal_hier_piece_first(const hal_hier_run_t *run, const hal_hier_call_t *call, int32_t from,
                                      uint64_t unit, uint64_t capacity) {
  const uint64_t most = capacity / (uint64_t)run->hier->at.size;
  return (hal_hier_piece_t){.call = call, .from = from, .unit = unit, .most = most ? most : 1};
}

int hal_hier_piece_is_any(const hal_hier_run_t *run, const hal_hier_piece_t *piece) {
  for (int32_t rank = 0; rank < run->hier->at.size; rank++)
    if (block_of(run, piece, rank) > piece->at) return 1;
  return 0;
}

uint64_t hal_hier_piece_of(const hal_hier_run_t *run, const hal_hier_piece_t *piece, int32_t rank) {
  const uint64_t all = block_of(run, piece, rank);
  if (all <= piece->at) return 0;
  return all - piece->at < piece->most ? all - piece->at : piece->most;
}

uint64_t hal_hier_piece_of_host(const hal_hier_run_t *run, const hal_hier_piece_t *piece, int32_t host,
                                int32_t column) {
  const hal_hier_layout_t *const at = &run->hier->at;
  uint64_t units = 0;
  for (int32_t local = column; local < hal_hier_locals(at, host); local += at->columns)
    units += hal_hier_piece_of(run, piece, hal_hier_rank(at, host, local));
  return units;
}
