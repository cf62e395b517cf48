/* event.c: the work that events record, waits for them, and the time between them. */
#define _GNU_SOURCE
#include <dirent.h>

#include "cts.h"
#include "hal/status.h"

enum { SIZE = 1 << 16, EVENTS = 500 };

void cts_case_event_lifetime(cts_t *t) {
  static const uint32_t flags[] = {0, HAL_EVENT_TIMING, HAL_EVENT_BLOCKING, HAL_EVENT_TIMING | HAL_EVENT_BLOCKING};
  for (int i = 0; i < 4; i++) {
    hal_plugin_stream_t *const stream = cts_stream(t);
    hal_plugin_event_t *const event = cts_event(t, flags[i]);
    CTS_CHECK(t, event, "event_create returned HAL_OK and no event");
    CTS_OK(t, event_record, event, stream);
    CTS_OK(t, event_synchronize, event);
    cts_sync(t, stream);
    CTS_OK(t, event_query, event);
    CTS_OK(t, event_record, event, NULL);
    CTS_OK(t, event_query, event);
    CTS_OK(t, event_destroy, event);
    CTS_OK(t, stream_destroy, stream);
  }
  CTS_JUDGE(t, event_destroy, "NULL is HAL_OK");
  CTS_STATUS(t, HAL_OK, event_destroy, NULL);
}

void cts_case_event_fresh(cts_t *t) {
  hal_plugin_event_t *const event = cts_event(t, HAL_EVENT_TIMING);
  CTS_STATUS(t, HAL_OK, event_query, event);
  CTS_JUDGE(t, event_synchronize, "never recorded returns at once");
  CTS_STATUS(t, HAL_OK, event_synchronize, event);
}

void cts_case_event_query(cts_t *t) {
  static cts_gate_t gate;
  hal_plugin_stream_t *const stream = cts_stream(t);
  hal_plugin_event_t *const event = cts_event(t, 0);
  cts_gate_close(t, &gate, stream);
  CTS_OK(t, event_record, event, stream);
  for (int i = 0; i < 5; i++) CTS_STATUS(t, HAL_NOT_READY, event_query, event);
  CTS_JUDGE(t, event_query, "HAL_NOT_READY");
  CTS_STATUS(t, HAL_NOT_READY, event_query, event);
  CTS_JUDGE(t, event_query, "without waiting");
  cts_gate_open(&gate);
  cts_sync(t, stream);
  CTS_STATUS(t, HAL_OK, event_query, event);
}

void cts_case_event_synchronize(cts_t *t) {
  for (uint32_t flags = 0; flags <= HAL_EVENT_BLOCKING; flags++) {
    static cts_gate_t gate;
    hal_plugin_stream_t *const stream = cts_stream(t);
    hal_plugin_event_t *const event = cts_event(t, flags);
    cts_gate_close(t, &gate, stream);
    CTS_OK(t, event_record, event, stream);
    cts_gate_open_later(&gate);
    CTS_OK(t, event_synchronize, event);
    CTS_CHECK(t, cts_gate_was_open(&gate), "event_synchronize returned while the recorded work was held back");
  }
}

void cts_case_event_only_earlier_work(cts_t *t) {
  static cts_gate_t gate;
  hal_plugin_stream_t *const stream = cts_stream(t);
  hal_plugin_event_t *const event = cts_event(t, 0);
  CTS_OK(t, event_record, event, stream);
  cts_gate_close(t, &gate, stream);
  CTS_OK(t, event_synchronize, event);
  CTS_STATUS(t, HAL_OK, event_query, event);
  cts_gate_open(&gate);
  cts_sync(t, stream);
}

