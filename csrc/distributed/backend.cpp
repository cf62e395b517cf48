// backend.cpp: groups, their communicators, and what is submitted to them. collectives.cpp has the operators.
#include "distributed/backend.h"

#include <algorithm>
#include <utility>

#include "core/device.h"
#include "core/status.h"
#include "distributed/store.h"
#include "distributed/transport.h"
#include "hal/hal.h"

namespace torch_backend {

// ---- life ----
DeviceBackend::DeviceBackend(int rank, int size, c10::intrusive_ptr<DeviceOptions> options,
                             c10::intrusive_ptr<c10d::Store> store, Transport transport,
                             MakeHostBackend make_host_backend, WithoutLock without_lock)
    : Backend(rank, size),
      options_(std::move(options)),
      store_(std::move(store)),
      transport_(transport),
      make_host_backend_(std::move(make_host_backend)),
      without_lock_(std::move(without_lock)) {
  init();
}

constexpr int64_t kSecond = 1000000000;

DeviceBackend::~DeviceBackend() { shutdown(); }

// Threads of the communicator may need the interpreter's lock to end.
void DeviceBackend::shutdown() {
  hal_comm_t *comm = nullptr;
  {
    const std::lock_guard<std::mutex> guard(lock_);
    std::swap(comm, comm_);
    is_shut_down_ = true;
  }
  if (comm != nullptr) without_lock_([&] { hal_comm_destroy(comm, 10 * kSecond); });
  const std::lock_guard<std::mutex> guard(lock_);
  stashes_.clear();
}

void DeviceBackend::abort() {
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
  if (!host_) host_ = make_host_backend_("cpu");
  return *host_;
}

// ---- submitting ----
hal_comm_transport_t DeviceBackend::connect(const std::string &name) {
  hal_comm_transport_t transport{};
  if (transport_ != Transport::kHost && getSize() > 1) {
    const hal_comm_store_t table = store_table(*store_);
    const hal_status_t status = hal_comm_transport_shared_memory(
        &table, name.c_str(), getRank(), getSize(), std::chrono::nanoseconds(options_->timeout).count(), &transport);
    if (status == HAL_OK) return transport;
    if (status != HAL_UNIMPLEMENTED || transport_ == Transport::kSharedMemory) check(status);
  }
  return make_host_transport(make_host_backend_("collectives"));
}

// The lock is held.
hal_comm_t *DeviceBackend::communicator_of(int device) {
  TORCH_CHECK(!is_shut_down_, "the process group '", getGroupUid(), "' was shut down");
  TORCH_CHECK_VALUE(comm_ == nullptr || device == device_, "the process group '", getGroupUid(), "' uses ", kDevice,
                    ":", device_, ", but a tensor is on ", kDevice, ":", device,
                    "; set the device of the process before its first collective, or make another group");
  if (comm_ != nullptr) return comm_;
  hal_comm_config_t config{};
  config.struct_size = sizeof(config);
  config.device = device, config.rank = getRank(), config.size = getSize();
  config.timeout_ns = std::chrono::nanoseconds(options_->timeout).count();
  const std::string name = getGroupDesc().empty() ? getGroupUid() : getGroupDesc();
  config.name = name.c_str();
  config.transport = connect(name.empty() ? "group" : name);
  const hal_status_t status = hal_comm_create(&config, &comm_);
  if (status != HAL_OK) config.transport.destroy(config.transport.context);
  check(status);
  device_ = device;
  return comm_;
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

WorkPtr DeviceBackend::submit(Submission &&submission, int device) {
  const std::lock_guard<std::mutex> guard(lock_);
  if (bracket_) {
    bracket_device_ = device;
    bracket_->take(std::move(submission));
    return nullptr;
  }
  hal_comm_t *const comm = communicator_of(device);
  stashes_.remove_if([](const auto &stash) { return stash->is_free(); });
  const auto timeout = submission.timeout == c10d::kUnsetTimeout ? options_->timeout : submission.timeout;
  const bool is_pair = std::all_of(submission.calls.begin(), submission.calls.end(), [](const auto &call) {
    return call.op == HAL_COMM_SEND || call.op == HAL_COMM_RECV;
  });
  if (!is_pair) sequence_++;
  auto work = c10::make_intrusive<DeviceWork>(getRank(), submission.op, device, submission.outputs, submission.finish(),
                                              submission.blocks);
  DeviceWork::submit(work, comm, submission.calls, timeout, std::move(submission.stash), sequence_);
  stashes_.push_back(work->stash());
  return work;
}

void DeviceBackend::startCoalescing() {
  const std::lock_guard<std::mutex> guard(lock_);
  TORCH_CHECK(!bracket_, "startCoalescing: the bracket before was not ended");
  bracket_ = std::make_unique<Submission>(c10d::OpType::COALESCED);
}

WorkPtr DeviceBackend::endCoalescing() {
  std::unique_ptr<Submission> bracket;
  {
    const std::lock_guard<std::mutex> guard(lock_);
    TORCH_CHECK(bracket_, "endCoalescing: there is no bracket");
    bracket = std::move(bracket_);
  }
  if (bracket->calls.empty()) return nullptr;
  return submit(std::move(*bracket), bracket_device_);
}

}  // namespace torch_backend
