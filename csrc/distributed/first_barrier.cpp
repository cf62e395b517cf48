// first_barrier.cpp: barriers of a group without a device yet. They do not choose it: programs also set it after
// their first barrier. The transport between the ranks runs them. A communicator takes it over at the first collective.
#include <ATen/core/ivalue.h>

#include <chrono>
#include <string>
#include <utility>

#include "core/device.h"
#include "core/status.h"
#include "distributed/backend.h"
#include "hal/hal.h"

namespace torch_backend {

WorkPtr ended_work(const TensorList &results, const std::vector<c10::Device> &devices) {
  auto future = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::ofTensors(), devices);
  future->markCompleted(results);
  return c10d::Work::create_from_future(future);
}

// The lock is held.
hal_comm_transport_t DeviceBackend::take_transport() {
  // Not the group's name, which may differ between ranks: the store is the group's own.
  return connected_.run != nullptr ? std::exchange(connected_, {}) : connect("group");
}

bool DeviceBackend::has_no_device() {
  const std::lock_guard<std::mutex> guard(lock_);
  return comm_ == nullptr && getSize() > 1;
}

WorkPtr DeviceBackend::first_barrier(const c10d::BarrierOptions &options) {
  hal_stream_t *stream = nullptr;
  check(hal_stream_current(hal_device_current(), &stream));
  check_work(hal_stream_synchronize(stream));
  const std::lock_guard<std::mutex> guard(lock_);  // abort() does not take it while is_in_first_barrier_
  TORCH_CHECK(!is_shut_down_, "the process group '", getGroupUid(), "' was shut down");
  if (connected_.run == nullptr) connected_ = connect("group");
  hal_collective_t call{};
  call.struct_size = sizeof(call), call.op = HAL_COMM_BARRIER;
  const auto timeout = options.timeout == c10d::kUnsetTimeout ? options_->timeout : options.timeout;
  hal_status_t status = HAL_OK;
  std::string text;
  is_in_first_barrier_ = true;
  program_.without_lock([&] {
    status = connected_.run(connected_.context, &call, 1, std::chrono::nanoseconds(timeout).count());
    if (status != HAL_OK) text = hal_error_message();
  });
  is_in_first_barrier_ = false;
  if (status == HAL_INVALID_ARGUMENT) C10_THROW_ERROR(ValueError, text);
  if (status != HAL_OK) {
    hooks_->failure_is_known();
    C10_THROW_ERROR(DistBackendError, "barrier of group '" + getGroupUid() + "': " + text);
  }
  sequence_++, operations_++;
  return ended_work({}, {});
}

}  // namespace torch_backend