void cts_case_event_replaces(cts_t *t) {
  static cts_gate_t gate;
  hal_plugin_stream_t *const stream = cts_stream(t), *const other = cts_stream(t);
  hal_plugin_event_t *const event = cts_event(t, 0);
  CTS_OK(t, event_record, event, stream);
  CTS_OK(t, event_synchronize, event);
  cts_gate_close(t, &gate, stream);
  CTS_OK(t, event_record, event, stream);
  CTS_STATUS(t, HAL_NOT_READY, event_query, event);
  CTS_OK(t, event_record, event, other); /* and back to a stream that is idle */
  CTS_OK(t, event_synchronize, event);
  CTS_STATUS(t, HAL_OK, event_query, event);
  cts_gate_open(&gate);
  cts_sync(t, stream);
}

/* An event of the NULL stream is done when it is recorded, regardless of earlier records; the NULL stream waits for an
 * event in the call. */
void cts_case_event_null_stream(cts_t *t) {
  static cts_gate_t gate, another;
  hal_plugin_stream_t *const stream = cts_stream(t);
  hal_plugin_event_t *const event = cts_event(t, 0), *const pending = cts_event(t, 0);
  cts_gate_close(t, &gate, stream);
  CTS_OK(t, event_record, event, stream);
  CTS_STATUS(t, HAL_NOT_READY, event_query, event);
  CTS_OK(t, event_record, event, NULL);
  CTS_STATUS(t, HAL_OK, event_query, event);
  CTS_OK(t, event_synchronize, event);
  cts_gate_open(&gate);
  cts_sync(t, stream);
  CTS_JUDGE(t, stream_wait_event, "Makes later work");
  cts_gate_close(t, &another, stream);
  CTS_OK(t, event_record, pending, stream);
  cts_gate_open_later(&another);
  CTS_OK(t, stream_wait_event, NULL, pending);
  CTS_CHECK(t, cts_gate_was_open(&another),
            "stream_wait_event of the NULL stream returned while the event's work was held back");
  cts_sync(t, stream);
}

/* A stream that waits for its own event continues. */
void cts_case_event_wait_self(cts_t *t) {
  static cts_gate_t gate;
  hal_plugin_stream_t *const stream = cts_stream(t);
  hal_plugin_event_t *const event = cts_event(t, 0);
  uint8_t *const device = cts_alloc(t, SIZE), *const bytes = cts_pinned(t, SIZE), *const got = cts_pinned(t, SIZE);
  cts_noise(bytes, SIZE, 3);
  cts_gate_close(t, &gate, stream);
  cts_put(t, stream, device, bytes, SIZE);
  CTS_OK(t, event_record, event, stream);
  CTS_OK(t, stream_wait_event, stream, event);
  cts_get(t, stream, got, device, SIZE);
  cts_gate_open(&gate);
  cts_sync(t, stream);
  cts_same(t, got, bytes, SIZE, "data that a stream reads after a wait for its own event");
}

void cts_case_event_wait(cts_t *t) {
  static cts_gate_t gate;
  hal_plugin_stream_t *const first = cts_stream(t), *const second = cts_stream(t);
  hal_plugin_event_t *const event = cts_event(t, 0);
  cts_gate_close(t, &gate, first);
  CTS_OK(t, event_record, event, first);
  CTS_OK(t, stream_wait_event, second, event);
  CTS_STATUS(t, HAL_NOT_READY, stream_query, second);
  cts_gate_open_later(&gate);
  cts_sync(t, second);
  CTS_CHECK(t, cts_gate_was_open(&gate),
            "a stream that waits for an event was done while the event's work was held back");
}

void cts_case_event_wait_unrecorded(cts_t *t) {
  static cts_gate_t gate;
  hal_plugin_stream_t *const held = cts_stream(t), *const stream = cts_stream(t);
  hal_plugin_event_t *const event = cts_event(t, 0);
  cts_gate_close(t, &gate, held); /* the watch of a gate detects a call that does not return */
  CTS_OK(t, stream_wait_event, stream, event);
  CTS_OK(t, stream_synchronize, stream);
  cts_gate_open(&gate);
}

