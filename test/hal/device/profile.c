/* Tests of profile.h: one profile over all devices, on the host's clock, with the names of operators. */
#define _GNU_SOURCE /* gettid */
#include <pthread.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "hal/program.h"
#include "support.h"

typedef struct seen_s {
  hal_profile_activity_t list[4096];
  char names[4096][40], ops[4096][40];
  size_t count;
} seen_t;

static seen_t seen;

static void keep(void *user_data, const hal_profile_activity_t *activity) {
  seen_t *to = user_data;
  cr_assert_lt(to->count, 4096);
  to->list[to->count] = *activity;
  snprintf(to->names[to->count], 40, "%s", activity->name);
  snprintf(to->ops[to->count++], 40, "%s", activity->op);
}

static size_t read_all(void) {
  uint64_t lost = 99;
  seen.count = 0;
  assert_ok(hal_profile_read(keep, &seen, &lost));
  cr_assert_eq(lost, 0);
  return seen.count;
}

static int64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void fill(int32_t device, void *address, size_t size) {
  assert_ok(hal_memory_fill(NULL, device, address, "", 1, size));
}

static void *new_memory(int32_t device, size_t size) {
  hal_block_t *block = NULL;
  assert_ok(hal_memory_allocate(device, NULL, size, &block));
  return hal_memory_block_address(block);
}

TestSuite(profile, .timeout = 60);

/* ---- a device with its own clock ---- */

Test(profile, times_are_on_the_host_s_clock) {
  open_fixture("clock");
  void *memory = new_memory(0, 1 << 16);
  assert_ok(hal_profile_start());
  int64_t before[20], after[20];
  for (int i = 0; i < 20; i++) {
    const struct timespec pause = {.tv_nsec = 5000000};
    before[i] = now_ns();
    fill(0, memory, 1 << 16);
    after[i] = now_ns();
    nanosleep(&pause, NULL);
  }
  assert_ok(hal_profile_stop());
  cr_assert_eq(read_all(), 20);
  for (int i = 0; i < 20; i++) { /* the clock drifts by 100 us in 100 ms; the rate is known to a few us */
    cr_assert_geq(seen.list[i].start_ns, before[i] - 20000, "%d: %lld", i,
                  (long long)(seen.list[i].start_ns - before[i]));
    cr_assert_leq(seen.list[i].end_ns, after[i] + 20000, "%d: %lld", i, (long long)(seen.list[i].end_ns - after[i]));
    cr_assert_str_eq(seen.names[i], "fill", "the plugin reported no name");
    cr_assert_eq(seen.list[i].stream, 0, "a plugin without streams has the default one");
  }
}

Test(profile, each_piece_of_work_has_the_launch_that_submitted_it) {
  open_fixture("clock");
  void *memory = new_memory(0, 1 << 16);
  int64_t before[20], after[20];
  fill(0, memory, 8); /* without a profile: none */
  assert_ok(hal_profile_start());
  for (int i = 0; i < 20; i++) {
    before[i] = now_ns();
    fill(0, memory, 1 << 16);
    after[i] = now_ns();
  }
  assert_ok(hal_profile_stop());
  cr_assert_eq(read_all(), 20);
  for (int i = 0; i < 20; i++) {
    const hal_profile_activity_t *const row = &seen.list[i];
    cr_assert_eq(row->launch, seen.list[0].launch + (uint64_t)i, "a number each, in their order");
    cr_assert_eq(row->launch_thread, (int64_t)syscall(SYS_gettid));
    cr_assert(before[i] <= row->launch_start_ns && row->launch_start_ns < row->launch_end_ns &&
              row->launch_end_ns <= after[i]);
    cr_assert_leq(row->launch_start_ns, row->start_ns + 20000, "%d: the launch comes first", i);
  }
  cr_assert_gt(seen.list[0].launch, 0);
}

