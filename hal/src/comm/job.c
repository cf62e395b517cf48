/* job.c: collectives of one lane that run together. Copies operands to the host, runs the transport, and copies results
 * back. */
#define _POSIX_C_SOURCE 200809L /* hal_clock_ns */
#include <string.h>

#include "base/clock.h"
#include "base/dtype.h"
#include "base/host_malloc.h"
#include "comm/comm.h"
#include "comm/log.h"
#include "comm/shm/shm.h"
#include "comm/vendor/vendor.h"
#include "hal/host_memory.h"
#include "hal/status.h"

/* ---- the descriptors ---- */

static hal_comm_job_t *allocate(hal_comm_t *comm, uint32_t count, uint64_t numbers) {
  hal_comm_job_t *const spare = count == 1 && !numbers ? hal_comm_spare_take_job(comm) : NULL;
  if (spare) return spare;
  hal_comm_job_t *const job = hal_calloc(1, sizeof *job + count * sizeof *job->calls);
  uint64_t *const arrays = numbers ? hal_malloc(numbers * sizeof *arrays) : NULL;
  if (!job || (numbers && !arrays)) {
    hal_free(job);
    hal_free(arrays);
    hal_error_set(HAL_RESOURCE_EXHAUSTED, "out of host memory for %u collectives", count);
    return NULL;
  }
  job->arrays = arrays;
  job->count = count;
  return job;
}

static void copy_call(const hal_comm_t *comm, hal_comm_part_t *call, const hal_collective_t *from, uint64_t **next) {
  hal_collective_t *const to = &call->on_host;
  hal_comm_copy_call(comm, from, to, next, call->scale);
  call->send_bytes = hal_comm_send_bytes(comm, to);
  call->recv_bytes = hal_comm_recv_bytes(comm, to);
  to->fingerprint = hal_comm_fingerprint(comm, to);
}

/* ---- memory ---- */

/* Allocates page-locked memory for the operands and results of a call, and queues the copy of the operands. Elements
 * that the result leaves unchanged (gaps between displacements) are copied, too. */
static hal_status_t stage(hal_comm_t *comm, hal_comm_part_t *call) {
  hal_collective_t *const to = &call->on_host;
  const void *const send = to->send;
  void *const recv = to->recv;
  if (call->send_bytes) {
    HAL_RETURN_IF_ERROR(hal_host_allocate(comm->device, call->send_bytes, &call->staged));
    HAL_RETURN_IF_ERROR(hal_host_record_stream(call->staged, comm->in));
    HAL_RETURN_IF_ERROR(hal_memory_copy(comm->in, call->staged, HAL_HOST, send, comm->device, call->send_bytes));
  }
  to->send = call->staged; /* NULL if nothing is read: the transport gets no device address */
  if (!call->recv_bytes) {
    to->recv = send == recv ? call->staged : NULL;
    return HAL_OK;
  }
  call->result = recv;
  if (send == recv && call->send_bytes == call->recv_bytes) { /* in place on the host, too */
    to->recv = call->staged;
    return hal_host_record_stream(call->staged, comm->out);
  }
  HAL_RETURN_IF_ERROR(hal_host_allocate(comm->device, call->recv_bytes, &call->staged_result));
  HAL_RETURN_IF_ERROR(hal_host_record_stream(call->staged_result, comm->out));
  to->recv = call->staged_result;
  if (!to->recv_counts) return HAL_OK;
  HAL_RETURN_IF_ERROR(hal_host_record_stream(call->staged_result, comm->in));
  return hal_memory_copy(comm->in, call->staged_result, HAL_HOST, recv, comm->device, call->recv_bytes);
}

static hal_status_t unstage(const hal_comm_t *comm, const hal_comm_part_t *call) {
  if (!call->result) return HAL_OK;
  return hal_memory_copy(comm->out, call->result, comm->device, call->on_host.recv, HAL_HOST, call->recv_bytes);
}

/* ---- lifetime ---- */

/* Queues the copies of the operands after `ready` and the results that they follow, then records `ready` after the
 * copies. Operands that stay on the device are not copied. */
static hal_status_t stage_all(hal_comm_job_t *job) {
  hal_comm_t *const comm = job->work->comm;
  if (comm->direct || (job->is_on_device && !job->follows)) return HAL_OK;
  HAL_RETURN_IF_ERROR(hal_stream_wait_event(comm->in, job->ready));
  if (job->follows) HAL_RETURN_IF_ERROR(hal_comm_order_follow(comm));
  for (uint32_t i = 0; i < job->count && !job->is_on_device; i++) HAL_RETURN_IF_ERROR(stage(comm, &job->calls[i]));
  return hal_event_record(job->ready, comm->in);
}

