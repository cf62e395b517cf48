/* slot.c: creates and destroys the slots of a device, as components.c defines them. */
#include "device/slot.h"

#include "base/callback.h"
#include "device/device.h"
#include "device/hooks.h"

/* Destroys the slots below `end`, the highest first. */
static void destroy_below(hal_device_t *device, int end) {
  while (end-- > 0) {
    if (!device->slots[end]) continue;
    hal_device_hooks.slots[end].destroy(device->slots[end]);
    device->slots[end] = NULL;
  }
}

hal_status_t hal_device_slots_create(hal_device_t *device) {
  for (int i = 0; i < HAL_COMPONENTS; i++) {
    const hal_slot_calls_t *const calls = &hal_device_hooks.slots[i];
    if (!calls->create || calls->on_demand) continue;
    const hal_status_t status = calls->create(device, &device->slots[i]);
    if (status) {
      device->slots[i] = NULL;
      destroy_below(device, i);
      return status;
    }
  }
  return HAL_OK;
}

void hal_device_slots_destroy(hal_device_t *device) { destroy_below(device, HAL_COMPONENTS); }

void hal_device_slots_close(hal_device_t *device) {
  for (int i = HAL_COMPONENTS; i-- > 0;) {
    const hal_slot_calls_t *const calls = &hal_device_hooks.slots[i];
    void *const data = device->slots[i];
    if (!data) continue;
    if (calls->close) {
      calls->close(data);
    } else {
      device->slots[i] = NULL;
      calls->destroy(data);
    }
  }
}

void *hal_device_slot_make(hal_device_t *device, int component) {
  void *data = hal_device_slot_peek(device, component);
  if (HAL_LIKELY(data != NULL)) return data;
  hal_lock_and_defer(&device->lock);
  data = device->slots[component];
  if (!data && !hal_device_hooks.slots[component].create(device, &data))
    __atomic_store_n(&device->slots[component], data, __ATOMIC_RELEASE);
  hal_unlock_and_run(&device->lock);
  return data;
}
