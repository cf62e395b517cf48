/* comm_transfer.c: jobs. A job consists of the calls of one comm_submit and runs as a host function of a stream. All
 * its transfers progress together, those of one pair of ranks and one direction in their order, except for messages
 * with different tags (comm_message.c). It ends when all are done, or when their communicator has failed or was
 * aborted. */
#include <sched.h>
#include <stdio.h>

#include "comm.h"

enum { SPINS = 100 };

int comm_reduces(uint32_t op) {
  return op == HAL_COMM_ALL_REDUCE || op == HAL_COMM_REDUCE || op == HAL_COMM_REDUCE_SCATTER;
}

/* ---- the plan ---- */

typedef struct blocks_s { /* one for each rank */
  uint8_t *base;
  const uint64_t *counts, *displs;
  uint64_t count; /* if there are no counts */
} blocks_t;

static uint64_t count_at(const blocks_t *blocks, int rank) {
  return blocks->counts ? blocks->counts[rank] : blocks->count;
}

static uint64_t place_of(const blocks_t *blocks, int rank) {
  uint64_t place = 0;
  if (blocks->displs) return blocks->displs[rank];
  for (int i = 0; i < rank; i++) place += count_at(blocks, i);
  return place;
}

static void add(comm_job_t *job, comm_work_t *work, int peer, int sends, uint8_t *bytes, uint64_t count, size_t size) {
  if (!count) return;
  job->transfers[job->transfer_count++] =
      (comm_transfer_t){.work = work, .peer = peer, .sends = sends, .bytes = bytes, .size = (size_t)count * size};
}

/* One block to or from each of the ranks first ... last - 1. */
static void add_blocks(comm_job_t *job, comm_work_t *work, int sends, const blocks_t *blocks, int first, int last) {
  const size_t size = comm_dtype_size(work->call.dtype);
  for (int i = first; i < last; i++)
    add(job, work, i, sends, blocks->base + place_of(blocks, i) * size, count_at(blocks, i), size);
}

/* The same bytes to the ranks first ... last - 1. */
static void add_same(comm_job_t *job, comm_work_t *work, int sends, uint8_t *bytes, int first, int last) {
  for (int i = first; i < last; i++)
    add(job, work, i, sends, bytes, work->call.count, comm_dtype_size(work->call.dtype));
}

static void plan_work(comm_job_t *job, comm_work_t *work) {
  const hal_collective_t *const call = &work->call;
  const int size = work->comm->size, root = call->peer, is_root = root == work->comm->rank;
  uint8_t *const send = (uint8_t *)call->send, *const recv = call->recv;
  const blocks_t out = {send, call->send_counts, call->send_displs, call->count},
                 in = {recv, call->recv_counts, call->recv_displs, call->count},
                 operands = {work->scratch, NULL, NULL, call->count};
  switch (call->op) {
    case HAL_COMM_ALL_REDUCE:
      add_same(job, work, 1, send, 0, size), add_blocks(job, work, 0, &operands, 0, size);
      break;
    case HAL_COMM_REDUCE:
      add_same(job, work, 1, send, root, root + 1);
      if (is_root) add_blocks(job, work, 0, &operands, 0, size);
      break;
    case HAL_COMM_REDUCE_SCATTER:
      add_blocks(job, work, 1, &out, 0, size), add_blocks(job, work, 0, &operands, 0, size);
      break;
    case HAL_COMM_BROADCAST: /* the root may have no memory to receive in */
      for (int i = 0; is_root && i < size; i++)
        if (i != root || recv) add_same(job, work, 1, send, i, i + 1);
      if (!is_root || recv) add_same(job, work, 0, recv, root, root + 1);
      break;
    case HAL_COMM_ALL_GATHER:
      add_same(job, work, 1, send, 0, size), add_blocks(job, work, 0, &in, 0, size);
      break;
    case HAL_COMM_ALL_TO_ALL:
      add_blocks(job, work, 1, &out, 0, size), add_blocks(job, work, 0, &in, 0, size);
      break;
    case HAL_COMM_GATHER:
      add_same(job, work, 1, send, root, root + 1);
      if (is_root) add_blocks(job, work, 0, &in, 0, size);
      break;
    case HAL_COMM_SCATTER:
      if (is_root) add_blocks(job, work, 1, &out, 0, size);
      add_same(job, work, 0, recv, root, root + 1);
      break;
    case HAL_COMM_BARRIER: /* a byte to and from each rank */
      for (int i = 0; i < size; i++) add(job, work, i, 1, &work->token, 1, 1), add(job, work, i, 0, &work->token, 1, 1);
      break;
    default:
      add_same(job, work, call->op == HAL_COMM_SEND, call->op == HAL_COMM_SEND ? send : recv, root, root + 1);
  }
}

hal_status_t comm_job_plan(comm_job_t *job) {
  job->transfers = calloc(job->count * 2 * COMM_RANKS, sizeof *job->transfers);
  if (!job->transfers) return comm_refuse(HAL_RESOURCE_EXHAUSTED, "whole: no memory for %zu collectives", job->count);
  for (size_t i = 0; i < job->count; i++) {
    comm_work_t *const work = &job->works[i];
    const size_t bytes = (size_t)work->call.count * comm_dtype_size(work->call.dtype) * (size_t)work->comm->size;
    if (comm_reduces(work->call.op) && bytes && !(work->scratch = malloc(bytes)))
      return comm_refuse(HAL_RESOURCE_EXHAUSTED, "whole: no memory for a reduction of %zu bytes", bytes);
    plan_work(job, work);
  }
  return HAL_OK;
}

