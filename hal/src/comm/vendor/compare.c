/* compare.c: compares the SEND and RECV of a bracket before the library gets them (HAL_COMM_COMPARE_CALLS). The
 * transport compares the other collectives (agree.c). Messages concern two ranks, which may be the only ones that call
 * the bracket, and other threads may use the transport's messages meanwhile. So the library exchanges what each rank
 * calls for each other one, and the host compares it. Both ranks of a pair find a mismatch. */
#include <string.h>

#include "base/dtype.h"
#include "base/host_malloc.h"
#include "base/status_internal.h"
#include "comm/vendor/vendor.h"
#include "hal/host_memory.h"
#include "hal/memory.h"
#include "hal/status.h"

enum { SHOWN = 4 }; /* messages of each direction that an error can name */

typedef struct message_s {
  uint64_t count;
  uint32_t dtype, tag;
} message_t;

/* The messages of one direction between two ranks. */
typedef struct messages_s {
  uint64_t count, fingerprint;
  message_t first[SHOWN];
} messages_t;

/* What a rank sends to another one. */
typedef struct record_s {
  messages_t sends, recvs;
} record_t;

typedef struct compare_s {
  hal_comm_job_t *job;
  const hal_collective_t *calls; /* of the job */
  int32_t *peers;                /* ranks with messages */
  uint32_t peer_count;
  record_t *own, *other; /* page-locked, for each peer */
  hal_block_t *block;    /* the same on the device */
  hal_collective_t *exchange;
} compare_t;

/* ---- records ---- */

static uint64_t mixed(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * UINT64_C(0x9E3779B97F4A7C15);
  return hash ^ (hash >> 29);
}

/* Adds call `index`. Messages of one tag are matched in their order, those of different tags in any order. */
static void add(const compare_t *compare, uint32_t index, messages_t *messages) {
  const hal_collective_t *const call = &compare->calls[index];
  uint64_t before = 0; /* of the same tag */
  for (uint32_t i = 0; i < index; i++) {
    const hal_collective_t *const one = &compare->calls[i];
    before += one->op == call->op && one->peer == call->peer && one->tag == call->tag;
  }
  if (messages->count < SHOWN)
    messages->first[messages->count] = (message_t){call->count, (uint32_t)call->dtype, call->tag};
  messages->count++;
  messages->fingerprint += mixed(mixed(mixed(before + 1, call->tag), (uint64_t)call->dtype + 1), call->count);
}

static record_t record_of(const compare_t *compare, int32_t peer) {
  record_t record = {.sends = {0}};
  for (uint32_t i = 0; i < compare->job->count; i++) {
    const hal_collective_t *const call = &compare->calls[i];
    if (!hal_comm_op_is_message(call->op) || call->peer != peer) continue;
    add(compare, i, call->op == HAL_COMM_SEND ? &record.sends : &record.recvs);
  }
  return record;
}

static int are_alike(const messages_t *sends, const messages_t *recvs) {
  return sends->count == recvs->count && sends->fingerprint == recvs->fingerprint;
}

static int is_alike(const compare_t *compare, uint32_t i) {
  return are_alike(&compare->own[i].sends, &compare->other[i].recvs) &&
         are_alike(&compare->other[i].sends, &compare->own[i].recvs);
}

/* ---- errors ---- */

static hal_status_t differ(int32_t from, int32_t to, const messages_t *sends, const messages_t *recvs) {
  if (sends->count != recvs->count)
    return hal_error_set(HAL_INVALID_ARGUMENT,
                         "the messages do not match: rank %d sends %llu messages to rank %d in a call, which receives "
                         "%llu of them",
                         from, (unsigned long long)sends->count, to, (unsigned long long)recvs->count);
  for (uint64_t i = 0; i < sends->count && i < SHOWN; i++) {
    const message_t *const send = &sends->first[i], *const recv = &recvs->first[i];
    if (send->dtype == recv->dtype && send->count == recv->count && send->tag == recv->tag) continue;
    return hal_error_set(
        HAL_INVALID_ARGUMENT,
        "the messages do not match: rank %d sends (%s, %llu elements, tag %u) to rank %d, which receives "
        "(%s, %llu elements, tag %u)",
        from, hal_dtype_name((hal_dtype_t)send->dtype), (unsigned long long)send->count, send->tag, to,
        hal_dtype_name((hal_dtype_t)recv->dtype), (unsigned long long)recv->count, recv->tag);
  }
  return hal_error_set(HAL_INVALID_ARGUMENT,
                       "the messages do not match: rank %d sends %llu messages to rank %d in a call, which receives "
                       "other types, tags or numbers of elements after the first %d",
                       from, (unsigned long long)sends->count, to, SHOWN);
}

/* Both ranks of a pair report the same message. */
static hal_status_t check(const compare_t *compare) {
  const int32_t rank = compare->job->work->comm->rank;
  for (uint32_t i = 0; i < compare->peer_count; i++) {
    const record_t *const own = &compare->own[i], *const other = &compare->other[i];
    const int32_t peer = compare->peers[i];
    const record_t *const low = rank < peer ? own : other, *const high = rank < peer ? other : own;
    const int32_t first = rank < peer ? rank : peer, second = rank < peer ? peer : rank;
    if (!are_alike(&low->sends, &high->recvs)) return differ(first, second, &low->sends, &high->recvs);
    if (!are_alike(&high->sends, &low->recvs)) return differ(second, first, &high->sends, &low->recvs);
  }
  return HAL_OK;
}