Test(profile, starting_twice_and_stopping_without_a_start_are_refused) {
  open_fixture("clock");
  assert_fails(hal_profile_stop(), HAL_FAILED_PRECONDITION, "no profile is running");
  cr_assert_eq(hal_profile_running(), 0);
  assert_ok(hal_profile_start());
  cr_assert_eq(hal_profile_running(), 1);
  assert_fails(hal_profile_start(), HAL_FAILED_PRECONDITION, "a profile is running");
  cr_assert_eq(hal_profile_running(), 1);
  assert_ok(hal_profile_stop());
  assert_ok(hal_profile_start()); /* and again */
  assert_ok(hal_profile_stop());
}

Test(profile, a_device_that_comes_into_use_later_joins) {
  open_fixture("clock");
  void *first = new_memory(0, 64);
  assert_ok(hal_profile_start());
  cr_assert_eq(hal_device_is_initialized(1), 0, "a profile starts no device");
  void *second = new_memory(1, 64);
  fill(0, first, 64);
  fill(1, second, 32);
  assert_ok(hal_profile_stop());
  fill(1, second, 16);
  cr_assert_eq(read_all(), 2);
  cr_assert_eq(seen.list[0].device, 0);
  cr_assert_eq(seen.list[1].device, 1);
  cr_assert_eq(seen.list[1].bytes, 32);
}

Test(profile, unread_records_are_discarded_by_the_next_profile) {
  open_fixture("clock");
  void *memory = new_memory(0, 64);
  assert_ok(hal_profile_start());
  fill(0, memory, 64);
  assert_ok(hal_profile_stop());
  assert_ok(hal_profile_start());
  fill(0, memory, 8);
  cr_assert_eq(read_all(), 1); /* while it runs */
  cr_assert_eq(seen.list[0].bytes, 8);
  fill(0, memory, 16);
  assert_ok(hal_profile_stop());
  cr_assert_eq(read_all(), 1);
  cr_assert_eq(read_all(), 0);
}

Test(profile, a_device_that_refuses_ends_the_start) {
  setenv("CLOCK_FAILS", "1", 1);
  open_fixture("clock");
  new_memory(0, 64);
  new_memory(1, 64);
  assert_fails(hal_profile_start(), HAL_UNAVAILABLE, "the counters are in use");
  cr_assert_eq(hal_profile_running(), 0);
  cr_assert_eq(read_all(), 0);
}

Test(profile, numbers_nest_and_wrong_ones_are_refused) {
  open_fixture("clock");
  void *memory = new_memory(0, 64);
  assert_ok(hal_profile_push(5)); /* no profile: nothing */
  assert_ok(hal_profile_start());
  fill(0, memory, 1);
  assert_ok(hal_profile_push(7));
  assert_ok(hal_profile_push((UINT64_C(1) << 48) - 1));
  fill(0, memory, 2);
  hal_profile_pop();
  fill(0, memory, 3);
  hal_profile_pop();
  hal_profile_pop(); /* one too many */
  fill(0, memory, 4);
  assert_fails(hal_profile_push(0), HAL_INVALID_ARGUMENT, "the number 0");
  assert_fails(hal_profile_push(UINT64_C(1) << 48), HAL_INVALID_ARGUMENT, "281474976710656");
  assert_ok(hal_profile_push(9)); /* left open */
  assert_ok(hal_profile_stop());
  cr_assert_eq(read_all(), 4);
  cr_assert_eq(seen.list[0].correlation, 0);
  cr_assert_eq(seen.list[1].correlation, (UINT64_C(1) << 48) - 1);
  cr_assert_eq(seen.list[2].correlation, 7);
  cr_assert_eq(seen.list[3].correlation, 0);
  assert_ok(hal_profile_start());
  fill(0, memory, 1);
  cr_assert_eq(read_all(), 1);
  cr_assert_eq(seen.list[0].correlation, 0, "a bracket of an earlier profile is forgotten");
  assert_ok(hal_profile_stop());
}

Test(profile, brackets_beyond_64_levels_count_as_the_64th) {
  open_fixture("clock");
  void *memory = new_memory(0, 64);
  assert_ok(hal_profile_start());
  for (uint64_t i = 1; i <= 100; i++) assert_ok(hal_profile_push(i));
  fill(0, memory, 1);
  for (int i = 0; i < 40; i++) hal_profile_pop();
  fill(0, memory, 2);
  cr_assert_eq(read_all(), 2);
  cr_assert_eq(seen.list[0].correlation, 64);
  cr_assert_eq(seen.list[1].correlation, 60);
  assert_ok(hal_profile_stop());
}

