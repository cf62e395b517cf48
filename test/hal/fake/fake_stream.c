/* fake_stream.c: streams of the fake device keep the order, run asynchronously, and wait without occupying threads. */
#define _GNU_SOURCE
#include <pthread.h>

#include "fake_support.h"

TestSuite(fake_stream, .fini = close_plugin);

#define PATIENCE_MS 20000 /* a loaded machine is slow; a lost wake-up would wait forever */

Test(fake_stream, gated_by_host_function_enqueue_returns_and_query_is_not_ready, .timeout = 60) {
  open_mode(1, 2);
  hal_plugin_stream_t *stream = new_stream();
  float *data = new_floats(16, 0), *ones = new_floats(16, 1);
  fake_gate_t gate = {0};
  must(fake_api.stream_host_call(stream, fake_gate_wait, &gate));
  add_ones(stream, data, ones, 16); /* returns although the gate is closed; otherwise this test ends by its timeout */
  cr_assert_eq(fake_api.stream_query(stream), HAL_NOT_READY);
  fake_sleep_ms(20);
  cr_assert_eq(fake_api.stream_query(stream), HAL_NOT_READY);
  cr_assert_eq(data[0], 0.0f);
  atomic_store(&gate.open, 1);
  cr_assert(finishes_within(stream, PATIENCE_MS));
  cr_assert_eq(data[0], 1.0f);
}

Test(fake_stream, gated_by_event_enqueue_returns_and_query_is_not_ready, .timeout = 60) {
  open_mode(1, 2);
  hal_plugin_stream_t *gated = new_stream(), *other = new_stream();
  float *data = new_floats(16, 0), *ones = new_floats(16, 1);
  hal_plugin_event_t *event = new_event(0);
  fake_gate_t gate = {0};
  must(fake_api.stream_host_call(other, fake_gate_wait, &gate));
  must(fake_api.event_record(event, other));
  must(fake_api.stream_wait_event(gated, event));
  add_ones(gated, data, ones, 16);
  fake_sleep_ms(20);
  cr_assert_eq(fake_api.stream_query(gated), HAL_NOT_READY);
  cr_assert_eq(data[0], 0.0f);
  atomic_store(&gate.open, 1);
  cr_assert(finishes_within(gated, PATIENCE_MS));
  cr_assert_eq(data[0], 1.0f);
}

Test(fake_stream, the_name_of_a_stream_is_in_its_failures, .timeout = 60) {
  setenv("HAL_FAKE_FAULT", "1", 1);
  open_mode(1, 2);
  hal_plugin_stream_t *stream = new_stream();
  float *data = new_floats(16, 0), *ones = new_floats(16, 1);
  must(fake_api.object_name_set(0, HAL_OBJECT_STREAM, stream, "a"));
  must(fake_api.object_name_set(0, HAL_OBJECT_STREAM, stream, "data loader"));
  cr_assert_eq(fake_api.object_name_set(0, HAL_OBJECT_STREAM, NULL, "x"), HAL_INVALID_ARGUMENT);
  add_ones(stream, data, ones, 16);
  must_fail(fake_api.stream_synchronize(stream), HAL_INTERNAL,
            "failed on the device on stream 'data loader' (injected");
}

/* No thread waits for the small work items, so that only a worker can run them: directly after other work, while one
 * worker naps, and when all workers sleep. */
Test(fake_stream, small_work_items_run_without_a_waiting_thread, .timeout = 120) {
  open_mode(1, 2);
  hal_plugin_stream_t *stream = new_stream();
  float *data = new_floats(16, 0), *ones = new_floats(16, 1);
  static const int pauses_ms[] = {0, 0, 1, 3, 10, 30, 200, 0};
  for (size_t i = 0; i < sizeof pauses_ms / sizeof *pauses_ms; i++) {
    fake_sleep_ms(pauses_ms[i]);
    must(fake_api.stream_synchronize(stream)); /* the work that follows counts as small */
    add_ones(stream, data, ones, 16);
    cr_assert(finishes_within(stream, PATIENCE_MS), "after a pause of %d ms", pauses_ms[i]);
    cr_assert_eq(data[0], (float)(i + 1));
  }
}

