/* Tests of the OpenCL plugin's streams and events: order, waits across queues, host functions, times, profiles. */
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "opencl_testing.h"

TestSuite(opencl_stream, .init = open_opencl, .fini = close_opencl);

static int64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Queues work of about 0.1 s that finally writes `value` to `to`. */
static void queue_slow(hal_kernel_t *slow, hal_stream_t *stream, char *to, uint32_t value) {
  const uint32_t rounds = SLOW_ROUNDS;
  const hal_arg_t args[] = {POINTER(to), VALUE(value), VALUE(rounds)};
  assert_ok(launch_1d(slow, stream, 1, 1, args, 3));
}

Test(opencl_stream, work_runs_asynchronously_and_a_query_reports_it) {
  hal_stream_t *stream;
  uint32_t got = 0;
  char *const to = device_bytes(0, 4);
  hal_kernel_t *const slow = make_kernel(0, SLOW_SOURCE, "slow");
  assert_ok(hal_stream_acquire(0, 0, &stream));
  queue_slow(slow, stream, to, 1); /* the first launch may compile */
  assert_ok(hal_stream_synchronize(stream));
  const int64_t begin = now_ns();
  queue_slow(slow, stream, to, 2);
  const int64_t queued = now_ns() - begin;
  cr_assert_eq(hal_stream_query(stream), HAL_NOT_READY);
  cr_assert_eq(hal_stream_synchronize_timeout(stream, 1000), HAL_NOT_READY);
  assert_ok(hal_stream_synchronize(stream));
  cr_assert_lt(queued, (now_ns() - begin) / 2);
  assert_ok(hal_stream_query(stream));
  assert_ok(hal_memory_copy(stream, &got, HAL_HOST, to, 0, 4));
  assert_ok(hal_stream_synchronize(stream));
  cr_assert_eq(got, 2);
}

Test(opencl_stream, an_event_that_another_stream_waits_for_orders_their_work) {
  const int32_t last = hal_device_count() - 1; /* of another device if there is one */
  hal_stream_t *first, *second;
  hal_event_t *event;
  uint32_t got = 0;
  char *const to = device_bytes(0, 4), *const copy = device_bytes(last, 4);
  hal_kernel_t *const slow = make_kernel(0, SLOW_SOURCE, "slow");
  assert_ok(hal_stream_acquire(0, 0, &first));
  assert_ok(hal_stream_acquire(last, -1, &second));
  assert_ok(hal_event_create(0, 0, &event));
  assert_ok(hal_event_query(event)); /* an event that was never recorded is complete */
  assert_ok(hal_stream_wait_event(second, event));
  for (uint32_t value = 1; value <= 3; value++) {
    queue_slow(slow, first, to, value);
    assert_ok(hal_event_record(event, first));
    assert_ok(hal_stream_wait_event(second, event));
    assert_ok(hal_memory_copy(second, copy, last, to, 0, 4));
    assert_ok(hal_memory_copy(second, &got, HAL_HOST, copy, last, 4));
    assert_ok(hal_stream_synchronize(second));
    cr_assert_eq(got, value);
    assert_ok(hal_event_query(event));
  }
  hal_event_destroy(event);
}

Test(opencl_stream, an_event_destroyed_with_waits_on_it_leaves_them_right) {
  hal_stream_t *first, *second;
  hal_event_t *event;
  uint32_t got = 0;
  char *const to = device_bytes(0, 4);
  hal_kernel_t *const slow = make_kernel(0, SLOW_SOURCE, "slow");
  assert_ok(hal_stream_acquire(0, 0, &first));
  assert_ok(hal_stream_acquire(0, 0, &second));
  assert_ok(hal_event_create(0, HAL_EVENT_TIMING, &event));
  queue_slow(slow, first, to, 77);
  assert_ok(hal_event_record(event, first));
  assert_ok(hal_stream_wait_event(second, event));
  hal_event_destroy(event);
  assert_ok(hal_memory_copy(second, &got, HAL_HOST, to, 0, 4));
  assert_ok(hal_stream_synchronize(second));
  cr_assert_eq(got, 77);
}

