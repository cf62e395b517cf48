/* event_mark.c: which kernel reports an event covers. */
#define _POSIX_C_SOURCE 200809L
#include <criterion/criterion.h>

#include "../memory/memory_double.h"
#include "device/event_internal.h"
#include "device/kernel_error.h"

/* Another thread launches a kernel that may report, while the plugin records. */
static hal_status_t record_and_launch(hal_plugin_event_t *event, hal_plugin_stream_t *stream) {
  const hal_status_t status = double_event_record(event, stream);
  return status ? status : hal_kernel_error_launched(&hal_devices[0].default_stream);
}

Test(event_mark, work_that_is_queued_while_an_event_is_recorded_is_not_the_events) {
  hal_event_t *event;
  cr_assert_eq(double_open(1, HAL_DEVICE_ASYNC), HAL_OK);
  hal_registry.plugins[0].api.event_record = record_and_launch;
  cr_assert_eq(hal_event_create(0, 0, &event), HAL_OK);
  cr_assert_eq(hal_event_record(event, NULL), HAL_OK);
  cr_expect_eq(event->mark, 0);
  cr_expect_eq(hal_kernel_error_mark(&hal_devices[0].default_stream), 1);
  hal_event_destroy(event);
  cr_assert_eq(double_close(), 0);
}
