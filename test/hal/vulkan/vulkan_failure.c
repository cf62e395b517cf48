/* Tests of the Vulkan plugin's failures, which proxy/proxy.c injects below it: a lost device, exhausted memory, and
 * devices that lack a feature. */
#include <unistd.h>

#include "ipc_handle.h"
#include "plugin/call.h"
#include "plugin/plugin.h"
#include "vulkan_testing.h"

#ifdef ADD_NUMBER_SPIRV
static const uint32_t words[] = {
#include ADD_NUMBER_SPIRV
};
#else
static const uint32_t words[] = {0};
#endif

TestSuite(vulkan_failure, .fini = close_vulkan);

/* Opens the plugin over the proxy, which LD_LIBRARY_PATH names, with two devices. */
static void open_with(const char *setting, const char *value) {
  if (!getenv("VULKAN_PROXY")) cr_skip_test("runs over the proxy only");
  setenv(setting, value, 1);
  setenv("HAL_VULKAN_REPEAT", "2", 1);
  open_vulkan();
}

static hal_plugin_t *open_plugin_with(const char *setting, const char *value) {
  open_with(setting, value);
  device_bytes(0, 64); /* starts the driver */
  return &hal_registry.plugins[0];
}

Test(vulkan_failure, a_lost_device_is_reported_once_and_stays_lost_and_others_work) {
  hal_stream_t *stream, *other;
  hal_event_t *event;
  uint32_t value = 5, got = 0;
  open_with("VULKAN_PROXY_LOSE", "2");
  char *const memory = device_bytes(0, 64), *const second = device_bytes(1, 64);
  assert_ok(hal_stream_acquire(0, 0, &stream));
  assert_ok(hal_stream_acquire(1, 0, &other));
  assert_ok(hal_event_create(0, 0, &event));
  assert_ok(hal_memory_fill(stream, 0, memory, &value, 4, 64));
  assert_ok(hal_stream_synchronize(stream));
  hal_memory_fill(stream, 0, memory, &value, 4, 64); /* may be refused already */
  assert_fails(hal_stream_synchronize(stream), HAL_UNAVAILABLE, "VK_ERROR_DEVICE_LOST");
  assert_fails(hal_memory_fill(stream, 0, memory, &value, 4, 64), HAL_UNAVAILABLE, "lost");
  assert_fails(hal_stream_synchronize(stream), HAL_UNAVAILABLE, "lost");
  assert_ok(hal_memory_fill(other, 1, second, &value, 4, 64));
  assert_ok(hal_memory_copy(other, &got, HAL_HOST, second, 1, 4));
  assert_ok(hal_stream_synchronize(other));
  cr_assert_eq(got, 5);
  hal_event_destroy(event);
}

Test(vulkan_failure, exhausted_memory_is_an_error_with_the_size_and_the_device_works_afterwards) {
  hal_block_t *block = NULL;
  uint32_t value = 5;
  open_with("VULKAN_PROXY_MEMORY", "1");
  const hal_status_t status = hal_memory_allocate(0, NULL, 12345678, &block);
  if (!status) hal_memory_release(block); /* the allocator tried again */
  char *const memory = device_bytes(0, 64);
  assert_ok(hal_memory_fill(NULL, 0, memory, &value, 4, 64));
}

Test(vulkan_failure, a_driver_that_cannot_page_lock_memory_of_the_program_is_an_error_with_what_to_use) {
  char mine[64];
  open_with("VULKAN_PROXY_FUNCTIONS", "0");
  assert_fails(hal_host_register(0, mine, sizeof mine), HAL_UNIMPLEMENTED, "use host_alloc");
}

/* The driver's file of the memory is closed. */
Test(vulkan_failure, memory_of_another_process_that_the_driver_does_not_import_is_an_error) {
  hal_plugin_t *const plugin = open_plugin_with("VULKAN_PROXY_MEMORY", "0");
  ipc_handle_t handle;
  void *ptr = NULL, *opened = NULL;
  assert_ok(hal_call_memory_alloc(plugin, 0, 100000, 0, &ptr));
  const hal_status_t status = hal_call_ipc_export(plugin, 0, ptr, 0, handle.bytes, sizeof handle.bytes, &handle.size);
  if (status == HAL_UNIMPLEMENTED) cr_skip_test("the driver shares no memory between processes");
  const int next = dup(0);
  close(next);
  setenv("VULKAN_PROXY_MEMORY", "1", 1); /* the next allocation, which is the import */
  assert_fails(
      hal_error_plugin(plugin, HAL_SLOT_ipc_open, hal_call_ipc_open(plugin, 0, handle.bytes, handle.size, 0, &opened)),
      HAL_RESOURCE_EXHAUSTED, "cannot open 100000 bytes of another process");
  cr_assert_null(opened);
  cr_assert_eq(dup(0), next, "a file was left open");
  close(next);
  assert_ok(hal_call_ipc_open(plugin, 0, handle.bytes, handle.size, 0, &opened));
  assert_ok(hal_call_ipc_close(plugin, 0, opened));
  assert_ok(hal_call_memory_free(plugin, 0, ptr));
}

