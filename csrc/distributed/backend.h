// backend.h: torch.distributed's backend for the device (c10d::Backend). It translates torch's calls into collectives of the HAL
// (hal/comm.h), which has the algorithms, the order, the timeouts and the failures.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "distributed/submission.h"

namespace torch_backend {

using WorkPtr = c10::intrusive_ptr<c10d::Work>;

class DeviceBackend final : public c10d::Backend {
 public:
  using BackendPtr = c10::intrusive_ptr<c10d::Backend>;
  // Makes a backend for CPU tensors with the group's ranks; `use` keeps groups of one rank apart: all ranks make the same ones in the same order.
  using MakeHostBackend = std::function<BackendPtr(const std::string &use)>;

  // Runs a function while the calling thread does not hold the interpreter's lock.
  using WithoutLock = std::function<void(const std::function<void()> &run)>;

  struct DeviceOptions final : Options {
    DeviceOptions(const std::string &name, std::chrono::milliseconds timeout) : Options(name, timeout) {}
  };

  // What moves the memory of a device: shared memory where all ranks are on one host, and Gloo elsewhere; or what is named.
  enum class Transport { kAuto, kSharedMemory, kHost };

  // Operators on CPU tensors go to the backend that `make_host_backend` makes for the use "cpu". Both backends are made at their first use.
  DeviceBackend(int rank, int size, c10::intrusive_ptr<DeviceOptions> options, c10::intrusive_ptr<c10d::Store> store,
                Transport transport, MakeHostBackend make_host_backend, WithoutLock without_lock);
  ~DeviceBackend() override;

  const std::string getBackendName() const override { return options_->backend; }
  c10::intrusive_ptr<Options> getBackendOptions() override { return options_; }
  bool supportsCoalescing() const override { return true; }

  WorkPtr broadcast(TensorList &tensors, const c10d::BroadcastOptions &options) override;
  WorkPtr allreduce(TensorList &tensors, const c10d::AllreduceOptions &options) override;
  WorkPtr allreduce_coalesced(TensorList &tensors, const c10d::AllreduceCoalescedOptions &options) override;
  WorkPtr reduce(TensorList &tensors, const c10d::ReduceOptions &options) override;
  WorkPtr allgather(std::vector<TensorList> &outputs, TensorList &inputs,
                    const c10d::AllgatherOptions &options) override;
  WorkPtr _allgather_base(at::Tensor &output, at::Tensor &input, const c10d::AllgatherOptions &options) override;
  WorkPtr allgather_into_tensor_coalesced(TensorList &outputs, TensorList &inputs,
                                          const c10d::AllgatherOptions &options) override;
  WorkPtr gather(std::vector<TensorList> &outputs, TensorList &inputs, const c10d::GatherOptions &options) override;
  WorkPtr scatter(TensorList &outputs, std::vector<TensorList> &inputs, const c10d::ScatterOptions &options) override;
  WorkPtr reduce_scatter(TensorList &outputs, std::vector<TensorList> &inputs,
                         const c10d::ReduceScatterOptions &options) override;
  WorkPtr _reduce_scatter_base(at::Tensor &output, at::Tensor &input,
                               const c10d::ReduceScatterOptions &options) override;
  WorkPtr reduce_scatter_tensor_coalesced(TensorList &outputs, TensorList &inputs,
                                          const c10d::ReduceScatterOptions &options) override;
  WorkPtr alltoall_base(at::Tensor &output, at::Tensor &input, std::vector<int64_t> &output_splits,
                        std::vector<int64_t> &input_splits, const c10d::AllToAllOptions &options) override;
  WorkPtr alltoall(TensorList &outputs, TensorList &inputs, const c10d::AllToAllOptions &options) override;
  WorkPtr send(TensorList &tensors, int destination, int tag) override;
  WorkPtr recv(TensorList &tensors, int source, int tag) override;
  WorkPtr recvAnysource(TensorList &tensors, int tag) override;
  WorkPtr barrier(const c10d::BarrierOptions &options) override;
  void monitoredBarrier(const c10d::BarrierOptions &options, bool wait_for_all) override;

  void startCoalescing() override;
  WorkPtr endCoalescing() override;

  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return sequence_; }
  void setTimeout(std::chrono::milliseconds timeout) override { options_->timeout = timeout; }
  void abort() override;
  void shutdown() override;
  c10d::ErrorType getError() override;

 private:
  c10d::Backend &host();
  hal_comm_transport_t connect(const std::string &name);
  hal_comm_t *communicator_of(int device);
  WorkPtr submit(Submission &&submission, int device);
  WorkPtr reduce_all(const TensorList &tensors, const c10d::AllreduceOptions &options, c10d::OpType op);
  WorkPtr gather_all(const TensorList &outputs, const TensorList &inputs, const c10d::AllgatherOptions &options,
                     c10d::OpType op);
  WorkPtr reduce_and_scatter(const TensorList &outputs, const TensorList &inputs,
                             const c10d::ReduceScatterOptions &options, c10d::OpType op);
  static void set_exchange(Submission &work, hal_collective_t &call, const std::vector<int64_t> &sent,
                           const std::vector<int64_t> &received);
  hal_collective_t collective(uint32_t op, const at::Tensor &send, const at::Tensor &recv, int64_t count) const;

  c10::intrusive_ptr<DeviceOptions> options_;
  c10::intrusive_ptr<c10d::Store> store_;
  const Transport transport_;
  MakeHostBackend make_host_backend_;
  WithoutLock without_lock_;
  std::mutex lock_;             // of what follows
  BackendPtr host_;             // of CPU tensors
  hal_comm_t *comm_ = nullptr;  // made at the first collective
  int device_ = -1;             // of comm_
  std::list<std::shared_ptr<Stash>> stashes_;
  std::unique_ptr<Submission> bracket_;  // between startCoalescing and endCoalescing
  int bracket_device_ = -1;
  bool is_shut_down_ = false;
  uint64_t sequence_ = 0;  // of collectives
};

}  // namespace torch_backend
