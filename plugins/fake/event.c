/* event.c: events. A record is a pair (stream, number of items queued so far), done when the stream has done that many.
 * Only an event with HAL_EVENT_TIMING queues an item, which stores the time. A waiting stream stores that pair, not the
 * event. */
#include <string.h>

#include "hal/plugin_shared_event.h"
#include "sanitize/sanitize.h"

struct hal_plugin_event_s {
  atomic_uint refs; /* the owner's reference, and one for each queued time stamp */
  uint32_t flags;
  int32_t device;
  uint32_t recorded;
  hal_plugin_stream_t *stream; /* a reference; NULL: the record is done */
  uint64_t number;
  uint64_t generation; /* of the last record: older time stamps are ignored */
  int64_t time_ns;
  fake_mark_t mark;           /* of a record on a captured stream */
  fake_clock_t *clock;        /* of the record, with the class race of HAL_FAKE_SANITIZE: a reference */
  hal_shared_event_t *shared; /* of an interprocess event, which uses only the first three of the other members */
};

/* Events share these locks by address. They are not members of the event, because after a fork the child could not find
 * the events whose lock another thread held. */
static struct { alignas(FAKE_CACHE_LINE) fake_lock_t lock; } event_locks[64];

static fake_lock_t *lock_of(const hal_plugin_event_t *event) { return &event_locks[((uintptr_t)event >> 6) % 64].lock; }

static hal_status_t make(int32_t device, uint32_t flags, hal_plugin_event_t **out_event) {
  hal_plugin_event_t *event = hal_host->mem_alloc(sizeof *event, FAKE_CACHE_LINE);
  if (!event) return fake_error(HAL_RESOURCE_EXHAUSTED, 0, "fake: no host memory for an event; free some memory");
  memset(event, 0, sizeof *event);
  atomic_store_explicit(&event->refs, 1, memory_order_relaxed);
  event->flags = flags;
  event->device = device;
  *out_event = event;
  return HAL_OK;
}

static void unref(hal_plugin_event_t *event) {
  if (atomic_fetch_sub_explicit(&event->refs, 1, memory_order_acq_rel) != 1) return;
  hal_shared_event_release(event->shared);
  if (event->stream) fake_stream_unref(event->stream);
  fake_clock_drop(event->clock);
  hal_host->mem_free(event);
}

hal_status_t hal_plugin_event_create(int32_t device, uint32_t flags, hal_plugin_event_t **out_event) {
  const uint32_t known = HAL_EVENT_TIMING | HAL_EVENT_BLOCKING | HAL_EVENT_INTERPROCESS;
  hal_plugin_event_t *event = NULL;
  hal_status_t status = fake_check_device(device);
  if (status) return status;
  if (flags & ~known || (flags & HAL_EVENT_INTERPROCESS && flags & HAL_EVENT_TIMING))
    return fake_error(HAL_UNIMPLEMENTED, 0,
                      "fake: events with flags 0x%x are unsupported (only timing, or between processes; blocking)",
                      (unsigned)flags);
  status = make(device, flags, &event);
  if (!status && flags & HAL_EVENT_INTERPROCESS) status = hal_shared_event_make("fake", &event->shared);
  if (!status)
    *out_event = event;
  else if (event)
    unref(event);
  return status;
}

hal_status_t hal_plugin_event_destroy(hal_plugin_event_t *event) {
  if (event) unref(event);
  return HAL_OK;
}

/* ---- between processes ------------------------------------------------------------------------------------------ */

hal_status_t hal_plugin_event_ipc_export(hal_plugin_event_t *event, uint32_t flags, void *handle, size_t room,
                                         size_t *out_size) {
  hal_status_t status = hal_flags_check("fake: event_ipc_export", flags, 0);
  if (status) return status;
  if (!event->shared)
    return fake_error(
        HAL_INVALID_ARGUMENT, 0,
        "fake: an event that was created without HAL_EVENT_INTERPROCESS cannot be shared with other processes");
  hal_shared_event_export(event->shared, handle, room, out_size);
  return HAL_OK;
}

