/* Tests of the OpenCL plugin's errors for a command that fails, immediately or when it runs. A layer below the
   loader makes it fail. */
#include <sys/wait.h>
#include <unistd.h>

#include "opencl_testing.h"

TestSuite(opencl_failure, .fini = close_opencl);

/* The second launch of the process fails, with the driver's `code`. */
static void open_failing(const char *code, const char *late) {
  setenv("OPENCL_LAYERS", CL_LAYER, 1);
  setenv("CL_FAIL_LAUNCH", "2", 1);
  setenv("CL_FAIL_CODE", code, 1);
  setenv("CL_FAIL_LATE", late, 1);
  open_opencl();
}

static hal_status_t add_one(hal_stream_t *stream, char *to) {
  static hal_kernel_t *kernel;
  const hal_arg_t args[] = {POINTER(to)};
  if (!kernel) kernel = make_kernel(0, SLOW_SOURCE, "add_one");
  return launch_1d(kernel, stream, 1, 1, args, 1);
}

/* Opens the plugin and makes a first launch that works; if it fails, the loader does not support layers. */
static hal_stream_t *begin(char **out_to) {
  hal_stream_t *stream;
  *out_to = device_bytes(0, 4);
  assert_ok(hal_stream_acquire(0, 0, &stream));
  assert_ok(add_one(stream, *out_to));
  assert_ok(hal_stream_synchronize(stream));
  return stream;
}

Test(opencl_failure, a_launch_that_fails_when_it_runs_is_reported_once_with_kernel_and_cause) {
  char *to;
  open_failing("-5", "1");
  hal_stream_t *const stream = begin(&to);
  assert_ok(add_one(stream, to));
  assert_ok(add_one(stream, to));
  assert_fails(hal_stream_synchronize(stream), HAL_INTERNAL, "kernel 'add_one'");
  cr_assert_not_null(strstr(hal_error_message(), "CL_OUT_OF_RESOURCES"), "%s", hal_error_message());
  assert_ok(hal_stream_synchronize(stream));
  assert_ok(add_one(stream, to));
  assert_ok(hal_stream_synchronize(stream));
}

Test(opencl_failure, a_query_and_the_devices_synchronization_report_it_too) {
  char *to;
  open_failing("-5", "1");
  hal_stream_t *const stream = begin(&to);
  assert_ok(add_one(stream, to));
  hal_status_t status = HAL_NOT_READY;
  while (status == HAL_NOT_READY) status = hal_stream_query(stream);
  cr_assert_eq(status, HAL_INTERNAL);
  assert_ok(hal_device_synchronize(0));
}

Test(opencl_failure, an_event_after_failed_work_ends_the_wait) {
  char *to;
  hal_event_t *event;
  hal_stream_t *other;
  open_failing("-5", "1");
  hal_stream_t *const stream = begin(&to);
  assert_ok(hal_event_create(0, 0, &event));
  assert_ok(hal_stream_acquire(0, 0, &other));
  assert_ok(add_one(stream, to));
  assert_ok(hal_event_record(event, stream));
  assert_ok(hal_stream_wait_event(other, event));
  cr_assert_eq(hal_stream_synchronize(other), HAL_INTERNAL); /* the host reports the failure once */
  assert_ok(hal_stream_synchronize(stream));
  hal_event_destroy(event);
}

Test(opencl_failure, a_refused_launch_returns_its_error_immediately) {
  char *to;
  open_failing("-52", "0"); /* CL_INVALID_KERNEL_ARGS */
  hal_stream_t *const stream = begin(&to);
  assert_fails(add_one(stream, to), HAL_INVALID_ARGUMENT, "CL_INVALID_KERNEL_ARGS");
  assert_ok(add_one(stream, to));
  assert_ok(hal_stream_synchronize(stream));
}

Test(opencl_failure, a_lost_device_stays_lost) {
  char *to;
  open_failing("-2", "1"); /* CL_DEVICE_NOT_AVAILABLE */
  hal_stream_t *const stream = begin(&to);
  assert_ok(add_one(stream, to));
  assert_fails(hal_stream_synchronize(stream), HAL_UNAVAILABLE, "CL_DEVICE_NOT_AVAILABLE");
  cr_assert_eq(hal_stream_synchronize(stream), HAL_UNAVAILABLE);
}

/* ---- the driver cannot wait ---- */

static void open_layered(void) {
  setenv("OPENCL_LAYERS", CL_LAYER, 1);
  open_opencl();
}

static uint32_t read_back(char *to, hal_stream_t *stream) {
  uint32_t value = 0;
  assert_ok(hal_memory_copy(stream, &value, HAL_HOST, to, 0, sizeof value));
  assert_ok(hal_stream_synchronize(stream));
  return value;
}

static void queue_slow(hal_kernel_t *slow, hal_stream_t *stream, char *to, uint32_t value) {
  const uint32_t rounds = SLOW_ROUNDS;
  const hal_arg_t args[] = {POINTER(to), VALUE(value), VALUE(rounds)};
  assert_ok(launch_1d(slow, stream, 1, 1, args, 3));
}

