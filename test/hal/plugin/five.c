/* Tests that a plugin with exactly the five mandatory functions supports fills, copies, streams, events, host calls
 * and random numbers. A plugin built against an older header, whose table ends with the last of them, is tested as
 * well. */
#include "support.h"

#include "device/device.h"
#include "plugin/call.h"

static hal_device_t *open_device(const char *path) {
  hal_device_t *device;
  assert_ok(hal_registry_open(path));
  assert_ok(hal_device_get(1, &device));
  return device;
}

static void check_fill(hal_device_t *device) {
  enum { COUNT = 5000 };
  static uint8_t back[COUNT * 2];
  const uint16_t pattern = 0xBEEF;
  void *ptr;
  assert_ok(hal_call_memory_alloc(device->plugin, device->ordinal, sizeof back, 0, &ptr));
  assert_ok(hal_call_memory_fill(device->plugin, NULL, device->ordinal, ptr, &pattern, 2, sizeof back));
  assert_ok(hal_call_memory_copy(device->plugin, NULL, back, HAL_HOST, ptr, device->ordinal, sizeof back));
  for (size_t i = 0; i < COUNT; i++) cr_assert_eq(((uint16_t *)(void *)back)[i], pattern);
  assert_ok(hal_call_memory_free(device->plugin, device->ordinal, ptr));
  cr_assert_eq(hal_call_memory_fill(device->plugin, NULL, device->ordinal, ptr, &pattern, 3, 3), HAL_INVALID_ARGUMENT);
}

static void check_random(hal_device_t *device) {
  enum { COUNT = 1001 };
  float numbers[COUNT];
  void *ptr;
  assert_ok(hal_call_memory_alloc(device->plugin, device->ordinal, sizeof numbers, 0, &ptr));
  const hal_random_t desc = {.struct_size = sizeof desc,
                             .dst = ptr,
                             .count = COUNT,
                             .seed = 42,
                             .offset = 7,
                             .device = device->ordinal,
                             .dtype = HAL_FLOAT32,
                             .distribution = HAL_RANDOM_UNIFORM,
                             .p0 = 0,
                             .p1 = 1};
  assert_ok(hal_call_random_fill(device->plugin, NULL, &desc));
  assert_ok(hal_call_memory_copy(device->plugin, NULL, numbers, HAL_HOST, ptr, device->ordinal, sizeof numbers));
  for (int i = 0; i < COUNT; i++) {
    uint32_t words[4];
    hal_generator_philox(42, 7 + i / 4, 0, words);
    cr_assert_eq(numbers[i], (float)(words[i % 4] >> 8) / 16777216.0f, "number %d", i);
  }
  assert_ok(hal_call_memory_free(device->plugin, device->ordinal, ptr));
}

/* The operator on a device without kernels: torch.rand() on a plugin of five functions. */
static void check_random_operator(hal_device_t *device) {
  enum { COUNT = 1001 };
  float numbers[COUNT];
  const int64_t size = COUNT, stride = 1;
  uint32_t op;
  void *ptr;
  assert_ok(hal_op_id("uniform", &op));
  assert_ok(hal_call_memory_alloc(device->plugin, device->ordinal, sizeof numbers, 0, &ptr));
  const hal_tensor_t tensor = {.struct_size = sizeof tensor,
                               .data = ptr,
                               .dtype = HAL_FLOAT32,
                               .ndim = 1,
                               .sizes = &size,
                               .strides = &stride,
                               .device = 1};
  const hal_tensor_t *const results[] = {&tensor};
  const hal_value_t args[] = {{.tag = HAL_VALUE_DOUBLE, .u.d = -2}, {.tag = HAL_VALUE_DOUBLE, .u.d = 2}};
  hal_op_call_t call = {.struct_size = sizeof call,
                        .arg_count = 2,
                        .result_count = 1,
                        .args = args,
                        .results = results,
                        .seed = 42,
                        .offset = 7};
  cr_assert(hal_op_dtypes(1, op) >> HAL_FLOAT32 & 1);
  assert_ok(hal_op_run(1, op, NULL, &call));
  assert_ok(hal_memory_copy(NULL, numbers, HAL_HOST, ptr, 1, sizeof numbers));
  for (int i = 0; i < COUNT; i++) {
    uint32_t words[4];
    hal_generator_philox(42, 7 + i / 4, 0, words);
    cr_assert_eq(numbers[i], -2 + 4 * ((float)(words[i % 4] >> 8) / 16777216.0f), "number %d", i);
  }
  assert_ok(hal_call_memory_free(device->plugin, device->ordinal, ptr));
}

