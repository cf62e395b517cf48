/* Tests of the validate layer (HAL_LAYERS=validate): the errors that it reports, the responsible side, and that it
 * reports nothing else. Errors of the host are made through hal_call_*, errors of the plugin by the fixture "rogue". */
#include "layer_testing.h"

#include <stdint.h>

/* ---- no errors ---- */

Test(layer_validate, right_use_of_every_group_is_not_remarked) {
  void *pinned = NULL;
  int64_t time = 0;
  size_t available, total;
  hal_plugin_event_t *later = NULL;
  const uint32_t value = 5;
  make_all();
  void *const inside = (char *)memory + 4092;
  const hal_arg_t args[] = {
      {&inside, sizeof inside, HAL_ARG_POINTER}, {&value, sizeof value, HAL_ARG_VALUE}, {NULL, 64, HAL_ARG_LOCAL}};
  const hal_launch_t launch = launch_of(args, 3);
  assert_ok(hal_call_kernel_launch(plugin, kernel, stream, &launch));
  assert_ok(hal_call_kernel_launch(plugin, kernel, NULL, &launch));
  assert_ok(hal_call_memory_copy(plugin, stream, memory, 0, host, HAL_HOST, 4096));
  assert_ok(hal_call_memory_copy(plugin, stream, memory, 0, memory_1, 1, 4096));
  assert_ok(hal_call_memory_copy(plugin, NULL, NULL, 0, NULL, HAL_HOST, 0));
  assert_ok(hal_call_memory_fill(plugin, stream, 0, memory, &value, sizeof value, 4096));
  assert_ok(hal_call_memory_info(plugin, 0, &available, &total));
  assert_ok(hal_call_event_create(plugin, 0, HAL_EVENT_TIMING, &later));
  assert_ok(hal_call_event_record(plugin, event, stream));
  assert_ok(hal_call_event_record(plugin, later, stream));
  assert_ok(hal_call_event_elapsed(plugin, event, later, &time));
  assert_ok(hal_call_event_elapsed(plugin, later, event, &time)); /* negative, and rightly so */
  cr_assert_eq(time, -1000);
  assert_ok(hal_call_stream_wait_event(plugin, stream_1, event)); /* across devices */
  assert_ok(hal_call_host_alloc(plugin, 0, 64, 0, &pinned));
  assert_ok(hal_call_host_free(plugin, 0, pinned));
  assert_ok(hal_call_event_destroy(plugin, later));
  assert_ok(hal_call_event_destroy(plugin, NULL));
  assert_ok(hal_call_module_unload(plugin, module));
  assert_ok(hal_call_event_destroy(plugin, event));
  assert_ok(hal_call_stream_destroy(plugin, stream));
  assert_ok(hal_call_stream_destroy(plugin, stream_1));
  assert_ok(hal_call_memory_free(plugin, 0, memory));
  assert_ok(hal_call_memory_free(plugin, 1, memory_1));
  assert_ok(hal_call_memory_free(plugin, 1, NULL));
  hal_registry_close();
  cr_assert_str_empty(lines, "found: %s", lines);
}

Test(layer_validate, a_failure_with_a_message_is_not_remarked_and_passes_as_it_is) {
  setenv("ROGUE", "free_fails", 1);
  make_all();
  cr_assert_eq(hal_call_memory_free(plugin, 0, memory), HAL_INTERNAL);
  cr_assert_str_eq(hal_error_message(), "rogue: failed; try again");
  unsetenv("ROGUE");
  assert_ok(hal_call_memory_free(plugin, 0, memory)); /* blocks that could not be freed remain allocated */
  cr_assert_str_empty(lines);
}

