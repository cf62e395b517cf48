// work.cpp: see work.h.
#include "distributed/work.h"

#include <ATen/ThreadLocalState.h>
#include <ATen/core/ivalue.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/GradMode.h>
#include <c10/core/StreamGuard.h>
#include <c10/util/Exception.h>

#include <atomic>
#include <exception>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "core/device.h"
#include "core/guard/host_waits.h"
#include "core/stream/stream.h"
#include "hal/hal.h"

namespace torch_backend {
namespace {

constexpr int64_t kNanoseconds = 1000000;  // in a millisecond

int64_t nanoseconds(std::chrono::milliseconds timeout) {
  return timeout.count() > INT64_MAX / kNanoseconds ? INT64_MAX : timeout.count() * kNanoseconds;
}

uint64_t next_key() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

// A thread of the program that waits for a work may run it (hal/comm.h). done() then runs with the thread-local modes
// of this thread, such as the grad mode, which are not those for the work's copies and callbacks.
thread_local bool is_waiting = false;

// The group of the work whose callbacks run on this thread.
thread_local const GroupHooks *in_callback = nullptr;

// Sets a variable of the thread until the end of a block.
template <typename T>
class Scoped {
 public:
  Scoped(T &place, T value) : place_(place), before_(std::exchange(place, value)) {}
  Scoped(const Scoped &) = delete;
  Scoped &operator=(const Scoped &) = delete;
  ~Scoped() { place_ = before_; }

 private:
  T &place_;
  const T before_;
};

// Returns the modes of a thread that has set none.
const at::ThreadLocalState &initial_modes() {
  static const auto *const modes = [] {
    const at::ThreadLocalState *made = nullptr;
    std::thread([&] { made = new at::ThreadLocalState; }).join();
    return made;
  }();
  return *modes;
}

}  // namespace

DeviceWork::DeviceWork(int rank, c10d::OpType op, int device, TensorList outputs, std::function<void()> finish,
                       bool blocks, std::shared_ptr<GroupHooks> hooks)
    : Work(rank, op),
      device_(device),
      blocks_(blocks),
      outputs_(std::move(outputs)),
      finish_(std::move(finish)),
      has_copies_(finish_ != nullptr),
      key_(next_key()),
      hooks_(std::move(hooks)) {}

void DeviceWork::submit(const c10::intrusive_ptr<DeviceWork> &work, hal_comm_t *comm,
                        const std::vector<hal_collective_t> &calls, std::chrono::milliseconds timeout, TensorList stash,
                        uint64_t sequence, const hal_comm_entry_t *entry) {
  work->results_ = hal_comm_stream(comm);
  work->sequence_ = sequence;
  work->is_recorded_ = hal_stream_is_recorded(current_stream(static_cast<c10::DeviceIndex>(work->device_))) != 0;
  work->timeout_ = timeout;
  work->has_library_ = *hal_comm_library(comm) != '\0';
  work->stash_->tensors = std::move(stash);
  // The HAL owns a reference to the work until `done`.
  auto *const held = c10::intrusive_ptr<DeviceWork>(work).release();
  work->hooks_->begin();
  const hal_status_t status = hal_comm_submit_logged(comm, nullptr, calls.data(), static_cast<uint32_t>(calls.size()),
                                                     nanoseconds(timeout), entry, done, held, &work->stash_->work);
  if (status == HAL_OK) return;
  const auto error = work->failure(status);
  c10::intrusive_ptr<DeviceWork>::reclaim(held);
  work->hooks_->end();
  work->hooks_->failure_is_known();
  std::rethrow_exception(error);
}

// ---- completion, on a thread of the HAL ----
void DeviceWork::done(void *self, hal_status_t status) {
  c10::intrusive_ptr<DeviceWork>::reclaim(static_cast<DeviceWork *>(self))->complete(status);
}

// Queues the copies to the tensors that the caller passed.
void DeviceWork::finish() {
  if (!finish_) return;
  const c10::AutoGradMode no_grad(false);
  finish_();
  finish_ = nullptr;
  if (is_recorded_) return;
  check(hal_event_create(device_, 0, &stash_->finished));
  check(hal_event_record(stash_->finished, results_));
}

// A future that is created later is completed by its creator.
void DeviceWork::end(std::exception_ptr error) {
  FuturePtr future, result;
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    exception_ = std::move(error);
    has_ended_ = true;
    finished_at_ = std::chrono::steady_clock::now();
    future = future_, result = result_;
  }
  ended_.notify_all();
  const std::exception_ptr failure = complete_futures(future, result);
  if (!failure) return;
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    if (exception_) return;
    exception_ = failure;
  }
  hooks_->aborting();
}

