/* communicator.c: creating communicators, submitting collectives, failing and ending. */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/dtype.h"
#include "base/host_malloc.h"
#include "base/life.h"
#include "comm/comm.h"
#include "comm/shm/shm.h"
#include "device/device.h"
#include "hal/device.h"
#include "hal/status.h"

#define DEFAULT_TIMEOUT_NS (INT64_C(1800) * 1000000000)

/* ---- failures ---- */

void hal_comm_failure_set(hal_comm_failure_t *failure, hal_status_t status) {
  int unset = 0;
  if (!atomic_compare_exchange_strong(&failure->set, &unset, 1)) return; /* the first one stays */
  failure->status = status;
  snprintf(failure->message, sizeof failure->message, "%s", hal_error_message());
  atomic_store(&failure->set, 2);
}

hal_status_t hal_comm_failure_get(hal_comm_failure_t *failure) {
  if (!atomic_load(&failure->set)) return HAL_OK;
  while (atomic_load(&failure->set) != 2) continue; /* being written */
  return hal_error_set(failure->status, "%s", failure->message);
}

hal_status_t hal_comm_error(hal_comm_t *comm) { return hal_comm_failure_get(&comm->failure); }

void hal_comm_abort(hal_comm_t *comm, const char *reason) {
  hal_error_set(HAL_ABORTED, "group '%s' was aborted on rank %d: %s", comm->name, comm->rank,
                reason ? reason : "no reason given");
  hal_comm_failure_set(&comm->failure, HAL_ABORTED);
  comm->transport.abort(comm->transport.context, hal_error_message());
}

struct timespec hal_comm_deadline(int64_t ns) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  const int64_t seconds = ns > 0 ? ns / 1000000000 : 0;
  time.tv_sec += seconds < INT32_MAX ? seconds : INT32_MAX;
  time.tv_nsec += ns > 0 ? ns % 1000000000 : 0;
  if (time.tv_nsec >= 1000000000) time.tv_sec++, time.tv_nsec -= 1000000000;
  return time;
}

/* ---- transports ---- */

hal_status_t hal_comm_transport_shared_memory(const hal_comm_store_t *store, const char *name, int32_t rank,
                                              int32_t size, int64_t timeout_ns, hal_comm_transport_t *out_transport) {
  return hal_comm_shm_create(store, name, rank, size, timeout_ns, out_transport);
}

/* ---- life ---- */

static hal_status_t check_config(const hal_comm_config_t *config) {
  if (config->struct_size < sizeof *config)
    return hal_error_set(HAL_INVALID_ARGUMENT,
                         "hal_comm_config_t: struct_size is %zu; set it to sizeof(hal_comm_config_t)",
                         config->struct_size);
  if (config->size < 1 || config->rank < 0 || config->rank >= config->size)
    return hal_error_set(HAL_INVALID_ARGUMENT, "a communicator of %d ranks has no rank %d", config->size, config->rank);
  if (!config->transport.run || !config->transport.abort || !config->transport.destroy)
    return hal_error_set(HAL_INVALID_ARGUMENT, "a communicator needs a transport with run, abort and destroy");
  return HAL_OK;
}

static hal_status_t connect_device(hal_comm_t *comm) {
  hal_device_info_t info = {.struct_size = sizeof info};
  HAL_RETURN_IF_ERROR(hal_device_ensure(comm->device));
  HAL_RETURN_IF_ERROR(hal_device_info(comm->device, &info));
  comm->direct = (info.flags & HAL_DEVICE_HOST_VISIBLE) != 0;
  HAL_RETURN_IF_ERROR(hal_stream_acquire(comm->device, -1, &comm->in));
  return hal_stream_acquire(comm->device, -1, &comm->out);
}

