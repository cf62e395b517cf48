/* Tests of stream.h: pools, ids, the thread's current streams, waits across plugins. */
#include "support.h"

#include <pthread.h>
#include <time.h>

static int64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Launches one of tally's kernels with an int32 argument. */
static void launch(hal_stream_t *stream, const char *name, int32_t value) {
  static hal_module_t *module; /* for the rest of the test: unloading would wait for the device */
  hal_kernel_t *kernel;
  const hal_module_desc_t desc = {.struct_size = sizeof desc, .dialect = "tally", .options = ""};
  const hal_arg_t argument = {&value, sizeof value, HAL_ARG_VALUE};
  const hal_launch_t geometry = {
      .struct_size = sizeof geometry, .grid = {1, 1, 1}, .block = {1, 1, 1}, .arg_count = 1, .args = &argument};
  if (!module) assert_ok(hal_module_load(hal_stream_device(stream), &desc, &module));
  assert_ok(hal_kernel_get(module, name, &kernel));
  assert_ok(hal_kernel_launch(kernel, stream, &geometry));
}

Test(stream, the_default_stream_has_id_0_and_is_current_at_first) {
  hal_stream_t *stream, *current, *found;
  open_fixture("tally");
  assert_ok(hal_stream_default(1, &stream));
  assert_ok(hal_stream_current(1, &current));
  assert_ok(hal_stream_from_id(1, 0, &found));
  cr_assert_eq(stream, current);
  cr_assert_eq(stream, found);
  cr_assert_eq(hal_stream_id(stream), 0);
  cr_assert_eq(hal_stream_device(stream), 1);
  cr_assert_eq(hal_stream_priority(stream), 0);
}

Test(stream, the_default_stream_is_a_created_one_where_the_plugin_has_streams) {
  hal_stream_t *stream;
  void *native = NULL;
  assert_ok(hal_registry_open(FIXTURE("tally") "," FIXTURE("five")));
  assert_ok(hal_stream_default(0, &stream));
  assert_ok(hal_stream_native(stream, &native));
  cr_assert_not_null(native);
  assert_ok(hal_stream_default(2, &stream));
  assert_ok(hal_stream_native(stream, &native));
  cr_assert_null(native);
}

Test(stream, pools_return_32_streams_per_priority_and_then_reuse_them) {
  hal_stream_t *streams[HAL_STREAMS_PER_POOL], *again, *found;
  open_fixture("tally");
  for (int priority = 0; priority >= -1; priority--) {
    for (int i = 0; i < HAL_STREAMS_PER_POOL; i++) {
      assert_ok(hal_stream_acquire(0, priority, &streams[i]));
      cr_assert_eq(hal_stream_priority(streams[i]), priority);
      for (int j = 0; j < i; j++) {
        cr_assert_neq(streams[i], streams[j]);
        cr_assert_neq(hal_stream_id(streams[i]), hal_stream_id(streams[j]));
      }
      assert_ok(hal_stream_from_id(0, hal_stream_id(streams[i]), &found));
      cr_assert_eq(found, streams[i]);
    }
    assert_ok(hal_stream_acquire(0, priority, &again));
    cr_assert_eq(again, streams[0]);
  }
}

Test(stream, a_taken_stream_has_one_owner) {
  hal_stream_t *taken[HAL_STREAMS_PER_POOL], *other;
  open_fixture("tally");
  for (int priority = 0; priority >= -1; priority--) {
    for (int i = 0; i < HAL_STREAMS_PER_POOL; i++) {
      assert_ok(hal_stream_take(0, priority, &taken[i]));
      cr_assert_eq(hal_stream_priority(taken[i]), priority);
      for (int j = 0; j < i; j++) cr_assert_neq(taken[i], taken[j]);
    }
    for (int i = 0; i < 2 * HAL_STREAMS_PER_POOL; i++) {
      assert_ok(hal_stream_acquire(0, priority, &other));
      for (int j = 0; j < HAL_STREAMS_PER_POOL; j++) cr_assert_neq(other, taken[j]);
    }
    hal_stream_give_back(taken[5]);
    assert_ok(hal_stream_take(0, priority, &other));
    cr_assert_eq(other, taken[5]);
    for (int i = 0; i < HAL_STREAMS_PER_POOL; i++) hal_stream_give_back(taken[i]);
  }
  hal_stream_give_back(NULL);
}