Test(layer_validate, injected_failures_are_judged_as_the_plugins) {
  setenv("HAL_FAULT", "stream_create:9", 1);
  make_all();
  plugin->layers |= HAL_LAYER_FAULT;
  hal_plugin_stream_t *made = NULL;
  hal_status_t status = HAL_OK;
  for (int i = 0; i < 9 && !status; i++)
    status = hal_call_stream_create(plugin, 0, &(const hal_stream_desc_t)HAL_STREAM_DESC(0), &made);
  cr_assert_eq(status, HAL_RESOURCE_EXHAUSTED);
  cr_assert_str_empty(lines);
}

/* ---- errors of the host ---- */

Test(layer_validate, an_ordinal_of_another_plugin_is_misuse) {
  void *got = NULL;
  make_all();
  assert_misuse(hal_call_memory_alloc(plugin, 2, 64, 0, &got), "memory_alloc",
                "device is 2, and the plugin's ordinals are 0 to 1");
  assert_misuse(hal_call_device_synchronize(plugin, -1), "device_synchronize", "device is -1");
  assert_misuse(hal_call_memory_copy(plugin, NULL, memory, -2, host, HAL_HOST, 4), "memory_copy", "dst_device is -2");
  assert_misuse(hal_call_device_peer_enable(plugin, 0, 5), "device_peer_enable", "peer is 5");
}

Test(layer_validate, NULL_where_something_must_be_is_misuse) {
  make_all();
  assert_misuse(hal_call_event_record(plugin, NULL, stream), "event_record", "event is NULL");
  assert_misuse(hal_call_stream_wait_event(plugin, stream, NULL), "stream_wait_event", "event is NULL");
  assert_misuse(hal_call_module_unload(plugin, NULL), "module_unload", "module is NULL");
  assert_misuse(hal_call_memory_alloc(plugin, 0, 64, 0, NULL), "memory_alloc", "out_ptr is NULL");
  assert_misuse(hal_call_kernel_get(plugin, module, NULL, &kernel), "kernel_get", "name is NULL");
  assert_misuse(hal_call_kernel_launch(plugin, kernel, stream, NULL), "kernel_launch", "launch is NULL");
  assert_misuse(hal_call_stream_host_call(plugin, stream, NULL, NULL), "stream_host_call", "fn is NULL");
}

Test(layer_validate, freed_and_foreign_memory_is_misuse) {
  make_all();
  assert_ok(hal_call_memory_free(plugin, 0, memory));
  assert_misuse(hal_call_memory_free(plugin, 0, memory), "memory_free", "was released before");
  assert_misuse(hal_call_memory_copy(plugin, stream, host, HAL_HOST, (char *)memory + 8, 0, 8), "memory_copy",
                "that was freed");
  assert_misuse(hal_call_memory_free(plugin, 0, host), "memory_free", "there is no device memory that begins at");
  assert_misuse(hal_call_memory_free(plugin, 1, (char *)memory_1 + 8), "memory_free", "there is no device memory");
  assert_misuse(hal_call_memory_free(plugin, 0, memory_1), "memory_free", "is of device 1 and not of device 0");
  assert_misuse(hal_call_memory_copy(plugin, stream_1, host, 1, memory_1, 1, 8), "memory_copy",
                "is in no live allocation");
  assert_misuse(hal_call_host_free(plugin, 0, host), "host_free", "there is no host memory");
}