Test(opencl_failure, where_one_way_of_waiting_fails_another_is_taken) {
  char *to;
  open_layered();
  hal_stream_t *const stream = begin(&to);
  hal_kernel_t *const slow = make_kernel(0, SLOW_SOURCE, "slow");
  setenv("CL_FAIL_WAIT", "2", 1);
  for (uint32_t value = 1; value <= 2; value++) {
    queue_slow(slow, stream, to, value);
    assert_ok(hal_stream_synchronize(stream));
    setenv("CL_FAIL_WAIT", "0", 1);
    cr_expect_eq(read_back(to, stream), value);
    setenv("CL_FAIL_WAIT", "2", 1);
  }
  setenv("CL_FAIL_WAIT", "0", 1);
}

Test(opencl_failure, work_that_cannot_be_waited_for_is_not_reported_done) {
  char *to;
  hal_event_t *event;
  open_layered();
  hal_stream_t *const stream = begin(&to);
  hal_kernel_t *const slow = make_kernel(0, SLOW_SOURCE, "slow");
  assert_ok(hal_event_create(0, 0, &event));
  queue_slow(slow, stream, to, 1); /* the first launch may compile */
  assert_ok(hal_stream_synchronize(stream));
  setenv("CL_FAIL_WAIT", "1", 1);
  queue_slow(slow, stream, to, 7);
  assert_ok(hal_event_record(event, stream));
  const hal_status_t of_event = hal_event_synchronize(event);
  const hal_status_t of_stream = hal_stream_synchronize(stream);
  setenv("CL_FAIL_WAIT", "0", 1);
  cr_expect_neq(of_event, HAL_OK);
  cr_expect_neq(of_stream, HAL_OK);
  cr_expect_not_null(strstr(hal_error_message(), "CL_OUT_OF_RESOURCES"), "%s", hal_error_message());
  assert_ok(hal_stream_synchronize(stream));
  cr_expect_eq(read_back(to, stream), 7);
  hal_event_destroy(event);
}

Test(opencl_failure, commands_that_the_driver_keeps_to_itself_are_a_failure_of_the_stream) {
  char *to;
  open_layered();
  hal_stream_t *const stream = begin(&to);
  setenv("CL_FAIL_FLUSH", "1", 1);
  assert_ok(add_one(stream, to));
  assert_fails(hal_stream_synchronize(stream), HAL_INTERNAL, "CL_OUT_OF_HOST_MEMORY");
  setenv("CL_FAIL_FLUSH", "0", 1);
  assert_ok(add_one(stream, to));
  assert_ok(hal_stream_synchronize(stream));
}

/* ---- the compiler terminates the process ---- */

/* x + x by a kernel of the second name, after one of the first. */
static void compile_and_run(void) {
  static const char text[] =
      "#define ARGS(X) X(BOTH, pk_i32, to), X(VALUE, pk_u64, n)\n"
      "PK_KERNEL(%s, ARGS) { PK_PROLOGUE(ARGS)\n"
      "  PK_ITEM(i, n) { to[i] = to[i] + to[i]; }\n"
      "}\n";
  static const char *const names[] = {"first", "second"};
  const uint32_t three = 3;
  const uint64_t n = 8;
  char source[512];
  char *const to = device_bytes(0, 32);
  const hal_arg_t args[] = {POINTER(to), VALUE(n)};
  assert_ok(hal_memory_fill(NULL, 0, to, &three, 4, 32));
  for (int i = 0; i < 2; i++) {
    hal_kernel_t *kernel;
    snprintf(source, sizeof source, text, names[i]);
    assert_ok(hal_kernel_compile(0, names[i], source, &kernel));
    assert_ok(hal_kernel_launch_items(kernel, NULL, n, args, 2));
  }
  assert_ok(hal_device_synchronize(0));
  cr_assert_eq(read_back(to, NULL), 12);
}

/* The kernels that the first process stored are intact, and the kernel that it was compiling when it was terminated
   is compiled again. */
Test(opencl_failure, a_compiler_that_ends_the_process_leaves_nothing_that_the_next_one_trusts) {
  char folder[] = "/tmp/opencl_crash_XXXXXX";
  hal_kernel_stats_t stats = {.struct_size = sizeof stats};
  int status = 0;
  cr_assert_not_null(mkdtemp(folder));
  setenv("HAL_CACHE_DIR", folder, 1);
  const pid_t child = fork();
  if (child == 0) { /* not a process of Criterion: it sends no reports */
    hal_device_info_t info = {.struct_size = sizeof info};
    setenv("CL_FAIL_BUILD", "2", 1);
    setenv("OPENCL_LAYERS", CL_LAYER, 1);
    if (!hal_registry_add_path(PLUGIN_DIR) && !hal_registry_open("opencl") && !hal_device_info(0, &info))
      compile_and_run();
    _exit(1);
  }
  cr_assert_eq(waitpid(child, &status, 0), child);
  open_opencl();
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 86) skip("this loader takes no layers");
  compile_and_run();
  assert_ok(hal_kernel_stats(0, &stats));
  cr_assert(stats.loaded == 1 && stats.compiled == 1, "%u loaded, %u compiled", (unsigned)stats.loaded,
            (unsigned)stats.compiled);
  char command[64];
  snprintf(command, sizeof command, "rm -rf %s", folder);
  cr_assert_eq(system(command), 0);
}
