// work.h: collectives that were submitted, in the interface of torch (c10d::Work).
#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "core/status.h"
#include "distributed/hooks.h"
#include "hal/comm.h"

namespace torch_backend {

using TensorList = std::vector<at::Tensor>;
using FuturePtr = c10::intrusive_ptr<c10::ivalue::Future>;

// Tensors that a work uses. They are kept until the results are in device memory, or until a stream waits for the
// results; later work of that stream may then reuse the memory.
struct Stash {
  std::mutex lock;
  TensorList tensors;  // protected by `lock`
  hal_comm_work_t *work = nullptr;
  hal_event_t *finished =
      nullptr;  // recorded after the copies to the caller's tensors; written before the work has ended
  ~Stash();
  // Returns whether the results are in the caller's tensors, or have failed.
  bool is_done() const;
  // Returns whether nothing uses the tensors any more.
  bool is_free();
};

// A work of torch. wait() makes the current stream wait; with a timeout, and for barriers, the host waits. The host
// also waits for the other ranks if the plugin has no semaphores of its own, unless its library runs the collectives.
class DeviceWork final : public c10d::Work {
 public:
  // `finish` copies results to the caller's tensors on the current stream; empty if no copy is needed.
  DeviceWork(int rank, c10d::OpType op, int device, TensorList outputs, std::function<void()> finish, bool blocks,
             std::shared_ptr<GroupHooks> hooks);

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  void synchronize() override { wait(); }
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void blockCurrentStream() override { wait(); }
  TensorList result() override { return outputs_; }
  // The futures are created at the first of these calls, because most works need none.
  FuturePtr getFuture() override;
  FuturePtr getFutureResult() override;
  uint64_t getSequencenumber() const override { return sequence_; }
  // Returns the milliseconds on the host from the call to the results. Throws RuntimeError before the work has ended.
  float getDuration() const override;
  std::chrono::milliseconds getTimeout() const TORCH_BACKEND_OVERRIDE_SINCE_214 { return timeout_; }
  // Returns a number that is unique in the process.
  uint64_t getCompletionKey() const TORCH_BACKEND_OVERRIDE_SINCE_215 { return key_; }

  // Submits the collectives; `stash` has the tensors that they use.
  static void submit(const c10::intrusive_ptr<DeviceWork> &work, hal_comm_t *comm,
                     const std::vector<hal_collective_t> &calls, std::chrono::milliseconds timeout, TensorList stash,
                     uint64_t sequence, const hal_comm_entry_t *entry);
  // Runs collectives that were submitted for a caller that waits at once. wait() throws their failure.
  void run();
  const std::shared_ptr<Stash> &stash() const { return stash_; }

 private:
  static void done(void *self, hal_status_t status);
  // Waits for the collectives, on the host or by the current stream.
  hal_status_t await(bool on_host, int64_t limit);
  // Makes the stream wait for them, where it can before they have ended.
  hal_status_t await_stream(hal_stream_t *stream) const;
  bool has_callbacks();
  void run_in_callback();
  void complete(hal_status_t status);
  void finish();
  void end(std::exception_ptr error);
  std::exception_ptr complete_futures(const FuturePtr &future, const FuturePtr &result) const noexcept;
  // Completes a future of a work that has ended.
  void complete_future(const FuturePtr &future) const;
  void complete_result(const FuturePtr &result) const;
  void fail(const std::exception_ptr &error);
  // Calls the group's hooks once the results are in device memory.
  void report();
  void report_on_host();
  void report_on_device();
  void report_failure();
  void report_late_failure(bool is_failure);
  std::exception_ptr failure(hal_status_t status) const;

  const int device_;
  const bool blocks_;
  TensorList outputs_;
  std::function<void()> finish_;
  const bool has_copies_;  // finish_ was given
  std::shared_ptr<Stash> stash_ = std::make_shared<Stash>();
  FuturePtr future_, result_;        // under mutex_; nullptr: not requested
  hal_stream_t *results_ = nullptr;  // the stream of the results
  uint64_t sequence_ = 0;
  bool is_recorded_ =
      false;             // in a graph: done() runs in submit(), and the results are in the order of the current stream
  bool is_own_ = false;  // run() was called: the caller gets the work, and can request futures, only after its end
  hal_stream_t *waited_on_ =
      nullptr;  // the stream that waits for the results since run(); written before the caller gets the work
  std::chrono::milliseconds timeout_{0};
  const uint64_t key_;
  bool has_library_ = false;  // the plugin's library may run the collectives
  const std::shared_ptr<GroupHooks> hooks_;
  const std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point finished_at_;  // protected by mutex_
  // Set by complete(), on a thread of the HAL.
  std::condition_variable ended_;
  bool has_ended_ = false;  // protected by mutex_, as exception_ and the member below
  bool was_late_ = false;   // a failure after the end was passed to the hooks
};

}  // namespace torch_backend