static void initialize(hal_comm_t *comm, const hal_comm_config_t *config, uint32_t lanes) {
  pthread_condattr_t attributes;
  atomic_init(&comm->references, 1);
  comm->device = config->device, comm->rank = config->rank, comm->size = config->size;
  comm->timeout_ns = config->timeout_ns > 0 ? config->timeout_ns : DEFAULT_TIMEOUT_NS;
  comm->transport = config->transport;
  snprintf(comm->name, sizeof comm->name, "%s", config->name ? config->name : "");
  pthread_mutex_init(&comm->lock, NULL);
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_cond_init(&comm->changed, &attributes);
  pthread_condattr_destroy(&attributes);
  comm->lane_count = lanes;
  for (uint32_t i = 0; i < lanes; i++) comm->lanes[i].comm = comm;
}

static void free_comm(hal_comm_t *comm) {
  pthread_cond_destroy(&comm->changed);
  pthread_mutex_destroy(&comm->lock);
  hal_free(comm);
}

hal_status_t hal_comm_create(const hal_comm_config_t *config, hal_comm_t **out_comm) {
  HAL_RETURN_IF_ERROR(check_config(config));
  const uint32_t lanes = 1 + 2 * (uint32_t)config->size;
  hal_comm_t *const comm = hal_calloc(1, sizeof *comm + lanes * sizeof *comm->lanes);
  if (!comm)
    return hal_error_set(HAL_RESOURCE_EXHAUSTED, "out of host memory for a communicator of %d ranks", config->size);
  initialize(comm, config, lanes);
  const hal_status_t status = connect_device(comm);
  if (status)
    free_comm(comm);
  else
    *out_comm = comm;
  return status;
}

void hal_comm_release(hal_comm_t *comm) {
  if (atomic_fetch_sub(&comm->references, 1) == 1) free_comm(comm);
}

/* Waits until no job is left. Returns whether that was so within the time. */
static int drain(hal_comm_t *comm, int64_t timeout_ns) {
  const struct timespec deadline = hal_comm_deadline(timeout_ns);
  int error = 0;
  pthread_mutex_lock(&comm->lock);
  while (comm->pending && error != ETIMEDOUT) error = pthread_cond_timedwait(&comm->changed, &comm->lock, &deadline);
  const int is_empty = !comm->pending;
  pthread_mutex_unlock(&comm->lock);
  return is_empty;
}

static void end_lanes(hal_comm_t *comm) {
  pthread_mutex_lock(&comm->lock);
  comm->ending = 1;
  pthread_cond_broadcast(&comm->changed);
  pthread_mutex_unlock(&comm->lock);
  for (uint32_t i = 0; i < comm->lane_count; i++)
    if (comm->lanes[i].started) pthread_join(comm->lanes[i].thread, NULL);
}

void hal_comm_destroy(hal_comm_t *comm, int64_t timeout_ns) {
  if (!comm || hal_life_ended()) return; /* of the parent: its threads are not here */
  if (!drain(comm, timeout_ns)) hal_comm_abort(comm, "the communicator was destroyed while collectives were running");
  end_lanes(comm);
  comm->transport.destroy(comm->transport.context);
  hal_comm_failure_set(&comm->failure,
                       (hal_error_set(HAL_ABORTED, "group '%s' was destroyed", comm->name), HAL_ABORTED));
  hal_comm_release(comm);
}

/* ---- submitting ---- */

static hal_comm_lane_t *lane_of(hal_comm_t *comm, const hal_collective_t *call) {
  return &comm->lanes[hal_comm_op_is_message(call->op) ? 1 + 2 * (uint32_t)call->peer + (call->op == HAL_COMM_RECV)
                                                       : 0];
}

static void describe(hal_comm_work_t *work, uint64_t sequence, const hal_collective_t *calls, uint32_t count) {
  const hal_comm_t *const comm = work->comm;
  char more[32] = "";
  if (count > 1) snprintf(more, sizeof more, " and %u more", count - 1);
  snprintf(work->what, sizeof work->what, "%s%s #%llu of group '%s' (rank %d of %d, %s, %llu elements)",
           hal_comm_op_name(calls->op), more, (unsigned long long)sequence, comm->name, comm->rank, comm->size,
           hal_dtype_size(calls->dtype) ? hal_dtype_name(calls->dtype) : "-", (unsigned long long)calls->count);
}

