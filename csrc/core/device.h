// device.h: the device type and its dispatch key, conversion of torch's device indices, the devices in use, and waiting
// for a device.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/DispatchKeySet.h>

#include <array>

#include "core/status.h"
#include "hal/hal.h"

namespace torch_backend {

constexpr c10::DeviceType kDevice = c10::DeviceType::PrivateUse1;
constexpr c10::DispatchKeySet kKeySet{c10::DispatchKey::PrivateUse1};

// Returns the index, or that of the calling thread's current device for -1, as in torch. Throws for other negative
// numbers. The caller checks the upper limit.
template <class Index>
Index index_or_current(Index device) {
  if (device == -1) return static_cast<Index>(hal_device_current());
  if (C10_UNLIKELY(device < 0)) check(hal_device_ensure(device));  // throws the error for an index out of range
  return device;
}

inline std::array<int32_t, HAL_MAX_DEVICES> list_ordinals() {
  std::array<int32_t, HAL_MAX_DEVICES> ordinals{};
  int32_t plugin = 0;
  for (int32_t device = 0; device < hal_device_count(); ++device)
    check(hal_device_locate(device, &plugin, &ordinals[static_cast<size_t>(device)]));
  return ordinals;
}

// Returns the plugin's number of a device, as in hal_tensor_t. The devices of a process do not change.
inline int32_t ordinal_of(int32_t device) {
  static const std::array<int32_t, HAL_MAX_DEVICES> ordinals = list_ordinals();
  return device < 0 ? 0 : ordinals[static_cast<size_t>(device)];
}

// Calls `function` with the index of each device that was used in this process.
template <class Function>
void for_each_used_device(const Function &function) {
  for (int32_t device = 0; device < hal_device_count(); ++device)
    if (hal_device_is_initialized(device)) function(device);
}

// Waits for all work of a device; -1 = the current one. Throws the error of work that failed since the last check, and
// for an index out of range.
inline void synchronize_device(int32_t device) {
  const int32_t index = index_or_current(device);
  if (index >= hal_device_count()) check(hal_device_ensure(index));  // throws the error for an index out of range
  check_work(hal_device_synchronize(index));
}

}  // namespace torch_backend
