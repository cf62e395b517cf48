// stream.h: in-order queues of work.
#pragma once

#include <c10/core/Stream.h>

#include <cstdint>

#include "device.h"

namespace torch_backend {

// A stream of a device. A value type: copies refer to the same stream. Streams exist until the process ends.
class Stream {
 public:
  // Wraps torch's generic stream. Throws c10::Error for a stream of another device type. Since 0.1.
  explicit Stream(c10::Stream stream);

  // Returns whether the work queued so far is done, without waiting. Throws an asynchronous failure, once. Since 0.1.
  bool query() const;
  // Waits until the work queued so far is done. Throws an asynchronous failure, once. Since 0.1.
  void synchronize() const;
  // Waits at most `nanoseconds`; returns false if work remains after that time. Since 0.1.
  bool synchronize_for(int64_t nanoseconds) const;

  // Returns the number of the stream, unique on its device; 0 is the default stream. Since 0.1.
  c10::StreamId id() const { return stream_.id(); }
  // Returns the device. Since 0.1.
  c10::Device device() const { return stream_.device(); }
  // Returns the index of the device. Since 0.1.
  c10::DeviceIndex device_index() const { return stream_.device_index(); }
  // Returns the priority: 0 is normal, -1 is high. Since 0.1.
  int priority() const;
  // Returns the vendor's own handle (a CUstream, a cl_command_queue), or nullptr if there is none; borrowed. Since 0.1.
  void *native_handle() const;

  // Returns the same stream as torch's generic type. Since 0.1.
  c10::Stream unwrap() const { return stream_; }
  operator c10::Stream() const { return stream_; }
  bool operator==(const Stream &other) const { return stream_ == other.stream_; }
  bool operator!=(const Stream &other) const { return stream_ != other.stream_; }

 private:
  c10::Stream stream_;
};

// Returns a stream of the pool of a device (-1: the current one); priority 0 is normal, -1 is high. Since 0.1.
Stream get_stream_from_pool(int priority = 0, c10::DeviceIndex device = -1);

// Returns the default stream of a device (-1: the current one). Since 0.1.
Stream get_default_stream(c10::DeviceIndex device = -1);

// Returns the calling thread's current stream of a device (-1: the current one). Since 0.1.
Stream get_current_stream(c10::DeviceIndex device = -1);

// Makes a stream the calling thread's current stream of its device; does not change the current device. Since 0.1.
void set_current_stream(Stream stream);

}  // namespace torch_backend
