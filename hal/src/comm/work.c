/* work.c: the caller's handle of submitted collectives. */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <stdio.h>

#include "base/callback.h"
#include "base/dtype.h"
#include "base/host_malloc.h"
#include "base/life.h"
#include "base/status_internal.h"
#include "comm/comm.h"
#include "comm/log.h"
#include "device/failure.h"
#include "hal/status.h"

static hal_status_t make(const hal_comm_t *comm, hal_comm_work_t **out_work) {
  hal_comm_work_t *const work = hal_calloc(1, sizeof *work);
  if (!work) return hal_error_set(HAL_RESOURCE_EXHAUSTED, "out of host memory for a collective");
  const hal_status_t status = hal_event_create(comm->device, 0, &work->end);
  if (status)
    hal_free(work);
  else
    *out_work = work;
  return status;
}

hal_status_t hal_comm_work_create(hal_comm_t *comm, int64_t timeout_ns, hal_comm_work_t **out_work) {
  hal_comm_work_t *work = hal_comm_spare_take_work(comm);
  if (!work) HAL_RETURN_IF_ERROR(make(comm, &work));
  atomic_init(&work->references, 1);
  work->timeout_ns = timeout_ns > 0 ? timeout_ns : comm->timeout_ns;
  work->comm = comm;
  atomic_fetch_add(&comm->references, 1);
  *out_work = work;
  return HAL_OK;
}

void hal_comm_work_start(const hal_comm_work_t *work) {
  if (work->flags & HAL_COMM_CALLER_WAITS && !atomic_load(&work->queued) && !hal_life_ended())
    hal_comm_lanes_wake(work->comm);
}

void hal_comm_work_release(hal_comm_work_t *work) {
  if (!work) return;
  hal_comm_work_start(work);
  if (atomic_fetch_sub(&work->references, 1) != 1) return;
  hal_comm_t *const comm = work->comm;
  for (hal_comm_waiter_t *waiter = work->waiters, *next; waiter; waiter = next) {
    next = waiter->next;
    hal_free(waiter);
  }
  hal_comm_signal_release(work);
  hal_comm_spare_put_work(comm, work);
  hal_comm_release(comm);
}

const char *hal_comm_work_text(const hal_comm_work_t *work, char text[HAL_COMM_WHAT]) {
  const hal_comm_t *const comm = work->comm;
  char more[32] = "", peer[48] = "";
  if (work->what.calls > 1) snprintf(more, sizeof more, " and %u more", work->what.calls - 1);
  if (hal_comm_op_is_message(work->what.op))
    snprintf(peer, sizeof peer, ", %s rank %d, tag %u", work->what.op == HAL_COMM_SEND ? "to" : "from", work->what.peer,
             work->what.tag);
  snprintf(text, HAL_COMM_WHAT, "%s%s #%llu of group '%s' (rank %d of %d, %s, %llu elements%s)",
           hal_comm_op_name(work->what.op), more, (unsigned long long)work->what.sequence, comm->name, comm->rank,
           comm->size, hal_dtype_size(work->what.dtype) ? hal_dtype_name(work->what.dtype) : "-",
           (unsigned long long)work->what.count, peer);
  return text;
}

void hal_comm_work_finish(hal_comm_work_t *work, uint32_t jobs, hal_status_t status) {
  hal_comm_t *const comm = work->comm;
  if (status) hal_comm_failure_set(&work->failure, status);
  pthread_mutex_lock(&comm->lock);
  work->jobs -= jobs;
  const int was_last = work->jobs == 0;
  if (was_last) {
    if (!atomic_load(&work->is_watched)) /* otherwise the watch observes its end */
      hal_comm_log_end(work->log, atomic_load(&work->failure.set) ? work->failure.status : HAL_OK);
    atomic_store(&work->queued, 1);
  }
  comm->pending -= jobs;
  if (was_last || !comm->pending) pthread_cond_broadcast(&comm->ended);
  pthread_mutex_unlock(&comm->lock);
  if (was_last) hal_comm_signal_raise(work);
  if (!was_last || !work->done) return;
  hal_callback_check();
  work->done(work->user_data, hal_comm_failure_get(&work->failure));
}

/* Returns how long to wait if the caller passes no time. The transport's own error at the work's timeout names the
 * missing ranks; this limit is for a device that does not finish. */
static int64_t limit_of(const hal_comm_work_t *work) {
  return work->timeout_ns < INT64_MAX / 4 ? 2 * work->timeout_ns + 1000000000 : INT64_MAX;
}