/* A thread that waits after each launch runs the work itself, or takes it from a worker. Each result is present, in
   order. */
Test(fake_stream, waiting_after_every_launch_produces_every_result, .timeout = 120) {
  open_mode(1, 2);
  hal_plugin_stream_t *stream = new_stream();
  float *data = new_floats(16, 0), *ones = new_floats(16, 1);
  for (int i = 1; i <= 2000; i++) {
    float seen = -1;
    add_ones(stream, data, ones, 16);
    must(fake_api.memory_copy(stream, &seen, HAL_HOST, data, 0, sizeof seen));
    must(fake_api.stream_synchronize(stream));
    cr_assert_eq(seen, (float)i);
    if (i % 200 == 0) fake_sleep_ms(i / 200); /* the worker's naps */
  }
}

/* Copies of a few bytes need no queue if no work precedes them; otherwise they keep their order. */
Test(fake_stream, small_copy_is_made_at_once_on_an_idle_stream_and_in_order_on_a_busy_one, .timeout = 60) {
  open_mode(1, 2);
  hal_plugin_stream_t *stream = new_stream();
  float *data = new_floats(16, 3), seen = -1;
  must(fake_api.memory_copy(stream, &seen, HAL_HOST, data, 0, sizeof seen));
  cr_assert_eq(fake_api.stream_query(stream), HAL_OK);
  cr_assert_eq(seen, 3.0f);
  fake_gate_t gate = {0};
  must(fake_api.stream_host_call(stream, fake_gate_wait, &gate));
  must(fake_api.memory_copy(stream, &seen, HAL_HOST, data, 0, sizeof seen));
  data[0] = 4; /* before the copy, which waits for the gate */
  fake_sleep_ms(20);
  cr_assert_eq(seen, 3.0f);
  cr_assert_eq(fake_api.stream_query(stream), HAL_NOT_READY);
  atomic_store(&gate.open, 1);
  must(fake_api.stream_synchronize(stream));
  cr_assert_eq(seen, 4.0f);
}

Test(fake_stream, wait_outlives_the_event, .timeout = 60) {
  open_mode(1, 2);
  hal_plugin_stream_t *gated = new_stream(), *other = new_stream();
  hal_plugin_event_t *event = new_event(HAL_EVENT_TIMING);
  fake_gate_t gate = {0};
  must(fake_api.stream_host_call(other, fake_gate_wait, &gate));
  must(fake_api.event_record(event, other));
  must(fake_api.stream_wait_event(gated, event));
  destroy_event(event);
  cr_assert_eq(fake_api.stream_query(gated), HAL_NOT_READY);
  atomic_store(&gate.open, 1);
  must(fake_api.stream_synchronize(gated));
}

/* The gate occupies one of two workers. If a blocked stream occupied the other one, `runner` would never run: no
 * thread synchronizes.
 */
Test(fake_stream, streams_that_wait_for_events_hold_no_thread, .timeout = 60) {
  open_mode(1, 2);
  hal_plugin_stream_t *other = new_stream(), *runner = new_stream(), *blocked[100];
  hal_plugin_event_t *event = new_event(0);
  float *data = new_floats(16, 0), *ones = new_floats(16, 1);
  fake_gate_t gate = {0};
  must(fake_api.stream_host_call(other, fake_gate_wait, &gate));
  must(fake_api.event_record(event, other));
  for (int i = 0; i < 100; i++) must(fake_api.stream_wait_event(blocked[i] = new_stream(), event));
  add_ones(runner, data, ones, 16);
  cr_assert(finishes_within(runner, PATIENCE_MS));
  for (int i = 0; i < 100; i++) cr_assert_eq(fake_api.stream_query(blocked[i]), HAL_NOT_READY);
  atomic_store(&gate.open, 1);
  for (int i = 0; i < 100; i++) cr_assert(finishes_within(blocked[i], PATIENCE_MS));
}

/* The only worker is occupied. A thread that waits runs the work itself, also that of the stream on which it
   depends. */
