// host_waits.h: the order of streams on a thread that has no caller to report a failure to.
#pragma once

#include <utility>

#include "hal/hal.h"

namespace torch_backend {

// While an object exists, c10's events and streams of the calling thread do not throw: if an event cannot be recorded
// or waited for, the host waits instead, and if no new stream is available, the current one is used.
class HostWaits {
 public:
  HostWaits() : outer_(std::exchange(current(), this)) {}
  HostWaits(const HostWaits &) = delete;
  HostWaits &operator=(const HostWaits &) = delete;
  ~HostWaits() { current() = outer_; }

  // Returns the status of the first wait of the host that failed, too, or HAL_OK.
  hal_status_t status() const { return status_; }

  // For the device guard: returns whether the thread has an object, after the host has waited for an event, or for a
  // stream.
  static bool wait(hal_event_t *event) { return current() != nullptr && current()->put(hal_event_synchronize(event)); }
  static bool wait(hal_stream_t *stream) {
    return current() != nullptr && current()->put(hal_stream_synchronize(stream));
  }
  static bool exists() { return current() != nullptr; }

 private:
  static HostWaits *&current();
  bool put(hal_status_t status) {
    if (status_ == HAL_OK) status_ = status;
    return true;
  }

  HostWaits *const outer_;
  hal_status_t status_ = HAL_OK;
};

}  // namespace torch_backend