Test(stream, more_owners_than_streams_share_one_of_the_pool) {
  hal_stream_t *taken[HAL_STREAMS_PER_POOL], *shared, *found;
  open_fixture("tally");
  for (int i = 0; i < HAL_STREAMS_PER_POOL; i++) assert_ok(hal_stream_take(0, 0, &taken[i]));
  assert_ok(hal_stream_take(0, 0, &shared));
  assert_ok(hal_stream_from_id(0, 1, &found));
  cr_assert_eq(shared, found);
  hal_stream_give_back(shared); /* does nothing */
  for (int i = 0; i < HAL_STREAMS_PER_POOL; i++) hal_stream_give_back(taken[i]);
}

Test(stream, other_priorities_are_clamped) {
  hal_stream_t *stream;
  open_fixture("tally");
  assert_ok(hal_stream_acquire(0, -100, &stream));
  cr_assert_eq(hal_stream_priority(stream), -1);
  assert_ok(hal_stream_acquire(0, 100, &stream));
  cr_assert_eq(hal_stream_priority(stream), 0);
}

Test(stream, an_unknown_id_is_refused) {
  hal_stream_t *stream;
  open_fixture("tally");
  assert_fails(hal_stream_from_id(0, 5, &stream), HAL_NOT_FOUND, "no stream with id 5");
  assert_fails(hal_stream_from_id(0, -1, &stream), HAL_NOT_FOUND, "id -1");
  assert_fails(hal_stream_from_id(0, 65, &stream), HAL_NOT_FOUND, "id 65");
}

static void *see_the_default(void *unused) {
  (void)unused;
  hal_stream_t *stream;
  assert_ok(hal_stream_current(0, &stream));
  cr_assert_eq(hal_stream_id(stream), 0);
  return NULL;
}

Test(stream, the_current_stream_is_per_thread_and_per_device) {
  hal_stream_t *stream, *previous, *current;
  pthread_t thread;
  open_fixture("tally");
  assert_ok(hal_stream_acquire(0, 0, &stream));
  assert_ok(hal_stream_set_current(stream, &previous));
  cr_assert_eq(hal_stream_id(previous), 0);
  assert_ok(hal_stream_current(0, &current));
  cr_assert_eq(current, stream);
  assert_ok(hal_stream_current(1, &current));
  cr_assert_eq(hal_stream_id(current), 0);
  pthread_create(&thread, NULL, see_the_default, NULL);
  pthread_join(thread, NULL);
  assert_ok(hal_stream_set_current(previous, NULL));
  assert_ok(hal_stream_current(0, &current));
  cr_assert_eq(current, previous);
}

Test(stream, NULL_is_the_current_stream_of_the_current_device) {
  hal_stream_t *stream;
  void *mine, *native;
  open_fixture("tally");
  assert_ok(hal_stream_acquire(1, 0, &stream));
  assert_ok(hal_stream_set_current(stream, NULL));
  assert_ok(hal_device_set_current(1));
  assert_ok(hal_stream_native(stream, &mine));
  assert_ok(hal_stream_native(NULL, &native));
  cr_assert_eq(mine, native);
}

Test(stream, query_returns_NOT_READY_while_work_remains) {
  hal_stream_t *stream;
  open_fixture("tally");
  assert_ok(hal_stream_acquire(0, 0, &stream));
  launch(stream, "hold", 2);
  assert_fails(hal_stream_query(stream), HAL_NOT_READY, "not done yet");
  assert_fails(hal_stream_query(stream), HAL_NOT_READY, "not done yet");
  assert_ok(hal_stream_query(stream));
}

Test(stream, synchronize_timeout_waits_no_longer_than_the_limit_and_the_work) {
  hal_stream_t *stream;
  open_fixture("tally");
  assert_ok(hal_stream_acquire(0, 0, &stream));
  launch(stream, "hold", INT32_MAX);
  const int64_t start = now_ns();
  assert_fails(hal_stream_synchronize_timeout(stream, 20000000), HAL_NOT_READY, "not done yet");
  const int64_t waited = now_ns() - start;
  cr_assert_geq(waited, 20000000);
  cr_assert_lt(waited, 5 * INT64_C(1000000000));
  launch(stream, "hold", 3);
  assert_ok(hal_stream_synchronize_timeout(stream, 60 * INT64_C(1000000000)));
}

