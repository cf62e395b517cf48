/* fake_process.c: the fake plugin in a process: settings, fork, exit. */
#define _GNU_SOURCE
#include <sys/wait.h>

#include "fake_support.h"

TestSuite(fake_process, .fini = close_plugin);

Test(fake_process, bad_settings_are_named_with_value_and_cure) {
  static const char *const bad[][2] = {
      {"HAL_FAKE_DEVICES", "0"},    {"HAL_FAKE_DEVICES", "many"},     {"HAL_FAKE_DEVICES", "65"},
      {"HAL_FAKE_DEVICES", "-1"},   {"HAL_FAKE_ASYNC", "yes"},        {"HAL_FAKE_ASYNC", "2"},
      {"HAL_FAKE_DELAY", "1.5"},    {"HAL_FAKE_DELAY", " 5"},         {"HAL_FAKE_THREADS", "0"},
      {"HAL_FAKE_THREADS", "0x10"}, {"HAL_FAKE_MEMORY", "lots"},      {"HAL_FAKE_MEMORY", "12Q"},
      {"HAL_FAKE_MEMORY", "4GB"},   {"HAL_FAKE_MEMORY", "99999999T"}, {"HAL_FAKE_MEMORY", "100"},
      {"HAL_FAKE_FAULT", "never"},
  };
  fake_load();
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    setenv(bad[i][0], bad[i][1], 1);
    must_fail(fake_api.init(""), HAL_INVALID_ARGUMENT, bad[i][0]);
    cr_assert_not_null(strstr(fake_message, bad[i][1]), "%s", fake_message);
    cr_assert_not_null(strstr(fake_message, "set it to"), "%s", fake_message);
    unsetenv(bad[i][0]);
  }
  must_fail(fake_api.init("color=red"), HAL_INVALID_ARGUMENT, "color=red");
  must(fake_api.init(""));
}

Test(fake_process, counting_devices_does_not_initialize_the_plugin) {
  setenv("HAL_FAKE_DEVICES", "3", 1);
  setenv("HAL_FAKE_ASYNC", "wrong", 1); /* init would fail */
  fake_load();
  int32_t count = 0;
  void *ptr = NULL;
  must(fake_api.device_count(&count));
  cr_assert_eq(count, 3);
  must_fail(fake_api.memory_alloc(0, 64, 0, &ptr), HAL_FAILED_PRECONDITION, "before init");
  setenv("HAL_FAKE_DEVICES", "5", 1);
  must(fake_api.device_count(&count));
  cr_assert_eq(count, 3, "the count must not change within a process");
}

Test(fake_process, device_info_reports_the_properties) {
  for (int async = 0; async < 2; async++) {
    const pid_t child = fork();
    if (child == 0) {
      open_mode(async, 2);
      hal_device_info_t info = {.struct_size = sizeof info};
      hal_plugin_info_t plugin = {.struct_size = sizeof plugin};
      int32_t accessible = 0;
      must(fake_api.device_info(0, &info));
      must(fake_api.info(&plugin));
      must(fake_api.device_peer_query(0, 0, &accessible));
      const uint64_t flags = HAL_DEVICE_HOST_VISIBLE | HAL_DEVICE_UNIFIED | HAL_DEVICE_RAW_POINTERS | HAL_DEVICE_FP64 |
                             HAL_DEVICE_CPU | HAL_DEVICE_FIRST_BLOCK;
      _exit(info.flags == (flags | (async ? HAL_DEVICE_ASYNC : 0)) && !strcmp(info.dialects, "native,host,binary,c") &&
                    !strcmp(plugin.name, "fake") && plugin.flags == HAL_PLUGIN_ON_REQUEST && accessible == 1
                ? 0
                : 1);
    }
    int status = 1;
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert_eq(status, 0);
  }
}

static int work_in(hal_plugin_stream_t *stream, float *data, const float *ones) {
  data[0] = 0;
  add_ones(stream, data, ones, 1 << 20);
  must(fake_api.stream_synchronize(stream));
  return data[0] == 1.0f;
}

