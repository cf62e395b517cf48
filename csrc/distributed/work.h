// work.h: collectives that were submitted, as torch waits for them.
#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "core/status.h"
#include "hal/comm.h"

namespace torch_backend {

using TensorList = std::vector<at::Tensor>;

// Tensors that a work uses. They live until its results are in device memory, or until a stream waits for these, whose later work may then
// use the memory again.
struct Stash {
  std::mutex lock;
  TensorList tensors;  // under `lock`
  hal_comm_work_t *work = nullptr;
  hal_event_t *finished =
      nullptr;  // after the copies to where the caller wants the results; written before the work has ended
  ~Stash();
  // Whether nothing uses the tensors any more.
  bool is_free();
};

// wait() makes the current stream wait; with a timeout, and for barriers, the host waits.
class DeviceWork final : public c10d::Work {
 public:
  // `finish` copies results to where the caller wants them, on the current stream; empty where they are there already.
  DeviceWork(int rank, c10d::OpType op, int device, TensorList outputs, std::function<void()> finish, bool blocks);

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  void synchronize() override { wait(); }
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void blockCurrentStream() override { wait(); }
  TensorList result() override { return outputs_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override { return result_; }
  uint64_t getSequencenumber() const override { return sequence_; }

  // Submits the collectives; `stash` are the tensors that they use.
  static void submit(const c10::intrusive_ptr<DeviceWork> &work, hal_comm_t *comm,
                     const std::vector<hal_collective_t> &calls, std::chrono::milliseconds timeout, TensorList stash,
                     uint64_t sequence);
  const std::shared_ptr<Stash> &stash() const { return stash_; }

 private:
  static void done(void *self, hal_status_t status);
  void complete(hal_status_t status);
  void finish();
  void end(std::exception_ptr error);
  std::exception_ptr failure(hal_status_t status) const;

  const int device_;
  const bool blocks_;
  TensorList outputs_;
  std::function<void()> finish_;
  std::shared_ptr<Stash> stash_ = std::make_shared<Stash>();
  c10::intrusive_ptr<c10::ivalue::Future> future_, result_;
  hal_comm_t *comm_ = nullptr;  // alive as long as there is work that has not ended
  uint64_t sequence_ = 0;
  // Set by complete(), on a thread of the HAL.
  std::condition_variable ended_;
  bool has_ended_ = false;  // under mutex_, as exception_
};

}  // namespace torch_backend
