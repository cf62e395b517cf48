/* exchange.c: all_to_all, gather and scatter. Blocks between ranks of one host move in one step. Other blocks take
 * three steps. Below, h counts the hosts, i the senders of a host, and j the receivers of a column:
 * within the host to the receiver's column sent by (column, h, j), arrives by (i, h, j)
 * between the hosts sent by (h, i, j), arrives by (h, i, j)
 * within the host to the receiver sent by (j, h, i), arrives by (h, i) */
#include <string.h>

#include "comm/hierarchy/wide.h"
#include "comm/shm/shm.h"

enum { LOCALS = HAL_COMM_SHM_MAX_RANKS };

static uint64_t bytes_of(const hal_hier_run_t *run, const hal_hier_call_t *call, int32_t from, int32_t to) {
  return hal_hier_gives(run->hier, call, from, to) * call->size;
}

/* Returns the bytes from a rank to the receivers of a column on a host. */
static uint64_t bytes_to(const hal_hier_run_t *run, const hal_hier_call_t *call, int32_t from, int32_t host,
                         int32_t column) {
  const hal_hier_layout_t *const at = &run->hier->at;
  uint64_t bytes = 0;
  for (int32_t local = column; local < hal_hier_locals(at, host); local += at->columns)
    bytes += bytes_of(run, call, from, hal_hier_rank(at, host, local));
  return bytes;
}

/* Returns the bytes from a rank to the receivers of a column on all other hosts. */
static uint64_t bytes_leaving(const hal_hier_run_t *run, const hal_hier_call_t *call, int32_t from, int32_t column) {
  const hal_hier_layout_t *const at = &run->hier->at;
  uint64_t bytes = 0;
  for (int32_t host = 0; host < at->hosts; host++)
    if (host != at->host_of[from]) bytes += bytes_to(run, call, from, host, column);
  return bytes;
}

/* Returns the bytes from the ranks of a host to the receivers of a column on another one. */
static uint64_t bytes_between(const hal_hier_run_t *run, const hal_hier_call_t *call, int32_t from, int32_t to,
                              int32_t column) {
  const hal_hier_layout_t *const at = &run->hier->at;
  uint64_t bytes = 0;
  if (from == to) return 0;
  for (int32_t local = 0; local < hal_hier_locals(at, from); local++)
    bytes += bytes_to(run, call, hal_hier_rank(at, from, local), to, column);
  return bytes;
}

static const unsigned char *block_to(const hal_hier_run_t *run, const hal_hier_call_t *call, int32_t to) {
  return hal_hier_at(call->desc.send, hal_hier_send_at(run->hier, call, to) * call->size);
}
static unsigned char *block_from(const hal_hier_run_t *run, const hal_hier_call_t *call, int32_t from) {
  return hal_hier_at(call->desc.recv, hal_hier_recv_at(run->hier, call, from) * call->size);
}

static unsigned char *copied(unsigned char *to, const unsigned char *from, uint64_t bytes) {
  if (bytes) memcpy(to, from, (size_t)bytes);
  return to + bytes;
}

/* ---- within the host ---- */

static hal_status_t exchange_host(hal_hier_run_t *run, const void *send, const uint64_t *sends, void *recv,
                                  const uint64_t *receives) {
  return hal_hier_inner(run, (hal_collective_t){.op = HAL_COMM_ALL_TO_ALL,
                                                .dtype = HAL_UINT8,
                                                .send = send,
                                                .recv = recv,
                                                .send_counts = sends,
                                                .recv_counts = receives});
}

static hal_status_t move_within(hal_hier_run_t *run, const hal_hier_call_t *call) {
  const hal_hier_layout_t *const at = &run->hier->at;
  uint64_t sends[LOCALS], receives[LOCALS], send_at[LOCALS], recv_at[LOCALS];
  for (int32_t local = 0; local < at->locals; local++) {
    const int32_t rank = hal_hier_rank(at, at->host, local);
    sends[local] = bytes_of(run, call, at->rank, rank);
    receives[local] = bytes_of(run, call, rank, at->rank);
    send_at[local] = hal_hier_send_at(run->hier, call, rank) * call->size;
    recv_at[local] = hal_hier_recv_at(run->hier, call, rank) * call->size;
  }
  return hal_hier_inner(run, (hal_collective_t){.op = HAL_COMM_ALL_TO_ALL,
                                                .dtype = HAL_UINT8,
                                                .send = call->desc.send,
                                                .recv = call->desc.recv,
                                                .send_counts = sends,
                                                .send_displs = send_at,
                                                .recv_counts = receives,
                                                .recv_displs = recv_at});
}