Test(layer_validate, ranges_that_leave_their_allocation_are_misuse) {
  const uint32_t pattern = 1;
  make_all();
  assert_misuse(hal_call_memory_copy(plugin, stream, memory, 0, host, HAL_HOST, 4097), "memory_copy",
                "ends 1 bytes past the allocation of 4096 bytes");
  assert_misuse(hal_call_memory_fill(plugin, stream, 0, (char *)memory + 4, &pattern, 4, 4096), "memory_fill",
                "ends 4 bytes past");
  assert_misuse(hal_call_memory_copy(plugin, stream, NULL, 0, host, HAL_HOST, 4), "memory_copy",
                "dst is NULL for 4 bytes");
  assert_misuse(hal_call_memory_copy(plugin, stream, (char *)memory + 4, 0, memory, 0, 8), "memory_copy", "overlap");
  assert_misuse(hal_call_memory_copy(plugin, stream, host, HAL_HOST, memory_1, 0, 8), "memory_copy",
                "is memory of device 1 and not of device 0");
  assert_misuse(hal_call_memory_fill(plugin, stream, 0, memory, &pattern, 3, 9), "memory_fill",
                "invalid pattern of 3 bytes");
  assert_misuse(hal_call_memory_fill(plugin, stream, 0, memory, &pattern, 4, 9), "memory_fill", "not a multiple");
  assert_misuse(hal_call_memory_alloc(plugin, 0, 0, 0, &memory), "memory_alloc", "size is 0");
  const hal_random_t random = {
      .struct_size = HAL_STRUCT_SIZE(hal_random_t, p1), .dst = memory, .count = 2000, .dtype = HAL_FLOAT32};
  assert_misuse(hal_call_random_fill(plugin, stream, &random), "random_fill", "ends 3904 bytes past");
}

Test(layer_validate, destroyed_and_foreign_handles_are_misuse) {
  make_all();
  assert_ok(hal_call_stream_destroy(plugin, stream));
  assert_misuse(hal_call_stream_synchronize(plugin, stream), "stream_synchronize",
                "was destroyed by stream_destroy before");
  assert_misuse(hal_call_stream_destroy(plugin, stream), "stream_destroy", "was destroyed");
  assert_ok(hal_call_event_destroy(plugin, event));
  assert_misuse(hal_call_event_destroy(plugin, event), "event_destroy", "was destroyed by event_destroy before");
  assert_misuse(hal_call_event_query(plugin, (hal_plugin_event_t *)(void *)host), "event_query",
                "is not a live event of this plugin");
  assert_ok(hal_call_module_unload(plugin, module));
  const hal_launch_t launch = launch_of(NULL, 0);
  assert_misuse(hal_call_kernel_launch(plugin, kernel, NULL, &launch), "kernel_launch",
                "was destroyed by module_unload before");
  assert_misuse(hal_call_kernel_get(plugin, module, "k", &kernel), "kernel_get", "was destroyed");
}

Test(layer_validate, handles_of_two_devices_in_one_call_are_misuse) {
  const hal_launch_t launch = launch_of(NULL, 0);
  const uint32_t pattern = 1;
  make_all();
  assert_misuse(hal_call_event_record(plugin, event, stream_1), "event_record",
                "event is of device 0 and stream of device 1");
  assert_misuse(hal_call_kernel_launch(plugin, kernel, stream_1, &launch), "kernel_launch", "kernel is of device 0");
  assert_misuse(hal_call_memory_fill(plugin, stream_1, 0, memory, &pattern, 4, 4), "memory_fill", "stream of device 1");
  assert_misuse(hal_call_memory_copy(plugin, stream_1, memory, 0, host, HAL_HOST, 4), "memory_copy",
                "the stream is of device 1");
}

