// guard.h: scopes that change the current device or stream and restore what was before.
#pragma once

#include <c10/core/Device.h>
#include <c10/util/ArrayRef.h>

#include <optional>
#include <utility>
#include <vector>

#include "stream.h"

namespace torch_backend {

// Makes a device the calling thread's current one for a scope. Throws c10::Error for an index out of range. Since 0.1.
class DeviceGuard {
 public:
  explicit DeviceGuard(c10::DeviceIndex device) : original_(exchange_device(device)), current_(device) {}
  explicit DeviceGuard(c10::Device device);
  ~DeviceGuard();
  DeviceGuard(const DeviceGuard &) = delete;
  DeviceGuard &operator=(const DeviceGuard &) = delete;

  // Changes the device again within the scope. Since 0.1.
  void set_index(c10::DeviceIndex device);
  // The device before the scope. Since 0.1.
  c10::Device original_device() const { return c10::Device(kDeviceType, original_); }
  // The device that the guard set last. Since 0.1.
  c10::Device current_device() const { return c10::Device(kDeviceType, current_); }

 private:
  c10::DeviceIndex original_, current_;
};

// The same, or nothing: an absent device changes nothing. Since 0.1.
class OptionalDeviceGuard {
 public:
  OptionalDeviceGuard() = default;
  explicit OptionalDeviceGuard(std::optional<c10::Device> device) {
    if (device) guard_.emplace(*device);
  }

  // Starts guarding, or changes the device again. Since 0.1.
  void set_index(c10::DeviceIndex device);
  // The device before the scope, absent when nothing was changed. Since 0.1.
  std::optional<c10::Device> original_device() const;
  // Ends the scope early. Since 0.1.
  void reset() { guard_.reset(); }

 private:
  std::optional<DeviceGuard> guard_;
};

// Makes a stream, and its device, current for a scope. Since 0.1.
class StreamGuard {
 public:
  explicit StreamGuard(Stream stream);
  ~StreamGuard();
  StreamGuard(const StreamGuard &) = delete;
  StreamGuard &operator=(const StreamGuard &) = delete;

  // The stream of the scope. Since 0.1.
  Stream current_stream() const { return current_; }
  // The stream that was current on the device before. Since 0.1.
  Stream original_stream() const { return original_; }
  // The device that was current before. Since 0.1.
  c10::Device original_device() const { return device_.original_device(); }

 private:
  DeviceGuard device_;
  Stream original_, current_;
};

// The same, or nothing: an absent stream changes nothing. Since 0.1.
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

// Makes several streams, of different devices, current for a scope; the current device stays. Throws c10::Error when two are
// of one device. Since 0.1.
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
