/* communicator.c: creates communicators, submits collectives, and handles failures and the end. */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/callback.h"
#include "base/clock.h"
#include "base/host_malloc.h"
#include "base/life.h"
#include "comm/comm.h"
#include "comm/log.h"
#include "comm/shm/shm.h"
#include "comm/vendor/vendor.h"
#include "device/device.h"
#include "hal/device.h"
#include "hal/status.h"
#include "plugin/slots.h"

#define DEFAULT_TIMEOUT_NS (INT64_C(1800) * 1000000000)

/* ---- failures ---- */

void hal_comm_failure_set(hal_comm_failure_t *failure, hal_status_t status) {
  int unset = 0;
  if (!atomic_compare_exchange_strong(&failure->set, &unset, 1)) return; /* only the first failure is stored */
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
  if (atomic_load(&hal_life.forked)) return; /* the group is the parent's */
  hal_error_set(HAL_ABORTED, "group '%s' was aborted on rank %d: %s", comm->name, comm->rank,
                reason ? reason : "no reason given");
  hal_comm_failure_set(&comm->failure, HAL_ABORTED);
  comm->transport.abort(comm->transport.context, hal_error_message());
  if (!hal_life_ended()) hal_comm_lanes_wake(comm);
  if (comm->vendor) hal_comm_vendor_abort(comm->vendor);
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

/* ---- lifetime ---- */

static hal_status_t check_config(const hal_comm_config_t *config) {
  /* A config of version 0.3 ends with the transport of version 0.3. */
  if (config->struct_size < offsetof(hal_comm_config_t, transport) + offsetof(hal_comm_transport_t, query))
    return hal_error_set(HAL_INVALID_ARGUMENT,
                         "hal_comm_config_t: struct_size is %zu; set it to sizeof(hal_comm_config_t)",
                         config->struct_size);
  if (config->size < 1 || config->rank < 0 || config->rank >= config->size)
    return hal_error_set(HAL_INVALID_ARGUMENT, "a communicator of %d ranks has no rank %d", config->size, config->rank);
  const hal_comm_transport_t *const transport = &config->transport;
  if (config->size == 1 && !transport->run && !transport->abort && !transport->destroy) return HAL_OK;
  if (!transport->run || !transport->abort || !transport->destroy)
    return hal_error_set(HAL_INVALID_ARGUMENT,
                         "a communicator of %d ranks needs a transport with run, abort and destroy", config->size);
  return HAL_OK;
}

hal_status_t hal_comm_share_device(hal_comm_t *comm, int64_t timeout_ns) {
  return hal_comm_shm_use_device(&comm->transport, comm->direct ? -1 : comm->device, timeout_ns);
}

/* Returns whether the plugin has functions of a collectives library. hal_comm_connect_library then decides whether the
 * transport runs the collectives. */
static int has_library(int32_t index) {
  hal_device_t *device;
  return !hal_device_get(index, &device) && hal_slot_is_provided(&device->plugin->api, HAL_SLOT_comm_info);
}

static hal_status_t connect_device(hal_comm_t *comm) {
  hal_device_info_t info = {.struct_size = sizeof info};
  HAL_RETURN_IF_ERROR(hal_device_ensure(comm->device));
  HAL_RETURN_IF_ERROR(hal_device_info(comm->device, &info));
  comm->direct = (info.flags & HAL_DEVICE_HOST_VISIBLE) != 0;
  HAL_RETURN_IF_ERROR(hal_stream_acquire(comm->device, -1, &comm->in));
  HAL_RETURN_IF_ERROR(hal_stream_acquire(comm->device, -1, &comm->out));
  return has_library(comm->device) ? HAL_OK : hal_comm_share_device(comm, comm->timeout_ns);
}

static void initialize(hal_comm_t *comm, const hal_comm_config_t *config, uint32_t lanes) {
  pthread_condattr_t attributes;
  atomic_init(&comm->references, 1);
  comm->device = config->device, comm->rank = config->rank, comm->size = config->size;
  comm->timeout_ns = config->timeout_ns > 0 ? config->timeout_ns : DEFAULT_TIMEOUT_NS;
  memcpy(&comm->transport, &config->transport,
         config->struct_size < sizeof *config ? offsetof(hal_comm_transport_t, query) : sizeof config->transport);
  comm->is_alone = !comm->transport.run;
  if (comm->is_alone) comm->transport = hal_comm_alone_transport(comm);
  snprintf(comm->name, sizeof comm->name, "%s", config->name ? config->name : "");
  pthread_mutex_init(&comm->lock, NULL);
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_cond_init(&comm->ended, &attributes);
  pthread_condattr_destroy(&attributes);
  hal_comm_lanes_init(comm, lanes);
}

static void free_comm(hal_comm_t *comm) {
  if (!hal_life_ended()) hal_stream_give_back(comm->owned);
  hal_comm_signals_destroy(comm);
  hal_comm_spare_destroy(comm);
  hal_comm_lanes_destroy(comm);
  pthread_cond_destroy(&comm->ended);
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

/* Waits until no job is left. Returns whether this happened within the time. */
static int drain(hal_comm_t *comm, int64_t timeout_ns) {
  const struct timespec deadline = hal_comm_deadline(timeout_ns);
  int error = 0;
  hal_comm_lanes_wake(comm);
  pthread_mutex_lock(&comm->lock);
  while (comm->pending && error != ETIMEDOUT) error = pthread_cond_timedwait(&comm->ended, &comm->lock, &deadline);
  const int is_empty = !comm->pending;
  pthread_mutex_unlock(&comm->lock);
  return is_empty;
}

void hal_comm_destroy(hal_comm_t *comm, int64_t timeout_ns) {
  if (!comm || hal_life_ended()) return; /* created by the parent: its threads do not exist here */
  const int64_t end = hal_clock_ns() + (timeout_ns < INT64_MAX / 4 ? timeout_ns : INT64_MAX / 4);
  if (!drain(comm, timeout_ns) || (comm->vendor && !hal_comm_vendor_drain(comm->vendor, end - hal_clock_ns())))
    hal_comm_abort(comm, "the communicator was destroyed while collectives were running");
  hal_comm_lanes_end(comm);
  if (comm->vendor) hal_comm_vendor_destroy(comm->vendor, end - hal_clock_ns());
  comm->vendor = NULL;
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

/* Returns the end of the job that begins at a call. Consecutive calls without SEND and RECV are one job. Each SEND and
 * RECV is one job of its own lane. */
static uint32_t end_of_job(const hal_collective_t *calls, uint32_t first, uint32_t count) {
  uint32_t end = first + 1;
  while (end < count && !hal_comm_op_is_message(calls[first].op) && !hal_comm_op_is_message(calls[end].op)) end++;
  return end;
}

static hal_status_t push(hal_comm_work_t *work, hal_stream_t *stream, const hal_collective_t *calls, uint32_t count,
                         int kind) {
  hal_comm_job_t *job;
  HAL_RETURN_IF_ERROR(hal_comm_job_create(work, stream, calls, count, kind, &job));
  const hal_status_t status = hal_comm_lane_push(kind ? work->comm->lanes : lane_of(work->comm, calls), job);
  if (status) hal_comm_job_destroy(job);
  return status;
}

static void add_jobs(hal_comm_work_t *work, uint32_t jobs) {
  pthread_mutex_lock(&work->comm->lock);
  work->jobs += jobs;
  work->comm->pending += jobs;
  pthread_mutex_unlock(&work->comm->lock);
}

/* Counts all jobs of a work before the first one can end. So `done` runs on a thread that runs jobs, and not on the
 * caller's thread. */
static uint32_t count_jobs(hal_comm_work_t *work, const hal_collective_t *calls, uint32_t count) {
  uint32_t jobs = 0;
  for (uint32_t i = 0; i < count; i = end_of_job(calls, i, count)) jobs++;
  if (jobs == 1)
    work->lane = lane_of(work->comm, calls);
  else
    work->flags = 0; /* several jobs run at a time, because SEND and RECV may need each other */
  add_jobs(work, jobs);
  return jobs;
}

hal_status_t hal_comm_push(hal_comm_work_t *work, hal_stream_t *stream, const hal_collective_t *calls, uint32_t count,
                           int kind) {
  add_jobs(work, 1);
  const hal_status_t status = push(work, stream, calls, count, kind);
  if (status) hal_comm_work_finish(work, 1, status); /* not the last job: the submission counts as one */
  return status;
}

hal_status_t hal_comm_push_all(hal_comm_work_t *work, hal_stream_t *stream, const hal_collective_t *calls,
                               uint32_t count) {
  for (uint32_t i = 0, end; i < count; i = end) {
    end = end_of_job(calls, i, count);
    HAL_RETURN_IF_ERROR(hal_comm_push(work, stream, calls + i, end - i,
                                      hal_comm_op_is_message(calls[i].op) ? HAL_COMM_JOB_STAGED : HAL_COMM_JOB_LATE));
  }
  return HAL_OK;
}

/* The other ranks wait for calls that this rank does not submit. */
static hal_status_t fail_submission(hal_comm_work_t *work, uint32_t missing, hal_status_t status) {
  hal_comm_t *const comm = work->comm;
  char what[HAL_COMM_WHAT];
  work->done = NULL;
  hal_error_prefix(status, "%s: ", hal_comm_work_text(work, what));
  hal_comm_failure_set(&comm->failure, status);
  comm->transport.abort(comm->transport.context, hal_error_message());
  hal_comm_work_finish(work, missing, status);
  return hal_comm_error(comm);
}

static hal_status_t push_by_transport(hal_comm_work_t *work, hal_stream_t *stream, const hal_collective_t *calls,
                                      uint32_t count) {
  work->flags &= HAL_COMM_RUN_FLAGS;
  uint32_t missing = count_jobs(work, calls, count);
  for (uint32_t i = 0, end; i < count; i = end, missing--) {
    end = end_of_job(calls, i, count);
    const hal_status_t status = push(work, stream, calls + i, end - i, HAL_COMM_JOB_STAGED);
    if (status) return fail_submission(work, missing, status);
  }
  return HAL_OK;
}

typedef hal_status_t (*push_t)(hal_comm_work_t *work, hal_stream_t *stream, const hal_collective_t *calls,
                               uint32_t count);

/* The submission counts as one job, so that the work is not done before `push` has queued all of it. No waiting thread
 * runs its jobs. */
static hal_status_t push_at_once(hal_comm_work_t *work, push_t push, hal_stream_t *stream,
                                 const hal_collective_t *calls, uint32_t count) {
  work->flags &= HAL_COMM_IS_ORDERED;
  add_jobs(work, 1);
  const hal_status_t status = push(work, stream, calls, count);
  if (status) return fail_submission(work, 1, status);
  hal_comm_work_finish(work, 1, HAL_OK);
  return HAL_OK;
}

static hal_status_t push_sorted(hal_comm_work_t *work, hal_stream_t *stream, const hal_collective_t *calls,
                                uint32_t count) {
  if (work->comm->vendor) return push_at_once(work, hal_comm_vendor_push, stream, calls, count);
  if (hal_comm_alone_copies(work->comm, calls, count))
    return push_at_once(work, hal_comm_alone_push, stream, calls, count);
  return push_by_transport(work, stream, calls, count);
}

static int is_sorted(const hal_collective_t *calls, uint32_t count) {
  for (uint32_t i = 1; i < count; i++)
    if (hal_comm_op_is_message(calls[i - 1].op) && !hal_comm_op_is_message(calls[i].op)) return 0;
  return 1;
}

/* The collectives of a bracket precede its SEND and RECV, so that they are one job. A rank may have other SEND and RECV
 * between them than the other ranks, whose collectives would otherwise be other jobs. */
static hal_status_t push_work(hal_comm_work_t *work, hal_stream_t *stream, const hal_collective_t *calls,
                              uint32_t count) {
  uint32_t next = 0;
  if (is_sorted(calls, count)) return push_sorted(work, stream, calls, count);
  hal_collective_t *const sorted = hal_calloc(count, sizeof *sorted);
  if (!sorted) return hal_error_set(HAL_RESOURCE_EXHAUSTED, "out of host memory for %u collectives", count);
  for (int is_message = 0; is_message <= 1; is_message++)
    for (uint32_t i = 0; i < count; i++) {
      const size_t size = calls[i].struct_size;
      if (hal_comm_op_is_message(calls[i].op) != is_message) continue;
      memcpy(&sorted[next++], &calls[i], size < sizeof *sorted ? size : sizeof *sorted);
    }
  const hal_status_t status = push_sorted(work, stream, sorted, count);
  hal_free(sorted);
  return status;
}

/* Reads the flags of an entry. The entry of an older caller has none. */
static hal_status_t read_flags(const hal_comm_entry_t *entry, uint32_t *out_flags) {
  const uint32_t known = HAL_COMM_RUN_FLAGS | HAL_COMM_IS_ORDERED;
  *out_flags = entry && HAL_HAS_FIELD(entry, flags) ? entry->flags : 0;
  if (!(*out_flags & ~known)) return HAL_OK;
  return hal_error_set(HAL_INVALID_ARGUMENT, "hal_comm_entry_t: unknown flags 0x%x; known are 0x%x",
                       *out_flags & ~known, known);
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
  return HAL_OK;
}

/* Ends the work of collectives that a program has recorded, or could not record. */
static hal_status_t end_recorded(hal_comm_work_t *work, hal_status_t status, hal_comm_done_fn_t done, void *user_data,
                                 hal_comm_work_t **out_work) {
  work->is_recorded = 1;
  atomic_store(&work->queued, 1);
  if (!status && done) {
    hal_callback_check();
    done(user_data, HAL_OK);
  }
  if (!status && out_work)
    *out_work = work;
  else
    hal_comm_work_release(work);
  return status;
}

hal_status_t hal_comm_submit(hal_comm_t *comm, hal_stream_t *stream, const hal_collective_t *calls, uint32_t count,
                             int64_t timeout_ns, hal_comm_done_fn_t done, void *user_data, hal_comm_work_t **out_work) {
  return hal_comm_submit_logged(comm, stream, calls, count, timeout_ns, NULL, done, user_data, out_work);
}

hal_status_t hal_comm_submit_logged(hal_comm_t *comm, hal_stream_t *stream, const hal_collective_t *calls,
                                    uint32_t count, int64_t timeout_ns, const hal_comm_entry_t *entry,
                                    hal_comm_done_fn_t done, void *user_data, hal_comm_work_t **out_work) {
  hal_comm_work_t *work;
  uint32_t flags;
  if (!stream) HAL_RETURN_IF_ERROR(hal_stream_current(comm->device, &stream));
  HAL_RETURN_IF_ERROR(read_flags(entry, &flags));
  HAL_RETURN_IF_ERROR(check_calls(comm, stream, calls, count));
  HAL_RETURN_IF_ERROR(hal_comm_work_create(comm, timeout_ns, &work));
  const hal_status_t recorded = hal_comm_record(comm, stream, calls, count, timeout_ns);
  if (recorded != HAL_NOT_READY) return end_recorded(work, recorded, done, user_data, out_work);
  const uint64_t sequence = atomic_fetch_add(&comm->sequence, 1) + 1;
  work->what.sequence = sequence, work->what.calls = count;
  work->what.op = calls->op, work->what.dtype = calls->dtype, work->what.count = calls->count;
  work->what.peer = calls->peer, work->what.tag = calls->tag;
  work->flags = flags;
  work->log = entry && entry->name ? hal_comm_log_add(entry, work->timeout_ns)
                                   : hal_comm_log_calls(comm, calls, count, sequence, work->timeout_ns);
  work->done = done, work->user_data = user_data;
  work->sequence = entry && entry->name ? entry->sequence : sequence;
  work->launch = hal_comm_profile_begin();
  hal_status_t status = push_work(work, stream, calls, count);
  hal_comm_profile_end_call(work->launch);
  if (!status && out_work)
    *out_work = work;
  else
    hal_comm_work_release(work);
  return status;
}

uint64_t hal_comm_sequence(const hal_comm_t *comm) { return atomic_load(&comm->sequence); }

hal_stream_t *hal_comm_stream(const hal_comm_t *comm) { return comm->out; }
