/* Tests of device events (sensor.h): the events that the fake device reports for a launch that HAL_FAKE_FAULT makes
   fail, and the sinks that receive them. */
#include "support.h"

#include <stdatomic.h>
#include <time.h>

#include "device/device.h"

#if KERNEL_PLUGIN_EXISTS
typedef struct seen_s {
  atomic_int count, device, kind;
  char message[200];
} seen_t;
static seen_t seen, other;

static void see(void *user_data, int32_t device, const hal_device_event_t *event) {
  seen_t *const into = user_data;
  snprintf(into->message, sizeof into->message, "%s", event->message);
  atomic_store(&into->device, device);
  atomic_store(&into->kind, (int)event->kind);
  atomic_fetch_add(&into->count, 1);
}

static void nap(int milliseconds) { nanosleep(&(struct timespec){.tv_nsec = milliseconds * 1000000L}, NULL); }

/* Events arrive asynchronously, on another thread. */
static int comes(atomic_int *count, int wanted) {
  for (int i = 0; i < 10000 && atomic_load(count) < wanted; i++) nap(1);
  return atomic_load(count) == wanted;
}

static void open_fake(const char *fault) {
  if (fault) setenv("HAL_FAKE_FAULT", fault, 1);
  setenv("HAL_FAKE_DEVICES", "2", 1);
  assert_ok(hal_registry_add_path(PLUGIN_DIR));
  assert_ok(hal_registry_open("fake"));
}

/* Launches one kernel on a device. The launch fails if HAL_FAKE_FAULT selects it. */
static hal_status_t launch(int32_t device) {
  static int64_t shape[] = {16}, stride[] = {1};
  hal_block_t *block = NULL;
  hal_stream_t *stream = NULL;
  uint32_t op = 0;
  assert_ok(hal_op_id("neg", &op));
  assert_ok(hal_stream_current(device, &stream));
  assert_ok(hal_memory_allocate(device, NULL, 64, &block));
  assert_ok(hal_memory_fill(stream, device, hal_memory_block_address(block), "", 1, 64));
  hal_tensor_t tensor = {.struct_size = sizeof tensor,
                         .data = hal_memory_block_address(block),
                         .sizes = shape,
                         .strides = stride,
                         .ndim = 1,
                         .dtype = HAL_FLOAT32,
                         .device = device};
  const hal_value_t args[] = {{.tag = HAL_VALUE_TENSOR, .u.t = &tensor}};
  const hal_tensor_t *results[] = {&tensor};
  hal_op_call_t call = {
      .struct_size = sizeof call, .args = args, .arg_count = 1, .results = results, .result_count = 1};
  const hal_status_t status = hal_op_run(device, op, stream, &call);
  const hal_status_t failed = hal_device_synchronize(device);
  hal_memory_release(block);
  return status ? status : failed;
}

Test(device_event, every_number_has_a_name_of_its_own) {
  cr_assert_str_eq(hal_device_event_name(HAL_DEVICE_EVENT_LOST), "lost");
  cr_assert_str_eq(hal_device_event_name(HAL_DEVICE_EVENT_THROTTLED), "throttled");
  cr_assert_null(hal_device_event_name(31));
}

Test(device_event, the_programs_sink_receives_the_device_and_the_event) {
  open_fake("2");
  assert_ok(hal_device_event_set_sink(see, &seen));
  assert_ok(launch(0));
  assert_fails(launch(1), HAL_INTERNAL, "neg");
  cr_assert(comes(&seen.count, 1), "%d events", atomic_load(&seen.count));
  cr_assert_eq(atomic_load(&seen.device), 1);
  cr_assert_eq(atomic_load(&seen.kind), HAL_DEVICE_EVENT_MEMORY_UNCORRECTED);
  cr_assert_not_null(strstr(seen.message, "HAL_FAKE_FAULT"), "%s", seen.message);
}

Test(device_event, a_sink_that_is_set_late_hears_of_devices_in_use_and_a_new_one_takes_its_place) {
  open_fake("3");
  assert_ok(launch(0));
  assert_ok(launch(1));
  cr_assert_not(atomic_load(&hal_devices[1].watched), "no sink was set, and the log is quiet: no thread is needed");
  assert_ok(hal_device_event_set_sink(see, &seen));
  assert_ok(hal_device_event_set_sink(see, &other));
  cr_assert(atomic_load(&hal_devices[1].watched));
  assert_fails(launch(1), HAL_INTERNAL, "neg");
  cr_assert(comes(&other.count, 1));
  cr_assert_eq(atomic_load(&seen.count), 0);
}

static void see_and_ask(void *user_data, int32_t device, const hal_device_event_t *event) {
  size_t unused = 0, total = 0;
  hal_stream_t *stream = NULL;
  cr_assert_eq(hal_memory_info(device, &unused, &total), HAL_OK);
  cr_assert_eq(hal_stream_acquire(device, 0, &stream), HAL_OK); /* which acquires the device's lock */
  cr_assert_eq(hal_device_event_set_sink(NULL, NULL), HAL_OK);
  see(user_data, device, event);
}

Test(device_event, a_sink_may_call_the_hal) {
  open_fake("1");
  assert_ok(hal_device_event_set_sink(see_and_ask, &seen));
  assert_fails(launch(0), HAL_INTERNAL, "neg");
  cr_assert(comes(&seen.count, 1));
}

static seen_t logged;
static void read_log(int32_t level, const char *message, void *unused) {
  (void)level, (void)unused;
  if (!strstr(message, "memory_uncorrected")) return;
  snprintf(logged.message, sizeof logged.message, "%s", message);
  atomic_fetch_add(&logged.count, 1);
}

Test(device_event, without_a_sink_events_are_logged_where_the_log_has_the_level_info) {
  setenv("HAL_LOG", "info", 1);
  hal_log_set_sink(read_log, NULL);
  open_fake("1");
  assert_fails(launch(0), HAL_INTERNAL, "neg");
  cr_assert(comes(&logged.count, 1));
  cr_assert_not_null(strstr(logged.message, "device fake:0: memory_uncorrected"), "%s", logged.message);
}

Test(device_event, the_end_of_the_process_ends_the_watch) {
  open_fake("1");
  assert_ok(hal_device_event_set_sink(see, &seen));
  assert_ok(hal_device_ensure(0));
  hal_registry_close();
  cr_assert_not(atomic_load(&hal_devices[0].watched));
}
#endif

Test(device_event, a_plugin_without_events_is_no_failure) {
  open_fixture("five");
  assert_ok(hal_device_ensure(0));
  assert_ok(hal_device_event_set_sink(NULL, NULL));
  cr_assert_null(hal_device_event_name(4711));
}