Test(layer_validate, wrong_launches_are_misuse) {
  void *outside = host, *behind = NULL, *other = NULL;
  const uint32_t value = 5;
  make_all();
  behind = (char *)memory + 4096;
  other = memory_1;
  hal_launch_t launch = launch_of(NULL, 0);
  launch.block[1] = 0;
  assert_misuse(hal_call_kernel_launch(plugin, kernel, stream, &launch), "kernel_launch", "block 1 x 0 x 1");
  launch = launch_of(NULL, 2);
  assert_misuse(hal_call_kernel_launch(plugin, kernel, stream, &launch), "kernel_launch",
                "argument_count is 2 and args is NULL");
  const struct {
    hal_arg_t arg;
    const char *text;
  } rows[] = {
      {{&outside, sizeof outside, HAL_ARG_POINTER}, "argument 0 of the launch, 1 bytes at"},
      {{&behind, sizeof behind, HAL_ARG_POINTER}, "is in no live allocation of device 0"},
      {{&other, sizeof other, HAL_ARG_POINTER}, "is memory of device 1"},
      {{&outside, 4, HAL_ARG_POINTER}, "kind 1, 4 bytes"},
      {{&value, 4, 9}, "kind 9"},
      {{NULL, 4, HAL_ARG_VALUE}, "kind 0, 4 bytes"},
      {{&value, 0, HAL_ARG_VALUE}, "kind 0, 0 bytes"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    launch = launch_of(&rows[i].arg, 1);
    assert_misuse(hal_call_kernel_launch(plugin, kernel, stream, &launch), "kernel_launch", rows[i].text);
  }
  launch = launch_of(NULL, 0);
  launch.struct_size = 8;
  assert_misuse(hal_call_kernel_launch(plugin, kernel, stream, &launch), "kernel_launch", "launch->struct_size is 8");
}

Test(layer_validate, calls_outside_init_and_shutdown_are_misuse) {
  setenv("HAL_LAYERS", "validate", 1);
  hal_log_set_sink(keep, NULL);
  open_fixture("rogue");
  plugin = &hal_registry.plugins[0];
  assert_misuse(hal_call_device_synchronize(plugin, 0), "device_synchronize", "called before init");
  assert_ok(hal_device_ensure(0));
  assert_misuse(hal_call_init(plugin, ""), "init", "second time");
  hal_registry_close();
  assert_misuse(hal_call_device_synchronize(plugin, 0), "device_synchronize", "called after shutdown");
}

Test(layer_validate, what_is_alive_at_shutdown_is_reported_by_kind) {
  make_all();
  hal_registry_close();
  static const char *const wanted[] = {"2 of the kind 'device memory' were not released by memory_free",
                                       "2 of the kind 'stream'", "1 of the kind 'event'", "1 of the kind 'module'"};
  for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++)
    cr_assert_not_null(strstr(lines, wanted[i]), "'%s' lacks '%s'", lines, wanted[i]);
  cr_assert_null(strstr(lines, "kernel"), "a kernel goes with its module: %s", lines);
}

/* ---- errors of the plugin ---- */

#define assert_fault(call, op, text)                \
  do {                                              \
    lines[0] = '\0';                                \
    assert_fails(call, HAL_INTERNAL, "validate: "); \
    assert_found(op, text);                         \
  } while (0)

Test(layer_validate, bad_allocations_of_the_plugin_are_found_and_refused) {
  static const struct {
    const char *mistake, *text;
  } rows[] = {
      {"alloc_untouched", "returned OK and did not write out_ptr"},
      {"alloc_null", "returned OK and NULL"},
      {"alloc_overlaps", "overlap the live"},
      {"alloc_misaligned", "is not aligned to 256 bytes"},
  };
  make_all();
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    void *got = NULL;
    setenv("ROGUE", rows[i].mistake, 1);
    assert_fault(hal_call_memory_alloc(plugin, 0, 64, 0, &got), "memory_alloc", rows[i].text);
  }
}

Test(layer_validate, an_out_parameter_written_on_failure_is_found_and_kept_from_the_caller) {
  void *got = host;
  make_all();
  setenv("ROGUE", "alloc_wrote_and_failed", 1);
  cr_assert_eq(hal_call_memory_alloc(plugin, 0, 64, 0, &got), HAL_RESOURCE_EXHAUSTED); /* its own code stays */
  assert_found("memory_alloc", "returned RESOURCE_EXHAUSTED and wrote to out_ptr");
  cr_assert_eq(got, (void *)host);
}

Test(layer_validate, a_second_out_parameter_that_is_not_written_is_found) {
  size_t available, total;
  make_all();
  setenv("ROGUE", "info_one_of_two", 1);
  assert_fault(hal_call_memory_info(plugin, 0, &available, &total), "memory_info", "did not write out_free");
  setenv("ROGUE", "more_free_than_total", 1);
  assert_fault(hal_call_memory_info(plugin, 0, &available, &total), "memory_info", "2097152 bytes free of 1048576");
}

