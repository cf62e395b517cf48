/* events.c: step 3, events. Queued work has its own reference to an event, so an event may be destroyed early. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <time.h>

#include "acme.h"

struct hal_plugin_event_s {
  pthread_mutex_t lock; /* guards all below */
  pthread_cond_t changed;
  uint64_t recorded, reached; /* numbers of records */
  int64_t time_ns;            /* of the last record that was reached */
  uint32_t flags;
  int references; /* the owner, and queued work */
};

typedef struct mark_s {
  hal_plugin_event_t *event;
  uint64_t record;
} mark_t;

static void release(hal_plugin_event_t *event) {
  pthread_mutex_lock(&event->lock);
  const int left = --event->references;
  pthread_mutex_unlock(&event->lock);
  if (left) return;
  pthread_cond_destroy(&event->changed);
  pthread_mutex_destroy(&event->lock);
  hal_host->mem_free(event);
}

hal_status_t hal_plugin_event_create(int32_t device, uint32_t flags, hal_plugin_event_t **out_event) {
  (void)device;
  const hal_status_t status = hal_flags_check("acme: event_create", flags, HAL_EVENT_TIMING | HAL_EVENT_BLOCKING);
  if (status) return status;
  hal_plugin_event_t *const event = hal_host->mem_alloc(sizeof *event, _Alignof(hal_plugin_event_t));
  if (!event) return hal_host->error_set(HAL_RESOURCE_EXHAUSTED, 0, "acme: no host memory for an event");
  *event = (hal_plugin_event_t){.flags = flags, .references = 1};
  pthread_mutex_init(&event->lock, NULL);
  pthread_cond_init(&event->changed, NULL);
  *out_event = event;
  return HAL_OK;
}

hal_status_t hal_plugin_event_destroy(hal_plugin_event_t *event) {
  if (event) release(event);
  return HAL_OK;
}

static void run_record(const void *arguments) {
  const mark_t *const mark = arguments;
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  pthread_mutex_lock(&mark->event->lock);
  if (mark->record > mark->event->reached) {
    mark->event->reached = mark->record;
    mark->event->time_ns = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
  }
  pthread_cond_broadcast(&mark->event->changed);
  pthread_mutex_unlock(&mark->event->lock);
  release(mark->event);
}

static void run_wait(const void *arguments) {
  const mark_t *const mark = arguments;
  pthread_mutex_lock(&mark->event->lock);
  while (mark->event->reached < mark->record) pthread_cond_wait(&mark->event->changed, &mark->event->lock);
  pthread_mutex_unlock(&mark->event->lock);
  release(mark->event);
}

static hal_status_t queue(hal_plugin_stream_t *stream, hal_plugin_event_t *event, int records,
                          void (*run)(const void *)) {
  pthread_mutex_lock(&event->lock);
  event->references++;
  event->recorded += (uint64_t)records;
  const mark_t mark = {event, event->recorded};
  pthread_mutex_unlock(&event->lock);
  const hal_status_t status = acme_submit(stream, run, &mark, sizeof mark);
  if (!status) return HAL_OK;
  pthread_mutex_lock(&event->lock);
  event->recorded -= (uint64_t)records;
  pthread_mutex_unlock(&event->lock);
  release(event);
  return status;
}

hal_status_t hal_plugin_event_record(hal_plugin_event_t *event, hal_plugin_stream_t *stream) {
  return queue(stream, event, 1, run_record);
}

hal_status_t hal_plugin_stream_wait_event(hal_plugin_stream_t *stream, hal_plugin_event_t *event) {
  return queue(stream, event, 0, run_wait);
}

hal_status_t hal_plugin_event_query(hal_plugin_event_t *event) {
  pthread_mutex_lock(&event->lock);
  const int ready = event->reached >= event->recorded;
  pthread_mutex_unlock(&event->lock);
  return ready ? HAL_OK : HAL_NOT_READY;
}

hal_status_t hal_plugin_event_synchronize(hal_plugin_event_t *event) {
  pthread_mutex_lock(&event->lock);
  for (const uint64_t wanted = event->recorded; event->reached < wanted;)
    pthread_cond_wait(&event->changed, &event->lock);
  pthread_mutex_unlock(&event->lock);
  return HAL_OK;
}

static hal_status_t time_of(hal_plugin_event_t *event, int64_t *out_ns) {
  pthread_mutex_lock(&event->lock);
  const int timed = event->recorded && (event->flags & HAL_EVENT_TIMING);
  const int ready = event->reached >= event->recorded;
  *out_ns = event->time_ns;
  pthread_mutex_unlock(&event->lock);
  if (!timed)
    return hal_host->error_set(HAL_FAILED_PRECONDITION, 0, "acme: event without a time; record it with timing");
  return ready ? HAL_OK : HAL_NOT_READY;
}

hal_status_t hal_plugin_event_elapsed(hal_plugin_event_t *start, hal_plugin_event_t *end, int64_t *out_nanoseconds) {
  int64_t from, to;
  hal_status_t status = time_of(start, &from);
  if (!status) status = time_of(end, &to);
  if (!status) *out_nanoseconds = to - from;
  return status;
}