static void count_call(void *user_data) { ++*(int *)user_data; }

static void check_streams_and_events(void) {
  int calls = 0;
  int64_t ns = -1;
  hal_stream_t *stream;
  hal_event_t *start, *end;
  assert_ok(hal_stream_acquire(1, 0, &stream));
  assert_ok(hal_event_create(1, HAL_EVENT_TIMING, &start));
  assert_ok(hal_event_create(1, HAL_EVENT_TIMING, &end));
  assert_ok(hal_event_record(start, stream));
  assert_ok(hal_stream_host_call(stream, count_call, &calls));
  cr_assert_eq(calls, 1);
  assert_ok(hal_event_record(end, stream));
  assert_ok(hal_stream_wait_event(NULL, end));
  assert_ok(hal_stream_query(stream));
  assert_ok(hal_stream_synchronize_timeout(stream, 0));
  assert_ok(hal_event_elapsed(start, end, &ns));
  cr_assert_geq(ns, 0);
  assert_ok(hal_device_synchronize(1));
  hal_event_destroy(start);
  hal_event_destroy(end);
}

Test(five, fill_works) { check_fill(open_device(FIXTURE("five"))); }
Test(five, random_numbers_are_the_philox_words) { check_random(open_device(FIXTURE("five"))); }
Test(five, random_operators_work_without_kernels) { check_random_operator(open_device(FIXTURE("five"))); }
Test(five, streams_events_and_host_calls_work) {
  open_device(FIXTURE("five"));
  check_streams_and_events();
}

/* The number of copies by the plugin "streamless". */
static int32_t copies_of(void) {
  hal_module_t *module;
  hal_kernel_t *kernel;
  int32_t count = 0, *target = &count;
  const hal_module_desc_t desc = {.struct_size = sizeof desc, .dialect = "streamless", .options = ""};
  const hal_arg_t arguments[] = {{&target, sizeof target, HAL_ARG_POINTER}};
  const hal_launch_t launch = {
      .struct_size = sizeof launch, .grid = {1, 1, 1}, .block = {1, 1, 1}, .arg_count = 1, .args = arguments};
  assert_ok(hal_module_load(1, &desc, &module));
  assert_ok(hal_kernel_get(module, "copies", &kernel));
  assert_ok(hal_kernel_launch(kernel, NULL, &launch));
  hal_module_unload(module);
  return count;
}

Test(five, a_large_fill_doubles_by_copies_within_the_device) {
  enum { BYTES = (4 << 20) + 48 };
  const uint8_t pattern[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
  hal_device_t *const device = open_device(FIXTURE("streamless"));
  uint8_t *bytes;
  void *ptr;
  assert_ok(hal_call_memory_alloc(device->plugin, device->ordinal, BYTES, 0, &ptr));
  const int32_t before = copies_of();
  assert_ok(hal_memory_fill(NULL, 1, ptr, pattern, sizeof pattern, BYTES));
  cr_assert_leq(copies_of() - before, 12); /* 4 KiB from the host, then ten doublings and the remainder */
  bytes = ptr;
  for (size_t i = 0; i < BYTES; i++) cr_assert_eq(bytes[i], pattern[i % 16], "byte %zu", i);
  assert_ok(hal_call_memory_free(device->plugin, device->ordinal, ptr));
}

Test(old, the_missing_tail_is_seen) {
  hal_registry_entry_t entry = {.struct_size = sizeof entry};
  hal_device_t *const device = open_device(FIXTURE("old"));
  cr_assert_null(device->plugin->api.memory_fill);
  cr_assert_not_null(device->plugin->api.memory_copy);
  assert_ok(hal_registry_plugin(0, &entry));
  cr_assert_eq(entry.provided_count, 5);
}
Test(old, fill_works) { check_fill(open_device(FIXTURE("old"))); }
Test(old, random_numbers_are_the_philox_words) { check_random(open_device(FIXTURE("old"))); }
Test(old, streams_events_and_host_calls_work) {
  open_device(FIXTURE("old"));
  check_streams_and_events();
}
Test(old, ops_without_a_default_return_UNIMPLEMENTED) {
  hal_device_t *const device = open_device(FIXTURE("old"));
  size_t free_bytes, total;
  cr_assert_eq(hal_call_memory_info(device->plugin, 1, &free_bytes, &total), HAL_UNIMPLEMENTED);
  cr_assert_eq(hal_call_device_peer_enable(device->plugin, 0, 1), HAL_UNIMPLEMENTED);
}
