// guard.cpp: scopes of the C++ API. Destructors restore without throwing.
#include "api/guard.h"

#include "core/stream/stream.h"

namespace torch_backend {
namespace {

c10::DeviceIndex index_of(c10::Device device) {
  TORCH_CHECK(device.type() == kDeviceType, "Expected a device of type '", kDeviceType, "', but found '", device, "'");
  return device.has_index() ? device.index() : current_device();
}

void restore(const Stream &stream) noexcept {
  hal_stream_t *target = nullptr;
  hal_status_t status = hal_stream_from_id(stream.device_index(), stream.id(), &target);
  if (status == HAL_OK) status = hal_stream_set_current(target, nullptr);
  if (status != HAL_OK) warn_status(status, "restoring the current stream");
}

Stream exchange(const Stream &stream) {
  const Stream previous = get_current_stream(stream.device_index());
  set_current_stream(stream);
  return previous;
}

}  // namespace

DeviceGuard::DeviceGuard(c10::Device device) : DeviceGuard(index_of(device)) {}

DeviceGuard::~DeviceGuard() { hal_device_exchange(original_); }

void DeviceGuard::set_index(c10::DeviceIndex device) {
  set_device(device);
  current_ = device;
}

void OptionalDeviceGuard::set_index(c10::DeviceIndex device) {
  if (guard_)
    guard_->set_index(device);
  else
    guard_.emplace(device);
}

std::optional<c10::Device> OptionalDeviceGuard::original_device() const {
  return guard_ ? std::optional<c10::Device>(guard_->original_device()) : std::nullopt;
}

StreamGuard::StreamGuard(Stream stream)
    : device_(stream.device_index()), original_(exchange(stream)), current_(stream) {}

StreamGuard::~StreamGuard() { restore(original_); }

void OptionalStreamGuard::reset_stream(Stream stream) {
  guard_.reset();
  guard_.emplace(stream);
}

MultiStreamGuard::MultiStreamGuard(c10::ArrayRef<Stream> streams) {
  for (size_t i = 0; i < streams.size(); i++) {
    for (size_t j = 0; j < i; j++)
      TORCH_CHECK(streams[i].device_index() != streams[j].device_index(),
                  "MultiStreamGuard takes one stream per device, but ", i, " and ", j, " are both on ",
                  streams[i].device());
  }
  originals_.reserve(streams.size());
  for (const Stream &stream : streams) originals_.push_back(exchange(stream));
}

MultiStreamGuard::~MultiStreamGuard() {
  for (const Stream &stream : originals_) restore(stream);
}

}  // namespace torch_backend
