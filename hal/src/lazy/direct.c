/* direct.c: calls that a lazy queue passes to the plugin immediately, after the deferred work. */
#include "device/failure.h"
#include "lazy/lazy.h"

static hal_status_t own_op(hal_queue_t *queue, const void *own, const char *name, const hal_op_call_t *call,
                           hal_status_t verdict) {
  if (!verdict) return hal_program_calls.own_op(queue, own, name, call, verdict);
  HAL_RETURN_IF_ERROR(hal_lazy_flush_for(queue, name)); /* the caller calls it now, after the deferred work */
  return HAL_NOT_READY;
}

/* Flushes the queue; a failure is recorded for the stream. */
static void flush_before(hal_queue_t *queue, const char *what) {
  const hal_status_t status = hal_lazy_flush_for(queue, what);
  if (status) hal_failure_record(hal_lazy_of(queue)->program.stream, status);
}

static hal_status_t host_call(hal_queue_t *queue, hal_host_fn_t fn, void *user_data) {
  flush_before(queue, "hal_stream_host_call"); /* a thread that waits for the function does not flush the stream */
  return hal_direct_calls.host_call(hal_lazy_direct(hal_lazy_of(queue)), fn, user_data);
}

static hal_status_t submission(hal_queue_t *queue, const hal_submission_t *submission) {
  HAL_RETURN_IF_ERROR(
      hal_lazy_flush_for(queue, submission->name)); /* the caller submits it now, after the deferred work */
  return HAL_NOT_READY;
}

static hal_status_t record_event(hal_queue_t *queue, hal_plugin_event_t *event, uint64_t *out_recording) {
  flush_before(queue, "hal_event_record");
  return hal_direct_calls.record_event(hal_lazy_direct(hal_lazy_of(queue)), event, out_recording);
}

static hal_status_t wait_event(hal_queue_t *queue, hal_plugin_event_t *event) {
  flush_before(queue, "hal_stream_wait_event");
  return hal_direct_calls.wait_event(hal_lazy_direct(hal_lazy_of(queue)), event);
}

static hal_status_t synchronize(hal_queue_t *queue) {
  return hal_direct_calls.synchronize(hal_lazy_direct(hal_lazy_of(queue)));
}

static hal_status_t synchronize_timeout(hal_queue_t *queue, int64_t timeout_ns) {
  return hal_direct_calls.synchronize_timeout(hal_lazy_direct(hal_lazy_of(queue)), timeout_ns);
}

static hal_status_t query(hal_queue_t *queue) { return hal_direct_calls.query(hal_lazy_direct(hal_lazy_of(queue))); }

void hal_lazy_pass_on(hal_queue_calls_t *calls) {
  calls->own_op = own_op;
  calls->host_call = host_call;
  calls->host_call_once = host_call;
  calls->submission = submission;
  calls->record_event = record_event; /* an event of a lazy stream is the plugin's, never a recorded one */
  calls->wait_event = wait_event;
  calls->recorded_event = hal_direct_calls.recorded_event;
  calls->synchronize = synchronize;
  calls->synchronize_timeout = synchronize_timeout;
  calls->query = query;
  calls->draw = hal_direct_calls.draw;
}