void cts_case_event_wait_last_record(cts_t *t) {
  static cts_gate_t gate;
  hal_plugin_stream_t *const held = cts_stream(t), *const stream = cts_stream(t);
  hal_plugin_event_t *const event = cts_event(t, 0);
  CTS_OK(t, event_record, event, held);
  CTS_OK(t, stream_wait_event, stream, event);
  cts_gate_close(t, &gate, held);
  CTS_OK(t, event_record, event, held); /* after the wait was queued: not what it waits for */
  CTS_OK(t, stream_synchronize, stream);
  CTS_OK(t, stream_wait_event, stream, event);
  CTS_STATUS(t, HAL_NOT_READY, stream_query, stream);
  cts_gate_open_later(&gate);
  CTS_OK(t, stream_synchronize, stream);
  CTS_CHECK(t, cts_gate_was_open(&gate), "a stream waited for an earlier record of its event, not for the last one");
}

void cts_case_event_wait_destroyed(cts_t *t) {
  static cts_gate_t gate;
  hal_plugin_stream_t *const first = cts_stream(t), *const second = cts_stream(t);
  hal_plugin_event_t *const event = cts_event(t, 0);
  cts_gate_close(t, &gate, first);
  CTS_OK(t, event_record, event, first);
  CTS_OK(t, stream_wait_event, second, event);
  CTS_JUDGE(t, event_destroy, "queued waits on it stay valid");
  CTS_OK(t, event_destroy, event);
  /* the wait must not be for a later allocation with the memory of the destroyed event */
  for (int i = 0; i < 50; i++) {
    hal_plugin_event_t *const other = cts_event(t, 0);
    CTS_OK(t, event_record, other, NULL);
    CTS_OK(t, event_destroy, other);
  }
  CTS_STATUS(t, HAL_NOT_READY, stream_query, second);
  cts_gate_open_later(&gate);
  cts_sync(t, second);
  CTS_CHECK(t, cts_gate_was_open(&gate),
            "a stream's wait ended when the event was destroyed, before the event's work was done");
}

void cts_case_event_wait_orders_data(cts_t *t) {
  const int held = cts_is_async(t);
  uint8_t *const a = cts_alloc(t, SIZE), *const b = cts_alloc(t, SIZE), *const bytes = cts_pinned(t, SIZE),
                 *const got = cts_pinned(t, SIZE);
  hal_plugin_stream_t *const writer = cts_stream(t), *const reader = cts_stream(t);
  hal_plugin_event_t *const written = cts_event(t, 0), *const read = cts_event(t, 0);
  for (uint64_t round = 0; round < 20; round++) {
    static cts_gate_t gate;
    cts_noise(bytes, SIZE, round);
    if (held) cts_gate_close(t, &gate, writer);
    CTS_OK(t, stream_wait_event, writer, read);
    cts_put(t, writer, a, bytes, SIZE);
    CTS_OK(t, event_record, written, writer);
    CTS_OK(t, stream_wait_event, reader, written);
    CTS_OK(t, memory_copy, reader, b, t->device, a, t->device, SIZE);
    cts_get(t, reader, got, b, SIZE);
    CTS_OK(t, event_record, read, reader);
    if (held) cts_gate_open(&gate);
    cts_sync(t, reader);
    cts_same(t, got, bytes, SIZE, "what one stream read after an event of the stream that wrote it");
  }
}

static int count_files(void) {
  int count = 0;
  DIR *const folder = opendir("/proc/self/fd");
  if (!folder) return 0;
  while (readdir(folder)) count++;
  closedir(folder);
  return count;
}

void cts_case_event_destroy_gives_back(cts_t *t) {
  int files = 0;
  hal_plugin_stream_t *const stream = cts_stream(t);
  for (int i = 0; i < EVENTS + 16; i++) {
    if (i == 16) files = count_files();
    hal_plugin_event_t *const event = cts_event(t, HAL_EVENT_TIMING);
    CTS_OK(t, event_record, event, stream);
    CTS_OK(t, event_synchronize, event);
    CTS_OK(t, event_destroy, event);
  }
  const int more = count_files() - files;
  CTS_CHECK(t, more < EVENTS / 2, "%d events were made and destroyed, and the process has %d more file descriptors",
            EVENTS, more);
}

