/* profile.c: records of collectives in the process's profile. */
#include "comm/comm.h"
#include "device/profile_internal.h"
#include "hal/stream.h"

uint64_t hal_comm_profile_begin(void) {
  if (!hal_profile_is_on()) return 0;
  hal_profile_begin_call();
  return hal_profile_correlation();
}

void hal_comm_profile_end_call(uint64_t launch) {
  if (launch) hal_profile_end_call();
}

void hal_comm_profile_add(const hal_comm_job_t *job, int64_t start_ns, int64_t end_ns) {
  const hal_comm_work_t *const work = job->work;
  if (!work->launch || !hal_profile_is_on()) return;
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < job->count; i++) {
    const hal_comm_part_t *const call = &job->calls[i];
    bytes += call->send_bytes > call->recv_bytes ? call->send_bytes : call->recv_bytes;
  }
  const hal_profile_activity_t activity = {
      .name = job->count > 1 ? "coalesced" : hal_comm_op_name(job->calls->on_host.op),
      .start_ns = start_ns,
      .end_ns = end_ns,
      .bytes = bytes,
      .stream = hal_stream_id(work->comm->out),
      .device = work->comm->device,
      .group = work->comm->name,
      .sequence = work->sequence,
      .group_size = work->comm->size};
  hal_profile_add_collective(&activity, work->launch);
}