Test(fake_stream, synchronizing_thread_needs_no_worker, .timeout = 60) {
  open_mode(1, 1);
  hal_plugin_stream_t *held = new_stream(), *first = new_stream(), *second = new_stream(), *third = new_stream();
  hal_plugin_event_t *event = new_event(0);
  float *data = new_floats(16, 0), *ones = new_floats(16, 1);
  fake_gate_t gate = {0};
  must(fake_api.stream_host_call(held, fake_gate_wait, &gate));
  while (!atomic_load(&gate.entered)) fake_sleep_ms(1);
  add_ones(first, data, ones, 16);
  must(fake_api.event_record(event, first));
  must(fake_api.stream_wait_event(second, event));
  add_ones(second, data, ones, 16);
  must(fake_api.event_record(event, second));
  must(fake_api.stream_wait_event(third, event));
  add_ones(third, data, ones, 16);
  must(fake_api.stream_synchronize(third));
  cr_assert_eq(data[15], 3.0f);
  cr_assert_eq(fake_api.stream_query(held), HAL_NOT_READY);
  atomic_store(&gate.open, 1);
  must(fake_api.stream_synchronize(held));
}

static int order[64];
static atomic_int order_count;
static void note(void *data) { order[atomic_fetch_add(&order_count, 1)] = (int)(intptr_t)data; }

Test(fake_stream, items_run_in_order, .timeout = 60) {
  for (int i = 0; i < 64; i++) order[i] = -1;
  setenv("HAL_FAKE_DELAY", "200", 1); /* jitter, so that a correct order by chance is unlikely */
  open_mode(1, 4);
  hal_plugin_stream_t *stream = new_stream();
  for (intptr_t i = 0; i < 64; i++) must(fake_api.stream_host_call(stream, note, (void *)i));
  must(fake_api.stream_synchronize(stream));
  for (int i = 0; i < 64; i++) cr_assert_eq(order[i], i);
}

static hal_plugin_stream_t *shared;
static float *shared_data, *shared_ones;

static void *enqueue_many(void *unused) {
  (void)unused;
  for (int i = 0; i < 2000; i++) add_ones(shared, shared_data, shared_ones, 16);
  return NULL;
}

static void many_threads(int async) {
  open_mode(async, 3);
  pthread_t threads[8];
  shared = new_stream();
  shared_data = new_floats(16, 0);
  shared_ones = new_floats(16, 1);
  fake_kernel("add_f32_contig");
  for (int i = 0; i < 8; i++) cr_assert_eq(pthread_create(&threads[i], NULL, enqueue_many, NULL), 0);
  for (int i = 0; i < 8; i++) pthread_join(threads[i], NULL);
  must(fake_api.stream_synchronize(shared));
  for (int i = 0; i < 16; i++) cr_assert_eq(shared_data[i], 16000.0f, "%g", (double)shared_data[i]);
}

Test(fake_stream, many_threads_enqueue_on_one_stream, .timeout = 120) { many_threads(1); }
Test(fake_stream, many_threads_enqueue_on_one_stream_inline, .timeout = 120) { many_threads(0); }

Test(fake_stream, thousands_of_streams, .timeout = 120) {
  open_mode(1, 2);
  enum { STREAMS = 4000 };
  static hal_plugin_stream_t *streams[STREAMS];
  float *data = new_floats(STREAMS * 16, 0), *ones = new_floats(16, 1);
  for (int i = 0; i < STREAMS; i++) streams[i] = new_stream();
  for (int round = 0; round < 3; round++) {
    for (int i = 0; i < STREAMS; i++) add_ones(streams[i], data + 16 * i, ones, 16);
  }
  must(fake_api.device_synchronize(0));
  for (int i = 0; i < STREAMS; i++) {
    cr_assert_eq(fake_api.stream_query(streams[i]), HAL_OK);
    cr_assert_eq(data[16 * i], 3.0f);
    must(fake_api.stream_destroy(streams[i]));
  }
}

