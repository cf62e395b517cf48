// backend.cpp: the communicator of a group, and the submission of collectives. collectives.cpp has the operators,
// groups.cpp creates groups of some of a group's ranks.
#include "distributed/backend.h"

#include <ATen/record_function.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <utility>

#include "core/device.h"
#include "core/status.h"
#include "distributed/hosts.h"
#include "distributed/store.h"
#include "distributed/transport.h"
#include "hal/hal.h"

// The table of DeviceBackend's virtual functions refers to these, which an older torch lacks. Without a strong
// reference the dynamic linker loads this library with that torch, too, and the check of versions reports it in words.
__asm__(".weak _ZNK4c10d7Backend15incref_pyobjectEv");
__asm__(".weak _ZNK4c10d7Backend15decref_pyobjectEv");
__asm__(".weak _ZNK4c10d7Backend19try_incref_pyobjectEv");

namespace torch_backend {

// ---- lifetime ----
DeviceBackend::DeviceBackend(const Members &members, c10::intrusive_ptr<DeviceOptions> options, Route route,
                             Program program)
    : Backend(members.rank, members.size),
      options_(std::move(options)),
      store_(members.store),
      route_(route),
      program_(std::move(program)) {
  init();
}

constexpr int64_t kSecond = 1000000000;

// Gloo's destructor waits for its threads, which need the interpreter's lock to release tensors. In a forked child they
// do not exist.
DeviceBackend::~DeviceBackend() {
  shutdown();
  if (getpid() != process_) host_.release();
  program_.without_lock([&] { host_.reset(); });
}

// Threads of the communicator may need the interpreter's lock to end.
void DeviceBackend::shutdown() {
  hal_comm_t *comm = nullptr;
  hal_comm_transport_t unused{};
  {
    const std::lock_guard<std::mutex> guard(lock_);
    std::swap(comm, comm_);
    std::swap(unused, connected_);
    is_shut_down_ = true;
  }
  if (unused.destroy != nullptr) program_.without_lock([&] { unused.destroy(unused.context); });
  if (comm != nullptr) program_.without_lock([&] { hal_comm_destroy(comm, 10 * kSecond); });
  const std::lock_guard<std::mutex> guard(lock_);
  stashes_.clear();
}

void DeviceBackend::abort() {
  hooks_->aborting();
  hooks_->failure_is_known();
  if (is_in_first_barrier_) connected_.abort(connected_.context, "abort() was called");
  const std::lock_guard<std::mutex> guard(lock_);
  if (comm_ != nullptr) hal_comm_abort(comm_, "abort() was called");
}

c10d::ErrorType DeviceBackend::getError() {
  const std::lock_guard<std::mutex> guard(lock_);
  switch (comm_ == nullptr ? HAL_OK : hal_comm_error(comm_)) {
    case HAL_OK:
      return c10d::ErrorType::SUCCESS;
    case HAL_NOT_READY:
      return c10d::ErrorType::TIMEOUT;
    case HAL_UNAVAILABLE:
      return c10d::ErrorType::REMOTE_ERROR;
    default:
      return c10d::ErrorType::COMM_ERROR;
  }
}

c10d::Backend &DeviceBackend::host() {
  const std::lock_guard<std::mutex> guard(lock_);
  if (!host_) host_ = program_.make_host_backend("cpu", members(), options_->timeout);
  return *host_;
}

// ---- connecting ----
hal_comm_transport_t DeviceBackend::connect(const std::string &name) {
  hal_comm_transport_t transport{};
  const Transport wanted = route_.transport;
  const bool is_free = wanted == Transport::kAuto || wanted == Transport::kPlugin;
  std::string refused;  // reasons why the preferred transports are not usable
  const auto take = [&](const char *what) {
    route_text_ = what + (refused.empty() ? std::string() : " (" + refused + ")");
    return transport;
  };
  const auto refuse = [&](const char *what) {
    refused += (refused.empty() ? "" : "; ") + std::string(what) + ": " + hal_error_message();
  };
  if (getSize() == 1) return take("copies on the device, as the group has one rank");
  if (is_free || wanted == Transport::kSharedMemory) {
    const auto store =
        c10::make_intrusive<BoundedStore>(c10::make_intrusive<c10d::PrefixStore>("device", store_), options_->timeout);
    const hal_comm_store_t table = store_table(*store);
    const hal_status_t status = hal_comm_transport_shared_memory(
        &table, name.c_str(), getRank(), getSize(), std::chrono::nanoseconds(options_->timeout).count(), &transport);
    if (status == HAL_OK) return take("shared memory");
    if (status != HAL_UNIMPLEMENTED || wanted == Transport::kSharedMemory) check(status);
    refuse("not shared memory alone");
  }
  if (is_free || wanted == Transport::kHierarchical) {
    const hal_status_t status = make_hosts_transport(members(), program_.make_host_backend, options_->timeout,
                                                     is_free ? HAL_COMM_HOSTS_SHARED : 0, &transport);
    if (status == HAL_OK) return take("shared memory within hosts and Gloo between them");
    if (status != HAL_UNIMPLEMENTED || wanted == Transport::kHierarchical) check(status);
    refuse("not shared memory within hosts");
  }
  check(
      make_hosts_transport(members(), program_.make_host_backend, options_->timeout, HAL_COMM_HOSTS_FLAT, &transport));
  return take("Gloo");
}

// Returns HAL_OK also where the transport runs all collectives. The log has one line for each group: this one, or that
// of the library.
hal_status_t DeviceBackend::connect_library(hal_comm_t *comm, const std::string &name, const ConnectLibrary &connect) {
  const bool is_free =
      route_.transport == Transport::kPlugin || (route_.transport == Transport::kAuto && getSize() > 1);
  const hal_status_t status = is_free ? connect(comm) : HAL_OK;
  if (status != HAL_OK && (status != HAL_UNIMPLEMENTED || route_.transport != Transport::kAuto)) return status;
  if (*hal_comm_library(comm) != '\0') return HAL_OK;
  const bool is_set = route_.transport != Transport::kAuto && getSize() > 1;
  const std::string cause = status != HAL_OK ? std::string("; no library: ") + hal_error_message() : std::string();
  hal_log(HAL_LOG_INFO, "group '%s': collectives run by %s%s%s", name.c_str(), route_text_.c_str(),
          is_set ? ", as TORCH_BACKEND_COLLECTIVES is set" : "", cause.c_str());
  return HAL_OK;
}

hal_comm_t *DeviceBackend::make_communicator(int device, const ConnectLibrary &connect_ranks) {
  hal_comm_config_t config{};
  config.struct_size = sizeof(config);
  config.device = device, config.rank = getRank(), config.size = getSize();
  config.timeout_ns = std::chrono::nanoseconds(options_->timeout).count();
  const bool has_text = !getGroupDesc().empty() && getGroupDesc() != "undefined";  // torch's text for "no description"
  const std::string name = has_text                        ? getGroupDesc()
                           : !getGroupUid().empty()        ? getGroupUid()
                           : !options_->group_desc.empty() ? options_->group_desc
                                                           : options_->group_name;
  config.name = name.c_str();
  config.transport = take_transport();
  hal_comm_t *comm = nullptr;
  hal_status_t status = hal_comm_create(&config, &comm);
  if (status != HAL_OK && config.transport.destroy != nullptr) config.transport.destroy(config.transport.context);
  check(status);
  status = connect_library(comm, name, connect_ranks);
  if (status == HAL_OK) return comm;
  const std::string text = hal_error_message();
  hal_comm_destroy(comm, 0);
  check(hal_error_set(status, "%s", text.c_str()));
  return nullptr;
}

// Warns if a process that a launcher started uses another device than its own: then the ranks of a host share one.
void DeviceBackend::check_local_rank(int device) {
  const char *const text = std::getenv("LOCAL_RANK");
  if (text == nullptr || *text == '\0' || getBoundDeviceId()) return;
  char *end = nullptr;
  const long local_rank = std::strtol(text, &end, 10);
  if (*end != '\0' || local_rank == device || local_rank < 0 || local_rank >= hal_device_count()) return;
  TORCH_WARN_ONCE("rank ", getRank(), " uses ", kDevice, ":", device, ", and LOCAL_RANK is ", local_rank,
                  "; call torch.accelerator.set_device_index(int(os.environ[\"LOCAL_RANK\"])) before the first tensor, "
                  "or pass device_id to init_process_group");
}

// The caller holds the lock.
hal_comm_t *DeviceBackend::communicator_of(int device) {
  TORCH_CHECK(!is_shut_down_, "the process group '", getGroupUid(), "' was shut down");
  TORCH_CHECK_VALUE(comm_ == nullptr || device == device_, "the process group '", getGroupUid(), "' uses ", kDevice,
                    ":", device_, ", but a tensor is on ", kDevice, ":", device,
                    "; set the device of the process before its first collective, or make another group");
  if (comm_ == nullptr) {
    check_local_rank(device);
    comm_ =
        make_communicator(device, [&](hal_comm_t *comm) { return hal_comm_connect_library(comm, library_flags(), 0); });
    device_ = device;
  }
  if (!is_described_) describe_group();
  return comm_;
}

void DeviceBackend::begin(int device, const ConnectLibrary &connect_ranks) {
  const std::lock_guard<std::mutex> guard(lock_);
  comm_ = make_communicator(device, connect_ranks);
  device_ = device;
}

// ---- submitting ----
void DeviceBackend::describe_group() {
  auto ranks = options_->global_ranks_in_group;
  for (auto rank = ranks.size(); rank < static_cast<size_t>(getSize()); rank++) ranks.push_back(rank);
  check(hal_comm_log_group(getGroupUid().c_str(), getGroupDesc().c_str(), ranks.data(),
                           static_cast<uint32_t>(ranks.size()), &log_group_));
  is_described_ = true;
}

hal_collective_t DeviceBackend::collective(uint32_t op, const at::Tensor &send, const at::Tensor &recv,
                                           int64_t count) const {
  const at::Tensor &tensor = send.defined() ? send : recv;
  hal_collective_t call{};
  call.struct_size = sizeof(call);
  call.op = op;
  call.dtype = static_cast<hal_dtype_t>(tensor.scalar_type());
  call.send = send.defined() ? send.const_data_ptr() : nullptr;
  call.recv = recv.defined() ? recv.mutable_data_ptr() : nullptr;
  call.count = static_cast<uint64_t>(count);
  return call;
}

// Submits the collectives. Those of a caller that waits at once run while no lock is held, because abort() may be
// called meanwhile.
WorkPtr DeviceBackend::submit(Submission &&submission, int device) {
  const bool waits = submission.waits;
  // A row of the call in torch's profiles, as torch's own backends make them: "torch_backend:all_reduce".
  std::optional<at::RecordFunction> row;
  if (C10_UNLIKELY(at::hasCallbacks())) {
    row.emplace(at::RecordScope::USER_SCOPE);
    if (row->isActive()) {
      row->_setAsync();
      row->before(getBackendName() + ":" + submission.name(getRank()));
    }
  }
  auto work = queue(std::move(submission), device);
  if (work && waits) program_.without_lock([&] { work->run(); });
  return work;
}

// Releases the tensors of works that have ended. A call looks at a few works, each in its turn, because many may be in
// flight. The caller holds the lock.
void DeviceBackend::release_stashes() {
  constexpr size_t kLooks = 4;
  for (auto left = std::min(kLooks, stashes_.size()); left > 0; left--) {
    if (stashes_.front()->is_free())
      stashes_.pop_front();
    else
      stashes_.splice(stashes_.end(), stashes_, stashes_.begin());
  }
}

// Submits the collectives under the lock. Returns nullptr for a part of a bracket.
c10::intrusive_ptr<DeviceWork> DeviceBackend::queue(Submission &&submission, int device) {
  const char *const stack = program_.stack ? program_.stack() : "";  // takes the interpreter's lock
  const std::lock_guard<std::mutex> guard(lock_);
  operations_++;
  if (bracket_) {
    bracket_device_ = device;
    bracket_->take(std::move(submission));
    return nullptr;
  }
  hal_comm_t *const comm = communicator_of(device);
  release_stashes();
  const auto timeout = timeout_of(submission);
  const bool is_pair = std::all_of(submission.calls.begin(), submission.calls.end(), [](const auto &call) {
    return call.op == HAL_COMM_SEND || call.op == HAL_COMM_RECV;
  });
  uint64_t &sequence = is_pair ? pair_sequence_ : sequence_;
  auto work = c10::make_intrusive<DeviceWork>(getRank(), submission.op, device, submission.outputs, submission.finish(),
                                              submission.blocks || route_.blocks, hooks_);
  const LogEntry entry(submission, log_group_, getRank(), is_pair, sequence + 1, operations_, stack);
  DeviceWork::submit(work, comm, submission.calls, timeout, std::move(submission.stash), sequence + 1, entry.get());
  sequence++;
  for (auto &extension : extensions_)
    if (!extension.has_first) extension.first = work, extension.has_first = true;
  stashes_.push_back(work->stash());
  return work;
}

// ---- time ----
// The caller holds the lock.
std::chrono::milliseconds DeviceBackend::timeout_of(const Submission &submission) {
  const auto has_ended = [](const Extension &extension) {
    if (!extension.has_first) return false;
    const auto first = extension.first.lock();
    return !first || first->isCompleted();
  };
  extensions_.erase(std::remove_if(extensions_.begin(), extensions_.end(), has_ended), extensions_.end());
  auto timeout = submission.timeout == c10d::kUnsetTimeout ? options_->timeout : submission.timeout;
  for (const auto &extension : extensions_) timeout += extension.timeout;
  return timeout;
}

void DeviceBackend::setTimeout(std::chrono::milliseconds timeout) {
  const std::lock_guard<std::mutex> guard(lock_);
  options_->timeout = timeout;
  if (host_) host_->setTimeout(timeout);
}

void DeviceBackend::addEphemeralTimeout(const std::chrono::milliseconds &timeout) {
  const std::lock_guard<std::mutex> guard(lock_);
  extensions_.push_back({timeout, false, c10::weak_intrusive_ptr<DeviceWork>(c10::intrusive_ptr<DeviceWork>())});
}

uint64_t DeviceBackend::getSequenceNumberForGroup() {
  const std::lock_guard<std::mutex> guard(lock_);
  return sequence_;
}

// ---- hooks ----
void DeviceBackend::registerAbortHook(int64_t id, AbortHook hook) { hooks_->add_abort(id, std::move(hook)); }
void DeviceBackend::unregisterAbortHook(int64_t id) { hooks_->remove_abort(id); }
void DeviceBackend::registerCompletionHook(int64_t id, CompletionHook hook) {
  hooks_->add_completion(id, std::move(hook));
}
void DeviceBackend::unregisterCompletionHook(int64_t id) { hooks_->remove_completion(id); }

void DeviceBackend::registerOnCompletionHook(std::function<void(std::shared_ptr<c10d::WorkInfo>)> &&hook) {
  hooks_->set_on_completion(std::move(hook));
  onCompletionHook_ = [](const std::shared_ptr<c10d::WorkInfo> &) {};  // hasHooks() reads it
}

// Waits for the queued collectives of the plugin's library, whose failures are known only when their stream has ended.
// Throws a failure that was not thrown before. torch calls this also before it destroys a group.
void DeviceBackend::waitForPendingWorks() {
  hooks_->wait_for_all();
  hal_comm_t *comm = nullptr;
  hal_event_t *end = nullptr;
  {
    const std::lock_guard<std::mutex> guard(lock_);
    comm = comm_;
    if (comm == nullptr || *hal_comm_library(comm) == '\0' || hooks_->is_failure_known()) return;
    check(hal_event_create(device_, 0, &end));
  }
  hal_status_t status = hal_event_record(end, hal_comm_stream(comm));
  std::string text;
  if (status == HAL_OK) program_.without_lock([&] { status = hal_event_synchronize(end); });
  if (status != HAL_OK) text = hal_error_message();
  hal_event_destroy(end);
  const std::lock_guard<std::mutex> guard(lock_);
  if (comm_ != nullptr && hal_comm_error(comm_) != HAL_OK) text = hal_error_message();  // the cause
  if (text.empty()) return;
  hooks_->failure_is_known();
  throw c10::DistBackendError({__func__, __FILE__, __LINE__}, text);
}

}  // namespace torch_backend