Test(stream, an_asynchronous_failure_surfaces_once) {
  hal_stream_t *stream;
  open_fixture("tally");
  assert_ok(hal_stream_acquire(0, 0, &stream));
  launch(stream, "fail", 0);
  assert_fails(hal_stream_synchronize(stream), HAL_DATA_LOSS, "a kernel failed: fail");
  assert_ok(hal_stream_synchronize(stream));
  launch(stream, "fail", 0);
  assert_fails(hal_stream_query(stream), HAL_DATA_LOSS, "a kernel failed: fail");
  assert_ok(hal_stream_query(stream));
}

static void count_call(void *user_data) { ++*(int *)user_data; }

Test(stream, host_calls_run_once_with_and_without_streams) {
  int calls = 0;
  hal_stream_t *stream;
  assert_ok(hal_registry_open(FIXTURE("tally") "," FIXTURE("five")));
  for (int32_t device = 0; device < 4; device++) {
    assert_ok(hal_stream_acquire(device, 0, &stream));
    assert_ok(hal_stream_host_call(stream, count_call, &calls));
    assert_ok(hal_stream_synchronize(stream));
    cr_assert_eq(calls, device + 1);
  }
}

/* What a host function reports. */
typedef struct failing_s {
  hal_stream_t *stream;
  hal_status_t status;
  const char *message;
} failing_t;

static void fail(void *user_data) {
  const failing_t *const failing = user_data;
  char text[64];
  snprintf(text, sizeof text, "%s", failing->message ? failing->message : "");
  hal_stream_fail(failing->stream, failing->status, failing->message ? text : NULL);
  memset(text, 'x', sizeof text - 1); /* the message was copied */
}

Test(stream, a_failure_of_a_host_function_is_reported_once) {
  hal_stream_t *stream, *other;
  hal_event_t *event;
  open_fixture("tally");
  assert_ok(hal_stream_acquire(0, 0, &stream));
  assert_ok(hal_stream_acquire(0, 0, &other));
  failing_t failing = {stream, HAL_INVALID_ARGUMENT, "index 7 is out of range"};
  assert_ok(hal_stream_host_call(stream, fail, &failing));
  assert_fails(hal_stream_synchronize(stream), HAL_INVALID_ARGUMENT, "index 7 is out of range");
  assert_ok(hal_stream_synchronize(stream));
  failing.message = NULL;
  assert_ok(hal_stream_host_call(stream, fail, &failing));
  assert_fails(hal_stream_query(stream), HAL_INVALID_ARGUMENT, "a function of the program failed");
  assert_ok(hal_stream_query(stream));
  /* a stream that waits for the work reports it, too */
  failing.message = "index 8";
  assert_ok(hal_event_create(0, 0, &event));
  assert_ok(hal_stream_host_call(stream, fail, &failing));
  assert_ok(hal_event_record(event, stream));
  assert_ok(hal_stream_wait_event(other, event));
  assert_fails(hal_stream_synchronize(other), HAL_INVALID_ARGUMENT, "index 8");
  assert_ok(hal_stream_synchronize(stream));
  hal_event_destroy(event);
}

Test(stream, success_and_no_stream_are_no_failures) {
  hal_stream_t *stream;
  open_fixture("tally");
  assert_ok(hal_stream_acquire(0, 0, &stream));
  hal_stream_fail(stream, HAL_OK, "nothing");
  hal_stream_fail(NULL, HAL_INTERNAL, "nothing");
  assert_ok(hal_stream_synchronize(stream));
}

Test(stream, a_wait_for_an_event_of_another_plugin_never_hands_the_handle_over) {
  hal_stream_t *streams[3];
  hal_event_t *events[3];
  assert_ok(hal_registry_open(FIXTURE("tally") "," FIXTURE("tally_two") "," FIXTURE("five")));
  for (int i = 0; i < 3; i++) {
    assert_ok(hal_stream_acquire(2 * i, 0, &streams[i]));
    assert_ok(hal_event_create(2 * i, 0, &events[i]));
    assert_ok(hal_event_record(events[i], streams[i]));
  }
  /* tally returns INTERNAL for an event that it did not create */
  for (int i = 0; i < 3; i++)
    for (int j = 0; j < 3; j++) assert_ok(hal_stream_wait_event(streams[i], events[j]));
  for (int i = 0; i < 3; i++) hal_event_destroy(events[i]);
}
