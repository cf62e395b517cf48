/* fake_event.c: events of the fake device: queries, times, replaced records, and rejected calls. */
#define _GNU_SOURCE
#include "fake_support.h"

TestSuite(fake_event, .fini = close_plugin);

static void sleep_5_ms(void *unused) {
  (void)unused;
  fake_sleep_ms(5);
}

Test(fake_event, never_recorded_counts_as_done) {
  open_mode(1, 2);
  hal_plugin_event_t *event = new_event(0);
  must(fake_api.event_query(event));
  must(fake_api.event_synchronize(event));
  must(fake_api.stream_wait_event(new_stream(), event));
  destroy_event(event);
  must(fake_api.event_destroy(NULL));
}

static void pending(uint32_t flags) {
  open_mode(1, 2);
  hal_plugin_stream_t *stream = new_stream();
  hal_plugin_event_t *before = new_event(flags), *after = new_event(flags);
  fake_gate_t gate = {0};
  must(fake_api.event_record(before, stream));
  must(fake_api.event_synchronize(before));
  must(fake_api.stream_host_call(stream, fake_gate_wait, &gate));
  must(fake_api.event_record(after, stream));
  must(fake_api.event_query(before));
  cr_assert_eq(fake_api.event_query(after), HAL_NOT_READY);
  atomic_store(&gate.open, 1);
  must(fake_api.event_synchronize(after));
  must(fake_api.event_query(after));
}

Test(fake_event, query_returns_whether_the_recorded_work_is_done, .timeout = 60) { pending(0); }
Test(fake_event, query_returns_whether_the_recorded_work_is_done_timing, .timeout = 60) { pending(HAL_EVENT_TIMING); }

Test(fake_event, later_record_replaces_the_earlier_one, .timeout = 60) {
  open_mode(1, 2);
  hal_plugin_stream_t *held = new_stream(), *free_stream = new_stream();
  hal_plugin_event_t *event = new_event(HAL_EVENT_TIMING), *start = new_event(HAL_EVENT_TIMING);
  fake_gate_t gate = {0};
  must(fake_api.event_record(start, free_stream));
  must(fake_api.stream_host_call(held, fake_gate_wait, &gate));
  must(fake_api.event_record(event, held));
  cr_assert_eq(fake_api.event_query(event), HAL_NOT_READY);
  must(fake_api.event_record(event, free_stream));
  must(fake_api.event_synchronize(event)); /* does not wait for the gate */
  int64_t first = 0, second = 0;
  must(fake_api.event_elapsed(start, event, &first));
  fake_sleep_ms(5);
  atomic_store(&gate.open, 1);
  must(fake_api.stream_synchronize(held));
  must(fake_api.event_elapsed(start, event, &second));
  cr_assert_eq(first, second, "the time of the replaced record must not count");
}

static void elapsed(int async) {
  open_mode(async, 2);
  hal_plugin_stream_t *stream = new_stream();
  hal_plugin_event_t *start = new_event(HAL_EVENT_TIMING), *end = new_event(HAL_EVENT_TIMING);
  const int64_t before = fake_clock();
  must(fake_api.event_record(start, stream));
  must(fake_api.stream_host_call(stream, sleep_5_ms, NULL));
  must(fake_api.event_record(end, stream));
  must(fake_api.event_synchronize(end));
  const int64_t outside = fake_clock() - before;
  int64_t forward = 0, backward = 0;
  must(fake_api.event_elapsed(start, end, &forward));
  must(fake_api.event_elapsed(end, start, &backward));
  cr_assert(forward >= 5000000 && forward <= outside, "%lld ns", (long long)forward);
  cr_assert_eq(backward, -forward);
}

Test(fake_event, elapsed_is_the_time_between, .timeout = 60) { elapsed(1); }
Test(fake_event, elapsed_is_the_time_between_inline, .timeout = 60) { elapsed(0); }

Test(fake_event, elapsed_refuses_what_has_no_time, .timeout = 60) {
  setenv("HAL_FAKE_DEVICES", "2", 1);
  open_mode(1, 2);
  hal_plugin_stream_t *stream = new_stream();
  hal_plugin_event_t *timed = new_event(HAL_EVENT_TIMING), *plain = new_event(0), *fresh = new_event(HAL_EVENT_TIMING);
  hal_plugin_event_t *foreign = NULL;
  must(fake_api.event_create(1, HAL_EVENT_TIMING, &foreign));
  events[event_count++] = foreign;
  must(fake_api.event_record(timed, stream));
  must(fake_api.event_record(plain, stream));
  must(fake_api.event_record(foreign, NULL));
  must(fake_api.stream_synchronize(stream));
  int64_t ns = 77;
  must_fail(fake_api.event_elapsed(timed, plain, &ns), HAL_FAILED_PRECONDITION, "HAL_EVENT_TIMING");
  must_fail(fake_api.event_elapsed(timed, fresh, &ns), HAL_FAILED_PRECONDITION, "never recorded");
  must_fail(fake_api.event_elapsed(timed, foreign, &ns), HAL_INVALID_ARGUMENT, "one device");
  fake_gate_t gate = {0};
  must(fake_api.stream_host_call(stream, fake_gate_wait, &gate));
  must(fake_api.event_record(fresh, stream));
  cr_assert_eq(fake_api.event_elapsed(timed, fresh, &ns), HAL_NOT_READY);
  cr_assert_eq(ns, 77, "out-parameters must be unchanged on failure");
  atomic_store(&gate.open, 1);
  must(fake_api.stream_synchronize(stream));
}

Test(fake_event, events_between_processes_are_refused) {
  open_mode(1, 1);
  hal_plugin_event_t *event = NULL;
  must_fail(fake_api.event_create(0, HAL_EVENT_INTERPROCESS | HAL_EVENT_TIMING, &event), HAL_UNIMPLEMENTED, "0x5");
  cr_assert_null(event);
}

/* An event also orders streams of two devices. */
Test(fake_event, orders_streams_of_two_devices, .timeout = 60) {
  setenv("HAL_FAKE_DEVICES", "2", 1);
  setenv("HAL_FAKE_DELAY", "500", 1);
  open_mode(1, 4);
  hal_plugin_stream_t *here = new_stream(), *there = NULL;
  hal_plugin_event_t *event = new_event(0);
  float *data = new_floats(16, 0), *ones = new_floats(16, 1), *copy = NULL;
  must(fake_api.stream_create(1, &(const hal_stream_desc_t)HAL_STREAM_DESC(0), &there));
  must(fake_api.memory_alloc(1, 64, 0, (void **)&copy));
  for (int i = 1; i <= 50; i++) {
    add_ones(here, data, ones, 16);
    must(fake_api.event_record(event, here));
    must(fake_api.stream_wait_event(there, event));
    must(fake_api.memory_copy(there, copy, 1, data, 0, 64));
    must(fake_api.event_record(event, there));
    must(fake_api.stream_wait_event(here, event));
    if (i % 10) continue;
    must(fake_api.stream_synchronize(there));
    cr_assert_eq(copy[7], (float)i);
  }
}
