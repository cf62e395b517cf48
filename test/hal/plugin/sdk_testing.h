/* sdk_testing.h: a minimal host for the SDK, for tests of its parts without the HAL. */
#ifndef TEST_HAL_PLUGIN_SDK_TESTING_H_
#define TEST_HAL_PLUGIN_SDK_TESTING_H_

#include <hal/plugin.h>
#include <stdio.h>
#include <stdlib.h>

static char message[2048];
static hal_status_t error_set(hal_status_t code, int64_t native_code, const char *text) {
  (void)native_code;
  snprintf(message, sizeof message, "%s", text);
  return code;
}
static int memory_is_short;
static void *mem_alloc(size_t size, size_t alignment) {
  (void)alignment;
  return memory_is_short ? NULL : malloc(size);
}
static const hal_host_api_t host = {
    .struct_size = sizeof host, .error_set = error_set, .mem_alloc = mem_alloc, .mem_free = free};
static void begin(void) { hal_host = &host; }

#endif /* TEST_HAL_PLUGIN_SDK_TESTING_H_ */