void comm_job_free(comm_job_t *job) {
  for (size_t i = 0; i < job->count; i++) free(job->works[i].scratch), free(job->works[i].arrays);
  free(job->transfers);
  free(job);
}

/* ---- the run ---- */

static int is_over(hal_plugin_comm_t *comm) { return atomic_load(&comm->state) != (int)HAL_COMM_READY; }

/* Returns the bytes that moved. */
static size_t move(comm_job_t *job, comm_transfer_t *transfer, int is_message) {
  hal_plugin_comm_t *const comm = transfer->work->comm;
  comm_ring_t *const ring = transfer->sends ? &comm->room->rings[is_message][comm->rank][transfer->peer]
                                            : &comm->room->rings[is_message][transfer->peer][comm->rank];
  if (is_message) return transfer->sends ? comm_message_send(ring, transfer) : comm_message_receive(job, transfer);
  const size_t moved =
      comm_pass(ring, transfer->sends, transfer->bytes + transfer->done, transfer->size - transfer->done);
  transfer->done += moved;
  return moved;
}

/* A rank that has destroyed its communicator sends nothing more: check once more for the bytes that it sent before. */
static void check_left(comm_transfer_t *transfer) {
  hal_plugin_comm_t *const comm = transfer->work->comm;
  char text[COMM_TEXT];
  if (!atomic_load(&comm->room->ranks[transfer->peer].left)) return;
  snprintf(text, sizeof text, "rank %d has destroyed the communicator", transfer->peer);
  if (transfer->was_left) comm_fail(comm, HAL_UNAVAILABLE, transfer->peer, text);
  transfer->was_left = 1;
}

/* Returns the bytes that moved; `*out_left` is the number of transfers that are not done. */
static size_t progress(comm_job_t *job, size_t *out_left) {
  size_t moved = 0;
  *out_left = 0;
  for (size_t i = 0; i < job->count; i++) memset(job->works[i].comm->busy, 0, sizeof job->works[i].comm->busy);
  for (size_t i = 0; i < job->transfer_count; i++) {
    comm_transfer_t *const transfer = &job->transfers[i];
    hal_plugin_comm_t *const comm = transfer->work->comm;
    const int op = (int)transfer->work->call.op, is_message = op == HAL_COMM_SEND || op == HAL_COMM_RECV;
    unsigned *const busy = &comm->busy[is_message][transfer->sends];
    if (transfer->done == transfer->size || is_over(comm)) continue;
    ++*out_left;
    if (*busy >> transfer->peer & 1) continue;
    const size_t now = move(job, transfer, is_message);
    moved += now;
    if (!now) check_left(transfer);
    if (transfer->done < transfer->size) *busy |= 1U << transfer->peer;
  }
  return moved;
}

static void reduce(comm_work_t *work) {
  const hal_collective_t *const call = &work->call;
  const int on_device = call->flags & HAL_COLLECTIVE_SCALE_ON_DEVICE;
  if (!comm_reduces(call->op) || (call->op == HAL_COMM_REDUCE && call->peer != work->comm->rank)) return;
  comm_reduce(call, work->scratch, work->comm->size, (size_t)call->count, on_device ? call->scale : work->scale);
}

static void end_work(comm_job_t *job, comm_work_t *work) {
  hal_plugin_comm_t *const comm = work->comm;
  if (!is_over(comm)) {
    reduce(work);
    atomic_fetch_add(&comm->done, 1);
  } else if (job->out_status) {
    *job->out_status = HAL_ABORTED;
  } else {
    whole_stream_failed(comm->device, work->stream, HAL_ABORTED, comm->message);
  }
}

void comm_job_run(void *data) {
  comm_job_t *const job = data;
  size_t left = 0;
  for (size_t i = 0; i < job->count; i++) atomic_fetch_add(&job->works[i].comm->started, 1);
  for (size_t i = 0; i < job->transfer_count; i++) {
    comm_transfer_t *const one = &job->transfers[i];
    one->done = one->head_done = 0, one->was_left = one->begun = 0;
  }
  for (int idle = 0;;) {
    const size_t moved = progress(job, &left);
    if (!left) break;
    idle = moved ? 0 : idle + 1;
    if (moved) continue;
    if (idle < SPINS) {
      sched_yield();
      continue;
    }
    comm_nap();
    for (size_t i = 0; i < job->count; i++) comm_look(job->works[i].comm);
  }
  for (size_t i = 0; i < job->count; i++) end_work(job, &job->works[i]);
  if (job->captured) return; /* it may run again */
  for (size_t i = 0; i < job->count; i++) {
    hal_plugin_comm_t *const comm = job->works[i].comm;
    atomic_fetch_sub(&comm->jobs, 1);
    comm_drop(comm);
  }
  comm_job_free(job);
}