Test(vulkan_failure, a_driver_that_shares_no_memory_is_an_error_with_what_it_lacks) {
  hal_plugin_t *const plugin = open_plugin_with("VULKAN_PROXY_FUNCTIONS", "0");
  const ipc_handle_t handle = {.size = 32};
  void *opened = NULL;
  assert_fails(
      hal_error_plugin(plugin, HAL_SLOT_ipc_open, hal_call_ipc_open(plugin, 0, handle.bytes, handle.size, 0, &opened)),
      HAL_UNIMPLEMENTED, "VK_KHR_external_memory_fd");
}

/* ---- devices that lack a feature --------------------------------------------------------------------------------- */

Test(vulkan_failure, a_device_without_what_the_plugin_requires_is_named_with_what_it_lacks) {
  if (!getenv("VULKAN_PROXY")) cr_skip_test("runs over the proxy only");
  setenv("VULKAN_PROXY_LACKS", "timelineSemaphore", 1);
  assert_ok(hal_registry_add_path(PLUGIN_DIR));
  const hal_status_t status = hal_registry_open("vulkan");
  if (strstr(hal_error_message(), "install the driver")) cr_skip_test("no driver: %s", hal_error_message());
  assert_fails(status, HAL_UNAVAILABLE, "does not support timeline semaphores");
  cr_assert_eq(hal_device_count(), 0);
}

/* The driver does not see the module, which requires Int64. */
Test(vulkan_failure, a_module_that_requires_a_missing_feature_is_refused_by_its_name) {
  if (sizeof words == sizeof *words) cr_skip_test("no spirv-as");
  hal_plugin_t *const plugin = open_plugin_with("VULKAN_PROXY_LACKS", "shaderInt64");
  hal_module_desc_t desc = {
      .struct_size = sizeof desc, .dialect = "spirv-vulkan", .options = "", .data = words, .size = sizeof words};
  hal_plugin_module_t *module = NULL;
  assert_fails(hal_error_plugin(plugin, HAL_SLOT_module_load, hal_call_module_load(plugin, 0, &desc, &module)),
               HAL_UNIMPLEMENTED, "requires shaderInt64, which");
  cr_assert_null(module);
}

Test(vulkan_failure, a_module_that_requires_a_capability_which_is_not_enabled_is_refused_by_its_number) {
  enum { CAPABILITY_AT = 6, INT64_ATOMICS = 12 };
  uint32_t changed[sizeof words / sizeof *words];
  if (sizeof words == sizeof *words) cr_skip_test("no spirv-as");
  hal_plugin_t *const plugin = open_plugin_with("VULKAN_PROXY_LACKS", "");
  memcpy(changed, words, sizeof words);
  changed[CAPABILITY_AT] = INT64_ATOMICS;
  hal_module_desc_t desc = {
      .struct_size = sizeof desc, .dialect = "spirv-vulkan", .options = "", .data = changed, .size = sizeof changed};
  hal_plugin_module_t *module = NULL;
  assert_fails(hal_error_plugin(plugin, HAL_SLOT_module_load, hal_call_module_load(plugin, 0, &desc, &module)),
               HAL_UNIMPLEMENTED, "capability 12");
  cr_assert_null(module);
}

/* Launches the kernel twice; the proxy loses the device if the driver compiles it again. */
static void launch_uncompiled(const char *code, hal_status_t expected, const char *text, hal_status_t second) {
  const hal_module_desc_t desc = {
      .struct_size = sizeof desc, .dialect = "spirv-vulkan", .options = "", .data = words, .size = sizeof words};
  hal_module_t *module;
  hal_kernel_t *kernel;
  const int32_t number = 1;
  const uint32_t count = 16;
  if (sizeof words == sizeof *words) cr_skip_test("no spirv-as");
  open_with("VULKAN_PROXY_COMPILER", code);
  char *const memory = device_bytes(0, 64);
  const hal_arg_t args[] = {{&memory, sizeof memory, HAL_ARG_POINTER},
                            {&memory, sizeof memory, HAL_ARG_POINTER},
                            {&number, sizeof number, HAL_ARG_VALUE},
                            {&count, sizeof count, HAL_ARG_VALUE}};
  const hal_launch_t launch = {
      .struct_size = sizeof launch, .grid = {1, 1, 1}, .block = {16, 1, 1}, .arg_count = 4, .args = args};
  assert_ok(hal_module_load(0, &desc, &module));
  assert_ok(hal_kernel_get(module, "add_number", &kernel));
  assert_fails(hal_kernel_launch(kernel, NULL, &launch), expected, text);
  assert_fails(hal_kernel_launch(kernel, NULL, &launch), second, "add_number");
  hal_module_unload(module);
}

Test(vulkan_failure, a_kernel_that_the_driver_cannot_compile_is_declined_without_another_attempt) {
  launch_uncompiled("-13", HAL_UNIMPLEMENTED, "the driver returned VK_ERROR_UNKNOWN (-13)", HAL_UNIMPLEMENTED);
}

Test(vulkan_failure, a_kernel_that_is_not_compiled_for_want_of_memory_is_compiled_at_the_next_launch) {
  launch_uncompiled("-2", HAL_RESOURCE_EXHAUSTED, "the driver returned VK_ERROR_OUT_OF_DEVICE_MEMORY", HAL_UNAVAILABLE);
}