/* Sends the blocks for other hosts to the columns. `*out`: by (i, h, j); NULL: this rank has no column. */
static hal_status_t to_columns(hal_hier_run_t *run, const hal_hier_call_t *call, void **out) {
  const hal_hier_layout_t *const at = &run->hier->at;
  uint64_t sends[LOCALS] = {0}, receives[LOCALS] = {0}, all = 0, arriving = 0;
  void *packed;
  for (int32_t column = 0; column < at->columns; column++)
    all += sends[column] = bytes_leaving(run, call, at->rank, column);
  for (int32_t local = 0; at->local < at->columns && local < at->locals; local++)
    arriving += receives[local] = bytes_leaving(run, call, hal_hier_rank(at, at->host, local), at->local);
  HAL_RETURN_IF_ERROR(hal_hier_buffer(run, HAL_HIER_BUFFER_WIDE, (size_t)all, &packed));
  HAL_RETURN_IF_ERROR(hal_hier_buffer(run, HAL_HIER_BUFFER_PART, (size_t)arriving, out));
  unsigned char *to = packed;
  for (int32_t column = 0; column < at->columns; column++)
    for (int32_t host = 0; host < at->hosts; host++)
      for (int32_t local = column; host != at->host && local < hal_hier_locals(at, host); local += at->columns) {
        const int32_t rank = hal_hier_rank(at, host, local);
        to = copied(to, block_to(run, call, rank), bytes_of(run, call, at->rank, rank));
      }
  return exchange_host(run, packed, sends, *out, receives);
}

/* ---- between hosts ---- */

/* Reorders the outgoing blocks from (i, h, j) to (h, i, j). */
static void order_by_host(const hal_hier_run_t *run, const hal_hier_call_t *call, const void *from, void *to) {
  const hal_hier_layout_t *const at = &run->hier->at;
  unsigned char *out = to;
  for (int32_t host = 0; host < at->hosts; host++) {
    const unsigned char *in = from;
    for (int32_t local = 0; host != at->host && local < at->locals; local++) {
      const int32_t sender = hal_hier_rank(at, at->host, local);
      const unsigned char *block = in;
      for (int32_t before = 0; before < host; before++)
        if (before != at->host) block += bytes_to(run, call, sender, before, at->local);
      out = copied(out, block, bytes_to(run, call, sender, host, at->local));
      in += bytes_leaving(run, call, sender, at->local);
    }
  }
}

/* Exchanges with the other hosts of the column. `*out`: by (h, i, j). */
static hal_status_t between_hosts(hal_hier_run_t *run, const hal_hier_call_t *call, const void *leaving, void **out) {
  const hal_hier_layout_t *const at = &run->hier->at;
  uint64_t all = 0, arriving = 0, in_column = 0;
  void *ordered, *arrays;
  HAL_RETURN_IF_ERROR(hal_hier_buffer(run, HAL_HIER_BUFFER_ALL, 2 * (size_t)at->hosts * sizeof(uint64_t), &arrays));
  uint64_t *const sends = arrays, *const receives = sends + at->hosts;
  for (int32_t host = 0; host < at->hosts; host++) {
    all += sends[host] = bytes_between(run, call, at->host, host, at->local);
    arriving += receives[host] = bytes_between(run, call, host, at->host, at->local);
    for (int32_t other = 0; other < at->hosts; other++) in_column += bytes_between(run, call, host, other, at->local);
  }
  HAL_RETURN_IF_ERROR(hal_hier_buffer(run, HAL_HIER_BUFFER_WIDE, (size_t)all, &ordered));
  HAL_RETURN_IF_ERROR(hal_hier_buffer(run, HAL_HIER_BUFFER_TAKEN, (size_t)arriving, out));
  if (!in_column) return HAL_OK; /* all hosts know this */
  order_by_host(run, call, leaving, ordered);
  return hal_hier_outer(
      run,
      (hal_collective_t){
          .op = HAL_COMM_ALL_TO_ALL, .send = ordered, .recv = *out, .send_counts = sends, .recv_counts = receives});
}

