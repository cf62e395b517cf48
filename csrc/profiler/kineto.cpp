// kineto.cpp: registers the device's profiler with Kineto, the tracer of torch.profiler.
#include "profiler/session.h"

#ifdef TORCH_BACKEND_ACTIVITY_PROFILER
#define USE_KINETO  // the wheel's torch is built with it, and its header checks it
#include <torch/csrc/profiler/standalone/privateuse1_profiler.h>

namespace torch_backend {
namespace {

using libkineto::ActivityType;

// The activity types that torch.profiler requests with ProfilerActivity.PrivateUse1. The device has the first three,
// and the annotations that record_function() leaves on a device.
const std::set<ActivityType> &available() {
  static const auto *types =
      new std::set<ActivityType>{ActivityType::CONCURRENT_KERNEL, ActivityType::GPU_MEMCPY, ActivityType::GPU_MEMSET,
                                 ActivityType::GPU_USER_ANNOTATION, ActivityType::PRIVATEUSE1_RUNTIME};
  return *types;
}

class DeviceProfiler final : public libkineto::IActivityProfiler {
 public:
  const std::string &name() const override { return name_; }
  const std::set<ActivityType> &availableActivities() const override { return available(); }

  // PRIVATEUSE1_RUNTIME distinguishes a profile of this device from one of another accelerator, whose kernels have the
  // same type. Returns nullptr for a profile without it.
  std::unique_ptr<libkineto::IActivityProfilerSession> configure(const std::set<ActivityType> &types,
                                                                 const libkineto::Config &) override {
    if (types.count(ActivityType::PRIVATEUSE1_RUNTIME) == 0) return nullptr;
    return std::make_unique<ProfilerSession>(types);
  }
  std::unique_ptr<libkineto::IActivityProfilerSession> configure(int64_t, int64_t, const std::set<ActivityType> &types,
                                                                 const libkineto::Config &config) override {
    return configure(types, config);
  }

 private:
  const std::string name_ = "torch_backend";
};

REGISTER_PRIVATEUSE1_PROFILER(DeviceProfiler);

}  // namespace
}  // namespace torch_backend
#endif  // TORCH_BACKEND_ACTIVITY_PROFILER
