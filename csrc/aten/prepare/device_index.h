// device_index.h: checks of device arguments and operands.
#pragma once

#include <c10/core/Device.h>
#include <c10/util/Exception.h>

#include <optional>

#include "core/allocator/allocator.h"
#include "hal/hal.h"

namespace torch_backend {

[[noreturn]] void throw_bad_index(c10::DeviceIndex index);

// Returns the index of a Device argument, or the current device if it has no index. Throws if the device does not
// exist.
inline c10::DeviceIndex checked_index(std::optional<c10::Device> device) {
  if (!device || !device->has_index()) return static_cast<c10::DeviceIndex>(hal_device_current());
  if (C10_UNLIKELY(device->index() >= hal_device_count())) throw_bad_index(device->index());
  return device->index();
}

// Throws TensorIterator's error for operands on two devices.
[[noreturn]] void throw_two_devices(c10::Device first, c10::Device second);

}  // namespace torch_backend
