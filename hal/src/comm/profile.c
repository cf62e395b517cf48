/* profile.c: records of collectives in the process's profile. */
#define _POSIX_C_SOURCE 200809L /* hal_clock_ns */
#include <string.h>

#include "base/clock.h"
#include "base/host_malloc.h"
#include "comm/comm.h"
#include "device/profile_internal.h"
#include "hal/stream.h"
#include "plugin/slots.h"

uint64_t hal_comm_profile_begin(void) {
  if (!hal_profile_is_on()) return 0;
  hal_profile_begin_call();
  return hal_profile_correlation();
}

void hal_comm_profile_end_call(uint64_t launch) {
  if (launch) hal_profile_end_call();
}

static uint64_t larger(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* The record of a work's calls, without times; its group is the communicator's own text. */
static hal_profile_activity_t record_of(const hal_comm_work_t *work, uint32_t op, uint32_t count, uint64_t bytes) {
  return (hal_profile_activity_t){.kind = HAL_PROFILE_COLLECTIVE,
                                  .name = count > 1 ? "coalesced" : hal_comm_op_name(op),
                                  .bytes = bytes,
                                  .stream = hal_stream_id(work->comm->out),
                                  .device = work->comm->device,
                                  .group = work->comm->name,
                                  .sequence = work->sequence,
                                  .group_size = work->comm->size};
}

void hal_comm_profile_add(const hal_comm_job_t *job, int64_t start_ns, int64_t end_ns) {
  const hal_comm_work_t *const work = job->work;
  if (!work->launch || !hal_profile_is_on()) return;
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < job->count; i++) bytes += larger(job->calls[i].send_bytes, job->calls[i].recv_bytes);
  hal_profile_activity_t activity = record_of(work, job->calls->on_host.op, job->count, bytes);
  activity.start_ns = start_ns;
  activity.end_ns = end_ns;
  hal_profile_add_timed(&activity, work->launch);
}

/* ---- collectives of a library ---- */

/* The functions of the host run on a thread of the driver, when the work and its communicator may have been freed. */
struct hal_comm_row_s {
  atomic_int references; /* held by each of the two functions */
  hal_stream_t *stream;
  uint64_t launch;
  hal_profile_activity_t activity;
  char group[sizeof((hal_comm_t *)NULL)->name];
};

static void release(hal_comm_row_t *row) {
  if (atomic_fetch_sub(&row->references, 1) == 1) hal_free(row);
}

static void note_start(void *data) {
  hal_comm_row_t *const row = data;
  row->activity.start_ns = hal_clock_ns();
  release(row);
}

static void note_end(void *data) {
  hal_comm_row_t *const row = data;
  row->activity.end_ns = hal_clock_ns();
  hal_profile_add_timed(&row->activity, row->launch);
  release(row);
}

hal_comm_row_t *hal_comm_profile_begin_row(const hal_comm_work_t *work, const hal_collective_t *calls, uint32_t count) {
  const hal_comm_t *const comm = work->comm;
  if (!work->launch || !hal_profile_is_on()) return NULL;
  if (!hal_slot_is_provided(&comm->out->device->plugin->api, HAL_SLOT_stream_host_call)) return NULL;
  hal_comm_row_t *const row = hal_malloc(sizeof *row);
  if (!row) return NULL;
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < count; i++)
    bytes += larger(hal_comm_send_bytes(comm, &calls[i]), hal_comm_recv_bytes(comm, &calls[i]));
  *row = (hal_comm_row_t){
      .stream = comm->out, .launch = work->launch, .activity = record_of(work, calls->op, count, bytes)};
  atomic_init(&row->references, 2);
  memcpy(row->group, comm->name, sizeof row->group);
  row->activity.group = row->group;
  if (!hal_stream_host_call(row->stream, note_start, row)) return row;
  hal_free(row);
  return NULL;
}

void hal_comm_profile_end_row(hal_comm_row_t *row) {
  if (row && hal_stream_host_call(row->stream, note_end, row)) release(row);
}