hal_status_t hal_plugin_event_ipc_open(int32_t device, const void *handle, size_t handle_size, uint32_t flags,
                                       hal_plugin_event_t **out_event) {
  hal_plugin_event_t *event = NULL;
  hal_status_t status = fake_check_device(device);
  if (!status) status = hal_flags_check("fake: event_ipc_open", flags, 0);
  if (!status) status = make(device, HAL_EVENT_INTERPROCESS, &event);
  if (status) return status;
  status = hal_shared_event_open("fake", handle, handle_size, &event->shared);
  if (status)
    unref(event);
  else
    *out_event = event;
  return status;
}

static hal_status_t refuse_captured(const char *call) {
  return fake_error(HAL_FAILED_PRECONDITION, 0,
                    "fake: %s of an interprocess event on a captured stream; create it without "
                    "HAL_EVENT_INTERPROCESS, or use it outside of the capture",
                    call);
}

/* ---- within this one -------------------------------------------------------------------------------------------- */

void fake_event_stamp(hal_plugin_event_t *event, uint64_t generation) {
  fake_lock(lock_of(event));
  if (event->generation == generation) event->time_ns = fake_now();
  fake_unlock(lock_of(event));
  unref(event);
}

/* Replaces the clock of the record by what was submitted so far to a timeline. */
static void set_clock(hal_plugin_event_t *event, fake_timeline_t *timeline) {
  if (FAKE_LIKELY(!fake_races())) return;
  fake_clock_t *const clock = fake_timeline_now(timeline);
  fake_lock(lock_of(event));
  fake_clock_t *const old = event->clock;
  event->clock = clock;
  fake_unlock(lock_of(event));
  fake_clock_drop(old);
}

/* Returns the clock of a record that belongs to a capture, or of one that does not: a reference. */
static fake_clock_t *clock_of(hal_plugin_event_t *event, int is_captured) {
  if (FAKE_LIKELY(!fake_races())) return NULL;
  fake_lock(lock_of(event));
  fake_clock_t *const clock = !event->mark.capture == !is_captured ? fake_clock_ref(event->clock) : NULL;
  fake_unlock(lock_of(event));
  return clock;
}

static void put_after(fake_timeline_t *timeline, fake_clock_t *clock) {
  fake_timeline_wait(timeline, clock);
  fake_clock_drop(clock);
}

/* Returns whether the record is done: there is no stream, or it has reached the record, and the event no longer needs
 * it. Otherwise returns the stream, with a reference, and the number to wait for. */
static int is_done(hal_plugin_event_t *event, hal_plugin_stream_t **out_stream, uint64_t *out_number) {
  hal_plugin_stream_t *finished = NULL;
  fake_lock(lock_of(event));
  hal_plugin_stream_t *stream = event->stream;
  if (stream && fake_stream_done(stream) >= event->number) {
    finished = stream;
    event->stream = stream = NULL;
  }
  if (stream && out_stream) {
    fake_stream_ref(stream);
    *out_stream = stream;
    *out_number = event->number;
  }
  fake_unlock(lock_of(event));
  if (finished) fake_stream_unref(finished);
  return !stream;
}

/* Replaces the record by (stream, number), unless a later one was set in between; takes ownership of a reference to the
 * stream. */
static void set_record(hal_plugin_event_t *event, uint64_t generation, hal_plugin_stream_t *stream, uint64_t number) {
  fake_lock(lock_of(event));
  hal_plugin_stream_t *old = stream;
  if (event->generation == generation) {
    old = event->stream;
    event->stream = stream;
    event->number = number;
    event->recorded = 1;
    event->mark = (fake_mark_t){0};
    if (!stream) event->time_ns = fake_now();
  }
  fake_unlock(lock_of(event));
  if (old) fake_stream_unref(old);
}