/* Both bounds are times of the host that hold on any machine: the first event is done before `inside` begins and the
 * second is recorded after it ends; both are within `outside`. Clocks of device and host may differ by a twentieth. */
void cts_case_event_elapsed(cts_t *t) {
  hal_plugin_stream_t *const stream = cts_stream(t);
  hal_plugin_event_t *const start = cts_event(t, HAL_EVENT_TIMING), *const end = cts_event(t, HAL_EVENT_TIMING);
  int64_t between = INT64_MIN, back = INT64_MIN;
  const int64_t outside = cts_now_ns();
  CTS_OK(t, event_record, start, stream);
  CTS_OK(t, event_synchronize, start);
  const int64_t inside = cts_now_ns();
  while (cts_now_ns() - inside < 40000000) cts_nap();
  const int64_t least = cts_now_ns() - inside;
  CTS_OK(t, event_record, end, stream);
  CTS_OK(t, event_synchronize, end);
  const int64_t most = cts_now_ns() - outside;
  CTS_OK(t, event_elapsed, start, end, &between);
  CTS_CHECK(t, between >= least - least / 20 - 1000000 && between <= most + most / 20 + 1000000,
            "event_elapsed returned %lld ns; by the host's clock it is between %lld and %lld", (long long)between,
            (long long)least, (long long)most);
  CTS_OK(t, event_elapsed, end, start, &back);
  CTS_CHECK(t, back == -between, "event_elapsed returned %lld ns, and %lld with the events exchanged",
            (long long)between, (long long)back);
  CTS_OK(t, event_elapsed, start, start, &back);
  CTS_CHECK(t, back == 0, "event_elapsed returned %lld ns from an event to itself", (long long)back);
}

void cts_case_event_elapsed_wrong(cts_t *t) {
  int64_t nanoseconds = 4711;
  hal_plugin_stream_t *const stream = cts_stream(t);
  hal_plugin_event_t *const good = cts_event(t, HAL_EVENT_TIMING), *const fresh = cts_event(t, HAL_EVENT_TIMING),
                            *const plain = cts_event(t, 0);
  CTS_OK(t, event_record, good, stream);
  CTS_OK(t, event_record, plain, stream);
  cts_sync(t, stream);
  CTS_STATUS(t, HAL_FAILED_PRECONDITION, event_elapsed, good, fresh, &nanoseconds);
  CTS_STATUS(t, HAL_FAILED_PRECONDITION, event_elapsed, fresh, good, &nanoseconds);
  CTS_STATUS(t, HAL_FAILED_PRECONDITION, event_elapsed, good, plain, &nanoseconds);
  CTS_GENERAL(t, "are unchanged after a failure");
  CTS_CHECK(t, nanoseconds == 4711, "event_elapsed failed and wrote %lld to its out-parameter", (long long)nanoseconds);
}

void cts_case_event_elapsed_pending(cts_t *t) {
  static cts_gate_t gate;
  int64_t nanoseconds = 4711;
  hal_plugin_stream_t *const stream = cts_stream(t);
  hal_plugin_event_t *const start = cts_event(t, HAL_EVENT_TIMING), *const end = cts_event(t, HAL_EVENT_TIMING);
  CTS_OK(t, event_record, start, stream);
  cts_gate_close(t, &gate, stream);
  CTS_OK(t, event_record, end, stream);
  CTS_STATUS(t, HAL_NOT_READY, event_elapsed, start, end, &nanoseconds);
  CTS_CHECK(t, nanoseconds == 4711, "event_elapsed failed and wrote %lld to its out-parameter", (long long)nanoseconds);
  cts_gate_open(&gate);
}