hal_status_t hal_comm_job_create(hal_comm_work_t *work, hal_stream_t *stream, const hal_collective_t *calls,
                                 uint32_t count, int kind, hal_comm_job_t **out_job) {
  hal_comm_t *const comm = work->comm;
  hal_comm_job_t *const job = allocate(comm, count, hal_comm_array_numbers(comm, calls, count));
  if (!job) return HAL_RESOURCE_EXHAUSTED;
  uint64_t *next = job->arrays;
  job->work = work;
  job->kind = kind;
  if (kind) atomic_fetch_add(&comm->vendor->on_lane, 1);
  job->timeout_ns = work->timeout_ns;
  atomic_fetch_add(&work->references, 1);
  for (uint32_t i = 0; i < count; i++) copy_call(comm, &job->calls[i], &calls[i], &next);
  job->is_on_device = !kind && hal_comm_shm_takes_device_memory(&comm->transport, calls, count);
  if (!comm->direct && kind != HAL_COMM_JOB_VENDOR && !hal_comm_op_is_message(calls->op)) hal_comm_order_add(comm, job);
  hal_status_t status = job->ready ? HAL_OK : hal_event_create(comm->device, 0, &job->ready);
  if (!status) status = hal_event_record(job->ready, stream);
  if (!status && kind == HAL_COMM_JOB_STAGED && job->follows != HAL_COMM_FOLLOWS_LATER) status = stage_all(job);
  if (status)
    hal_comm_job_destroy(job);
  else
    *out_job = job;
  return status;
}

void hal_comm_job_destroy(hal_comm_job_t *job) {
  hal_comm_work_t *const work = job->work;
  for (uint32_t i = 0; i < job->count; i++) {
    hal_host_free(job->calls[i].staged);
    hal_host_free(job->calls[i].staged_result);
  }
  if (job->kind) atomic_fetch_sub(&work->comm->vendor->on_lane, 1);
  hal_comm_spare_put_job(work->comm, job);
  hal_comm_work_release(work);
}

/* ---- running ---- */

static hal_status_t transport(hal_comm_t *comm, const hal_comm_job_t *job) {
  hal_collective_t on_stack[8] = {0};
  hal_collective_t *described = on_stack;
  if (job->count > sizeof on_stack / sizeof *on_stack && !(described = hal_malloc(job->count * sizeof *described)))
    return hal_error_set(HAL_RESOURCE_EXHAUSTED, "out of host memory for %u collectives", job->count);
  for (uint32_t i = 0; i < job->count; i++) described[i] = job->calls[i].on_host;
  hal_status_t status = HAL_OK;
  if (job->is_on_device)
    status = hal_comm_shm_run_on_device(&comm->transport, described, job->count, job->timeout_ns);
  else if (hal_comm_op_is_message(described->op)) /* the only call of its job */
    status = hal_comm_run_message(&comm->transport, comm->rank, described, job->timeout_ns);
  else if (!(status = hal_comm_agree(comm, described, job->count, job->timeout_ns)))
    status = comm->transport.run(comm->transport.context, described, job->count, job->timeout_ns);
  if (described != on_stack) hal_free(described);
  return status;
}

hal_status_t hal_comm_job_run(hal_comm_job_t *job) {
  hal_comm_t *const comm = job->work->comm;
  if (job->kind == HAL_COMM_JOB_VENDOR) return hal_comm_vendor_run(job);
  if (job->kind == HAL_COMM_JOB_LATE) HAL_RETURN_IF_ERROR(hal_comm_vendor_wait_operands(job));
  if (job->kind == HAL_COMM_JOB_LATE || job->follows == HAL_COMM_FOLLOWS_LATER) HAL_RETURN_IF_ERROR(stage_all(job));
  HAL_RETURN_IF_ERROR(hal_comm_event_wait(job->ready, job->timeout_ns, &comm->failure, "the operands"));
  HAL_RETURN_IF_ERROR(hal_comm_failure_get(&comm->failure));
  hal_comm_log_start(job->work->log);
  const int64_t start_ns = hal_clock_ns();
  HAL_RETURN_IF_ERROR(transport(comm, job));
  hal_comm_profile_add(job, start_ns, hal_clock_ns());
  for (uint32_t i = 0; i < job->count; i++) HAL_RETURN_IF_ERROR(unstage(comm, &job->calls[i]));
  if (job->number) hal_comm_order_queued(comm, job);
  return hal_event_record(job->work->end, comm->out);
}
