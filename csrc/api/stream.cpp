// stream.cpp: streams of the C++ API, implemented by the HAL.
#include "api/stream.h"

#include "core/device.h"
#include "core/stream/stream.h"

namespace torch_backend {

Stream::Stream(c10::Stream stream) : stream_(stream) {
  TORCH_CHECK(stream.device_type() == kDeviceType, "Expected a stream of device type '", kDeviceType,
              "', but found one on '", stream.device(), "'");
}

bool Stream::query() const { return is_done(hal_stream_query(to_hal(stream_))); }

void Stream::synchronize() const { check_work(hal_stream_synchronize(to_hal(stream_))); }

bool Stream::synchronize_for(int64_t nanoseconds) const {
  return is_done(hal_stream_synchronize_timeout(to_hal(stream_), nanoseconds));
}

int Stream::priority() const { return hal_stream_priority(to_hal(stream_)); }

void *Stream::native_handle() const {
  void *handle = nullptr;
  check(hal_stream_native(to_hal(stream_), &handle));
  return handle;
}

Stream get_stream_from_pool(int priority, c10::DeviceIndex device) {
  hal_stream_t *stream = nullptr;
  check(hal_stream_acquire(index_or_current(device), priority, &stream));
  return Stream(to_c10(stream));
}

Stream get_default_stream(c10::DeviceIndex device) {
  hal_stream_t *stream = nullptr;
  check(hal_stream_default(index_or_current(device), &stream));
  return Stream(to_c10(stream));
}

Stream get_current_stream(c10::DeviceIndex device) { return Stream(to_c10(current_stream(device))); }

void set_current_stream(Stream stream) { check(hal_stream_set_current(to_hal(stream.unwrap()), nullptr)); }

}  // namespace torch_backend
