/* fail.c: ends a library's communicator after a failure of the library or of another rank, a timeout, or
 * hal_comm_abort. */
#include <stdio.h>
#include <string.h>

#include "comm/log.h"
#include "comm/vendor/vendor.h"
#include "device/failure.h"
#include "plugin/call.h"

/* The works that fail together. */
typedef struct failing_s {
  const hal_comm_vendor_t *vendor;
  hal_comm_work_t *first;
  hal_status_t status;
  char message[HAL_COMM_MESSAGE]; /* of the first one */
} failing_t;

static void fail_work(hal_comm_work_t *work, failing_t *failing, const char *text) {
  char what[HAL_COMM_WHAT];
  const hal_status_t status = failing->status;
  hal_comm_work_text(work, what);
  const int has_name = !strncmp(text, what, strlen(what));
  hal_error_set(status, "%s%s%s", has_name ? "" : what, has_name ? "" : ": ", text);
  if (!failing->first) snprintf(failing->message, sizeof failing->message, "%s", hal_error_message());
  if (!failing->first) failing->first = work;
  hal_comm_failure_set(&work->failure, status);
  for (const hal_comm_waiter_t *waiter = work->waiters; waiter; waiter = waiter->next)
    hal_comm_work_fail_stream(waiter->stream, status);
  if (atomic_load(&work->queued)) hal_comm_signal_fail(work, status); /* otherwise at the end of its jobs */
}

static int waits_for(const hal_comm_work_t *work, const hal_stream_t *stream) {
  const hal_comm_waiter_t *waiter = work->waiters;
  while (waiter && waiter->stream != stream) waiter = waiter->next;
  return waiter != NULL || hal_comm_signal_holds(work, stream);
}

/* Fails a stream that waits for an event after the works, such as one of a future, and for none of them itself. */
static void fail_follower(void *context, hal_stream_t *stream) {
  const failing_t *const failing = context;
  for (const hal_comm_work_t *work = failing->vendor->first; work; work = work->watched_next)
    if (atomic_load(&work->failure.set) && waits_for(work, stream)) return;
  hal_comm_work_fail_stream(stream, hal_error_set(failing->status, "%s", failing->message));
}

/* Fails works that are not done, before the library ends them: a work whose end is observed without a failure counts as
 * done. The streams that wait for them get the failure. */
static void fail_works(hal_comm_vendor_t *vendor, hal_status_t status, const char *text) {
  hal_comm_t *const comm = vendor->comm;
  failing_t failing = {.vendor = vendor, .status = status};
  pthread_mutex_lock(&comm->lock);
  for (hal_comm_work_t *work = vendor->first; work; work = work->watched_next)
    if (!atomic_load(&work->queued) || hal_comm_event_poll(work->end) == HAL_NOT_READY) fail_work(work, &failing, text);
  if (failing.first) {
    hal_failure_abort_from(comm->out, failing.first->position, hal_error_set(status, "%s", failing.message));
    hal_failure_each_follower(comm->out, failing.first->position, fail_follower, &failing);
  }
  pthread_mutex_unlock(&comm->lock);
}

void hal_comm_vendor_abort(hal_comm_vendor_t *vendor) {
  hal_comm_t *const comm = vendor->comm;
  char text[HAL_COMM_MESSAGE];
  if (atomic_exchange(&vendor->is_aborted, 1)) return;
  const hal_status_t status = hal_comm_failure_get(&comm->failure);
  snprintf(text, sizeof text, "%s", hal_error_message());
  fail_works(vendor, status, text);
  comm->transport.abort(comm->transport.context, text);
  hal_comm_log_failure();
  hal_failure_hide_aborts(comm->out);
  HAL_CALL_QUIETLY(vendor->plugin, comm_abort, vendor->handle, text);
  pthread_mutex_lock(&comm->lock);
  pthread_cond_broadcast(&comm->ended);
  pthread_mutex_unlock(&comm->lock);
}

void hal_comm_vendor_fail(hal_comm_vendor_t *vendor, hal_status_t status) {
  hal_comm_failure_set(&vendor->comm->failure, status);
  hal_comm_vendor_abort(vendor);
}
