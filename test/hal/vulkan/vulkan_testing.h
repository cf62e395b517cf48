/* vulkan_testing.h: helpers shared by the tests of the Vulkan plugin. */
#ifndef TEST_HAL_VULKAN_TESTING_H_
#define TEST_HAL_VULKAN_TESTING_H_

#include "support.h"

/* Opens the plugin. The test is skipped where there is no driver. */
static inline void open_vulkan(void) {
  assert_ok(hal_registry_add_path(PLUGIN_DIR));
  if (!hal_registry_open("vulkan") && hal_device_count()) return;
  fprintf(stderr, "no Vulkan device: %s\n", hal_error_message());
  cr_skip_test("no Vulkan device");
}

/* Blocks of device_bytes, until the test ends. */
static hal_block_t *kept_blocks[16];
static int kept_count;

static inline void close_vulkan(void) {
  while (kept_count) hal_memory_release(kept_blocks[--kept_count]);
  hal_registry_close();
}

static inline char *device_bytes(int32_t device, size_t size) {
  assert_ok(hal_memory_allocate(device, NULL, size, &kept_blocks[kept_count]));
  return hal_memory_block_address(kept_blocks[kept_count++]);
}

#endif /* TEST_HAL_VULKAN_TESTING_H_ */