static hal_status_t push(hal_comm_work_t *work, hal_stream_t *stream, const hal_collective_t *calls, uint32_t count) {
  hal_comm_job_t *job;
  HAL_RETURN_IF_ERROR(hal_comm_job_create(work, stream, calls, count, &job));
  const hal_status_t status = hal_comm_lane_push(lane_of(work->comm, calls), job);
  if (status) hal_comm_job_destroy(job);
  return status;
}

/* Runs of calls without SEND and RECV are one job, each SEND and RECV is one of its own lane. */
static hal_status_t push_all(hal_comm_work_t *work, hal_stream_t *stream, const hal_collective_t *calls,
                             uint32_t count) {
  for (uint32_t i = 0, end; i < count; i = end) {
    for (end = i + 1; end < count && !hal_comm_op_is_message(calls[i].op) && !hal_comm_op_is_message(calls[end].op);)
      end++;
    HAL_RETURN_IF_ERROR(push(work, stream, calls + i, end - i));
  }
  return HAL_OK;
}

static hal_status_t check_calls(hal_comm_t *comm, hal_stream_t *stream, const hal_collective_t *calls, uint32_t count) {
  if (hal_life_ended())
    return hal_error_set(HAL_FAILED_PRECONDITION,
                         "group '%s' belongs to the parent of this process, or its device was closed", comm->name);
  if (!count || !calls) return hal_error_set(HAL_INVALID_ARGUMENT, "no collective in the call");
  HAL_RETURN_IF_ERROR(hal_comm_error(comm));
  for (uint32_t i = 0; i < count; i++) HAL_RETURN_IF_ERROR(hal_comm_check(comm, &calls[i]));
  if (hal_stream_device(stream) != comm->device)
    return hal_error_set(HAL_INVALID_ARGUMENT, "%s: the stream is of device %d, group '%s' of device %d",
                         hal_comm_op_name(calls->op), hal_stream_device(stream), comm->name, comm->device);
  hal_queue_t *const queue = hal_stream_queue(stream);
  return queue->calls->require(queue, "a collective");
}

hal_status_t hal_comm_submit(hal_comm_t *comm, hal_stream_t *stream, const hal_collective_t *calls, uint32_t count,
                             int64_t timeout_ns, hal_comm_done_fn_t done, void *user_data, hal_comm_work_t **out_work) {
  hal_comm_work_t *work;
  if (!stream) HAL_RETURN_IF_ERROR(hal_stream_current(comm->device, &stream));
  HAL_RETURN_IF_ERROR(check_calls(comm, stream, calls, count));
  HAL_RETURN_IF_ERROR(hal_comm_work_create(comm, timeout_ns, &work));
  describe(work, atomic_fetch_add(&comm->sequence, 1) + 1, calls, count);
  work->done = done, work->user_data = user_data;
  work->jobs = 1; /* this call's own share: the work is not done before all of it is queued */
  pthread_mutex_lock(&comm->lock);
  comm->pending++;
  pthread_mutex_unlock(&comm->lock);
  hal_status_t status = push_all(work, stream, calls, count);
  if (status) { /* the other ranks wait for calls that do not come */
    work->done = NULL;
    hal_error_prefix(status, "%s: ", work->what);
    hal_comm_failure_set(&comm->failure, status);
    comm->transport.abort(comm->transport.context, hal_error_message());
  }
  hal_comm_work_finish(work, status);
  status = status ? hal_comm_error(comm) : HAL_OK;
  if (!status && out_work)
    *out_work = work;
  else
    hal_comm_work_release(work);
  return status;
}

uint64_t hal_comm_sequence(const hal_comm_t *comm) { return atomic_load(&comm->sequence); }

hal_stream_t *hal_comm_stream(const hal_comm_t *comm) { return comm->out; }
