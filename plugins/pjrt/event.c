/* event.c: an event counts its records, and stores which of them has been reached. A stream that waits for it waits, in
 * its own thread, for the last record at the time the wait was queued. */
#define _POSIX_C_SOURCE 200809L
#include "pjrt.h"

struct hal_plugin_event_s {
  pthread_mutex_t lock; /* guards the members below */
  pthread_cond_t reached;
  uint64_t recorded, done; /* number of queued records; the last one that was reached */
  int64_t time_ns;         /* of `done` */
  uint32_t flags;
  int users; /* the owner, and queued work, which remains valid when the event is destroyed */
};

typedef struct mark_s {
  hal_plugin_event_t *event;
  uint64_t number;
} mark_t;

static void release(hal_plugin_event_t *event) {
  pthread_mutex_lock(&event->lock);
  const int left = --event->users;
  pthread_mutex_unlock(&event->lock);
  if (left) return;
  pthread_cond_destroy(&event->reached);
  pthread_mutex_destroy(&event->lock);
  hal_host->mem_free(event);
}

hal_status_t hal_plugin_event_create(int32_t device, uint32_t flags, hal_plugin_event_t **out_event) {
  hal_status_t status = pjrt_check_device(device);
  if (!status) status = hal_flags_check("pjrt: event_create", flags, HAL_EVENT_TIMING | HAL_EVENT_BLOCKING);
  if (status) return status;
  hal_plugin_event_t *const event = hal_host->mem_alloc(sizeof *event, _Alignof(hal_plugin_event_t));
  if (!event) return hal_host->error_set(HAL_RESOURCE_EXHAUSTED, 0, "pjrt: no host memory for an event");
  *event = (hal_plugin_event_t){.flags = flags, .users = 1};
  pthread_mutex_init(&event->lock, NULL);
  pthread_cond_init(&event->reached, NULL);
  *out_event = event;
  return HAL_OK;
}

hal_status_t hal_plugin_event_destroy(hal_plugin_event_t *event) {
  if (event) release(event);
  return HAL_OK;
}

/* ---- records and waits, in the order of their streams ---------------------------------------------------------- */

static hal_status_t run_record(const void *arguments, char *why) {
  (void)why;
  const mark_t *const mark = arguments;
  hal_plugin_event_t *const event = mark->event;
  pthread_mutex_lock(&event->lock);
  if (mark->number > event->done) event->done = mark->number, event->time_ns = pjrt_now_ns();
  pthread_cond_broadcast(&event->reached);
  pthread_mutex_unlock(&event->lock);
  release(event);
  return HAL_OK;
}

static hal_status_t run_wait(const void *arguments, char *why) {
  (void)why;
  const mark_t *const mark = arguments;
  hal_plugin_event_t *const event = mark->event;
  pthread_mutex_lock(&event->lock);
  while (event->done < mark->number) pthread_cond_wait(&event->reached, &event->lock);
  pthread_mutex_unlock(&event->lock);
  release(event);
  return HAL_OK;
}

/* Queues one of the functions above for the event's last record; `again` records it first. */
static hal_status_t queue(hal_plugin_stream_t *stream, hal_plugin_event_t *event, int again, const char *name,
                          pjrt_work_fn_t run) {
  pthread_mutex_lock(&event->lock);
  event->users++;
  event->recorded += again;
  const mark_t mark = {event, event->recorded};
  pthread_mutex_unlock(&event->lock);
  const hal_status_t status = pjrt_submit(stream, name, run, &mark, sizeof mark);
  if (!status) return HAL_OK;
  pthread_mutex_lock(&event->lock);
  event->recorded -= again;
  pthread_mutex_unlock(&event->lock);
  release(event);
  return status;
}

hal_status_t hal_plugin_event_record(hal_plugin_event_t *event, hal_plugin_stream_t *stream) {
  return queue(stream, event, 1, "event_record", run_record);
}

hal_status_t hal_plugin_stream_wait_event(hal_plugin_stream_t *stream, hal_plugin_event_t *event) {
  return queue(stream, event, 0, "stream_wait_event", run_wait);
}

/* ---- queries of the host --------------------------------------------------------------------------------------- */

hal_status_t hal_plugin_event_query(hal_plugin_event_t *event) {
  pthread_mutex_lock(&event->lock);
  const int ready = event->done >= event->recorded;
  pthread_mutex_unlock(&event->lock);
  return ready ? HAL_OK : HAL_NOT_READY;
}

hal_status_t hal_plugin_event_synchronize(hal_plugin_event_t *event) {
  pthread_mutex_lock(&event->lock);
  for (const uint64_t wanted = event->recorded; event->done < wanted;) pthread_cond_wait(&event->reached, &event->lock);
  pthread_mutex_unlock(&event->lock);
  return HAL_OK;
}

/* Returns the time of an event that has been reached. */
static hal_status_t time_of(hal_plugin_event_t *event, int64_t *out_ns) {
  pthread_mutex_lock(&event->lock);
  const int timed = event->recorded && (event->flags & HAL_EVENT_TIMING), ready = event->done >= event->recorded;
  *out_ns = event->time_ns;
  pthread_mutex_unlock(&event->lock);
  if (!timed)
    return hal_host->error_set(HAL_FAILED_PRECONDITION, 0,
                               "pjrt: an event was never recorded, or was created without timing");
  return ready ? HAL_OK : HAL_NOT_READY;
}

hal_status_t hal_plugin_event_elapsed(hal_plugin_event_t *start, hal_plugin_event_t *end, int64_t *out_nanoseconds) {
  int64_t from, to;
  hal_status_t status = time_of(start, &from);
  if (!status) status = time_of(end, &to);
  if (!status) *out_nanoseconds = to - from;
  return status;
}