Test(profile, a_plugin_without_records_reports_that_and_returns_none) {
  assert_ok(hal_registry_open(FIXTURE("five") "," FIXTURE("clock")));
  cr_assert_eq(hal_profile_supported(0), 0);
  cr_assert_eq(hal_profile_supported(2), 1);
  cr_assert_eq(hal_profile_supported(4), 0, "there is no such device");
  void *memory = new_memory(0, 64), *other = new_memory(2, 64);
  assert_ok(hal_profile_start());
  fill(0, memory, 64);
  fill(2, other, 64);
  assert_ok(hal_profile_stop());
  cr_assert_eq(read_all(), 1);
  cr_assert_eq(seen.list[0].device, 2, "the index is over all plugins");
  assert_ok(hal_profile_range(0, "named"));
  assert_ok(hal_profile_range(0, NULL));
  assert_fails(hal_profile_range(9, "named"), HAL_OUT_OF_RANGE, "device 9");
}

/* ---- the fake device ---- */
#if KERNEL_PLUGIN_EXISTS
static int64_t shape[] = {4096}, stride[] = {1};

static void open_fake(void) {
  assert_ok(hal_registry_add_path(PLUGIN_DIR));
  assert_ok(hal_registry_open("fake"));
}

static hal_tensor_t vector(void) {
  return (hal_tensor_t){.struct_size = sizeof(hal_tensor_t),
                        .data = new_memory(0, 4096 * sizeof(float)),
                        .sizes = shape,
                        .strides = stride,
                        .ndim = 1,
                        .dtype = HAL_FLOAT32};
}

/* out = -a on a stream. */
static void negate(hal_stream_t *stream, hal_tensor_t *a, hal_tensor_t *out) {
  uint32_t op = 0;
  assert_ok(hal_op_id("neg", &op));
  const hal_value_t args[] = {{.tag = HAL_VALUE_TENSOR, .u.t = a}};
  const hal_tensor_t *results[] = {out};
  hal_op_call_t call = {
      .struct_size = sizeof call, .args = args, .arg_count = 1, .results = results, .result_count = 1};
  assert_ok(hal_op_run(0, op, stream, &call));
}

Test(profile, a_kernel_carries_the_name_of_its_operator) {
  open_fake();
  hal_stream_t *side = NULL;
  hal_tensor_t a = vector(), out = vector();
  assert_ok(hal_stream_acquire(0, -1, &side));
  negate(NULL, &a, &out);
  assert_ok(hal_profile_start());
  assert_ok(hal_profile_push(11));
  negate(NULL, &a, &out);
  assert_ok(hal_device_synchronize(0));
  negate(side, &a, &out);
  hal_profile_pop();
  assert_ok(hal_memory_fill(side, 0, a.data, "", 1, 100));
  assert_ok(hal_profile_stop()); /* waits for the work */
  negate(NULL, &a, &out);
  assert_ok(hal_device_synchronize(0));
  cr_assert_eq(read_all(), 3);
  cr_assert_str_eq(seen.ops[0], "neg");
  cr_assert_eq(strncmp(seen.names[0], "neg", 3), 0, "%s", seen.names[0]);
  cr_assert_eq(seen.list[0].correlation, 11);
  cr_assert_eq(seen.list[0].stream, 0);
  cr_assert_eq(seen.list[1].stream, hal_stream_id(side));
  cr_assert_str_eq(seen.ops[2], "", "a fill is not an operator");
  cr_assert_eq(seen.list[2].bytes, 100);
  cr_assert_eq(seen.list[2].correlation, 0);
}

typedef struct worker_s {
  uint64_t number;
  int runs;
} worker_t;