Test(layer_validate, a_sensor_beyond_its_unit_is_found) {
  int64_t value = 0;
  make_all();
  setenv("ROGUE", "sensor_of_101", 1);
  assert_ok(hal_call_device_sensor(plugin, 0, HAL_SENSOR_CLOCK, &value));
  assert_fault(hal_call_device_sensor(plugin, 0, HAL_SENSOR_FAN, &value), "device_sensor", "101 for sensor 10");
  setenv("ROGUE", "sensor_below_0", 1);
  assert_ok(hal_call_device_sensor(plugin, 0, HAL_SENSOR_TEMPERATURE, &value));
  assert_fault(hal_call_device_sensor(plugin, 0, HAL_SENSOR_POWER, &value), "device_sensor", "expected 0 or more");
}

Test(layer_validate, bad_status_codes_are_found) {
  make_all();
  setenv("ROGUE", "strange_code", 1);
  assert_fault(hal_call_device_synchronize(plugin, 0), "device_synchronize", "returned 99, which is not a status code");
  setenv("ROGUE", "reserved_code", 1);
  assert_fault(hal_call_device_synchronize(plugin, 0), "device_synchronize", "returned 4, which is not a status code");
  setenv("ROGUE", "not_ready", 1);
  assert_fault(hal_call_device_synchronize(plugin, 0), "device_synchronize", "NOT_READY, which only queries may");
  setenv("ROGUE", "no_message", 1);
  lines[0] = '\0';
  cr_assert_eq(hal_call_device_synchronize(plugin, 0), HAL_DATA_LOSS); /* a failure is a failure */
  assert_found("device_synchronize", "returned DATA_LOSS without a message");
}

Test(layer_validate, a_count_of_devices_that_changes_is_found) {
  setenv("HAL_LAYERS", "validate", 1);
  setenv("ROGUE", "count_changes", 1);
  hal_log_set_sink(keep, NULL);
  open_fixture("rogue");
  assert_fails(hal_device_ensure(0), HAL_INTERNAL, "counted 2 devices at first and 3 after init");
  assert_found("device_count", "the count never changes");
}

static hal_copy_2d_t rectangle(void *dst, int32_t dst_device, const void *src, int32_t src_device) {
  return (hal_copy_2d_t){.struct_size = HAL_STRUCT_SIZE(hal_copy_2d_t, src_device),
                         .dst = dst,
                         .src = src,
                         .dst_pitch = 64,
                         .src_pitch = 64,
                         .width = 16,
                         .height = 4,
                         .dst_device = dst_device,
                         .src_device = src_device};
}

Test(layer_validate, rectangles_are_checked_as_copies_are) {
  make_all();
  hal_copy_2d_t copy = rectangle(memory, 0, host, HAL_HOST);
  assert_ok(hal_call_memory_copy_2d(plugin, stream, &copy));
  cr_assert_str_empty(lines);
  copy.dst_pitch = 15;
  assert_misuse(hal_call_memory_copy_2d(plugin, stream, &copy), "memory_copy_2d", "15 (dst) and 64 (src) bytes apart");
  copy = rectangle(memory, 0, host, HAL_HOST), copy.height = SIZE_MAX / 32;
  assert_misuse(hal_call_memory_copy_2d(plugin, stream, &copy), "memory_copy_2d", "beyond the address space");
  copy = rectangle((char *)memory + 4096 - 3 * 64 - 15, 0, host, HAL_HOST); /* a byte too far */
  assert_misuse(hal_call_memory_copy_2d(plugin, stream, &copy), "memory_copy_2d", "ends 1 bytes past");
  copy = rectangle(memory, 2, host, HAL_HOST);
  assert_misuse(hal_call_memory_copy_2d(plugin, stream, &copy), "memory_copy_2d", "copy->dst_device is 2");
  copy = rectangle(memory_1, 1, host, HAL_HOST);
  assert_misuse(hal_call_memory_copy_2d(plugin, stream, &copy), "memory_copy_2d", "use a stream of one of them");
  copy = rectangle(host, HAL_HOST, host + 4096, HAL_HOST);
  assert_misuse(hal_call_memory_copy_2d(plugin, stream, &copy), "memory_copy_2d", "both sides are host memory");
  copy = rectangle(memory, 0, host, HAL_HOST), copy.struct_size = 32;
  assert_misuse(hal_call_memory_copy_2d(plugin, stream, &copy), "memory_copy_2d", "struct_size is 32");
}

