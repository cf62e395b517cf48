// session.h: one profile of torch.profiler (ProfilerActivity.PrivateUse1), from its start to the activities of its
// trace.
#pragma once

#include "core/compat.h"

#ifdef TORCH_BACKEND_ACTIVITY_PROFILER
#include <IActivityProfiler.h>
#include <libkineto.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/status.h"

namespace torch_backend {

// A copy of one record of the HAL, which is only valid during the callback.
struct Activity {
  std::string name, op;
  int64_t start_ns, end_ns;  // since 1970, as in Kineto
  uint64_t correlation, bytes;
  int64_t stream;
  int32_t device;
  uint32_t kind, direction, answer;
  uint64_t launch;  // 0 = unknown
  int64_t launch_thread, launch_start_ns, launch_end_ns;
  std::string group;  // of a collective, as the two below
  uint64_t sequence;
  int32_t group_size;
};

class ProfilerSession final : public libkineto::IActivityProfilerSession {
 public:
  explicit ProfilerSession(const std::set<libkineto::ActivityType> &types);
  ~ProfilerSession() override;

  // Pauses or resumes the device's activities in the process's profile; does nothing without one.
  static void toggle(bool enable);

  void start() override;
  // Waits for the devices, because submitted work belongs to the profile.
  void stop() override;
  std::vector<std::string> errors() override { return errors_; }
  void processTrace(libkineto::ActivityLogger &logger) override;
  void processTrace(libkineto::ActivityLogger &logger, libkineto::getLinkedActivityCallback linked, int64_t start_ns,
                    int64_t end_ns) override;
  std::unique_ptr<libkineto::DeviceInfo> getDeviceInfo() override;
  std::vector<libkineto::ResourceInfo> getResourceInfos() override;
  std::string getDeviceProperties() override;
  std::unique_ptr<libkineto::CpuTraceBuffer> getTraceBuffer() override { return std::move(buffer_); }

  // Called by the thread that runs an operator, at its beginning and end.
  void pushCorrelationId(uint64_t id) override;
  void popCorrelationId() override;
  // The same for record_function.
  void pushUserCorrelationId(uint64_t id) override;
  void popUserCorrelationId() override;

 private:
  struct Span {
    int64_t start_ns, end_ns;
  };
  using Place = std::pair<int32_t, int32_t>;  // device and row

  void report(const std::string &problem);
  void collect(bool enable);
  void read();
  libkineto::GenericTraceActivity &new_row(libkineto::ActivityType type, const std::string &name, int64_t start_ns,
                                           int64_t end_ns);
  void add_launch(const Activity &activity, const libkineto::getLinkedActivityCallback &linked);
  void add_annotated(const Activity &activity, const Place &place);
  void add_row(const Activity &activity, const libkineto::getLinkedActivityCallback &linked);
  void add_annotations(const libkineto::getLinkedActivityCallback &linked);

  const std::set<libkineto::ActivityType> types_;
  std::vector<std::string> errors_;
  std::vector<Activity> activities_;
  std::set<Place> places_;
  std::unique_ptr<libkineto::CpuTraceBuffer> buffer_;
  bool started_ = false, paused_ = false;
  bool running_ = false;         // the HAL's profile belongs to this one
  std::set<uint64_t> launches_;  // launches with an activity
  uint64_t without_launch_ = 0;  // number of device activities without a launch

  std::mutex lock_;                                         // of the map below
  std::unordered_map<uint64_t, uint64_t> user_ids_;         // an operator's id -> that of the record_function around it
  std::map<std::pair<uint64_t, Place>, Span> annotations_;  // where and when the work of a record_function ran
};

}  // namespace torch_backend
#endif  // TORCH_BACKEND_ACTIVITY_PROFILER
