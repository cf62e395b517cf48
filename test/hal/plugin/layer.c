/* Tests of the layers (HAL_LAYERS, HAL_FAULT), which need no code of the plugin. */
#include "support.h"

#include <stdio.h>

static char lines[16384];

static void keep(int32_t level, const char *message, void *unused) {
  (void)level, (void)unused;
  strncat(lines, message, sizeof lines - strlen(lines) - 2);
  strcat(lines, "\n");
}

Test(layer, trace_logs_every_call_with_op_and_result) {
  hal_stream_t *stream;
  setenv("HAL_LAYERS", "trace", 1);
  unsetenv("HAL_LOG");
  hal_log_set_sink(keep, NULL);
  open_fixture("five");
  assert_ok(hal_stream_acquire(1, 0, &stream));
  cr_assert_not_null(strstr(lines, "five.device_count -> OK, "), "%s", lines);
  cr_assert_not_null(strstr(lines, "five.init -> OK, "), "%s", lines);
  cr_assert_not_null(strstr(lines, "five.stream_create -> OK, "), "%s", lines);
}

Test(layer, fault_fails_the_nth_call_once_with_the_status) {
  hal_event_t *event;
  setenv("HAL_LAYERS", "fault", 1);
  setenv("HAL_FAULT", "event_create:2:DATA_LOSS", 1);
  open_fixture("tally");
  assert_ok(hal_event_create(0, 0, &event));
  hal_event_destroy(event);
  assert_fails(hal_event_create(0, 0, &event), HAL_DATA_LOSS, "tally, event_create: failed on purpose (HAL_FAULT)");
  assert_ok(hal_event_create(0, 0, &event));
  hal_event_destroy(event);
}

Test(layer, the_default_status_is_RESOURCE_EXHAUSTED) {
  setenv("HAL_LAYERS", "fault", 1);
  setenv("HAL_FAULT", "stream_create:1", 1);
  open_fixture("tally");
  assert_fails(hal_device_ensure(0), HAL_RESOURCE_EXHAUSTED, "tally, stream_create");
  assert_ok(hal_device_ensure(0)); /* the failed attempt left nothing behind */
}

Test(layer, host_malloc_fails_the_nth_allocation_of_the_hal) {
  hal_generator_t *generator;
  setenv("HAL_FAULT", "host_malloc:3", 1);
  open_fixture("five"); /* the first two: the list, the path */
  assert_fails(hal_generator_create(1, &generator), HAL_RESOURCE_EXHAUSTED, "out of host memory");
  assert_ok(hal_generator_create(1, &generator));
  hal_generator_destroy(generator);
}

Test(layer, a_fault_that_cannot_be_understood_is_reported) {
  setenv("HAL_LAYERS", "fault,colour", 1);
  setenv("HAL_FAULT", "stream_creat:1,memory_alloc:x,memory_alloc:1:NO_SUCH,memory_alloc,*:1:OK", 1);
  hal_log_set_sink(keep, NULL);
  open_fixture("tally");
  assert_ok(hal_device_ensure(0));
  cr_assert_not_null(strstr(lines, "HAL_LAYERS: 'colour'"), "%s", lines);
  cr_assert_not_null(strstr(lines, "HAL_FAULT: 'stream_creat:1'"), "%s", lines);
  cr_assert_not_null(strstr(lines, "HAL_FAULT: 'memory_alloc:x'"), "%s", lines);
  cr_assert_not_null(strstr(lines, "HAL_FAULT: 'memory_alloc:1:NO_SUCH'"), "%s", lines);
  cr_assert_not_null(strstr(lines, "HAL_FAULT: 'memory_alloc'"), "%s", lines);
  cr_assert_not_null(strstr(lines, "HAL_FAULT: '*:1:OK'"), "%s", lines);
}
