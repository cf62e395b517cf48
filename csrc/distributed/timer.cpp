// timer.cpp: the clock of DistributedDataParallel's statistics (the data of its logger), implemented with events of the
// device.
#include <torch/csrc/distributed/c10d/reducer_timer.hpp>

#include <array>
#include <memory>

#include "core/device.h"
#include "core/status.h"

namespace torch_backend {
namespace {

class DeviceTimer final : public c10d::Timer {
 public:
  explicit DeviceTimer(c10::Device device) : device_(device.index()) {}

  // The base class records the time of the call on the host.
  void record(Event event) override {
    Timer::record(event);
    auto &marked = events_.at(static_cast<size_t>(event));
    if (!marked) {
      hal_event_t *made = nullptr;
      check(hal_event_create(device_, HAL_EVENT_TIMING, &made));
      marked.reset(made);
    }
    check(hal_event_record(marked.get(), nullptr));
  }

  std::optional<int64_t> measureDifference(Event start, Event end) override {
    hal_event_t *const first = events_.at(static_cast<size_t>(start)).get();
    hal_event_t *const last = events_.at(static_cast<size_t>(end)).get();
    int64_t nanoseconds = 0;
    if (first == nullptr || last == nullptr) return std::nullopt;
    check_work(hal_event_synchronize(first));
    check_work(hal_event_synchronize(last));
    check(hal_event_elapsed(first, last, &nanoseconds));
    // The backward pass of an iteration without communication, such as one in no_sync(), leaves an event of an earlier
    // iteration.
    if (nanoseconds < 0) return std::nullopt;
    return nanoseconds;
  }

 private:
  struct Destroy {
    void operator()(hal_event_t *event) const { hal_event_destroy(event); }
  };
  const c10::DeviceIndex device_;
  std::array<std::unique_ptr<hal_event_t, Destroy>, static_cast<size_t>(Event::kBackwardCommEnd) + 1> events_;
};

}  // namespace
}  // namespace torch_backend

namespace c10d {
// The macro of the registry must be in the registry's namespace.
C10_REGISTER_TYPED_CLASS(TimerRegistry, c10::kPrivateUse1, torch_backend::DeviceTimer)
}  // namespace c10d
