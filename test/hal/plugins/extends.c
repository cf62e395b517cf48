/* extends.c: five.c with extensions. */
#define _POSIX_C_SOURCE 200809L
#define FIVE_NAME "extends"
#include "extends.h"

#include "five.c"

static int64_t next(void) {
  static int64_t count;
  return ++count;
}

static hal_status_t host_time(int64_t *out_time) {
  const clock_extension_t *const clock = (const clock_extension_t *)(const void *)hal_extension_find(
      hal_host->extensions, "test.clock", HAL_STRUCT_SIZE(clock_extension_t, now));
  if (!clock) return HAL_NOT_FOUND;
  *out_time = clock->now();
  return HAL_OK;
}

hal_status_t hal_plugin_extensions(const hal_extension_t **out_first) {
  static const hal_extension_t other = {sizeof other, "test.other", NULL};
  static const counter_extension_t counter = {
      {HAL_STRUCT_SIZE(counter_extension_t, host_time), "test.counter", &other}, next, host_time};
#if defined(EXTENDS_TWICE)
  static const hal_extension_t twin = {sizeof twin, "test.counter", &counter.extension};
  *out_first = &twin;
#else
  *out_first = &counter.extension;
#endif
  return HAL_OK;
}
