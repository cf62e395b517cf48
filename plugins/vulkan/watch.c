/* watch.c: events of devices. Vulkan reports only the loss of a device, by the calls that encounter it. */
#include <hal/plugin_watch.h>

#include "vulkan_plugin.h"

static hal_watch_t watch = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

void vulkan_watch_lost(int32_t device, VkResult code) {
  hal_watch_report(&watch, device, HAL_DEVICE_EVENT_LOST, (int64_t)code, vulkan_result_name(code));
}

hal_status_t hal_plugin_device_watch(int32_t device, uint32_t kinds, hal_device_event_fn_t fn, void *user_data) {
  const hal_status_t status = vulkan_check_device(device);
  return status ? status : hal_watch_set(&watch, device, kinds, fn, user_data);
}
