/* Tests of event.h, on a plugin with its own events (device 0) and on the defaults (device 2). */
#include <time.h>

#include "ipc_handle.h"
#include "support.h"

static const int32_t devices[] = {0, 2};

static void setup(void) { assert_ok(hal_registry_open(FIXTURE("tally") "," FIXTURE("five"))); }

TestSuite(event, .init = setup);

Test(event, an_event_keeps_its_device) {
  for (int i = 0; i < 2; i++) {
    hal_event_t *event;
    assert_ok(hal_event_create(devices[i], 0, &event));
    cr_assert_eq(hal_event_device(event), devices[i]);
    hal_event_destroy(event);
  }
  hal_event_destroy(NULL);
}

Test(event, an_event_never_recorded_counts_as_done) {
  for (int i = 0; i < 2; i++) {
    hal_event_t *event;
    assert_ok(hal_event_create(devices[i], 0, &event));
    assert_ok(hal_event_query(event));
    assert_ok(hal_event_synchronize(event));
    assert_ok(hal_stream_wait_event(NULL, event));
    hal_event_destroy(event);
  }
}

Test(event, elapsed_returns_nanoseconds_between_two_records) {
  for (int i = 0; i < 2; i++) {
    hal_event_t *start, *end;
    int64_t ns = -1;
    assert_ok(hal_event_create(devices[i], HAL_EVENT_TIMING, &start));
    assert_ok(hal_event_create(devices[i], HAL_EVENT_TIMING, &end));
    assert_ok(hal_event_record(start, NULL));
    struct timespec pause = {0, 2000000};
    nanosleep(&pause, NULL);
    assert_ok(hal_event_record(end, NULL));
    assert_ok(hal_event_elapsed(start, end, &ns));
    cr_assert_geq(ns, 2000000);
    cr_assert_lt(ns, INT64_C(10000000000));
    hal_event_destroy(start);
    hal_event_destroy(end);
  }
}

Test(event, elapsed_needs_timing_records_and_one_device) {
  hal_event_t *plain, *start, *end, *elsewhere;
  int64_t ns = -1;
  assert_ok(hal_event_create(0, 0, &plain));
  assert_ok(hal_event_create(0, HAL_EVENT_TIMING, &start));
  assert_ok(hal_event_create(0, HAL_EVENT_TIMING, &end));
  assert_ok(hal_event_create(2, HAL_EVENT_TIMING, &elsewhere));
  assert_fails(hal_event_elapsed(plain, end, &ns), HAL_FAILED_PRECONDITION, "HAL_EVENT_TIMING");
  assert_fails(hal_event_elapsed(start, end, &ns), HAL_FAILED_PRECONDITION, "the start event was never recorded");
  assert_ok(hal_event_record(start, NULL));
  assert_fails(hal_event_elapsed(start, end, &ns), HAL_FAILED_PRECONDITION, "the end event was never recorded");
  assert_fails(hal_event_elapsed(start, elsewhere, &ns), HAL_INVALID_ARGUMENT,
               "two devices, tally:0 and five:0 (index 2)");
  cr_assert_eq(ns, -1);
  hal_event_destroy(plain);
  hal_event_destroy(start);
  hal_event_destroy(end);
  hal_event_destroy(elsewhere);
}

Test(event, a_record_on_a_stream_of_another_device_is_refused) {
  hal_event_t *event;
  hal_stream_t *stream;
  assert_ok(hal_event_create(0, 0, &event));
  assert_ok(hal_stream_default(1, &stream));
  assert_fails(hal_event_record(event, stream), HAL_INVALID_ARGUMENT,
               "event of device tally:0 cannot be recorded on a stream of device tally:1");
  hal_event_destroy(event);
}

Test(event, a_device_out_of_range_is_refused) {
  hal_event_t *event = NULL;
  assert_fails(hal_event_create(4, 0, &event), HAL_OUT_OF_RANGE, "device 4");
  cr_assert_null(event);
}

Test(event, what_processes_share_has_no_times_and_is_made_for_it) {
  hal_event_t *event = NULL, *opened = NULL;
  ipc_handle_t handle = {.size = 64};
  assert_fails(hal_event_create(0, HAL_EVENT_INTERPROCESS | HAL_EVENT_TIMING, &event), HAL_INVALID_ARGUMENT,
               "do not support timing; create the event without HAL_EVENT_TIMING");
  cr_assert_null(event);
  assert_ok(hal_event_create(0, 0, &event));
  assert_fails(hal_event_ipc_export(event, handle.bytes, sizeof handle.bytes, &handle.size), HAL_FAILED_PRECONDITION,
               "create it with HAL_EVENT_INTERPROCESS");
  assert_fails(hal_event_ipc_open(0, handle.bytes, handle.size, &opened), HAL_UNIMPLEMENTED,
               "plugin tally does not share any");
  assert_fails(hal_event_ipc_open(99, handle.bytes, handle.size, &opened), HAL_OUT_OF_RANGE, "device 99");
  cr_assert_null(opened);
  hal_event_destroy(event);
}