/* A record on a captured stream stores no time: it marks the work captured so far. */
static hal_status_t record_captured(hal_plugin_event_t *event, hal_plugin_stream_t *stream) {
  fake_mark_t mark = {.stream = stream};
  set_clock(event, &stream->branch);
  mark.capture = fake_capture_mark(stream, &mark.number);
  fake_lock(lock_of(event));
  hal_plugin_stream_t *const old = event->stream;
  event->generation++;
  event->stream = NULL;
  event->recorded = 0;
  event->mark = mark;
  fake_unlock(lock_of(event));
  if (old) fake_stream_unref(old);
  return HAL_OK;
}

static fake_mark_t mark_of(hal_plugin_event_t *event) {
  fake_lock(lock_of(event));
  const fake_mark_t mark = event->mark;
  fake_unlock(lock_of(event));
  return mark;
}

/* Returns HAL_OK, or the reason why the event cannot be waited for. */
static hal_status_t check_waited(hal_plugin_event_t *event, const char *call) {
  if (FAKE_LIKELY(!mark_of(event).capture)) return HAL_OK;
  return fake_error(
      HAL_FAILED_PRECONDITION, 0,
      "fake: %s of an event that was recorded on a captured stream, whose work did not run; record it again", call);
}

hal_status_t hal_plugin_event_record(hal_plugin_event_t *event, hal_plugin_stream_t *stream) {
  if (FAKE_UNLIKELY(event->shared != NULL))
    return stream && fake_is_captured(stream) ? refuse_captured("event_record")
                                              : fake_shared_record(event->shared, stream);
  if (stream && fake_is_captured(stream)) return record_captured(event, stream);
  set_clock(event, fake_timeline_of(stream));
  fake_lock(lock_of(event));
  const uint64_t generation = ++event->generation;
  fake_unlock(lock_of(event));
  if (stream && !fake.settings.async) { /* wait for a thread that may be running an item of it */
    fake_lock(&stream->lock);
    fake_unlock(&stream->lock);
    stream = NULL;
  }
  if (!stream) {
    set_record(event, generation, NULL, 0);
    return HAL_OK;
  }
  uint64_t number = fake_stream_tail(stream);
  if (event->flags & HAL_EVENT_TIMING) {
    fake_item_t *item = fake_queue_reserve(stream, sizeof *item, FAKE_ITEM_RECORD);
    if (!item) return fake_queue_refused(stream);
    atomic_fetch_add_explicit(&event->refs, 1, memory_order_relaxed);
    item->u.record.event = event;
    item->u.record.generation = generation;
    number = fake_queue_commit(stream, item);
  }
  fake_stream_ref(stream);
  set_record(event, generation, stream, number);
  return HAL_OK;
}

hal_status_t hal_plugin_event_query(hal_plugin_event_t *event) {
  if (FAKE_UNLIKELY(event->shared != NULL)) {
    const int done = hal_shared_event_done(event->shared, hal_shared_event_last(event->shared));
    return done ? fake_shared_wait(event->shared, NULL) : HAL_NOT_READY;
  }
  fake_clock_t *const clock = clock_of(event, 0);
  const int done = is_done(event, NULL, NULL);
  if (done) fake_timeline_wait(NULL, clock);
  fake_clock_drop(clock);
  return done ? check_waited(event, "event_query") : HAL_NOT_READY;
}

hal_status_t hal_plugin_event_synchronize(hal_plugin_event_t *event) {
  if (FAKE_UNLIKELY(event->shared != NULL)) return fake_shared_wait(event->shared, NULL);
  hal_plugin_stream_t *stream = NULL;
  uint64_t number = 0;
  fake_clock_t *const clock = clock_of(event, 0);
  const int done = is_done(event, &stream, &number);
  if (!done) {
    fake_stream_wait(stream, number);
    fake_stream_unref(stream);
  }
  put_after(NULL, clock);
  return done ? check_waited(event, "event_synchronize") : HAL_OK;
}

