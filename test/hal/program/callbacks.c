/* callbacks.c: functions of the application are called while the thread holds no HAL lock. Another thread may use
 * the HAL until they return. */
#define _GNU_SOURCE /* pthread_timedjoin_np */
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "hal/profile.h"
#include "hal/program.h"
#include "lazy_testing.h"

static void open_for_callbacks(void) {
  setenv("HAL_TEST_PLUGIN", "fake", 0);
  open_device();
}

TestSuite(callbacks, .init = open_for_callbacks, .timeout = 240);
TestSuite(callbacks_of, .timeout = 240); /* what each test opens */

enum { PATIENCE = 60 }; /* seconds until a lock counts as held */

static atomic_int calls, refused, busy;
static hal_lazy_t *lazy;
static hal_program_t *program;

/* Calls functions that need each lock of the HAL. */
static void *use_the_hal(void *nothing) {
  hal_memory_stats_t stats = {.struct_size = sizeof stats};
  hal_lazy_info_t info = {.struct_size = sizeof info};
  hal_program_info_t about = {.struct_size = sizeof about};
  hal_stream_t *stream;
  size_t size;
  (void)hal_registry_open(NULL);
  (void)hal_device_ensure(1);
  (void)hal_memory_stats(0, &stats);
  if (lazy) (void)hal_lazy_info(lazy, &info);
  if (lazy) (void)hal_lazy_text(lazy, 0, NULL, 0, &size);
  if (program) (void)hal_program_info(program, &about);
  if (hal_profile_start() == HAL_OK) (void)hal_profile_stop();
  (void)hal_stream_acquire(0, 0, &stream);
  return nothing;
}

/* The work of each callback, except one that the other thread calls. */
static void let_another_thread_use_the_hal(void) {
  pthread_t thread;
  struct timespec end;
  if (atomic_exchange(&busy, 1)) return;
  atomic_fetch_add(&calls, 1);
  clock_gettime(CLOCK_REALTIME, &end);
  end.tv_sec += PATIENCE;
  if (pthread_create(&thread, NULL, use_the_hal, NULL) || pthread_timedjoin_np(thread, NULL, &end))
    atomic_fetch_add(&refused, 1);
  atomic_store(&busy, 0);
}

static void release(void *data) {
  (void)data;
  let_another_thread_use_the_hal();
}

static void expect_calls(int least) {
  cr_expect_geq(atomic_load(&calls), least, "%d calls", atomic_load(&calls));
  cr_assert_eq(atomic_load(&refused), 0, "a lock was held in %d of %d calls", atomic_load(&refused),
               atomic_load(&calls));
}

static void wait_for_gate(void *gate) {
  while (!atomic_load((atomic_int *)gate)) usleep(100);
}

/* Releases adopted memory that another stream uses, and completes that stream's work without a call that processes
 * pending memory. The next function that processes pending memory calls the release function. */
static void leave_memory_to_be_released(void) {
  static char memory[64];
  static atomic_int gate;
  hal_stream_t *other;
  hal_block_t *block;
  hal_event_t *done;
  must(hal_stream_acquire(0, 0, &other));
  must(hal_event_create(0, 0, &done));
  must(hal_memory_adopt(0, other, memory, sizeof memory, release, NULL, &block));
  must(hal_stream_host_call(other, wait_for_gate, &gate));
  hal_memory_release(block);
  must(hal_event_record(done, other));
  atomic_store(&gate, 1);
  must(hal_event_synchronize(done));
  hal_event_destroy(done);
  cr_assert_eq(atomic_load(&calls), 0, "released before it was looked for");
}

Test(callbacks, memory_is_released_without_a_lock_when_deferred_work_is_queued) {
  tensor_t *a = floats(1, 1);
  lazy = begin();
  leave_memory_to_be_released();
  tensor_upload(a); /* whose bytes are freed after the copy: an operation of the allocator */
  must(hal_lazy_flush(lazy));
  expect_calls(1);
  must(hal_lazy_end(lazy));
}

Test(callbacks, memory_is_released_without_a_lock_when_a_recording_generates_numbers) {
  hal_generator_t *generator;
  hal_draw_t draw;
  must(hal_generator_create(0, &generator));
  must(hal_program_begin(NULL, NULL, &program));
  leave_memory_to_be_released();
  must(hal_generator_draw(generator, NULL, 4, &draw));
  expect_calls(1);
  must(hal_program_end(program));
}

Test(callbacks, memory_is_released_without_a_lock_when_the_registry_is_closed) {
  leave_memory_to_be_released();
  hal_registry_close();
  expect_calls(1);
}

