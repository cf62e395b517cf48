/* Tests plugins whose ops return HAL_OK and make nothing: the host reports it where it happens, and never passes the
 * NULL on. */
#include "support.h"

#include "device/device.h"
#include "hal/event.h"
#include "hal/kernel.h"

static void open_without(const char *op) {
  setenv("MAKES_NOTHING", op, 1);
  assert_ok(hal_registry_open(FIXTURE("makes_nothing")));
}

static void expect_named(hal_status_t status, const char *op) {
  char text[128];
  snprintf(text, sizeof text, "makes_nothing, %s: returned HAL_OK, and NULL as the result", op);
  cr_expect_eq(status, HAL_INTERNAL, "%s: %s", op, hal_status_name(status));
  cr_expect_not_null(strstr(hal_error_message(), text), "%s", hal_error_message());
}

static const hal_module_desc_t module_desc = {
    .struct_size = sizeof module_desc, .dialect = "nothing", .options = "", .data = "", .size = 0};

Test(makes_nothing, a_stream) {
  hal_stream_t *stream;
  open_without("stream_create");
  expect_named(hal_stream_default(0, &stream), "stream_create");
}

Test(makes_nothing, an_event) {
  hal_event_t *event;
  hal_block_t *block;
  hal_stream_t *other;
  open_without("event_create");
  expect_named(hal_event_create(0, 0, &event), "event_create");
  assert_ok(hal_memory_allocate(0, NULL, 1000, &block)); /* the allocator's own events */
  assert_ok(hal_stream_acquire(0, 0, &other));
  assert_ok(hal_memory_record_stream(block, other));
  hal_memory_release(block);
  assert_ok(hal_device_synchronize(0));
}

Test(makes_nothing, an_event_of_another_process) {
  hal_event_t *event;
  open_without("event_ipc_open");
  expect_named(hal_event_ipc_open(0, "handle", 6, &event), "event_ipc_open");
}

Test(makes_nothing, a_module) {
  hal_module_t *module;
  open_without("module_load");
  expect_named(hal_module_load(0, &module_desc, &module), "module_load");
}

Test(makes_nothing, a_kernel) {
  hal_module_t *module;
  hal_kernel_t *kernel;
  open_without("kernel_get");
  assert_ok(hal_module_load(0, &module_desc, &module));
  expect_named(hal_kernel_get(module, "any", &kernel), "kernel_get");
  hal_module_unload(module);
}

Test(makes_nothing, everything_else_works) {
  hal_event_t *event;
  open_without("");
  assert_ok(hal_event_create(0, 0, &event));
  hal_event_destroy(event);
}