Test(layer_validate, each_copy_of_a_batch_is_checked) {
  make_all();
  hal_copy_t copies[] = {{memory, host, 64, 0, HAL_HOST}, {(char *)memory + 64, host, 64, 0, HAL_HOST}};
  assert_ok(hal_call_memory_copy_batch(plugin, stream, copies, 2, sizeof *copies));
  assert_ok(hal_call_memory_copy_batch(plugin, stream, NULL, 0, sizeof *copies));
  cr_assert_str_empty(lines);
  copies[1].size = 4096;
  assert_misuse(hal_call_memory_copy_batch(plugin, stream, copies, 2, sizeof *copies), "memory_copy_batch",
                "ends 64 bytes past");
  copies[1] = (hal_copy_t){memory, host, 8, 0, 5};
  assert_misuse(hal_call_memory_copy_batch(plugin, stream, copies, 2, sizeof *copies), "memory_copy_batch",
                "src_device of a copy is 5");
  assert_misuse(hal_call_memory_copy_batch(plugin, stream, copies, 2, 16), "memory_copy_batch", "a stride of 16 bytes");
  assert_misuse(hal_call_memory_copy_batch(plugin, stream, copies, SIZE_MAX / 8, sizeof *copies), "memory_copy_batch",
                "copies at");
}

Test(layer_validate, device_info_that_breaks_its_struct_is_found) {
  static const struct {
    const char *mistake, *text;
  } rows[] = {{"name_without_end", "no NUL"},
              {"odd_alignment", "48, which is not a power of two"},
              {"architecture_without_end", "architecture has no NUL"},
              {"version_without_end", "driver_version or firmware_version has no NUL"},
              {"info_too_long", "wrote past the"}};
  make_all();
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    hal_device_info_t info = {.struct_size = HAL_STRUCT_SIZE(hal_device_info_t, max_binding)};
    setenv("ROGUE", rows[i].mistake, 1);
    assert_fault(hal_call_device_info(plugin, 0, &info), "device_info", rows[i].text);
  }
}

Test(layer_validate, a_peer_result_that_is_neither_0_nor_1_is_found) {
  int32_t accessible;
  make_all();
  setenv("ROGUE", "peer_answer", 1);
  assert_fault(hal_call_device_peer_query(plugin, 0, 1, &accessible), "device_peer_query", "returned 7");
}

Test(layer_validate, an_event_given_twice_is_found) {
  hal_plugin_event_t *first, *second;
  make_all();
  setenv("ROGUE", "one_event_for_all", 1);
  assert_ok(hal_call_event_create(plugin, 0, 0, &first));
  assert_fault(hal_call_event_create(plugin, 0, 0, &second), "event_create", "is alive already");
}

Test(layer_validate, times_that_go_back_or_should_not_be_taken_are_found) {
  hal_plugin_event_t *later, *plain;
  int64_t time;
  make_all();
  assert_ok(hal_call_event_create(plugin, 0, HAL_EVENT_TIMING, &later));
  assert_ok(hal_call_event_create(plugin, 0, 0, &plain));
  assert_fault(hal_call_event_elapsed(plugin, event, later, &time), "event_elapsed", "never recorded");
  setenv("ROGUE", "clock_goes_back", 1);
  assert_ok(hal_call_event_record(plugin, event, stream));
  assert_ok(hal_call_event_record(plugin, later, stream));
  assert_ok(hal_call_event_record(plugin, plain, stream));
  assert_fault(hal_call_event_elapsed(plugin, event, later, &time), "event_elapsed", "-1000 ns");
  assert_fault(hal_call_event_elapsed(plugin, event, plain, &time), "event_elapsed", "without HAL_EVENT_TIMING");
}