hal_status_t hal_plugin_event_elapsed(hal_plugin_event_t *start, hal_plugin_event_t *end, int64_t *out_nanoseconds) {
  if (!(start->flags & end->flags & HAL_EVENT_TIMING))
    return fake_error(HAL_FAILED_PRECONDITION, 0,
                      "fake: elapsed time of events created without HAL_EVENT_TIMING; create both "
                      "with timing enabled");
  if (start->device != end->device)
    return fake_error(HAL_INVALID_ARGUMENT, 0,
                      "fake: elapsed time between events of device %d and device %d; use events "
                      "of one device",
                      (int)start->device, (int)end->device);
  int64_t time_ns[2] = {0, 0};
  hal_plugin_event_t *const events[2] = {start, end};
  for (int i = 0; i < 2; i++) {
    fake_lock(lock_of(events[i]));
    const uint32_t recorded = events[i]->recorded;
    fake_unlock(lock_of(events[i]));
    const hal_status_t waited = check_waited(events[i], "event_elapsed");
    if (waited) return waited;
    if (!recorded)
      return fake_error(HAL_FAILED_PRECONDITION, 0,
                        "fake: elapsed time of an event that was never recorded; record both");
    if (!is_done(events[i], NULL, NULL)) return HAL_NOT_READY;
    fake_lock(lock_of(events[i]));
    time_ns[i] = events[i]->time_ns;
    fake_unlock(lock_of(events[i]));
    put_after(NULL, clock_of(events[i], 0));
  }
  *out_nanoseconds = time_ns[1] - time_ns[0];
  return HAL_OK;
}

hal_status_t fake_stream_wait_number(hal_plugin_stream_t *stream, hal_plugin_stream_t *other, uint64_t number,
                                     fake_promise_t *promise) {
  fake_item_t *item = fake_queue_reserve(stream, sizeof *item, FAKE_ITEM_WAIT);
  if (!item) {
    fake_promise_keep(promise, number);
    return fake_queue_refused(stream);
  }
  fake_stream_ref(other); /* the item's reference */
  item->u.wait.stream = other;
  item->u.wait.number = number;
  item->u.wait.promise = promise;
  fake_queue_commit(stream, item);
  return HAL_OK;
}

/* Returns whether an event was recorded on a stream that was not captured. */
static int is_outside(hal_plugin_event_t *event) {
  fake_lock(lock_of(event));
  const int outside = event->recorded != 0;
  fake_unlock(lock_of(event));
  return outside;
}

hal_status_t hal_plugin_stream_wait_event(hal_plugin_stream_t *stream, hal_plugin_event_t *event) {
  if (FAKE_UNLIKELY(event->shared != NULL))
    return stream && fake_is_captured(stream) ? refuse_captured("stream_wait_event")
                                              : fake_shared_wait(event->shared, stream);
  if (FAKE_UNLIKELY(atomic_load_explicit(&fake.captures, memory_order_relaxed) != 0)) {
    const fake_mark_t mark = mark_of(event);
    if (mark.capture || (stream && fake_is_captured(stream) && is_outside(event))) {
      const hal_status_t status = fake_capture_wait(stream, &mark);
      if (!status) put_after(&stream->branch, clock_of(event, 1));
      return status;
    }
  }
  if (!stream) return hal_plugin_event_synchronize(event);
  put_after(&stream->timeline, clock_of(event, 0));
  hal_plugin_stream_t *other = NULL;
  uint64_t number = 0;
  if (is_done(event, &other, &number)) return check_waited(event, "stream_wait_event");
  const hal_status_t status = other == stream ? HAL_OK /* earlier work of the same stream */
                                              : fake_stream_wait_number(stream, other, number, NULL);
  fake_stream_unref(other);
  return status;
}

void fake_event_fork_child(void) {
  for (size_t i = 0; i < sizeof event_locks / sizeof *event_locks; i++) fake_lock_reset(&event_locks[i].lock);
}