static void *work(void *argument) {
  worker_t *worker = argument;
  hal_stream_t *stream = NULL;
  hal_tensor_t a = vector(), out = vector();
  assert_ok(hal_stream_acquire(0, 0, &stream));
  for (int i = 0; i < worker->runs; i++) {
    assert_ok(hal_profile_push(worker->number));
    negate(stream, &a, &out);
    hal_profile_pop();
  }
  assert_ok(hal_stream_synchronize(stream));
  return NULL;
}

Test(profile, threads_keep_their_numbers_apart) {
  open_fake();
  hal_tensor_t a = vector(), out = vector();
  negate(NULL, &a, &out);
  assert_ok(hal_profile_start());
  pthread_t ids[4];
  worker_t workers[4];
  size_t found[5] = {0};
  for (int i = 0; i < 4; i++) {
    workers[i] = (worker_t){.number = (uint64_t)i + 1, .runs = 100 * (i + 1)};
    cr_assert_eq(pthread_create(&ids[i], NULL, work, &workers[i]), 0);
  }
  for (int i = 0; i < 4; i++) pthread_join(ids[i], NULL);
  assert_ok(hal_profile_stop());
  cr_assert_eq(read_all(), 1000);
  for (size_t i = 0; i < seen.count; i++) found[seen.list[i].correlation]++;
  for (int i = 0; i < 4; i++) cr_assert_eq(found[i + 1], (size_t)workers[i].runs);
}

typedef struct launched_s {
  int64_t thread;
  uint64_t first, count;
} launched_t;

static void *launch(void *argument) {
  launched_t *const launched = argument;
  hal_stream_t *stream = NULL;
  hal_tensor_t a = vector(), out = vector();
  launched->thread = (int64_t)syscall(SYS_gettid);
  assert_ok(hal_stream_acquire(0, 0, &stream));
  for (uint64_t i = 0; i < launched->count; i++) {
    assert_ok(hal_profile_push(launched->first + i));
    negate(stream, &a, &out);
    hal_profile_pop();
  }
  return NULL;
}

Test(profile, launches_of_threads_are_those_of_their_threads_and_do_not_overlap) {
  open_fake();
  hal_tensor_t a = vector(), out = vector();
  negate(NULL, &a, &out);
  pthread_t ids[3];
  launched_t threads[3];
  int64_t ends[3] = {0};
  assert_ok(hal_profile_start());
  for (uint64_t i = 0; i < 3; i++) {
    threads[i] = (launched_t){.first = 1 + 1000 * i, .count = 200};
    cr_assert_eq(pthread_create(&ids[i], NULL, launch, &threads[i]), 0);
  }
  for (int i = 0; i < 3; i++) pthread_join(ids[i], NULL);
  assert_ok(hal_profile_stop());
  cr_assert_eq(read_all(), 600);
  for (size_t i = 0; i < seen.count; i++) { /* the records of each stream are in its order, and each thread has a
                                               stream */
    const hal_profile_activity_t *const row = &seen.list[i];
    const uint64_t of = (row->correlation - 1) / 1000;
    cr_assert_eq(row->launch_thread, threads[of].thread);
    cr_assert_geq(row->launch_start_ns, ends[of]);
    cr_assert_leq(row->launch_start_ns, row->start_ns);
    ends[of] = row->launch_end_ns;
  }
}

/* The table of launches is full of launches whose records were lost. */
Test(profile, a_record_without_a_launch_keeps_its_operator_and_number) {
  setenv("HAL_FAKE_PROFILE", "10", 1);
  open_fake();
  hal_tensor_t a = vector(), out = vector();
  uint64_t lost = 0;
  assert_ok(hal_profile_start());
  assert_ok(hal_profile_push(7));
  for (int i = 0; i < 1 << 18; i++) assert_ok(hal_memory_fill(NULL, 0, a.data, "", 1, 8));
  assert_ok(hal_device_synchronize(0));
  seen.count = 0;
  assert_ok(hal_profile_read(keep, &seen, &lost));
  cr_assert_eq(seen.count, 10);
  cr_assert_eq(lost, (1 << 18) - 10);
  for (int i = 0; i < 10; i++) cr_assert_neq(seen.list[i].launch, 0);
  for (int i = 0; i < 2; i++) {
    for (int k = 0; k < 10; k++) negate(NULL, &a, &out);
    assert_ok(hal_device_synchronize(0));
    cr_assert_eq(read_all(), 10);
    for (int k = 0; k < 10; k++) {
      cr_assert_eq(seen.list[k].launch != 0, i == 0, "the places of the records that were read");
      cr_assert_eq(seen.list[k].launch_thread != 0, i == 0);
      cr_assert_str_eq(seen.ops[k], "neg");
      cr_assert_eq(seen.list[k].correlation, 7);
      cr_assert_eq(seen.list[k].answer, HAL_PROFILE_BY_PORTABLE);
    }
  }
  assert_ok(hal_profile_stop());
}

