// guard.h: scopes that change the current device or stream and restore the previous one.
#pragma once

#include <c10/core/Device.h>
#include <c10/util/ArrayRef.h>

#include <optional>
#include <utility>
#include <vector>

#include "stream.h"

namespace torch_backend {

// Makes a device the calling thread's current device within a scope. Throws c10::Error for an index out of range. Since
// 0.1.
class DeviceGuard {
 public:
  explicit DeviceGuard(c10::DeviceIndex device) : original_(exchange_device(device)), current_(device) {}
  explicit DeviceGuard(c10::Device device);
  ~DeviceGuard();
  DeviceGuard(const DeviceGuard &) = delete;
  DeviceGuard &operator=(const DeviceGuard &) = delete;

  // Changes the device again within the scope. Since 0.1.
  void set_index(c10::DeviceIndex device);
  // Returns the device before the scope. Since 0.1.
  c10::Device original_device() const { return c10::Device(kDeviceType, original_); }
  // Returns the device that the guard set last. Since 0.1.
  c10::Device current_device() const { return c10::Device(kDeviceType, current_); }

 private:
  c10::DeviceIndex original_, current_;
};

// The same, but optional: an absent device changes nothing. Since 0.1.
class OptionalDeviceGuard {
 public:
  OptionalDeviceGuard() = default;
  explicit OptionalDeviceGuard(std::optional<c10::Device> device) {
    if (device) guard_.emplace(*device);
  }

  // Starts guarding, or changes the device again. Since 0.1.
  void set_index(c10::DeviceIndex device);
  // Returns the device before the scope, absent if nothing was changed. Since 0.1.
  std::optional<c10::Device> original_device() const;
  // Ends the scope early. Since 0.1.
  void reset() { guard_.reset(); }

 private:
  std::optional<DeviceGuard> guard_;
};

// Makes a stream, and its device, current within a scope. Since 0.1.
class StreamGuard {
 public:
  explicit StreamGuard(Stream stream);
  ~StreamGuard();
  StreamGuard(const StreamGuard &) = delete;
  StreamGuard &operator=(const StreamGuard &) = delete;

  // Returns the stream of the scope. Since 0.1.
  Stream current_stream() const { return current_; }
  // Returns the stream that was current on the device before. Since 0.1.
  Stream original_stream() const { return original_; }
  // Returns the device that was current before. Since 0.1.
  c10::Device original_device() const { return device_.original_device(); }

 private:
  DeviceGuard device_;
  Stream original_, current_;
};

// The same, but optional: an absent stream changes nothing. Since 0.1.
class OptionalStreamGuard {
 public:
  OptionalStreamGuard() = default;
  explicit OptionalStreamGuard(std::optional<Stream> stream) {
    if (stream) guard_.emplace(*stream);
  }

  // Ends an earlier scope and starts one with `stream`. Since 0.1.
  void reset_stream(Stream stream);
  // Ends the scope early. Since 0.1.
  void reset() { guard_.reset(); }

 private:
  std::optional<StreamGuard> guard_;
};

// Makes several streams, of different devices, current within a scope; the current device does not change. Throws
// c10::Error if two streams belong to one device. Since 0.1.
class MultiStreamGuard {
 public:
  explicit MultiStreamGuard(c10::ArrayRef<Stream> streams);
  ~MultiStreamGuard();
  MultiStreamGuard(const MultiStreamGuard &) = delete;
  MultiStreamGuard &operator=(const MultiStreamGuard &) = delete;

 private:
  std::vector<Stream> originals_;
};

}  // namespace torch_backend
