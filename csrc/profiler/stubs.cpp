// stubs.cpp: the functions with which torch's profiler times operators by events:
// torch.autograd.profiler.profile(use_device=..., use_kineto=False), which works with every plugin that has events, and
// the vendor's own ranges.
#include <c10/util/ApproximateClock.h>
#include <torch/csrc/profiler/stubs/base.h>

#include "core/device.h"
#include "core/status.h"

namespace torch_backend {
namespace {

using torch::profiler::impl::ProfilerVoidEventStub;

struct Stubs final : torch::profiler::impl::ProfilerStubs {
  bool enabled() const override { return hal_device_count() > 0; }

  // Records an event on the current stream of the current device.
  void record(c10::DeviceIndex *device, ProfilerVoidEventStub *event, int64_t *cpu_ns) const override {
    const int32_t current = hal_device_current();
    hal_event_t *made = nullptr;
    check(hal_event_create(current, HAL_EVENT_TIMING, &made));
    *event = ProfilerVoidEventStub(made, [](void *owned) { hal_event_destroy(static_cast<hal_event_t *>(owned)); });
    if (cpu_ns != nullptr) *cpu_ns = c10::getTime();
    if (device != nullptr) *device = static_cast<c10::DeviceIndex>(current);
    check(hal_event_record(made, nullptr));
  }

  // Returns microseconds.
  float elapsed(const ProfilerVoidEventStub *start, const ProfilerVoidEventStub *end) const override {
    auto *first = static_cast<hal_event_t *>(start->get()), *last = static_cast<hal_event_t *>(end->get());
    int64_t nanoseconds = 0;
    check_work(hal_event_synchronize(first));
    check_work(hal_event_synchronize(last));
    check(hal_event_elapsed(first, last, &nanoseconds));
    return static_cast<float>(nanoseconds) / 1000.0f;
  }

  void mark(const char *name) const override {
    rangePush(name);
    rangePop();
  }
  void rangePush(const char *name) const override { check(hal_profile_range(hal_device_current(), name)); }
  void rangePop() const override { check(hal_profile_range(hal_device_current(), nullptr)); }

  // Does not initialize unused devices.
  void onEachDevice(std::function<void(int)> op) const override {
    const int32_t before = hal_device_current();
    for (int32_t device = 0; device < hal_device_count(); device++) {
      if (device != before && !hal_device_is_initialized(device)) continue;
      hal_device_exchange(device);
      op(device);
    }
    hal_device_exchange(before);
  }

  void synchronize() const override { synchronize_device(-1); }
};

const bool registered = [] {
  torch::profiler::impl::registerPrivateUse1Methods(new Stubs);  // never destroyed
  return true;
}();

}  // namespace
}  // namespace torch_backend
