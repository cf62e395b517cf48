/* shared.c: interprocess events (hal/plugin_shared_event.h) in the queues of streams. A record is an item that
 * completes a ticket. A stream that waits for a ticket of another process is BLOCKED on a proxy with one item, which a
 * separate thread completes (proxy.c). So a wait occupies no worker, which the other process's work may depend on
 * indirectly. */
#include "hal/plugin_shared_event.h"
#include "sanitize/sanitize.h"
#include "schedule.h"

typedef struct turn_s {
  hal_shared_event_t *event;
  uint64_t ticket;
  hal_plugin_stream_t *waiting, *proxy; /* of a wait */
  fake_clock_t *clock;                  /* of a record, with the class race of HAL_FAKE_SANITIZE */
} turn_t;

static turn_t *make_turn(hal_shared_event_t *event, uint64_t ticket) {
  turn_t *const turn = hal_host->mem_alloc(sizeof *turn, alignof(turn_t));
  if (!turn) {
    fake_error(HAL_RESOURCE_EXHAUSTED, 0, "fake: no host memory for an interprocess event; free some memory");
    return NULL;
  }
  hal_shared_event_keep(event);
  *turn = (turn_t){.event = event, .ticket = ticket};
  return turn;
}

static void end_turn(turn_t *turn) {
  hal_shared_event_release(turn->event);
  if (turn->waiting) fake_stream_unref(turn->waiting);
  if (turn->proxy) fake_stream_unref(turn->proxy);
  fake_clock_drop(turn->clock);
  hal_host->mem_free(turn);
}

/* ---- records ---- */

static void complete(void *argument) {
  turn_t *const turn = argument;
  fake_history_add(NULL, 0, turn->clock);
  hal_shared_event_complete(turn->event, turn->ticket);
  end_turn(turn);
}

hal_status_t fake_shared_record(hal_shared_event_t *event, hal_plugin_stream_t *stream) {
  turn_t *const turn = make_turn(event, 0);
  if (!turn) return HAL_RESOURCE_EXHAUSTED;
  turn->ticket = hal_shared_event_record(event);
  turn->clock = fake_race_now(stream);
  const hal_status_t status = fake_stream_call(stream, complete, turn, NULL);
  if (status) complete(turn); /* no other process waits for it, because it was not recorded */
  return status;
}

/* ---- waits ---- */

/* A timeline's later work is after everything that other processes may have waited for. */
static void put_after(fake_timeline_t *timeline) {
  if (FAKE_LIKELY(!fake_races())) return;
  fake_clock_t *const clock = fake_history_find(NULL, 0);
  fake_timeline_wait(timeline, clock);
  fake_clock_drop(clock);
}

static void finish_wait(turn_t *turn) {
  if (hal_shared_event_wait(turn->event, turn->ticket)) fake_stream_fail(turn->waiting, HAL_ABORTED, FAKE_EVENT_LOST);
  fake_stream_complete(turn->proxy, 1);
  end_turn(turn);
}

static void *wait_main(void *argument) {
  fake_thread_name();
  finish_wait(argument);
  return NULL;
}

hal_status_t fake_shared_wait(hal_shared_event_t *event, hal_plugin_stream_t *stream) {
  const uint64_t ticket = hal_shared_event_last(event);
  if (!stream || !fake.settings.async || hal_shared_event_done(event, ticket)) {
    const hal_status_t status = hal_shared_event_wait(event, ticket);
    put_after(fake_timeline_of(stream));
    return status;
  }
  turn_t *const turn = make_turn(event, ticket);
  if (!turn) return HAL_RESOURCE_EXHAUSTED;
  turn->proxy = fake_proxy_make(stream->device, 0, 1);
  if (!turn->proxy) {
    end_turn(turn);
    return fake_error(HAL_RESOURCE_EXHAUSTED, 0, "fake: no host memory for a wait; free some memory");
  }
  fake_stream_ref(stream);
  turn->waiting = stream;
  fake_promise_t *const promise = fake_races() ? fake_timeline_promise(&stream->timeline, NULL) : NULL;
  const hal_status_t status = fake_stream_wait_number(stream, turn->proxy, 1, promise);
  if (status)
    end_turn(turn);
  else if (!fake_thread_start(wait_main, turn)) /* the system provides no thread, so this one waits */
    finish_wait(turn);
  return status;
}
