/* Tests of the Vulkan plugin's failures, which proxy/proxy.c injects below it: a lost device and exhausted memory. */
#include "vulkan_testing.h"

TestSuite(vulkan_failure, .fini = close_vulkan);

/* Opens the plugin over the proxy, which LD_LIBRARY_PATH names, with two devices. */
static void open_with(const char *setting, const char *value) {
  if (!getenv("VULKAN_PROXY")) cr_skip_test("runs over the proxy only");
  setenv(setting, value, 1);
  setenv("HAL_VULKAN_REPEAT", "2", 1);
  open_vulkan();
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
