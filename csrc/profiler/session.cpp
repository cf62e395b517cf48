// session.cpp: one profile: converts the HAL's records to Kineto's activities. Each record has an activity on the
// device and stream where it ran, and one for its launch on the thread that submitted it. Both have the same
// correlation number, an arrow between them, and a link to the operator.
#include "profiler/session.h"

#include "profiler/toggle.h"

#ifdef TORCH_BACKEND_ACTIVITY_PROFILER
#include <c10/util/Exception.h>
#include <output_base.h>

#include <unistd.h>

#include <algorithm>
#include <ctime>

#include "core/allocator/allocator.h"
#include "core/device.h"

namespace torch_backend {
namespace {

using libkineto::ActivityType;
using libkineto::GenericTraceActivity;

// The record_functions that are active in the calling thread, innermost last; of the profile with this number.
struct UserIds {
  const void *session = nullptr;
  std::vector<uint64_t> ids;
};
thread_local UserIds user_ids;

std::vector<uint64_t> &user_ids_of(const void *session) {
  if (user_ids.session != session) user_ids = {session, {}};  // not ended by an earlier profile
  return user_ids.ids;
}

int64_t read_clock(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<int64_t>(now.tv_sec) * 1000000000 + now.tv_nsec;
}

// Returns the difference between the HAL's clock and Kineto's. Of a few readings it uses the one that was interrupted
// least.
int64_t epoch_offset() {
  int64_t best = INT64_MAX, offset = 0;
  for (int i = 0; i < 5; i++) {
    const int64_t before = read_clock(CLOCK_MONOTONIC), epoch = read_clock(CLOCK_REALTIME);
    const int64_t took = read_clock(CLOCK_MONOTONIC) - before;
    if (took >= best) continue;
    best = took;
    offset = epoch - before - took / 2;
  }
  return offset;
}

// The row of synchronous calls follows those of the streams, because trace files have no negative numbers.
constexpr int32_t kSynchronousRow = HAL_MAX_STREAM_ID + 1;

int32_t row_of(int64_t stream) {
  return stream == HAL_PROFILE_NO_STREAM ? kSynchronousRow : static_cast<int32_t>(stream);
}

// Returns the names of CUDA's activities, which tools search for.
std::string row_name(const Activity &activity) {
  static const char *const copies[] = {"Memcpy", "Memcpy HtoD", "Memcpy DtoH", "Memcpy DtoD", "Memcpy PtoP"};
  if (activity.kind == HAL_PROFILE_COPY) return copies[activity.direction < std::size(copies) ? activity.direction : 0];
  return activity.kind == HAL_PROFILE_FILL ? "Memset (Device)" : activity.name;
}

// Returns the names of launches: CUDA's with the device type's name in place of `cuda`.
std::string launch_name(const Activity &activity) {
  static const std::string type = c10::DeviceTypeName(kDevice, /*lower_case=*/true);
  const std::string suffix = activity.stream == HAL_PROFILE_NO_STREAM ? "" : "Async";
  if (activity.kind == HAL_PROFILE_COPY) return type + "Memcpy" + suffix;
  if (activity.kind == HAL_PROFILE_COLLECTIVE) return type + "LaunchCollective";
  return activity.kind == HAL_PROFILE_FILL ? type + "Memset" + suffix : type + "LaunchKernel";
}

// Returns the correlation number of a launch. Events of torch.profiler have numbers of 32 bits, and those of operators
// count from 1. Launches have different ones, so that a number identifies one operator or one launch and its work.
int32_t correlation_of(uint64_t launch) {
  constexpr uint64_t kFirst = uint64_t{1} << 30;
  return static_cast<int32_t>(kFirst | (launch & (kFirst - 1)));
}

void set_flow(GenericTraceActivity &row, int32_t id, bool start) {
  row.flow.id = static_cast<uint32_t>(id);
  row.flow.type = libkineto::kLinkAsyncCpuGpu;
  row.flow.start = start;
}

std::string quoted(const char *text) {
  std::string result = "\"";
  for (const char *c = text; *c != 0; c++) {
    if (*c == '"' || *c == '\\') result += '\\';
    result += static_cast<unsigned char>(*c) < 0x20 ? ' ' : *c;
  }
  return result + '"';
}

// Returns a device's properties under the keys that Kineto writes for CUDA's, as far as the plugin reports them; empty
// if that fails.
std::string properties_of(int32_t device) {
  hal_device_info_t info{};
  info.struct_size = HAL_STRUCT_SIZE(hal_device_info_t, architecture);
  if (hal_device_info(device, &info) != HAL_OK) return "";
  const auto number = [](const char *key, uint64_t value) {
    return value == 0 ? "" : std::string(", \"") + key + "\": " + std::to_string(value);
  };
  return "{\"id\": " + std::to_string(device) + ", \"name\": " + quoted(info.name) +
         ", \"totalGlobalMem\": " + std::to_string(info.total_memory) +
         number("maxThreadsPerBlock", info.max_block_threads) + number("warpSize", info.subgroup_size) +
         number("sharedMemPerBlock", info.max_shared_bytes) + number("numSms", info.compute_units) + "}";
}

// The session of the process, for toggle().
struct Current {
  std::mutex lock;
  ProfilerSession *session = nullptr;
};
Current &current() {
  static auto *const only = new Current;
  return *only;
}

// Returns the kind of kernel that ran the operator, as in torch_backend.ops; NULL for work without an operator.
const char *kind_name(uint32_t answer) {
  return answer == HAL_PROFILE_BY_PLUGIN ? "plugin" : answer == HAL_PROFILE_BY_PORTABLE ? "portable" : nullptr;
}

ActivityType row_type(uint32_t kind) {
  switch (kind) {
    case HAL_PROFILE_COPY:
      return ActivityType::GPU_MEMCPY;
    case HAL_PROFILE_FILL:
      return ActivityType::GPU_MEMSET;
    case HAL_PROFILE_RANGE:
      return ActivityType::GPU_USER_ANNOTATION;
    default:
      return ActivityType::CONCURRENT_KERNEL;
  }
}

// Adds the keys that Kineto writes for NCCL's collectives.
void add_collective(GenericTraceActivity &row, const Activity &activity) {
  row.addMetadataQuoted("Collective name", activity.name);
  row.addMetadata("Seq", activity.sequence);
  row.addMetadataQuoted("Process Group Name", activity.group);
  row.addMetadata("Group size", activity.group_size);
  row.addMetadata("bytes", activity.bytes);
}

std::string device_name(int32_t device) { return c10::Device(kDevice, static_cast<c10::DeviceIndex>(device)).str(); }

libkineto::DeviceInfo device_info(int32_t device) {
  return {device, device + libkineto::kExceedMaxPid, device_name(device), device_name(device)};
}

}  // namespace

// ---- start and stop ----

void ProfilerSession::report(const std::string &problem) {
  errors_.push_back(problem);
  TORCH_WARN("torch.profiler: ", problem);
}

ProfilerSession::ProfilerSession(const std::set<ActivityType> &types) : types_(types) {
  const std::lock_guard<std::mutex> guard(current().lock);
  current().session = this;
}

ProfilerSession::~ProfilerSession() {
  const std::lock_guard<std::mutex> guard(current().lock);
  if (current().session == this) current().session = nullptr;
  if (running_) hal_profile_stop();
}

// Begins or ends the HAL's profile; reads the collected records at the end.
void ProfilerSession::collect(bool enable) {
  if (enable == running_) return;
  if (enable && hal_profile_start() != HAL_OK) {
    report(std::string("the device's activities will be missing: ") + hal_error_message());
    status_ = libkineto::TraceStatus::ERROR;
    return;
  }
  running_ = enable;
  if (enable) return;
  if (hal_profile_stop() != HAL_OK) report(std::string("activities may be missing: ") + hal_error_message());
  read();
}

void ProfilerSession::start() {
  const std::lock_guard<std::mutex> guard(current().lock);
  started_ = true;
  status_ = libkineto::TraceStatus::RECORDING;
  if (!paused_) collect(true);
  if (!paused_ && !running_) return;
  for_each_used_device([this](int32_t device) {
    if (!hal_profile_supported(device))
      report("there will be no activities of " + device_name(device) +
             ", since its plugin collects none (profile_read)");
  });
}

void ProfilerSession::stop() {
  const std::lock_guard<std::mutex> guard(current().lock);
  const bool collected = running_ || paused_;
  collect(false);
  started_ = false;
  if (collected) status_ = libkineto::TraceStatus::PROCESSING;
}

void ProfilerSession::toggle(bool enable) {
  const std::lock_guard<std::mutex> guard(current().lock);
  ProfilerSession *const session = current().session;
  if (session == nullptr) return;
  session->paused_ = !enable;
  if (session->started_) session->collect(enable);
}

void ProfilerSession::read() {
  struct Reader {
    std::vector<Activity> *activities;
    int64_t offset;
  } reader{&activities_, epoch_offset()};
  uint64_t lost = 0;
  const auto keep = [](void *user_data, const hal_profile_activity_t *from) {
    const auto *to = static_cast<const Reader *>(user_data);
    to->activities->push_back({from->name, from->op, from->start_ns + to->offset, from->end_ns + to->offset,
                               from->correlation, from->bytes, from->stream, from->device, from->kind, from->direction,
                               from->answer, from->launch, from->launch_thread, from->launch_start_ns + to->offset,
                               from->launch_end_ns + to->offset, from->group == nullptr ? "" : from->group,
                               from->sequence, from->group_size});
  };
  if (hal_profile_read(keep, &reader, &lost) != HAL_OK)
    report(std::string("activities may be missing: ") + hal_error_message());
  if (lost > 0)
    report(std::to_string(lost) +
           " activities are missing, since a device's buffer was full; profile fewer steps at a time (schedule=)");
}

// ---- activities ----

GenericTraceActivity &ProfilerSession::new_row(ActivityType type, const std::string &name, int64_t start_ns,
                                               int64_t end_ns) {
  buffer_->emplace_activity(buffer_->span, type, name);
  GenericTraceActivity &row = *buffer_->activities.back();
  row.startTime = start_ns;
  row.endTime = end_ns;
  return row;
}

// Adds one activity for all work of a launch.
void ProfilerSession::add_launch(const Activity &activity, const libkineto::getLinkedActivityCallback &linked) {
  if (types_.count(ActivityType::PRIVATEUSE1_RUNTIME) == 0 || !launches_.insert(activity.launch).second) return;
  GenericTraceActivity &row = new_row(ActivityType::PRIVATEUSE1_RUNTIME, launch_name(activity),
                                      activity.launch_start_ns, activity.launch_end_ns);
  row.device = getpid();
  row.resource = static_cast<int32_t>(activity.launch_thread);
  row.id = correlation_of(activity.launch);
  if (activity.correlation != 0 && linked) row.linked = linked(static_cast<int32_t>(activity.correlation));
  row.addMetadata("correlation", row.id);
  set_flow(row, row.id, true);
}

void ProfilerSession::add_annotated(const Activity &activity, const Place &place) {
  const auto user = user_ids_.find(activity.correlation);
  if (user == user_ids_.end()) return;
  const auto [span, is_new] = annotations_.try_emplace({user->second, place}, Span{activity.start_ns, activity.end_ns});
  if (is_new) return;
  span->second.start_ns = std::min(span->second.start_ns, activity.start_ns);
  span->second.end_ns = std::max(span->second.end_ns, activity.end_ns);
}

void ProfilerSession::add_row(const Activity &activity, const libkineto::getLinkedActivityCallback &linked) {
  if (activity.kind == HAL_PROFILE_HOST_OP) return;  // the CPU activity that the fallback records (run_on_cpu)
  const ActivityType type = row_type(activity.kind);
  const Place place{activity.device, row_of(activity.stream)};
  if (types_.count(type) == 0) return;
  if (activity.launch != 0)
    add_launch(activity, linked);
  else if (activity.kind != HAL_PROFILE_RANGE)
    without_launch_++;
  GenericTraceActivity &row = new_row(type, row_name(activity), activity.start_ns, activity.end_ns);
  row.device = activity.device;
  row.resource = place.second;
  if (activity.correlation != 0 && linked) row.linked = linked(static_cast<int32_t>(activity.correlation));
  row.addMetadata("device", activity.device);
  row.addMetadata("stream", place.second);
  if (activity.launch != 0) {
    row.id = correlation_of(activity.launch);
    row.addMetadata("correlation", row.id);
    if (types_.count(ActivityType::PRIVATEUSE1_RUNTIME) != 0) set_flow(row, row.id, false);
  }
  if (!activity.op.empty()) row.addMetadataQuoted("op", activity.op);
  if (const char *answer = kind_name(activity.answer)) row.addMetadataQuoted("implemented by", answer);
  if (activity.kind == HAL_PROFILE_COPY || activity.kind == HAL_PROFILE_FILL) row.addMetadata("bytes", activity.bytes);
  if (activity.kind == HAL_PROFILE_COLLECTIVE) add_collective(row, activity);
  places_.insert(place);
  add_annotated(activity, place);
}

void ProfilerSession::add_annotations(const libkineto::getLinkedActivityCallback &linked) {
  if (types_.count(ActivityType::GPU_USER_ANNOTATION) == 0) return;
  for (const auto &[key, span] : annotations_) {
    const libkineto::ITraceActivity *annotated = linked ? linked(static_cast<int32_t>(key.first)) : nullptr;
    if (annotated == nullptr) continue;
    GenericTraceActivity &row =
        new_row(ActivityType::GPU_USER_ANNOTATION, annotated->name(), span.start_ns, span.end_ns);
    row.device = key.second.first;
    row.resource = key.second.second;
    row.id = static_cast<int32_t>(key.first);
  }
}

void ProfilerSession::processTrace(libkineto::ActivityLogger &logger) { processTrace(logger, nullptr, 0, 0); }

void ProfilerSession::processTrace(libkineto::ActivityLogger &logger, libkineto::getLinkedActivityCallback linked,
                                   int64_t start_ns, int64_t end_ns) {
  buffer_ = std::make_unique<libkineto::CpuTraceBuffer>();
  buffer_->gpuOpCount = static_cast<int>(activities_.size());
  buffer_->span = libkineto::TraceSpan(buffer_->gpuOpCount, 0, "torch_backend", "");
  buffer_->span.startTime = start_ns;
  buffer_->span.endTime = end_ns;
  const std::lock_guard<std::mutex> guard(lock_);
  for (const Activity &activity : activities_) add_row(activity, linked);
  add_annotations(linked);
  activities_.clear();
  annotations_.clear();
  launches_.clear();
  if (without_launch_ > 0)
    report(std::to_string(without_launch_) +
           " activities of devices have no launch: their plugin does not request correlation numbers "
           "(profile_correlation), or "
           "more than 2^18 "
           "launches waited to be read; profile fewer steps at a time (schedule=)");
  without_launch_ = 0;
  for (const auto &row : buffer_->activities) logger.handleActivity(*row);  // last, because it stores their addresses
  int32_t before = -1;
  for (const auto &[device, row] : places_) {  // getDeviceInfo() returns the first
    if (device != places_.begin()->first && device != before) logger.handleDeviceInfo(device_info(device), start_ns);
    before = device;
  }
}

std::unique_ptr<libkineto::DeviceInfo> ProfilerSession::getDeviceInfo() {
  if (places_.empty()) return nullptr;
  return std::make_unique<libkineto::DeviceInfo>(device_info(places_.begin()->first));
}

std::string ProfilerSession::getDeviceProperties() {
  std::string all;
  for_each_used_device([&all](int32_t device) {
    const std::string properties = properties_of(device);
    if (!properties.empty()) all += (all.empty() ? "" : ", ") + properties;
  });
  return all;
}

std::vector<libkineto::ResourceInfo> ProfilerSession::getResourceInfos() {
  std::vector<libkineto::ResourceInfo> infos;
  for (const auto &[device, row] : places_)
    infos.push_back({row, row, device, row == kSynchronousRow ? "synchronous" : "stream " + std::to_string(row)});
  return infos;
}

// ---- the operators of a thread ----

void ProfilerSession::pushCorrelationId(uint64_t id) {
  hal_profile_push(id);
  if (user_ids.session != this || user_ids.ids.empty()) return;
  const std::lock_guard<std::mutex> guard(lock_);
  user_ids_[id] = user_ids.ids.back();
}

void ProfilerSession::popCorrelationId() { hal_profile_pop(); }

void ProfilerSession::pushUserCorrelationId(uint64_t id) { user_ids_of(this).push_back(id); }

void ProfilerSession::popUserCorrelationId() {
  std::vector<uint64_t> &ids = user_ids_of(this);
  if (!ids.empty()) ids.pop_back();
}

void toggle_profile(bool enable) { ProfilerSession::toggle(enable); }

}  // namespace torch_backend
#else
namespace torch_backend {
void toggle_profile(bool) {}
}  // namespace torch_backend
#endif  // TORCH_BACKEND_ACTIVITY_PROFILER
