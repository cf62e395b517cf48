/* wait.c: threads that wait for a stream: rule 2 of schedule.h. */
#include <sched.h>

#include "schedule.h"

/* Sleeps until the stream reaches `number`, is signaled, or the time is over (negative = no limit). Does not sleep if
 * the stream is not RUNNING, unless `any_state`: the caller then has other work to do. */
static void sleep_on(hal_plugin_stream_t *stream, uint64_t number, int64_t timeout_ns, int any_state) {
  fake_lock(&stream->lock);
  if (fake_stream_wake_at(stream, number) || (!any_state && stream->state != FAKE_STREAM_RUNNING)) {
    fake_unlock(&stream->lock);
    return;
  }
  stream->sleepers++;
  const uint32_t seen = atomic_load_explicit(&stream->signal, memory_order_relaxed);
  fake_unlock(&stream->lock);
  fake_futex_wait(&stream->signal, seen, timeout_ns);
  fake_lock(&stream->lock);
  stream->sleepers--;
  fake_unlock(&stream->lock);
}

/* Makes one step towards item `number` of the stream: runs it, helps, or waits. If the stream is BLOCKED, returns the
 * stream that it waits for, with a reference, and that stream's item. */
static hal_plugin_stream_t *wait_step(hal_plugin_stream_t *stream, uint64_t number, int *inout_searched,
                                      uint64_t *out_number) {
  fake_lock(&stream->lock);
  const uint32_t state = stream->state;
  hal_plugin_stream_t *other = NULL;
  if (state == FAKE_STREAM_READY) {
    stream->state = FAKE_STREAM_RUNNING;
  } else if (state == FAKE_STREAM_BLOCKED && stream->wait_stream) {
    other = stream->wait_stream;
    fake_stream_ref(other);
    *out_number = stream->wait_number;
  }
  fake_unlock(&stream->lock);

  if (state == FAKE_STREAM_READY) {
    fake_stream_run_claimed(stream, number);
  } else if (state == FAKE_STREAM_RUNNING && !fake_pool_help(stream)) {
    if (!*inout_searched) {
      FAKE_SPIN_UNTIL(fake_stream_done(stream) >= number);
      *inout_searched = 1;
    } else {
      sleep_on(stream, number, -1, 0);
    }
  }
  return other;
}

void fake_stream_wait(hal_plugin_stream_t *stream, uint64_t number) {
  int searched = 0;
  hal_plugin_stream_t *at =
      stream; /* the stream that this waits for now: the stream itself, or one that it waits for indirectly */
  uint64_t at_number = number;
  while (fake_stream_done(stream) < number) {
    hal_plugin_stream_t *next = NULL;
    uint64_t next_number = 0;
    if (fake_stream_done(at) < at_number)
      next = wait_step(at, at_number, &searched, &next_number);
    else
      sched_yield(); /* `at` has reached the number, and its waiters are being unblocked */
    if (next || fake_stream_done(at) >= at_number) {
      if (at != stream) fake_stream_unref(at);
      at = next ? next : stream;
      at_number = next ? next_number : number;
    }
  }
  if (at != stream) fake_stream_unref(at);
}

int fake_stream_wait_timeout(hal_plugin_stream_t *stream, uint64_t number, int64_t timeout_ns) {
  if (fake_stream_done(stream) >= number) return 1;
  int64_t end = 0;
  if (timeout_ns <= 0) return 0;
  if (__builtin_add_overflow(fake_now(), timeout_ns, &end)) end = INT64_MAX;
  while (fake_stream_done(stream) < number) {
    const int64_t left = end - fake_now();
    if (left <= 0) return 0;
    sleep_on(stream, number, left, 1);
  }
  return 1;
}