/* ---- to the receivers ---- */

/* Reorders the received blocks from (h, i, j) to (j, h, i). */
static void order_by_receiver(const hal_hier_run_t *run, const hal_hier_call_t *call, const void *from, void *to) {
  const hal_hier_layout_t *const at = &run->hier->at;
  unsigned char *out = to;
  for (int32_t receiver = at->local; receiver < at->locals; receiver += at->columns) {
    const unsigned char *in = from;
    for (int32_t host = 0; host < at->hosts; host++)
      for (int32_t local = 0; host != at->host && local < hal_hier_locals(at, host); local++) {
        const int32_t sender = hal_hier_rank(at, host, local);
        const unsigned char *block = in;
        for (int32_t before = at->local; before < receiver; before += at->columns)
          block += bytes_of(run, call, sender, hal_hier_rank(at, at->host, before));
        out = copied(out, block, bytes_of(run, call, sender, hal_hier_rank(at, at->host, receiver)));
        in += bytes_to(run, call, sender, at->host, at->local);
      }
  }
}

/* Returns the bytes that a rank of this host receives from others. */
static uint64_t bytes_arriving(const hal_hier_run_t *run, const hal_hier_call_t *call, int32_t to) {
  const hal_hier_layout_t *const at = &run->hier->at;
  uint64_t bytes = 0;
  for (int32_t from = 0; from < at->size; from++)
    if (at->host_of[from] != at->host) bytes += bytes_of(run, call, from, to);
  return bytes;
}

static void unpack(const hal_hier_run_t *run, const hal_hier_call_t *call, const void *arrived) {
  const hal_hier_layout_t *const at = &run->hier->at;
  const unsigned char *from = arrived;
  for (int32_t host = 0; host < at->hosts; host++)
    for (int32_t local = 0; host != at->host && local < hal_hier_locals(at, host); local++) {
      const int32_t rank = hal_hier_rank(at, host, local);
      const uint64_t bytes = bytes_of(run, call, rank, at->rank);
      copied(block_from(run, call, rank), from, bytes);
      from += bytes;
    }
}

static hal_status_t to_receivers(hal_hier_run_t *run, const hal_hier_call_t *call, const void *arrived) {
  const hal_hier_layout_t *const at = &run->hier->at;
  uint64_t sends[LOCALS] = {0}, receives[LOCALS] = {0}, all = 0;
  void *ordered, *own;
  if (at->locals == at->columns) {
    unpack(run, call, arrived);
    return HAL_OK;
  }
  for (int32_t local = at->local; at->local < at->columns && local < at->locals; local += at->columns)
    all += sends[local] = bytes_arriving(run, call, hal_hier_rank(at, at->host, local));
  const uint64_t arriving = receives[at->local % at->columns] = bytes_arriving(run, call, at->rank);
  HAL_RETURN_IF_ERROR(hal_hier_buffer(run, HAL_HIER_BUFFER_WIDE, (size_t)all, &ordered));
  HAL_RETURN_IF_ERROR(hal_hier_buffer(run, HAL_HIER_BUFFER_RESULT, (size_t)arriving, &own));
  if (at->local < at->columns) order_by_receiver(run, call, arrived, ordered);
  HAL_RETURN_IF_ERROR(exchange_host(run, ordered, sends, own, receives));
  unpack(run, call, own);
  return HAL_OK;
}

hal_status_t hal_hier_run_exchange(hal_hier_run_t *run, const hal_hier_call_t *call) {
  void *leaving, *arrived = NULL;
  HAL_RETURN_IF_ERROR(move_within(run, call));
  HAL_RETURN_IF_ERROR(to_columns(run, call, &leaving));
  if (run->hier->at.local < run->hier->at.columns) HAL_RETURN_IF_ERROR(between_hosts(run, call, leaving, &arrived));
  return to_receivers(run, call, arrived);
}