/* The child of a process with running streams does not hang. Lost queued work is reported once, and new work runs. */
static int child_of_busy_parent(hal_plugin_stream_t *busy, hal_plugin_stream_t *idle, hal_plugin_event_t *event,
                                float *data, const float *ones) {
  if (fake_api.event_query(event) != HAL_OK) return 2; /* no thread would ever complete it */
  if (fake_api.stream_synchronize(busy) != HAL_ABORTED || !strstr(fake_message, "fork")) return 3;
  if (fake_api.stream_synchronize(busy) != HAL_OK) return 4;
  if (!work_in(idle, data, ones) || !work_in(busy, data, ones) || !work_in(new_stream(), data, ones)) return 5;
  const hal_status_t noise = fake_api.device_synchronize(0); /* reported once for the stream that may not have been
                                                                finished */
  if (noise != HAL_OK && noise != HAL_ABORTED) return 6;
  if (fake_api.device_synchronize(0) != HAL_OK) return 7;
  return 0;
}

Test(fake_process, fork_of_a_busy_process, .timeout = 120) {
  open_mode(1, 2);
  hal_plugin_stream_t *busy = new_stream(), *idle = new_stream(), *noise = new_stream();
  hal_plugin_event_t *event = new_event(HAL_EVENT_TIMING);
  float *data = new_floats(1 << 20, 0), *ones = new_floats(1 << 20, 1), *sum = new_floats(16, 0);
  fake_gate_t gate = {0};
  must(fake_api.stream_host_call(busy, fake_gate_wait, &gate));
  must(fake_api.event_record(event, busy));
  int queued = 0;
  for (int i = 0; i < 10; i++) {
    for (int k = 0; k < 200; k++, queued++) add_ones(noise, sum, ones, 16);
    const pid_t child = fork();
    if (child == 0) _exit(child_of_busy_parent(busy, idle, event, data, ones));
    int status = 1;
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "child ended with %x", (unsigned)status);
  }
  atomic_store(&gate.open, 1);
  must(fake_api.device_synchronize(0)); /* the parent is not affected */
  cr_assert_eq(sum[0], (float)queued);
}

Test(fake_process, child_of_a_process_that_only_counted_devices_initializes, .timeout = 60) {
  int32_t count = 0;
  fake_load();
  must(fake_api.device_count(&count));
  const pid_t child = fork();
  if (child == 0) {
    must(fake_api.init(""));
    _exit(work_in(new_stream(), new_floats(1 << 20, 0), new_floats(1 << 20, 1)) ? 0 : 1);
  }
  int status = 1;
  cr_assert_eq(waitpid(child, &status, 0), child);
  cr_assert_eq(status, 0);
}

/* exit() with work queued, running and blocked forever: the process exits with its own status. */
Test(fake_process, process_may_end_at_any_time, .timeout = 120) {
  for (int i = 0; i < 20; i++) {
    const pid_t child = fork();
    if (child == 0) {
      open_mode(1, 2);
      static fake_gate_t gate; /* never opened */
      hal_plugin_stream_t *running = new_stream(), *held = new_stream(), *blocked = new_stream();
      hal_plugin_event_t *event = new_event(0);
      float *data = new_floats(1 << 20, 0);
      if (i % 2) must(fake_api.stream_host_call(held, fake_gate_wait, &gate));
      must(fake_api.event_record(event, held));
      must(fake_api.stream_wait_event(blocked, event));
      for (int k = 0; k < 50 * i; k++) add_ones(i % 3 ? running : blocked, data, data, 1 << 20);
      alarm(20);
      exit(7);
    }
    int status = 0;
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 7, "ended with %x", (unsigned)status);
  }
}

Test(fake_process, shutdown_finishes_the_work, .timeout = 60) {
  setenv("HAL_FAKE_DELAY", "2000", 1);
  open_mode(1, 2);
  hal_plugin_stream_t *stream = new_stream();
  float *data = new_floats(16, 0), *ones = new_floats(16, 1);
  for (int i = 0; i < 20; i++) add_ones(stream, data, ones, 16);
  must(fake_api.shutdown(0));
  cr_assert_eq(data[0], 20.0f);
}
