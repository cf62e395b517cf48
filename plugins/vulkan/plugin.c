/* plugin.c: information about the Vulkan plugin, its initialization and shutdown, and the child of a fork. */
#include <hal/plugin_count.h>
#include <string.h>

#include "vulkan_plugin.h"

vulkan_state_t vulkan;

hal_status_t vulkan_check_device(int32_t device) {
  if (VULKAN_LIKELY((uint32_t)device < (uint32_t)vulkan.device_count &&
                    !atomic_load_explicit(&vulkan.forked, memory_order_relaxed)))
    return HAL_OK;
  if (atomic_load(&vulkan.forked))
    return vulkan_error(
        HAL_FAILED_PRECONDITION, 0,
        "vulkan: this process was forked from one that had started the driver, which does not support fork; "
        "start processes with 'spawn'");
  if (!vulkan.device_count)
    return vulkan_error(HAL_FAILED_PRECONDITION, 0, "vulkan: device %d was used before init or after shutdown",
                        (int)device);
  return vulkan_error(HAL_INVALID_ARGUMENT, 0, "vulkan: invalid device %d: expected 0 to %d", (int)device,
                      (int)vulkan.device_count - 1);
}

hal_status_t vulkan_check_alive(int32_t device) {
  const hal_status_t status = vulkan_check_device(device);
  if (VULKAN_UNLIKELY(status)) return status;
  if (VULKAN_LIKELY(!atomic_load_explicit(&vulkan.devices[device].lost, memory_order_relaxed))) return HAL_OK;
  return vulkan_error(HAL_UNAVAILABLE, VK_ERROR_DEVICE_LOST,
                      "vulkan: device %d (%s) is lost until this process ends; save the host's data and start the "
                      "process again",
                      (int)device, vulkan.devices[device].facts.deviceName);
}

void vulkan_noticed(vulkan_device_t *device, VkResult code) {
  if (code == VK_ERROR_DEVICE_LOST && !atomic_exchange(&device->lost, 1)) vulkan_watch_lost(device->ordinal, code);
}

/* The device type in torch is "vk": torch reserves "vulkan". */
hal_status_t hal_plugin_info(hal_plugin_info_t *out_info) {
  hal_plugin_info_t info = {.struct_size = out_info->struct_size,
                            .name = "vk",
                            .vendor = "torch_backend: any device with a Vulkan 1.2 driver",
                            .version = "0.1.0",
                            .flags = HAL_PLUGIN_ON_REQUEST};
  memcpy(out_info, &info, info.struct_size < sizeof info ? info.struct_size : sizeof info);
  return HAL_OK;
}

hal_status_t hal_plugin_probe(uint32_t flags) {
  const hal_status_t status = hal_flags_check("vulkan: probe", flags, 0);
  return status ? status : vulkan_loader_open();
}

/* ---- counting --------------------------------------------------------------------------------------------------- */

/* Counts in a child process, because counting starts the driver, which would not survive a later fork of this process.
 * */
static hal_status_t count(int32_t *out_count, char *why) {
  vulkan_selection_t selection;
  const hal_status_t status = vulkan_select(&selection, why);
  *out_count = selection.count;
  if (selection.instance) vk.DestroyInstance(selection.instance, NULL);
  return status;
}

static hal_counter_t counter = {"vulkan",
                                "look at 'vulkaninfo --summary', and set HAL_VULKAN_DEVICE to a device that works",
                                count, HAL_COUNTER_NEW};

hal_status_t hal_plugin_device_count(int32_t *out_count) {
  const hal_status_t status = vulkan_loader_open();
  return status ? status : hal_count_devices(&counter, out_count);
}

/* ---- beginning and end ------------------------------------------------------------------------------------------ */

static void fork_child(void) {
  if (atomic_load(&vulkan.ready)) atomic_store(&vulkan.forked, 1);
}

static hal_status_t start_devices(const vulkan_selection_t *selection) {
  hal_status_t status = HAL_OK;
  vulkan.instance = selection->instance;
  for (int32_t i = 0; i < selection->count && !status; i++) {
    status = vulkan_device_open(&vulkan.devices[i], selection->devices[i], i);
    vulkan.device_count = i + 1;
  }
  return status;
}

static void stop_devices(void) {
  for (int32_t i = 0; i < vulkan.device_count; i++) vulkan_device_close(&vulkan.devices[i]);
  if (vulkan.instance) vk.DestroyInstance(vulkan.instance, NULL);
  vulkan.instance = NULL;
  vulkan.device_count = 0;
}

hal_status_t hal_plugin_init(const char *options) {
  static int fork_handled; /* init is never called by two threads at the same time */
  vulkan_selection_t selection;
  if (atomic_load(&vulkan.ready)) return atomic_load(&vulkan.forked) ? vulkan_check_device(0) : HAL_OK;
  if (options && *options)
    return vulkan_error(HAL_INVALID_ARGUMENT, 0,
                        "vulkan: unknown options '%s'; the settings are the variables HAL_VULKAN_*", options);
  char why[HAL_COUNT_WHY];
  hal_status_t status = vulkan_loader_open();
  if (status) return status;
  status = vulkan_select(&selection, why);
  if (status)
    vulkan_error(status, 0, "%s", why);
  else if (counter.told > 0 && counter.told != selection.count)
    status = vulkan_error(HAL_UNAVAILABLE, 0,
                          "vulkan: the drivers had %d devices when they were counted, and have %d now; restart the "
                          "process",
                          (int)counter.told, (int)selection.count);
  else if (!fork_handled && pthread_atfork(NULL, NULL, fork_child))
    status = vulkan_error(HAL_RESOURCE_EXHAUSTED, 0, "vulkan: no memory to register the handler of fork");
  if (status) {
    if (selection.instance) vk.DestroyInstance(selection.instance, NULL);
    return status;
  }
  fork_handled = 1;
  status = start_devices(&selection);
  if (status) {
    stop_devices();
    return status;
  }
  atomic_store(&vulkan.ready, 1);
  return HAL_OK;
}

/* Does not destroy the driver's objects, because the host may release its objects after this call. */
hal_status_t hal_plugin_shutdown(uint32_t flags) {
  const hal_status_t status = hal_flags_check("vulkan: shutdown", flags, 0);
  if (status) return status;
  if (atomic_load(&vulkan.forked)) return HAL_OK;
  for (int32_t i = 0; i < vulkan.device_count; i++) {
    hal_plugin_device_synchronize(i);
    vulkan_cache_save(&vulkan.devices[i]);
  }
  return HAL_OK;
}
