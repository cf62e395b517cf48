/* reset.c: returns a device to its driver, and to the state before its first use. */
#include "device/device.h"
#include "device/failure.h"
#include "device/hooks.h"
#include "device/kernel_error.h"
#include "device/profile_internal.h"
#include "device/watch.h"
#include "hal/status.h"
#include "plugin/call.h"
#include "plugin/slots.h"

static const char call[] = "hal_device_reset";

/* Checks what can be checked without waiting. */
static hal_status_t check(const hal_device_t *device) {
  if (!hal_slot_is_provided(&device->plugin->api, HAL_SLOT_device_reset))
    return hal_error_set(HAL_UNIMPLEMENTED, "%s: plugin %s does not reset its devices; start a new process", call,
                         device->plugin->info.name);
  if (hal_profile_is_on())
    return hal_error_set(HAL_FAILED_PRECONDITION, "%s: a profile is running; end it by hal_profile_stop before", call);
  return HAL_OK;
}

/* Waits for the work, whose failures the streams report later, and checks that nothing uses the device. */
static hal_status_t check_unused(hal_device_t *device) {
  hal_stream_drain_all(device);
  hal_device_hooks.trim(device);
  const uint64_t blocks = hal_device_hooks.blocks(device);
  const unsigned objects = atomic_load(&device->objects);
  if (!blocks && !objects) return HAL_OK;
  return hal_error_set(HAL_FAILED_PRECONDITION,
                       "%s: device %s is in use: %llu blocks of memory, and %u events, modules, programs and other "
                       "objects; release and destroy them before",
                       call, device->label, (unsigned long long)blocks, objects);
}

/* Destroys all handles of the plugin that the HAL holds. */
static void release(hal_device_t *device) {
  hal_device_drain(device, call, "resetting");
  hal_device_watch_end(device);
  hal_device_slots_destroy(device);
  hal_kernel_error_destroy(device);
  hal_stream_destroy_all(device);
  hal_failure_forget(device);
  atomic_store(&device->ready, 0);
}

hal_status_t hal_device_reset(int32_t index) {
  hal_device_t *device = NULL;
  HAL_RETURN_IF_ERROR(hal_device_used(index, &device));
  if (!device) return HAL_OK;
  HAL_RETURN_IF_ERROR(check(device));
  HAL_RETURN_IF_ERROR(check_unused(device));
  release(device);
  return hal_error_plugin(device->plugin, HAL_SLOT_device_reset,
                          hal_call_device_reset(device->plugin, device->ordinal, 0));
}