// No exception leaves the thread. Returns that of a callback, or that the device failed, which no future reports: a
// future that is complete cannot fail any more.
std::exception_ptr DeviceWork::complete_futures(const FuturePtr &future, const FuturePtr &result) const noexcept {
  const Scoped<const GroupHooks *> here(in_callback, hooks_.get());
  HostWaits waits;
  std::exception_ptr error;
  try {
    if (future) complete_future(future);
  } catch (...) {
    error = std::current_exception();
  }
  try {
    if (result) complete_result(result);
  } catch (...) {
    error = std::current_exception();
  }
  if (error || waits.status() == HAL_OK) return error;
  return failure(waits.status());
}

void DeviceWork::fail(const std::exception_ptr &error) {
  hooks_->aborting();
  end(error);
  hooks_->end();
}

// Returns whether the end of the work runs anything outside the HAL and this class.
bool DeviceWork::has_callbacks() {
  return !is_own_ || finish_ || hooks_->has_completion() || hooks_->has_on_completion();
}

void DeviceWork::complete(hal_status_t status) {
  std::optional<at::ThreadLocalStateGuard> modes;
  if (is_waiting && (status != HAL_OK || has_callbacks())) modes.emplace(initial_modes());
  if (status != HAL_OK) return fail(failure(status));
  std::optional<c10::StreamGuard> guard;
  if (!is_recorded_) guard.emplace(to_c10(results_));
  try {
    finish();
  } catch (...) {
    return fail(std::current_exception());
  }
  end(nullptr);
  if (exception_) return hooks_->end();
  report();
}

// ---- futures ----
// Callbacks run with the stream of the results as the current one, so that their work follows the results.
void DeviceWork::complete_future(const FuturePtr &future) const {
  if (exception_) return future->setError(exception_);
  std::optional<c10::StreamGuard> guard;
  if (!is_recorded_) guard.emplace(to_c10(results_));
  future->markCompleted(outputs_);
}

void DeviceWork::complete_result(const FuturePtr &result) const {
  if (exception_) return result->setError(exception_);
  result->markCompleted(c10::IValue(static_cast<int64_t>(c10d::WorkResult::SUCCESS)));
}

// A callback that waits for this future would never return, because later collectives of its group run on its thread.
void DeviceWork::run_in_callback() {
  if (in_callback != hooks_.get()) return;
  hooks_->without_lock([&] { await(false, 0); });  // complete() records the failure
}

FuturePtr DeviceWork::getFuture() {
  run_in_callback();
  std::unique_lock<std::mutex> guard(mutex_);
  if (future_) return future_;
  const std::vector<c10::Device> devices{c10::Device(kDevice, static_cast<c10::DeviceIndex>(device_))};
  future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::ofTensors(), devices);
  const FuturePtr made = future_;
  const bool has_ended = has_ended_;
  guard.unlock();
  if (has_ended) complete_future(made);
  return made;
}

FuturePtr DeviceWork::getFutureResult() {
  run_in_callback();
  std::unique_lock<std::mutex> guard(mutex_);
  if (result_) return result_;
  result_ = c10::make_intrusive<c10::ivalue::Future>(c10::AnyEnumType::get());
  const FuturePtr made = result_;
  const bool has_ended = has_ended_;
  guard.unlock();
  if (has_ended) complete_result(made);
  return made;
}

// ---- hooks ----
// A completion hook is short and takes no lock, so the thread of the stream may call it. The hook of ProcessGroup may
// be any Python function. It runs on a thread that may wait for the device. Several threads run the works, but their
// hooks run one at a time in the order of the works.
void DeviceWork::report() {
  if (!hooks_->has_on_completion()) return report_on_device();
  if (is_recorded_) return report_on_host();
  hooks_->run_later([self = c10::intrusive_ptr<DeviceWork>::reclaim_copy(this)] { self->report_on_host(); });
}

void DeviceWork::report_on_host() {
  if (hal_stream_synchronize(results_) == HAL_OK)
    hooks_->completed(std::make_shared<c10d::WorkInfo>(retrieveOpType(), sequence_, begun_, finished_at_,
                                                       std::chrono::duration<float>(getDuration() / 1000.0f)));
  else
    return report_failure();
  report_on_device();
}

// A work that has failed does not count as completed.
void DeviceWork::report_failure() {
  report_late_failure(true);
  hooks_->end();
}

void DeviceWork::report_on_device() {
  if (!hooks_->has_completion()) return hooks_->end();
  struct Ended {
    std::shared_ptr<GroupHooks> hooks;
    CompletionHookArgs arguments;
  };
  auto ended = std::make_unique<Ended>(Ended{hooks_, {}});
  ended->arguments.completionKey = key_, ended->arguments.duration_ms = getDuration();
  const auto call = [](void *data) {
    const std::unique_ptr<Ended> owned(static_cast<Ended *>(data));
    owned->hooks->completed(owned->arguments);
    owned->hooks->end();
  };
  if (hal_stream_host_call(results_, call, ended.get()) == HAL_OK)
    ended.release();
  else
    hooks_->end();
}