Test(opencl_stream, the_time_between_events_is_that_of_the_work) {
  hal_stream_t *stream;
  hal_event_t *start, *end, *plain, *never;
  int64_t ns = 0, back = 0;
  char *const to = device_bytes(0, 4);
  hal_kernel_t *const slow = make_kernel(0, SLOW_SOURCE, "slow");
  assert_ok(hal_stream_acquire(0, 0, &stream));
  assert_ok(hal_event_create(0, HAL_EVENT_TIMING, &start));
  assert_ok(hal_event_create(0, HAL_EVENT_TIMING, &end));
  assert_ok(hal_event_create(0, HAL_EVENT_TIMING, &never));
  assert_ok(hal_event_create(0, 0, &plain));
  queue_slow(slow, stream, to, 1);
  assert_ok(hal_stream_synchronize(stream));
  const int64_t begin = now_ns();
  assert_ok(hal_event_record(start, stream));
  queue_slow(slow, stream, to, 1);
  assert_ok(hal_event_record(end, stream));
  cr_assert_eq(hal_event_elapsed(start, end, &ns), HAL_NOT_READY);
  assert_ok(hal_event_synchronize(end));
  const int64_t wall = now_ns() - begin;
  assert_ok(hal_event_elapsed(start, end, &ns));
  assert_ok(hal_event_elapsed(end, start, &back));
  cr_assert_leq(ns, wall);
  cr_assert_gt(ns, wall / 2, "%lld of %lld ns", (long long)ns, (long long)wall);
  cr_assert_eq(back, -ns);
  cr_assert_eq(hal_event_elapsed(start, never, &ns), HAL_FAILED_PRECONDITION);
  assert_ok(hal_event_record(plain, stream));
  cr_assert_eq(hal_event_elapsed(start, plain, &ns), HAL_FAILED_PRECONDITION);
  hal_event_destroy(start);
  hal_event_destroy(end);
  hal_event_destroy(never);
  hal_event_destroy(plain);
}

typedef struct call_s {
  atomic_int go, ran;
  pthread_t thread;
  int order, *counter;
} call_t;

static void called(void *data) {
  call_t *const call = data;
  while (!atomic_load(&call->go)) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  call->thread = pthread_self();
  if (call->counter) call->order = ++*call->counter;
  atomic_store(&call->ran, 1);
}

Test(opencl_stream, a_host_function_waits_for_earlier_work_and_later_work_waits_for_it) {
  hal_stream_t *stream;
  call_t call = {.go = 0};
  void *room = NULL; /* page-locked: a copy of other memory may wait */
  char *const to = device_bytes(0, 4);
  assert_ok(hal_host_allocate(0, 2 * sizeof(uint32_t), &room));
  uint32_t *const source = room, *const got = source + 1;
  *source = 1, *got = 0;
  hal_kernel_t *const add_one = make_kernel(0, SLOW_SOURCE, "add_one");
  const hal_arg_t args[] = {POINTER(to)};
  assert_ok(hal_stream_acquire(0, 0, &stream));
  assert_ok(hal_memory_copy(stream, to, 0, source, HAL_HOST, 4));
  assert_ok(hal_stream_host_call(stream, called, &call));
  assert_ok(launch_1d(add_one, stream, 1, 1, args, 1));
  assert_ok(hal_memory_copy(stream, got, HAL_HOST, to, 0, 4));
  cr_assert_eq(hal_stream_synchronize_timeout(stream, 20000000), HAL_NOT_READY); /* it waits for `go` */
  cr_assert_eq(*got, 0);
  atomic_store(&call.go, 1);
  assert_ok(hal_stream_synchronize(stream));
  cr_assert_eq(atomic_load(&call.ran), 1);
  cr_assert_not(pthread_equal(call.thread, pthread_self()));
  cr_assert_eq(*got, 2);
  assert_ok(hal_host_free(room));
}

Test(opencl_stream, host_functions_of_streams_do_not_wait_for_each_other_and_those_of_one_are_in_order) {
  enum { CALLS = 50 };
  const char *const plugin = getenv("HAL_TEST_PLUGIN");
  if (plugin && !strcmp(plugin, "cuda"))
    cr_skip_test("NVIDIA's driver calls the functions of all streams from one thread");
  hal_stream_t *first, *second;
  call_t blocked = {.go = 0}, calls[CALLS];
  int counter = 0;
  assert_ok(hal_stream_acquire(0, 0, &first));
  assert_ok(hal_stream_acquire(0, 0, &second));
  assert_ok(hal_stream_host_call(first, called, &blocked));
  for (int i = 0; i < CALLS; i++) {
    calls[i] = (call_t){.go = 1, .counter = &counter};
    assert_ok(hal_stream_host_call(second, called, &calls[i]));
  }
  assert_ok(hal_stream_synchronize(second));
  for (int i = 0; i < CALLS; i++) cr_assert_eq(calls[i].order, i + 1);
  cr_assert_eq(atomic_load(&blocked.ran), 0);
  atomic_store(&blocked.go, 1);
  assert_ok(hal_stream_synchronize(first));
}