Test(callbacks, memory_is_released_without_a_lock_when_a_program_runs) {
  tensor_t *a = floats(1, 1), *result = vector(HAL_FLOAT32, COUNT);
  must(hal_program_begin(NULL, NULL, &program));
  unary("neg", a, result);
  must(hal_program_end(program));
  leave_memory_to_be_released();
  for (int run = 0; run < 3; run++) must(hal_program_run(program, NULL));
  must(hal_stream_synchronize(NULL));
  expect_calls(1);
}

static uint64_t here(void *state) {
  (void)state;
  return 17;
}

static void describe(void *state, uint64_t origin, char *text, size_t room) {
  (void)state;
  let_another_thread_use_the_hal();
  snprintf(text, room, "line %llu", (unsigned long long)origin);
}

static void note_compiled(void *state, uint64_t origin, const char *text) {
  ((int *)state)[0] += origin == 17 && *text;
  let_another_thread_use_the_hal();
}

static void note_queueing(void *state, const char *cause, const char *text) {
  ((int *)state)[1] += *cause && strstr(text, "line 17") != NULL;
  let_another_thread_use_the_hal();
}

Test(callbacks, listeners_of_deferred_work_are_called_without_a_lock) {
  int told[2] = {0, 0};
  char text[4096];
  size_t size;
  const hal_lazy_desc_t desc = {.struct_size = sizeof desc,
                                .origin = here,
                                .describe = describe,
                                .compiled = note_compiled,
                                .queueing = note_queueing,
                                .state = told};
  tensor_t *a = floats(1, 1), *b = vector(HAL_FLOAT32, COUNT), *c = vector(HAL_FLOAT32, COUNT);
  must(hal_lazy_begin(NULL, &desc, &lazy));
  add(a, a, 2, b);
  unary("neg", b, c);
  must(hal_lazy_text(lazy, HAL_PROGRAM_LINES, text, sizeof text, &size));
  cr_expect_not_null(strstr(text, "line 17"), "%s", text);
  cr_expect_eq(strlen(text) + 1, size);
  must(hal_lazy_flush(lazy));
  cr_expect_eq(told[0], 1, "the group was compiled once, and the listener called with its origin");
  cr_expect_eq(told[1], 1, "the work was queued once, and the listener called with its text");
  must(hal_lazy_end(lazy));
  expect_calls(4);
}

Test(callbacks_of, a_failure_of_deferred_work_is_described_without_a_lock) {
  const hal_lazy_desc_t desc = {.struct_size = sizeof desc, .origin = here, .describe = describe};
  setenv("HAL_LAYERS", "fault", 1);
  setenv("HAL_FAULT", "kernel_launch:1:ABORTED", 1);
  open_for_callbacks();
  tensor_t *a = floats(1, 1), *b = vector(HAL_FLOAT32, COUNT);
  must(hal_lazy_begin(NULL, &desc, &lazy));
  unary("neg", a, b);
  assert_fails(hal_lazy_flush(lazy), HAL_ABORTED,
               "deferred work recorded at line 17 failed to launch; 0 later commands were discarded: ");
  must(hal_lazy_end(lazy));
  expect_calls(1);
}

static void note_activity(void *user_data, const hal_profile_activity_t *activity) {
  if (activity->name[0]) ++*(int *)user_data;
  let_another_thread_use_the_hal();
}

Test(callbacks, records_of_a_profile_are_read_without_a_lock) {
  int records = 0;
  uint64_t lost;
  tensor_t *a = floats(1, 1), *b = vector(HAL_FLOAT32, COUNT);
  must(hal_profile_start());
  add(a, a, 2, b);
  must(hal_profile_stop());
  must(hal_profile_read(note_activity, &records, &lost));
  cr_expect_geq(records, 1);
  cr_expect_eq(lost, 0);
  expect_calls(1);
}

static void note_line(int32_t level, const char *message, void *user_data) {
  (void)level, (void)message, (void)user_data;
  let_another_thread_use_the_hal();
}

Test(callbacks_of, the_log_is_written_without_a_lock) {
  setenv("HAL_LOG", "debug", 1);
  setenv("HAL_LAYERS", "trace", 1);
  hal_log_set_sink(note_line, NULL);
  must(hal_registry_add_path(PLUGIN_DIR));
  must(hal_registry_open("fake,nowhere"));
  must(hal_device_ensure(0));
  expect_calls(3); /* of the open, the initialization of the plugin, and the device */
  hal_log_set_sink(NULL, NULL);
}

Test(callbacks_of, a_program_calls_a_host_function_without_a_lock) {
  open_fixture("five"); /* has no streams: hal_program_run calls the function */
  must(hal_program_begin(NULL, NULL, &program));
  must(hal_stream_host_call(NULL, release, NULL));
  must(hal_program_end(program));
  must(hal_program_run(program, NULL));
  expect_calls(1);
}