float DeviceWork::getDuration() const {
  const std::lock_guard<std::mutex> guard(mutex_);
  TORCH_CHECK(has_ended_ && !exception_, "the duration of a collective is known once it has ended without an error");
  return std::chrono::duration<float, std::milli>(finished_at_ - begun_).count();
}

// ---- waiting ----
hal_status_t DeviceWork::await(bool on_host, int64_t limit) {
  const Scoped<bool> waiting(is_waiting, true);
  return on_host ? hal_comm_work_synchronize(stash_->work, limit) : hal_comm_work_wait(stash_->work, nullptr, limit);
}

hal_status_t DeviceWork::await_stream(hal_stream_t *stream) const {
  const Scoped<bool> waiting(is_waiting, true);
  return hal_comm_work_wait_stream(stash_->work, stream);
}

void DeviceWork::run() {
  is_own_ = true;
  // If the host waits, no stream does, which would report a failure again.
  if (await(blocks_, 0) == HAL_OK) waited_on_ = current_stream(static_cast<c10::DeviceIndex>(device_));
}

// The plugin's library may fail after the collectives were queued, which torch considers their end.
void DeviceWork::report_late_failure(bool is_failure) {
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    if (!is_failure || !has_ended_ || exception_ || was_late_) return;
    was_late_ = true;
  }
  hooks_->aborting();
}

bool DeviceWork::wait(std::chrono::milliseconds timeout) {
  const bool on_host = blocks_ || timeout != kNoTimeout;
  const int64_t limit = timeout == kNoTimeout ? 0 : nanoseconds(timeout);
  hal_stream_t *const stream = current_stream(static_cast<c10::DeviceIndex>(device_));
  // Copies of results are queued when the work has ended.
  const bool ends_later = !on_host && !has_copies_;
  if (on_host || stream != waited_on_) {
    const hal_status_t status = ends_later ? await_stream(stream) : await(on_host, limit);
    if (status != HAL_OK) {
      const auto error = failure(status);
      if (status != HAL_NOT_READY) hooks_->failure_is_known();
      report_late_failure(status != HAL_NOT_READY || timeout == kNoTimeout);
      std::rethrow_exception(error);
    }
  }
  {
    std::unique_lock<std::mutex> guard(mutex_);
    ended_.wait(guard, [&] { return has_ended_ || ends_later; });
    if (exception_) std::rethrow_exception(exception_);
    if (!has_ended_) return true;  // the tensors stay: the host reads and writes them in no stream's order
  }
  if (stash_->finished != nullptr)
    check_work(on_host ? hal_event_synchronize(stash_->finished) : hal_stream_wait_event(stream, stash_->finished));
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
  // After wait() the tensors are not kept; on the device the library may still wait for other ranks.
  return has_library_ && !is_recorded_ ? stash_->is_done() : stash_->is_free();
}

bool DeviceWork::isSuccess() const {
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    if (!has_ended_) return false;
  }
  return !exception();
}

// The plugin's library may report a failure after the collectives were queued.
std::exception_ptr DeviceWork::exception() const {
  const std::lock_guard<std::mutex> guard(mutex_);
  if (exception_ || !has_ended_ || stash_->work == nullptr) return exception_;
  const hal_status_t status = hal_comm_work_query(stash_->work);
  return status == HAL_OK || status == HAL_NOT_READY ? nullptr : failure(status);
}

// ---- tensors that are kept until the end ----
Stash::~Stash() {
  hal_event_destroy(finished);
  hal_comm_work_release(work);
}

bool Stash::is_done() const {
  return hal_comm_work_query(work) != HAL_NOT_READY &&
         (finished == nullptr || hal_event_query(finished) != HAL_NOT_READY);
}

bool Stash::is_free() {
  const std::lock_guard<std::mutex> guard(lock);
  return tensors.empty() || is_done();
}

// Returns an exception of the type that users of torch catch, with the HAL's message.
std::exception_ptr DeviceWork::failure(hal_status_t status) const {
  const std::string text = hal_error_message();
  if (status == HAL_UNIMPLEMENTED)
    return std::make_exception_ptr(c10::NotImplementedError({__func__, __FILE__, __LINE__}, text));
  if (status == HAL_INVALID_ARGUMENT || status == HAL_OUT_OF_RANGE)
    return std::make_exception_ptr(c10::ValueError({__func__, __FILE__, __LINE__}, text));
  return std::make_exception_ptr(c10::DistBackendError({__func__, __FILE__, __LINE__}, text));
}

}  // namespace torch_backend