/* A queue of several chunks of memory, built up while a gate is closed, of the maximum length. */
Test(fake_stream, long_queue_keeps_every_item, .timeout = 120) {
  open_mode(1, 2);
  hal_plugin_stream_t *stream = new_stream();
  float *data = new_floats(16, 0), *ones = new_floats(16, 1);
  fake_gate_t gate = {0};
  must(fake_api.stream_host_call(stream, fake_gate_wait, &gate));
  for (int i = 0; i < 1000; i++) add_ones(stream, data, ones, 16);
  atomic_store(&gate.open, 1);
  must(fake_api.stream_synchronize(stream));
  cr_assert_eq(data[3], 1000.0f);
}

static atomic_int enqueued;

static void *enqueue_without_end(void *unused) {
  (void)unused;
  for (int i = 0; i < 10000; i++) {
    add_ones(shared, shared_data, shared_ones, 16);
    atomic_fetch_add(&enqueued, 1);
  }
  return NULL;
}

Test(fake_stream, enqueuing_waits_when_a_thousand_items_are_queued, .timeout = 60) {
  open_mode(1, 2);
  shared = new_stream();
  shared_data = new_floats(16, 0), shared_ones = new_floats(16, 1);
  fake_gate_t gate = {0};
  pthread_t threads[2];
  must(fake_api.stream_host_call(shared, fake_gate_wait, &gate));
  for (int i = 0; i < 2; i++) cr_assert_eq(pthread_create(&threads[i], NULL, enqueue_without_end, NULL), 0);
  for (int before = -1; before != atomic_load(&enqueued) || before < 1000;) { /* until both stand */
    before = atomic_load(&enqueued);
    fake_sleep_ms(100);
  }
  cr_assert_leq(atomic_load(&enqueued), 1024 + 2 * 64, "%d items are queued", atomic_load(&enqueued));
  hal_plugin_stream_t *const other = new_stream(); /* another stream still has capacity */
  float *const data = new_floats(16, 0);
  add_ones(other, data, shared_ones, 16);
  must(fake_api.stream_synchronize(other));
  cr_assert_eq(data[0], 1.0f);
  atomic_store(&gate.open, 1);
  for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
  must(fake_api.stream_synchronize(shared));
  cr_assert_eq(shared_data[0], 20000.0f);
}

Test(fake_stream, synchronize_timeout_returns_not_ready_in_time, .timeout = 60) {
  open_mode(1, 2);
  hal_plugin_stream_t *stream = new_stream();
  fake_gate_t gate = {0};
  must(fake_api.stream_host_call(stream, fake_gate_wait, &gate));
  const int64_t before = fake_clock();
  cr_assert_eq(fake_api.stream_synchronize_timeout(stream, 30000000), HAL_NOT_READY);
  cr_assert_geq(fake_clock() - before, 30000000);
  atomic_store(&gate.open, 1);
  must(fake_api.stream_synchronize_timeout(stream, INT64_MAX));
}

Test(fake_stream, destroy_finishes_the_queued_work, .timeout = 60) {
  setenv("HAL_FAKE_DELAY", "2000", 1);
  open_mode(1, 2);
  hal_plugin_stream_t *stream = new_stream();
  float *data = new_floats(16, 0), *ones = new_floats(16, 1);
  for (int i = 0; i < 10; i++) add_ones(stream, data, ones, 16);
  must(fake_api.stream_destroy(stream));
  cr_assert_eq(data[0], 10.0f);
  must(fake_api.stream_destroy(NULL));
}

Test(fake_stream, null_stream_is_finished_on_return) {
  setenv("HAL_FAKE_DELAY", "2000", 1);
  open_mode(1, 2);
  float *data = new_floats(1 << 20, 0), *ones = new_floats(1 << 20, 1);
  fake_gate_t gate = {0, 1};
  add_ones(NULL, data, ones, 1 << 20);
  cr_assert_eq(data[(1 << 20) - 1], 1.0f);
  ones[0] = 7;
  must(fake_api.memory_copy(NULL, data, 0, ones, 0, 64));
  cr_assert_eq(data[0], 7.0f);
  must(fake_api.stream_synchronize(NULL));
  must(fake_api.stream_query(NULL));
  must(fake_api.stream_host_call(NULL, fake_gate_wait, &gate));
  cr_assert_eq(atomic_load(&gate.entered), 1);
}