static void count_call(void *user_data) { ++*(int *)user_data; }

Test(profile, a_kernel_of_the_host_has_a_record_with_its_name) {
  int calls = 0;
  hal_stream_t *stream;
  open_fake();
  assert_ok(hal_stream_acquire(0, 0, &stream));
  assert_ok(hal_stream_host_kernel(stream, "before", count_call, &calls));
  assert_ok(hal_profile_start());
  assert_ok(hal_profile_push(5));
  assert_ok(hal_stream_host_kernel(stream, "fused", count_call, &calls));
  hal_profile_pop();
  assert_ok(hal_stream_host_kernel(NULL, "current", count_call, &calls));
  assert_ok(hal_profile_stop());
  cr_assert_eq(calls, 3);
  cr_assert_eq(read_all(), 2);
  for (int i = 0; i < 2; i++) {
    const hal_profile_activity_t *const found = &seen.list[i];
    const int is_fused = strcmp(seen.names[i], "fused") == 0;
    cr_assert(is_fused || strcmp(seen.names[i], "current") == 0, "%s", seen.names[i]);
    cr_assert_str_eq(seen.ops[i], "");
    cr_assert_eq(found->kind, HAL_PROFILE_KERNEL);
    cr_assert_eq(found->stream, is_fused ? hal_stream_id(stream) : 0);
    cr_assert_eq(found->correlation, is_fused ? 5 : 0);
    cr_assert_eq(found->launch_thread, syscall(SYS_gettid));
    cr_assert(found->launch_start_ns <= found->start_ns && found->start_ns <= found->end_ns);
  }
  assert_ok(hal_profile_start()); /* a graph runs the call many times, without records */
  hal_program_t *program;
  assert_ok(hal_program_begin(stream, NULL, &program));
  assert_ok(hal_stream_host_kernel(stream, "captured", count_call, &calls));
  assert_ok(hal_program_end(program));
  for (int i = 0; i < 2; i++) assert_ok(hal_program_run(program, stream));
  assert_ok(hal_stream_synchronize(stream));
  assert_ok(hal_profile_stop());
  cr_assert_eq(calls, 5);
  hal_program_destroy(program);
  assert_fails(hal_stream_host_kernel(stream, NULL, count_call, &calls), HAL_INVALID_ARGUMENT, "missing name");
  assert_fails(hal_stream_host_kernel(stream, "none", NULL, &calls), HAL_INVALID_ARGUMENT, "missing function");
}

Test(profile, stopping_takes_no_failure_away) {
  setenv("HAL_FAKE_FAULT", "2", 1);
  open_fake();
  hal_tensor_t a = vector(), out = vector();
  assert_ok(hal_profile_start());
  for (int i = 0; i < 3; i++) negate(NULL, &a, &out);
  assert_ok(hal_profile_stop());
  assert_fails(hal_device_synchronize(0), HAL_INTERNAL, "neg");
}

Test(profile, a_lost_record_is_counted) {
  setenv("HAL_FAKE_PROFILE", "10", 1);
  open_fake();
  hal_tensor_t a = vector(), out = vector();
  uint64_t lost = 0;
  assert_ok(hal_profile_start());
  for (int i = 0; i < 25; i++) negate(NULL, &a, &out);
  assert_ok(hal_device_synchronize(0));
  assert_ok(hal_profile_stop());
  assert_ok(hal_profile_read(keep, &seen, &lost));
  cr_assert_eq(seen.count, 10);
  cr_assert_eq(lost, 15);
}
#endif