Test(opencl_stream, thousands_of_commands_are_queued_and_all_run) {
  enum { LAUNCHES = 5000 };
  hal_stream_t *stream;
  uint32_t got = 0;
  char *const to = device_bytes(0, 4);
  hal_kernel_t *const add_one = make_kernel(0, SLOW_SOURCE, "add_one");
  const hal_arg_t args[] = {POINTER(to)};
  assert_ok(hal_stream_acquire(0, 0, &stream));
  assert_ok(hal_memory_fill(stream, 0, to, &got, 4, 4));
  for (int i = 0; i < LAUNCHES; i++) assert_ok(launch_1d(add_one, stream, 1, 1, args, 1));
  assert_ok(hal_memory_copy(stream, &got, HAL_HOST, to, 0, 4));
  assert_ok(hal_stream_synchronize(stream));
  cr_assert_eq(got, LAUNCHES);
}

typedef struct seen_s {
  int kernels, copies, fills;
  uint64_t copied, correlation;
  int64_t start, end;
} seen_t;

static void see(void *data, const hal_profile_activity_t *record) {
  seen_t *const seen = data;
  if (record->kind == HAL_PROFILE_KERNEL && strcmp(record->name, "slow") == 0) {
    seen->kernels++;
    seen->correlation = record->correlation;
    seen->start = record->start_ns;
    seen->end = record->end_ns;
  }
  if (record->kind == HAL_PROFILE_COPY && record->direction == HAL_COPY_DEVICE_TO_HOST) {
    seen->copies++;
    seen->copied += record->bytes;
  }
  seen->fills += record->kind == HAL_PROFILE_FILL;
}

Test(opencl_stream, a_profile_has_kernels_copies_and_fills_with_times_of_the_hosts_clock) {
  hal_stream_t *stream;
  seen_t seen = {0}, again = {0};
  uint64_t lost = 1;
  uint32_t got[16] = {0};
  char *const to = device_bytes(0, 64);
  hal_kernel_t *const slow = make_kernel(0, SLOW_SOURCE, "slow");
  assert_ok(hal_stream_acquire(0, 0, &stream));
  queue_slow(slow, stream, to, 1); /* before the profile: leaves no record */
  assert_ok(hal_profile_start());
  assert_ok(hal_stream_synchronize(stream));
  const int64_t begin = now_ns();
  assert_ok(hal_profile_push(4711));
  queue_slow(slow, stream, to, 2);
  hal_profile_pop();
  assert_ok(hal_memory_fill(stream, 0, to, got, 4, 64));
  assert_ok(hal_memory_copy(stream, got, HAL_HOST, to, 0, 64));
  assert_ok(hal_profile_stop());
  const int64_t end = now_ns();
  assert_ok(hal_profile_read(see, &seen, &lost));
  cr_assert_eq(seen.kernels, 1);
  cr_assert_eq(seen.correlation, 4711);
  cr_assert_eq(seen.copies, 1);
  cr_assert_eq(seen.copied, 64);
  cr_assert_eq(seen.fills, 1);
  cr_assert_eq(lost, 0);
  cr_assert_geq(seen.start, begin - 1000000);
  cr_assert_leq(seen.end, end + 1000000);
  cr_assert_gt(seen.end, seen.start);
  assert_ok(hal_profile_read(see, &again, NULL));
  cr_assert_eq(again.kernels + again.copies + again.fills, 0);
}

/* ---- waiting for the device while other threads work ---- */

static atomic_int gate_open;

static void wait_for_gate(void *nothing) {
  (void)nothing;
  const struct timespec pause = {.tv_nsec = 1000000};
  while (!atomic_load(&gate_open)) nanosleep(&pause, NULL);
}

static void *wait_for_device(void *out_status) {
  *(hal_status_t *)out_status = hal_device_synchronize(0);
  return NULL;
}

Test(opencl_stream, streams_can_be_made_while_a_thread_waits_for_the_device, .timeout = 60) {
  hal_stream_t *stream, *made[8];
  hal_status_t waited = HAL_NOT_READY;
  pthread_t waiter;
  assert_ok(hal_stream_acquire(0, 0, &stream));
  assert_ok(hal_stream_host_call(stream, wait_for_gate, NULL));
  cr_assert_eq(pthread_create(&waiter, NULL, wait_for_device, &waited), 0);
  const struct timespec pause = {.tv_nsec = 50000000};
  nanosleep(&pause, NULL); /* it waits now */
  for (int i = 0; i < 8; i++) assert_ok(hal_stream_acquire(0, -1, &made[i]));
  atomic_store(&gate_open, 1);
  cr_assert_eq(pthread_join(waiter, NULL), 0);
  assert_ok(waited);
}