/* HAL_FAKE_FAULT: the failure belongs to the stream, names the kernel, is reported once, and does not affect other
   streams. */
static void one_failure(int async) {
  setenv("HAL_FAKE_FAULT", "2", 1);
  open_mode(async, 2);
  hal_plugin_stream_t *stream = new_stream(), *other = new_stream();
  float *data = new_floats(16, 0), *ones = new_floats(16, 1);
  add_ones(stream, data, ones, 16);
  must(fake_api.stream_synchronize(stream));
  add_ones(stream, data, ones, 16); /* the second launch: it is accepted, and fails when it runs */
  add_ones(other, new_floats(16, 0), ones, 16);
  must(fake_api.stream_synchronize(other));
  must_fail(fake_api.stream_synchronize(stream), HAL_INTERNAL, "add_f32_contig");
  must(fake_api.stream_synchronize(stream));
  must(fake_api.device_synchronize(0));
  cr_assert_eq(data[0], 1.0f, "the failed launch must not have run");
  add_ones(stream, data, ones, 16);
  must(fake_api.stream_synchronize(stream));
}

Test(fake_stream, asynchronous_failure_surfaces_once, .timeout = 60) { one_failure(1); }
Test(fake_stream, asynchronous_failure_surfaces_once_inline, .timeout = 60) { one_failure(0); }

Test(fake_stream, device_synchronize_reports_a_failure_once, .timeout = 60) {
  setenv("HAL_FAKE_FAULT", "1", 1);
  open_mode(1, 2);
  float *data = new_floats(16, 0);
  add_ones(new_stream(), data, data, 16);
  must_fail(fake_api.device_synchronize(0), HAL_INTERNAL, "HAL_FAKE_FAULT");
  must(fake_api.device_synchronize(0));
}

Test(fake_stream, native_handles_of_streams_differ) {
  open_mode(1, 1);
  void *one = NULL, *two = NULL;
  must(fake_api.stream_native(new_stream(), &one));
  must(fake_api.stream_native(new_stream(), &two));
  cr_assert(one != NULL && one != two);
}

Test(fake_stream, the_NULL_stream_waits_for_no_other_stream, .timeout = 60) {
  open_mode(1, 2);
  hal_plugin_stream_t *const stream = new_stream();
  float *const data = new_floats(16, 1), *const other = new_floats(16, 0);
  fake_gate_t gate = {0};
  must(fake_api.stream_host_call(stream, fake_gate_wait, &gate));
  must(fake_api.memory_copy(stream, data, 0, other, 0, 16 * sizeof *data));
  must(fake_api.memory_copy(NULL, other, 0, data, 0, 16 * sizeof *data)); /* an unordered stream with the first one */
  cr_assert_eq(other[0], 1, "finished on return");
  cr_assert_eq(data[0], 1, "the stream is still held");
  atomic_store(&gate.open, 1);
  must(fake_api.stream_synchronize(stream));
  cr_assert_eq(data[0], 1);
}

Test(fake_stream, stream_error_describes_the_failure_that_was_reported_last) {
  setenv("HAL_FAKE_FAULT", "1", 1);
  open_mode(1, 1);
  hal_plugin_stream_t *const stream = new_stream(), *const other = new_stream();
  hal_stream_error_t error = {.struct_size = sizeof error};
  float *const data = new_floats(16, 1);
  cr_assert_eq(fake_api.stream_error(stream, &error), HAL_NOT_FOUND);
  add_ones(stream, data, data, 16);
  must_fail(fake_api.stream_synchronize(stream), HAL_INTERNAL, "add_f32_contig");
  must(fake_api.stream_error(stream, &error));
  cr_assert_eq(error.status, HAL_INTERNAL);
  cr_assert_str_eq(error.op, "kernel_launch");
  cr_assert_str_eq(error.kernel, "add_f32_contig");
  must(fake_api.stream_synchronize(stream));
  must(fake_api.stream_error(stream, &error)); /* until the next failure is reported */
  cr_assert_eq(fake_api.stream_error(other, &error), HAL_NOT_FOUND);
  cr_assert_eq(fake_api.stream_error(NULL, &error), HAL_NOT_FOUND);
}