/* Waits until the copies of the results are queued. */
static hal_status_t await(hal_comm_work_t *work, int64_t timeout_ns) {
  char what[HAL_COMM_WHAT];
  if (hal_life_ended())
    return hal_error_set(HAL_FAILED_PRECONDITION,
                         "%s was submitted before the process forked or the devices were closed",
                         hal_comm_work_text(work, what));
  hal_comm_lane_resume(work);
  if (timeout_ns <= 0 && work->flags & HAL_COMM_RUN_FLAGS && !atomic_load(&work->queued))
    hal_comm_lane_help(work);
  else
    hal_comm_work_start(work);
  if (!atomic_load(&work->queued)) {
    const int64_t limit = timeout_ns > 0 ? timeout_ns : limit_of(work);
    const struct timespec deadline = hal_comm_deadline(limit);
    int error = 0;
    pthread_mutex_lock(&work->comm->lock);
    while (!atomic_load(&work->queued) && error != ETIMEDOUT)
      error = pthread_cond_timedwait(&work->comm->ended, &work->comm->lock, &deadline);
    const int is_queued = atomic_load(&work->queued);
    pthread_mutex_unlock(&work->comm->lock);
    if (!is_queued)
      return hal_error_set(HAL_NOT_READY, "%s has not ended within %.3f s; it goes on", hal_comm_work_text(work, what),
                           (double)limit / 1e9);
  }
  return hal_comm_failure_get(&work->failure);
}

void hal_comm_work_fail_stream(hal_stream_t *stream, hal_status_t status) {
  if (status == HAL_UNAVAILABLE || status == HAL_NOT_READY)
    status = hal_error_set(HAL_ABORTED, "%s", hal_error_message());
  hal_failure_record(stream, status);
}

/* Adds a stream to those that get a later failure of the work. Errors: the work's failure. */
static hal_status_t add_waiter(hal_comm_work_t *work, hal_stream_t *stream) {
  hal_comm_waiter_t *const waiter = hal_malloc(sizeof *waiter);
  if (!waiter) return hal_error_set(HAL_RESOURCE_EXHAUSTED, "out of host memory for a wait");
  waiter->stream = stream;
  pthread_mutex_lock(&work->comm->lock);
  const int has_failed = atomic_load(&work->failure.set);
  hal_comm_waiter_t *same = work->waiters;
  while (same && same->stream != stream) same = same->next;
  if (!has_failed && !same) {
    waiter->next = work->waiters;
    work->waiters = waiter;
  }
  pthread_mutex_unlock(&work->comm->lock);
  if (has_failed || same) hal_free(waiter);
  return hal_comm_failure_get(&work->failure);
}

hal_status_t hal_comm_work_wait(hal_comm_work_t *work, hal_stream_t *stream, int64_t timeout_ns) {
  if (work->is_recorded) return HAL_OK;
  HAL_RETURN_IF_ERROR(await(work, timeout_ns));
  if (!stream) HAL_RETURN_IF_ERROR(hal_stream_current(work->comm->device, &stream));
  HAL_RETURN_IF_ERROR(hal_stream_wait_event(stream, work->end));
  return atomic_load(&work->is_watched) ? add_waiter(work, stream) : HAL_OK;
}

/* A vendor's library ends the work of a communicator that has failed: then the failure is known. */
static hal_status_t first_failure(hal_comm_work_t *work, hal_status_t status) {
  return atomic_load(&work->failure.set) ? hal_comm_failure_get(&work->failure) : status;
}

/* Returns the result of a work of a library whose end was reached. Failures of a communicator are in the records of the
 * streams that wait for them: a work before the failure must not take them out. */
static hal_status_t result_of(hal_comm_work_t *work) {
  if (atomic_load(&work->failure.set) || atomic_load(&work->comm->failure.set)) return first_failure(work, HAL_OK);
  return first_failure(work, hal_event_synchronize(work->end)); /* does not wait */
}

hal_status_t hal_comm_work_synchronize(hal_comm_work_t *work, int64_t timeout_ns) {
  if (work->is_recorded) return HAL_OK;
  HAL_RETURN_IF_ERROR(await(work, timeout_ns));
  if (!atomic_load(&work->is_watched)) return hal_event_synchronize(work->end);
  const int64_t limit = timeout_ns > 0 ? timeout_ns : limit_of(work);
  char what[HAL_COMM_WHAT];
  const hal_status_t status = hal_comm_event_await(work->end, limit, &work->failure, hal_comm_work_text(work, what));
  return status ? first_failure(work, status) : result_of(work);
}

hal_status_t hal_comm_work_query(hal_comm_work_t *work) {
  hal_comm_work_start(work);
  if (!atomic_load(&work->queued)) return hal_error_not_ready();
  HAL_RETURN_IF_ERROR(hal_comm_failure_get(&work->failure));
  if (work->is_recorded) return HAL_OK;
  if (atomic_load(&work->is_watched) && hal_comm_event_poll(work->end) != HAL_NOT_READY) return result_of(work);
  return hal_event_query(work->end);
}
