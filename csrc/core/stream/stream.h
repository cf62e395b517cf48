// stream.h: c10 streams and the HAL's streams refer to each other by (device, id); id 0 is the default stream in both.
#pragma once

#include <c10/core/Stream.h>

#include "core/device.h"
#include "core/status.h"

namespace torch_backend {

inline c10::Stream to_c10(const hal_stream_t *stream) {
  return c10::Stream(c10::Stream::UNSAFE,
                     c10::Device(kDevice, static_cast<c10::DeviceIndex>(hal_stream_device(stream))),
                     hal_stream_id(stream));
}

// Throws for a stream of another device type, and for an id that the device does not have.
inline hal_stream_t *to_hal(const c10::Stream &stream) {
  TORCH_CHECK(stream.device_type() == kDevice, "Expected a stream of device type '", kDevice,
              "' but found a stream on '", stream.device(), "'");
  hal_stream_t *result = nullptr;
  check(hal_stream_from_id(stream.device_index(), stream.id(), &result));
  return result;
}

// Returns the calling thread's current stream of a device; index -1 = current device.
inline hal_stream_t *current_stream(c10::DeviceIndex device) {
  hal_stream_t *result = nullptr;
  check(hal_stream_current(index_or_current(device), &result));
  return result;
}

}  // namespace torch_backend