Test(layer_validate, a_plugin_that_keeps_a_borrowed_descriptor_reads_nonsense) {
  make_all();
  setenv("ROGUE", "keeps_launch", 1);
  const hal_launch_t launch = launch_of(NULL, 0);
  assert_ok(hal_call_kernel_launch(plugin, kernel, stream, &launch));
  assert_ok(hal_call_stream_synchronize(plugin, stream));
  cr_assert_not_null(strstr(lines, "the grid was 3688618971"), "%s", lines); /* 0xDBDBDBDB, not 1 */
}

Test(layer_validate, a_plugin_that_writes_to_a_borrowed_descriptor_is_found) {
  make_all();
  const hal_launch_t launch = launch_of(NULL, 0);
  setenv("ROGUE", "writes_launch", 1);
  assert_ok(hal_call_kernel_launch(plugin, kernel, stream, &launch));
  assert_found("kernel_launch", "wrote to an argument that it may only read");
  cr_assert_eq(launch.grid[0], 1);
  lines[0] = '\0';
  setenv("ROGUE", "writes_late", 1);
  assert_ok(hal_call_kernel_launch(plugin, kernel, stream, &launch));
  assert_ok(hal_call_stream_synchronize(plugin, stream)); /* writes now */
  unsetenv("ROGUE");
  for (int i = 0; i < 80 && !lines[0]; i++) assert_ok(hal_call_profile_range(plugin, "r")); /* others are borrowed */
  assert_found("kernel_launch", "after the call had returned");
}

/* ---- other plugins ---- */

Test(layer_validate, a_plugin_of_an_older_minor_version_is_validated_through_its_defaults) {
  setenv("HAL_LAYERS", "validate", 1);
  hal_log_set_sink(keep, NULL);
  open_fixture("old");
  plugin = &hal_registry.plugins[0];
  assert_ok(hal_device_ensure(0));
  assert_ok(hal_call_memory_alloc_async(plugin, 0, NULL, 64, 0, &memory)); /* the host's default calls memory_alloc */
  assert_ok(hal_call_memory_free_async(plugin, 0, NULL, memory));
  assert_ok(hal_call_event_create(plugin, 0, 0, &event));
  assert_ok(hal_call_event_destroy(plugin, event));
  hal_registry_close();
  cr_assert_str_empty(lines);
}

Test(layer_validate, without_the_layer_nothing_is_kept) {
  unsetenv("HAL_LAYERS");
  open_fixture("rogue");
  cr_assert_null(hal_registry.plugins[0].validate);
  cr_assert_eq(hal_registry.plugins[0].layers, 0);
}

/* ---- resets, hints and names ---- */

Test(layer_validate, hints_are_checked_as_fills_are) {
  make_all();
  assert_ok(hal_call_memory_prefetch(plugin, stream, 0, memory, 4096, HAL_HOST, 0));
  assert_ok(hal_call_memory_prefetch(plugin, NULL, 0, (char *)memory + 96, 4000, 1, 0));
  assert_ok(hal_call_memory_prefetch(plugin, NULL, 0, NULL, 0, 1, 0));
  assert_ok(hal_call_memory_advise(plugin, 0, memory, 4096, HAL_ADVICE_ACCESSED, 1));
  assert_ok(hal_call_memory_advise(plugin, 0, memory, 4096, HAL_ADVICE_PREFERRED, HAL_HOST));
  cr_assert_str_empty(lines);
  assert_misuse(hal_call_memory_prefetch(plugin, stream, 0, memory, 4097, 0, 0), "memory_prefetch",
                "ends 1 bytes past");
  assert_misuse(hal_call_memory_prefetch(plugin, stream_1, 0, memory, 4096, 0, 0), "memory_prefetch",
                "both must be of one device");
  assert_misuse(hal_call_memory_prefetch(plugin, stream, 0, memory, 4096, 2, 0), "memory_prefetch",
                "dst_device is 2, and the plugin's ordinals are 0 to 1 and HAL_HOST");
  assert_misuse(hal_call_memory_prefetch(plugin, stream, 0, memory, 4096, 0, 4), "memory_prefetch", "unknown bits 0x4");
  assert_misuse(hal_call_memory_advise(plugin, 0, memory, 4096, 7, 0), "memory_advise", "advice is 7");
  assert_misuse(hal_call_memory_advise(plugin, 0, host, 4096, HAL_ADVICE_ACCESSED, 0), "memory_advise",
                "is in no live allocation");
  assert_misuse(hal_call_memory_advise(plugin, 0, memory, 8, HAL_ADVICE_ACCESSED, -2), "memory_advise", "peer is -2");
}

