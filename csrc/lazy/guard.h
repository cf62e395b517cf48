// guard.h: the current device of the type "lazy", which is that of our device type, and the recordings behind it.
#pragma once

#include <c10/core/Device.h>

#include "hal/lazy.h"

namespace torch_backend {

// Makes c10's device guard know the type.
void install_lazy_guard();

// Makes our device of that index current while it lives; -1 = leaves it.
class LazyGuard {
 public:
  explicit LazyGuard(c10::DeviceIndex index);
  ~LazyGuard();
  LazyGuard(const LazyGuard &) = delete;
  LazyGuard &operator=(const LazyGuard &) = delete;

 private:
  int32_t previous_ = -1;
};

// What recordings of the type are told of (hal_lazy_desc_t); a copy is taken, for those that begin later. What it names lives as long as the process.
void describe_kept(const hal_lazy_desc_t &desc);

// Puts off the work of the device's default stream from now on, for the rest of the process; the first call does.
void keep_lazy(c10::DeviceIndex index);

// Queues what was put off so, and lets the streams be eager until the next operator of the type.
void stop_lazy();

// What keeps a device lazy so; NULL = nothing does.
hal_lazy_t *kept_lazy(c10::DeviceIndex index);

}  // namespace torch_backend
