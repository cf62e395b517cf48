// guard.h: the current device of the type "lazy", which is that of the eager device type, and its recordings.
#pragma once

#include <c10/core/Device.h>

#include "hal/lazy.h"

namespace torch_backend {

// Registers the type with c10's device guard.
void install_lazy_guard();

// Makes the device with that index current within a scope; -1 = no change.
class LazyGuard {
 public:
  explicit LazyGuard(c10::DeviceIndex index);
  ~LazyGuard();
  LazyGuard(const LazyGuard &) = delete;
  LazyGuard &operator=(const LazyGuard &) = delete;

 private:
  int32_t previous_ = -1;
};

// Sets the description of the type's recordings (hal_lazy_desc_t). It is copied for recordings that begin later; its
// pointers must stay valid until the process ends.
void describe_kept(const hal_lazy_desc_t &desc);

// Defers the work of the device's default stream from now on, until the process ends; later calls do nothing.
void keep_lazy(c10::DeviceIndex index);

// Flushes this deferred work, and makes the streams eager until the next operator of the type.
void stop_lazy();

// Returns the recording that keeps a device lazy; NULL = there is none.
hal_lazy_t *kept_lazy(c10::DeviceIndex index);

}  // namespace torch_backend
