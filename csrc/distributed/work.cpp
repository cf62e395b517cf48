// work.cpp: see work.h.
#include "distributed/work.h"

#include <ATen/core/ivalue.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/GradMode.h>
#include <c10/core/StreamGuard.h>
#include <c10/util/Exception.h>

#include <exception>
#include <string>
#include <utility>

#include "core/device.h"
#include "core/stream/stream.h"
#include "hal/hal.h"

namespace torch_backend {
namespace {

constexpr int64_t kNanoseconds = 1000000;  // of a millisecond

int64_t nanoseconds(std::chrono::milliseconds timeout) {
  return timeout.count() > INT64_MAX / kNanoseconds ? INT64_MAX : timeout.count() * kNanoseconds;
}

}  // namespace

DeviceWork::DeviceWork(int rank, c10d::OpType op, int device, TensorList outputs, std::function<void()> finish,
                       bool blocks)
    : Work(rank, op), device_(device), blocks_(blocks), outputs_(std::move(outputs)), finish_(std::move(finish)) {
  const std::vector<c10::Device> devices{c10::Device(kDevice, static_cast<c10::DeviceIndex>(device))};
  future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()), devices);
  result_ = c10::make_intrusive<c10::ivalue::Future>(c10::AnyEnumType::get());
}

void DeviceWork::submit(const c10::intrusive_ptr<DeviceWork> &work, hal_comm_t *comm,
                        const std::vector<hal_collective_t> &calls, std::chrono::milliseconds timeout, TensorList stash,
                        uint64_t sequence) {
  work->comm_ = comm;
  work->sequence_ = sequence;
  work->stash_->tensors = std::move(stash);
  // The HAL holds the work until `done`.
  auto *const held = c10::intrusive_ptr<DeviceWork>(work).release();
  const hal_status_t status = hal_comm_submit(comm, nullptr, calls.data(), static_cast<uint32_t>(calls.size()),
                                              nanoseconds(timeout), done, held, &work->stash_->work);
  if (status == HAL_OK) return;
  c10::intrusive_ptr<DeviceWork>::reclaim(held);
  std::rethrow_exception(work->failure(status));
}

// ---- completion, on a thread of the HAL ----
void DeviceWork::done(void *self, hal_status_t status) {
  c10::intrusive_ptr<DeviceWork>::reclaim(static_cast<DeviceWork *>(self))->complete(status);
}

// Queues the copies to where the caller wants the results.
void DeviceWork::finish() {
  if (!finish_) return;
  const c10::AutoGradMode no_grad(false);
  finish_();
  finish_ = nullptr;
  check(hal_event_create(device_, 0, &stash_->finished));
  check(hal_event_record(stash_->finished, hal_comm_stream(comm_)));
}

void DeviceWork::end(std::exception_ptr error) {
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    exception_ = std::move(error);
    has_ended_ = true;
  }
  ended_.notify_all();
}

// Callbacks of the futures run here, with the stream of the results as the current one: their work comes after the results.
void DeviceWork::complete(hal_status_t status) {
  if (status != HAL_OK) {
    const auto error = failure(status);
    end(error);
    future_->setError(error);
    return result_->setError(error);
  }
  const c10::StreamGuard guard(to_c10(hal_comm_stream(comm_)));
  try {
    finish();
  } catch (...) {
    const auto error = std::current_exception();
    end(error);
    future_->setError(error);
    return result_->setError(error);
  }
  end(nullptr);
  future_->markCompleted(outputs_);
  result_->markCompleted(c10::IValue(static_cast<int64_t>(c10d::WorkResult::SUCCESS)));
}

// ---- waiting ----
bool DeviceWork::wait(std::chrono::milliseconds timeout) {
  const bool on_host = blocks_ || timeout != kNoTimeout;
  const int64_t limit = timeout == kNoTimeout ? 0 : nanoseconds(timeout);
  hal_status_t status =
      on_host ? hal_comm_work_synchronize(stash_->work, limit) : hal_comm_work_wait(stash_->work, nullptr, limit);
  if (status != HAL_OK) std::rethrow_exception(failure(status));
  {
    std::unique_lock<std::mutex> guard(mutex_);
    ended_.wait(guard, [&] { return has_ended_; });
    if (exception_) std::rethrow_exception(exception_);
  }
  if (stash_->finished != nullptr)
    check_work(on_host
                   ? hal_event_synchronize(stash_->finished)
                   : hal_stream_wait_event(current_stream(static_cast<c10::DeviceIndex>(device_)), stash_->finished));
  const std::lock_guard<std::mutex> guard(stash_->lock);
  stash_->tensors.clear();
  return true;
}

bool DeviceWork::isCompleted() {
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    if (!has_ended_) return false;
    if (exception_) return true;
  }
  return stash_->is_free();
}

bool DeviceWork::isSuccess() const {
  const std::lock_guard<std::mutex> guard(mutex_);
  return has_ended_ && !exception_;
}

std::exception_ptr DeviceWork::exception() const {
  const std::lock_guard<std::mutex> guard(mutex_);
  return exception_;
}

// ---- what keeps the tensors ----
Stash::~Stash() {
  hal_event_destroy(finished);
  hal_comm_work_release(work);
}

bool Stash::is_free() {
  const std::lock_guard<std::mutex> guard(lock);
  if (tensors.empty()) return true;
  return hal_comm_work_query(work) != HAL_NOT_READY &&
         (finished == nullptr || hal_event_query(finished) != HAL_NOT_READY);
}

// Returns the exception that torch's users catch, with the HAL's message.
std::exception_ptr DeviceWork::failure(hal_status_t status) const {
  const std::string text = hal_error_message();
  if (status == HAL_UNIMPLEMENTED)
    return std::make_exception_ptr(c10::NotImplementedError({__func__, __FILE__, __LINE__}, text));
  if (status == HAL_INVALID_ARGUMENT || status == HAL_OUT_OF_RANGE)
    return std::make_exception_ptr(c10::ValueError({__func__, __FILE__, __LINE__}, text));
  return std::make_exception_ptr(c10::DistBackendError({__func__, __FILE__, __LINE__}, text));
}

}  // namespace torch_backend
