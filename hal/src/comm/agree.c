/* agree.c: comparing the ranks' calls before data moves, where the transport does not compare them itself. */
#include <stdio.h>
#include <string.h>

#include "base/dtype.h"
#include "base/host_malloc.h"
#include "comm/comm.h"
#include "hal/status.h"

/* What each rank tells the others of a bracket: all of it in one number, and the first call for the message. */
typedef struct record_s {
  uint64_t bracket, fingerprint, count;
  uint32_t calls, op, dtype;
  int32_t peer;
} record_t;

static record_t record_of(uint64_t bracket, const hal_collective_t *calls, uint32_t count) {
  record_t record = {.bracket = bracket, .calls = count, .fingerprint = UINT64_C(0xcbf29ce484222325)};
  for (uint32_t i = 0; i < count; i++)
    record.fingerprint = (record.fingerprint ^ calls[i].fingerprint) * UINT64_C(0x9E3779B97F4A7C15);
  record.op = calls->op, record.dtype = calls->dtype, record.peer = calls->peer, record.count = calls->count;
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

hal_status_t hal_comm_agree(hal_comm_t *comm, const hal_collective_t *calls, uint32_t count, int64_t timeout_ns) {
  if ((comm->transport.flags & HAL_COMM_COMPARES_CALLS) || comm->size == 1) return HAL_OK;
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
  hal_free(records);
  return status;
}
