/* agree.c: compares the collectives of all ranks before data moves, for transports that do not compare them. */
#include <stdio.h>
#include <string.h>

#include "base/dtype.h"
#include "base/host_malloc.h"
#include "base/status_internal.h"
#include "comm/comm.h"
#include "hal/status.h"

/* What each rank sends to the others about a bracket: one number for all its calls, and the first call for the
 * message. */
typedef struct record_s {
  uint64_t bracket, fingerprint, count;
  uint32_t calls, op, dtype;
  int32_t peer;
} record_t;

static record_t record_of(uint64_t bracket, const hal_collective_t *calls, uint32_t count) {
  record_t record = {.bracket = bracket, .calls = count, .fingerprint = UINT64_C(0xcbf29ce484222325)};
  const hal_collective_t *first = NULL;
  for (uint32_t i = 0; i < count; i++) {
    if (hal_comm_op_is_message(calls[i].op)) continue; /* of two ranks */
    if (!first) first = &calls[i];
    record.fingerprint = (record.fingerprint ^ calls[i].fingerprint) * UINT64_C(0x9E3779B97F4A7C15);
  }
  if (first) record.op = first->op, record.dtype = first->dtype, record.peer = first->peer, record.count = first->count;
  return record;
}

static void describe(const record_t *record, char *text, size_t size) {
  const int is_barrier = record->op == HAL_COMM_BARRIER;
  char more[32] = "";
  if (record->calls > 1) snprintf(more, sizeof more, ", the first of %u", record->calls);
  snprintf(text, size, "%s #%llu (%s, %llu elements, root %d%s)", hal_comm_op_name(record->op),
           (unsigned long long)record->bracket, is_barrier ? "-" : hal_dtype_name((hal_dtype_t)record->dtype),
           (unsigned long long)record->count, record->peer, more);
}

static hal_status_t compare(const hal_comm_t *comm, const record_t *records) {
  for (int32_t rank = 1; rank < comm->size; rank++) {
    if (records[rank].fingerprint == records->fingerprint && records[rank].bracket == records->bracket) continue;
    char first[160], other[160];
    describe(&records[0], first, sizeof first);
    describe(&records[rank], other, sizeof other);
    return hal_error_set(
        HAL_INVALID_ARGUMENT,
        "the calls do not match: rank 0 called %s, rank %d called %s; all ranks have to call the same collectives in "
        "the same order",
        first, rank, other);
  }
  return HAL_OK;
}

/* A rank that has found a mismatch aborts the transport only after all ranks have found it. Keeps the thread's
 * error. */
static void leave_together(const hal_comm_t *comm, int64_t timeout_ns) {
  const hal_collective_t barrier = {.struct_size = sizeof barrier, .op = HAL_COMM_BARRIER};
  hal_error_saved_t saved;
  hal_error_save(&saved);
  comm->transport.run(comm->transport.context, &barrier, 1, timeout_ns < 1000000000 ? timeout_ns : 1000000000);
  hal_error_restore(&saved);
}

hal_status_t hal_comm_agree(hal_comm_t *comm, const hal_collective_t *calls, uint32_t count, int64_t timeout_ns) {
  if (comm->transport.flags & HAL_COMM_COMPARES_CALLS) return HAL_OK;
  return hal_comm_compare(comm, calls, count, timeout_ns);
}

hal_status_t hal_comm_compare(hal_comm_t *comm, const hal_collective_t *calls, uint32_t count, int64_t timeout_ns) {
  if (comm->size == 1) return HAL_OK;
  const record_t own = record_of(++comm->brackets, calls, count);
  record_t *const records = hal_malloc((size_t)comm->size * sizeof *records);
  if (!records)
    return hal_error_set(HAL_RESOURCE_EXHAUSTED, "out of host memory for the calls of %d ranks", comm->size);
  const hal_collective_t gather = {.struct_size = sizeof gather,
                                   .op = HAL_COMM_ALL_GATHER,
                                   .dtype = HAL_UINT8,
                                   .send = &own,
                                   .recv = records,
                                   .count = sizeof own};
  hal_status_t status = comm->transport.run(comm->transport.context, &gather, 1, timeout_ns);
  if (!status) status = compare(comm, records);
  if (status == HAL_INVALID_ARGUMENT) leave_together(comm, timeout_ns);
  hal_free(records);
  return status;
}