/* ---- exchange ---- */

static hal_collective_t bytes_of(uint32_t op, int32_t peer, record_t *record) {
  return (hal_collective_t){.struct_size = sizeof(hal_collective_t),
                            .op = op,
                            .dtype = HAL_UINT8,
                            .peer = peer,
                            .send = op == HAL_COMM_SEND ? record : NULL,
                            .recv = op == HAL_COMM_RECV ? record : NULL,
                            .count = sizeof *record};
}

/* Exchanges the records with the peers, if `again` only with those whose messages differ. */
static hal_status_t exchange(const compare_t *compare, int again, int64_t timeout_ns) {
  hal_comm_t *const comm = compare->job->work->comm;
  const size_t bytes = compare->peer_count * sizeof(record_t);
  record_t *const sent = hal_memory_block_address(compare->block), *const received = sent + compare->peer_count;
  uint32_t count = 0;
  HAL_RETURN_IF_ERROR(hal_memory_copy(comm->out, sent, comm->device, compare->own, HAL_HOST, bytes));
  for (uint32_t i = 0; i < compare->peer_count; i++) {
    if (again && is_alike(compare, i)) continue;
    compare->exchange[count++] = bytes_of(HAL_COMM_SEND, compare->peers[i], &sent[i]);
    compare->exchange[count++] = bytes_of(HAL_COMM_RECV, compare->peers[i], &received[i]);
  }
  HAL_RETURN_IF_ERROR(hal_comm_vendor_submit(comm->vendor, compare->exchange, count));
  if (!again) HAL_RETURN_IF_ERROR(hal_memory_copy(comm->out, compare->other, HAL_HOST, received, comm->device, bytes));
  HAL_RETURN_IF_ERROR(hal_event_record(comm->vendor->tail, comm->out));
  return hal_comm_event_await(comm->vendor->tail, timeout_ns, &comm->failure, "the comparison of messages");
}

/* A rank that has found a mismatch aborts the library only after the other rank has found it. Keeps the thread's
 * error. */
static void leave_together(const compare_t *compare) {
  const int64_t second_ns = 1000000000;
  hal_error_saved_t saved;
  hal_error_save(&saved);
  const hal_status_t ignored = exchange(compare, 1, second_ns);
  (void)ignored;
  hal_error_restore(&saved);
}

static hal_status_t run(compare_t *compare) {
  for (uint32_t i = 0; i < compare->peer_count; i++) compare->own[i] = record_of(compare, compare->peers[i]);
  HAL_RETURN_IF_ERROR(exchange(compare, 0, compare->job->timeout_ns));
  const hal_status_t status = check(compare);
  if (status) leave_together(compare);
  return status;
}

/* ---- memory ---- */

static hal_status_t allocate(compare_t *compare) {
  hal_comm_t *const comm = compare->job->work->comm;
  const size_t bytes = 2 * compare->peer_count * sizeof(record_t);
  void *records;
  HAL_RETURN_IF_ERROR(hal_host_allocate(comm->device, bytes, &records));
  compare->own = records;
  compare->other = compare->own + compare->peer_count;
  HAL_RETURN_IF_ERROR(hal_host_record_stream(records, comm->out));
  return hal_memory_allocate(comm->device, comm->out, bytes, &compare->block);
}

/* Writes the ranks with messages, in ascending order; returns their number. */
static uint32_t find_peers(const hal_comm_job_t *job, const hal_collective_t *calls, int32_t *peers) {
  uint32_t count = 0;
  for (int32_t rank = 0; rank < job->work->comm->size; rank++)
    for (uint32_t i = 0; i < job->count; i++)
      if (hal_comm_op_is_message(calls[i].op) && calls[i].peer == rank) {
        peers[count++] = rank;
        break;
      }
  return count;
}

/* A library may have SEND and RECV of other types only. */
static int can_exchange(const hal_comm_vendor_t *vendor) {
  const hal_collective_t call = {.struct_size = sizeof call, .op = HAL_COMM_SEND, .dtype = HAL_UINT8};
  hal_comm_words_t words;
  return hal_comm_vendor_lists(&vendor->info, &call, &words);
}

hal_status_t hal_comm_vendor_compare_messages(hal_comm_job_t *job, const hal_collective_t *calls) {
  const hal_comm_t *const comm = job->work->comm;
  compare_t compare = {.job = job, .calls = calls};
  if (!can_exchange(comm->vendor)) return HAL_OK;
  const size_t size = (size_t)comm->size;
  compare.exchange = hal_malloc(2 * size * sizeof *compare.exchange + size * sizeof *compare.peers);
  if (!compare.exchange)
    return hal_error_set(HAL_RESOURCE_EXHAUSTED, "out of host memory for the messages of %d ranks", comm->size);
  compare.peers = (int32_t *)(compare.exchange + 2 * size);
  compare.peer_count = find_peers(job, calls, compare.peers);
  hal_comm_watch_add(comm->vendor, job->work);
  hal_status_t status = allocate(&compare);
  if (!status) status = run(&compare);
  hal_memory_release(compare.block);
  hal_host_free(compare.own);
  hal_free(compare.exchange);
  return status;
}