Test(layer_validate, names_are_of_live_objects) {
  make_all();
  assert_ok(hal_call_object_name_set(plugin, 0, HAL_OBJECT_DEVICE, NULL, "a device"));
  assert_ok(hal_call_object_name_set(plugin, 0, HAL_OBJECT_STREAM, stream, "a stream"));
  assert_ok(hal_call_object_name_set(plugin, 0, HAL_OBJECT_EVENT, event, "an event"));
  assert_ok(hal_call_object_name_set(plugin, 0, HAL_OBJECT_MODULE, module, "a module"));
  assert_ok(hal_call_object_name_set(plugin, 0, HAL_OBJECT_KERNEL, kernel, "a kernel"));
  assert_ok(hal_call_object_name_set(plugin, 1, HAL_OBJECT_MEMORY, memory_1, ""));
  cr_assert_str_empty(lines);
  assert_misuse(hal_call_object_name_set(plugin, 0, 9, stream, "x"), "object_name_set", "kind is 9");
  assert_misuse(hal_call_object_name_set(plugin, 0, HAL_OBJECT_DEVICE, stream, "x"), "object_name_set", "pass NULL");
  assert_misuse(hal_call_object_name_set(plugin, 0, HAL_OBJECT_STREAM, event, "x"), "object_name_set",
                "is not a live stream of device 0");
  assert_misuse(hal_call_object_name_set(plugin, 0, HAL_OBJECT_STREAM, stream_1, "x"), "object_name_set",
                "is not a live stream of device 0");
  assert_misuse(hal_call_object_name_set(plugin, 0, HAL_OBJECT_STREAM, stream, NULL), "object_name_set",
                "name is NULL");
  assert_ok(hal_call_event_destroy(plugin, event));
  assert_misuse(hal_call_object_name_set(plugin, 0, HAL_OBJECT_EVENT, event, "x"), "object_name_set",
                "not a live event");
}

Test(layer_validate, a_device_is_reset_when_nothing_of_it_is_alive) {
  make_all();
  assert_misuse(hal_call_device_reset(plugin, 1, 0), "device_reset", "of device 1 is still alive");
  assert_ok(hal_call_stream_destroy(plugin, stream_1));
  assert_misuse(hal_call_device_reset(plugin, 1, 0), "device_reset", "end it by");
  hal_device_t *const device = &hal_devices[1];
  assert_ok(hal_call_stream_destroy(plugin, device->default_stream.direct.handle));
  device->default_stream.direct.handle = NULL;
  assert_misuse(hal_call_device_reset(plugin, 1, 0), "device_reset", "end it by memory_free");
  assert_ok(hal_call_memory_free(plugin, 1, memory_1));
  lines[0] = '\0';
  assert_ok(hal_call_device_reset(plugin, 1, 0));
  cr_assert_str_empty(lines);
  assert_misuse(hal_call_device_reset(plugin, 0, 1), "device_reset", "unknown bits 0x1");
}
