// device.h: the device type and its dispatch key, a device's index as torch gives it, the devices in use, and waiting for a device.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/DispatchKeySet.h>

#include "core/status.h"
#include "hal/hal.h"

namespace torch_backend {

constexpr c10::DeviceType kDevice = c10::DeviceType::PrivateUse1;
constexpr c10::DispatchKeySet kKeySet{c10::DispatchKey::PrivateUse1};

// The index itself, or that of the calling thread's current device for -1, torch's word for it. Throws for other negatives; who
// uses an index finds out whether there are so many devices.
template <class Index>
Index index_or_current(Index device) {
  if (device == -1) return static_cast<Index>(hal_device_current());
  if (C10_UNLIKELY(device < 0)) check(hal_device_ensure(device));  // out of range, in words
  return device;
}

// Calls `function` with the index of each device that was used in this process.
template <class Function>
void for_each_used_device(const Function &function) {
  for (int32_t device = 0; device < hal_device_count(); ++device)
    if (hal_device_is_initialized(device)) function(device);
}

// Waits for all work of a device; -1 = the current one. Throws what failed since the last look, and for an index out of range.
inline void synchronize_device(int32_t device) {
  const int32_t index = index_or_current(device);
  if (index >= hal_device_count()) check(hal_device_ensure(index));  // an index out of range, in words
  check_work(hal_device_synchronize(index));
}

}  // namespace torch_backend
