// backend.h: torch.distributed's backend for the device (c10d::Backend). It translates torch's calls into collectives
// of the HAL (hal/comm.h), which implements the algorithms, the order, the timeouts and the failures.
#pragma once

#include <unistd.h>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <atomic>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "distributed/hooks.h"
#include "distributed/submission.h"

namespace torch_backend {

using WorkPtr = c10::intrusive_ptr<c10d::Work>;

// Returns a work that has ended, with the tensors as its results.
WorkPtr ended_work(const TensorList &results, const std::vector<c10::Device> &devices);

class DeviceBackend final : public c10d::Backend {
 public:
  using BackendPtr = c10::intrusive_ptr<c10d::Backend>;
  // The ranks of a group and the store with their addresses.
  struct Members {
    int rank, size;
    c10::intrusive_ptr<c10d::Store> store;
  };
  // Creates a backend for CPU tensors with the group's ranks. `use` separates groups of the same ranks: all ranks
  // create the same groups in the same order.
  using MakeHostBackend =
      std::function<BackendPtr(const std::string &use, const Members &members, std::chrono::milliseconds timeout)>;

  using WithoutLock = GroupHooks::WithoutLock;

  // Functions that a backend needs from the language of the program, such as Python.
  struct Program {
    MakeHostBackend make_host_backend;
    WithoutLock without_lock;
    // Returns the stack of the calling thread in the format of the log of collectives (hal/comm.h), valid until the
    // thread's next call. An empty function: stacks are not recorded.
    std::function<const char *()> stack;
  };

  struct DeviceOptions final : Options {
    DeviceOptions(const std::string &name, std::chrono::milliseconds timeout) : Options(name, timeout) {}
    c10::intrusive_ptr<Options> clone() const TORCH_BACKEND_OVERRIDE_SINCE_214 {
      return c10::make_intrusive<DeviceOptions>(*this);
    }
  };

  // The transport for the memory of a device. kAuto uses the collectives library of the plugin if all ranks can use it,
  // together with one of the others. These are shared memory if all ranks are on one host, shared memory and Gloo if
  // some ranks share a host, otherwise Gloo. Each of the other values requires its transport.
  enum class Transport { kAuto, kPlugin, kSharedMemory, kHierarchical, kHost };

  // `compares_calls`: the ranks' calls are compared before the plugin's library runs them. The other transports always
  // compare them.
  struct Route {
    Transport transport;
    bool compares_calls;
    bool registers_memory;  // registers it with the plugin's library
    bool blocks;            // wait() waits on the host
  };

  // Operators on CPU tensors are run by the backend that `make_host_backend` creates for the use "cpu". Both backends
  // are created at their first use.
  DeviceBackend(const Members &members, c10::intrusive_ptr<DeviceOptions> options, Route route, Program program);
  ~DeviceBackend() override;

  const std::string getBackendName() const override { return options_->backend; }
  c10::intrusive_ptr<Options> getBackendOptions() override { return options_; }
  bool supportsCoalescing() const override { return true; }
  bool supportsSplitting() const override { return true; }
  bool supportsShrinking() const override { return true; }
  bool supportsAbortHooks() const TORCH_BACKEND_OVERRIDE_SINCE_215 { return true; }
  bool supportsCompletionHooks() const TORCH_BACKEND_OVERRIDE_SINCE_215 { return true; }

  WorkPtr broadcast(TensorList &tensors, const c10d::BroadcastOptions &options) override;
  WorkPtr allreduce(TensorList &tensors, const c10d::AllreduceOptions &options) override;
  WorkPtr allreduce_coalesced(TensorList &tensors, const c10d::AllreduceCoalescedOptions &options) override;
  WorkPtr reduce(TensorList &tensors, const c10d::ReduceOptions &options) override;
  WorkPtr allgather(std::vector<TensorList> &outputs, TensorList &inputs,
                    const c10d::AllgatherOptions &options) override;
  WorkPtr _allgather_base(at::Tensor &output, at::Tensor &input, const c10d::AllgatherOptions &options) override;
  WorkPtr allgather_into_tensor_coalesced(TensorList &outputs, TensorList &inputs,
                                          const c10d::AllgatherOptions &options) override;
  WorkPtr allgather_coalesced(std::vector<TensorList> &outputs, TensorList &inputs,
                              const c10d::AllgatherOptions &options) override;
  WorkPtr gather_into_tensor(at::Tensor &output, at::Tensor &input,
                             const c10d::GatherOptions &options) TORCH_BACKEND_OVERRIDE_SINCE_214;
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

  // ---- brackets.cpp ----
  void startCoalescing() override;
  WorkPtr endCoalescing() override;
  // Ends a bracket, if one is open, without running its calls of device tensors.
  void discard_bracket();

  // Returns the number of collectives of device tensors so far. A bracket counts as one; send and recv have a number of
  // their own.
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override;
  void setTimeout(std::chrono::milliseconds timeout) override;
  void addEphemeralTimeout(const std::chrono::milliseconds &timeout) TORCH_BACKEND_OVERRIDE_SINCE_214;
  void abort() override;
  void shutdown() override;
  c10d::ErrorType getError() override;

  void registerAbortHook(int64_t id, AbortHook hook) TORCH_BACKEND_OVERRIDE_SINCE_214;
  void unregisterAbortHook(int64_t id) TORCH_BACKEND_OVERRIDE_SINCE_214;
  void registerCompletionHook(int64_t id, CompletionHook hook) TORCH_BACKEND_OVERRIDE_SINCE_215;
  void unregisterCompletionHook(int64_t id) TORCH_BACKEND_OVERRIDE_SINCE_215;
  void registerOnCompletionHook(std::function<void(std::shared_ptr<c10d::WorkInfo>)> &&hook) override;
  void waitForPendingWorks() override;
  void enableCollectivesTiming() override {}  // every work has its times

  // ---- groups.cpp ----
  // Returns a group of `ranks`, or nullptr on the other ranks. All ranks of this group call it in the same order.
  BackendPtr split(const c10::intrusive_ptr<c10d::Store> &store, const std::vector<int> &ranks,
                   const c10::intrusive_ptr<Options> &options) override;
  // Returns a group of the ranks that are not excluded, all of which call it. If `flags` & 1, this group is aborted
  // first.
  BackendPtr shrink(const std::vector<int64_t> &excluded, int flags,
                    const c10::intrusive_ptr<Options> &options) override;
  void eagerConnectSingleDevice(at::Device device) override;
  // torch calls this on ranks that are not in a new group. No rank waits for them.
  void perform_nocolor_split(at::Device) {}
  uint64_t comm_split_count() const { return splits_; }

  // ---- refused.cpp: these throw NotImplementedError, with the alternative ----
  WorkPtr allreduce_sparse(TensorList &tensors, const c10d::AllreduceOptions &options) override;
  BackendPtr merge(const c10::intrusive_ptr<c10d::Store> &store, const c10::intrusive_ptr<Options> &options,
                   const int &rank, const int &size) override;
  std::shared_ptr<c10::Allocator> getMemAllocator() override;
  at::Tensor allocateTensor(long size, at::TensorOptions options) override;
  void suspend() override;
  void resume() override;
  std::unordered_map<std::string, uint64_t> getMemoryStats() override;
  void startTimeEstimate() TORCH_BACKEND_OVERRIDE_SINCE_215;
  float endTimeEstimate() TORCH_BACKEND_OVERRIDE_SINCE_215;
#ifdef C10D_BACKEND_HAS_RECONFIGURE
  c10d::ReconfigureHandle get_reconfigure_handle() const override;
  WorkPtr reconfigure(const c10d::ReconfigureOptions &options) override;
#endif
#ifdef C10D_BACKEND_HAS_WINDOW
  c10::intrusive_ptr<c10d::Window> new_window(const std::optional<at::Tensor> &tensor) override;
#endif

 private:
  c10d::Backend &host();
  Members members() const { return {getRank(), getSize(), store_}; }
  // Connects the ranks of a communicator by the plugin's library.
  using ConnectLibrary = std::function<hal_status_t(hal_comm_t *comm)>;
  hal_comm_transport_t connect(const std::string &name);
  hal_comm_transport_t take_transport();
  bool has_no_device();
  WorkPtr first_barrier(const c10d::BarrierOptions &options);
  hal_status_t connect_library(hal_comm_t *comm, const std::string &name, const ConnectLibrary &connect);
  hal_comm_t *make_communicator(int device, const ConnectLibrary &connect);
  void check_local_rank(int device);
  // Creates the communicator of a group that is derived from another group.
  void begin(int device, const ConnectLibrary &connect);
  void shrink_library(DeviceBackend &made, const std::vector<int> &left, bool aborts);
  // Returns a number for each split that torch requests, and whether it is new.
  std::pair<uint64_t, bool> number_of_split(const c10::intrusive_ptr<c10d::Store> &store);
  c10::intrusive_ptr<DeviceBackend> child(const c10::intrusive_ptr<c10d::Store> &store, const std::vector<int> &ranks,
                                          const c10::intrusive_ptr<Options> &options) const;
  uint32_t library_flags() const {
    return (route_.compares_calls ? HAL_COMM_COMPARE_CALLS : 0) |
           (route_.registers_memory ? HAL_COMM_REGISTER_MEMORY : 0);
  }
  std::chrono::milliseconds timeout_of(const Submission &submission);
  // Returns a work of CPU tensors. If a bracket is open, its end waits for this work, too.
  WorkPtr on_host(WorkPtr work);
  void describe_group();
  void release_stashes();
  hal_comm_t *communicator_of(int device);
  WorkPtr submit(Submission &&submission, int device);
  c10::intrusive_ptr<DeviceWork> queue(Submission &&submission, int device);
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
  const Route route_;
  const Program program_;
  std::mutex lock_;                   // protects the members below
  BackendPtr host_;                   // of CPU tensors
  const pid_t process_ = getpid();    // that created the group
  hal_comm_t *comm_ = nullptr;        // created at the first collective
  int device_ = -1;                   // of comm_
  hal_comm_transport_t connected_{};  // for comm_, before it is created; zeroed: none
  std::atomic<bool> is_in_first_barrier_{false};
  std::list<std::shared_ptr<Stash>> stashes_;
  std::unique_ptr<Submission> bracket_;  // between startCoalescing and endCoalescing
  int bracket_device_ = -1;
  std::vector<WorkPtr> bracket_works_;  // of CPU tensors
  bool is_shut_down_ = false;
  uint64_t sequence_ = 0, pair_sequence_ = 0;  // of collectives; of send and recv
  uint64_t operations_ = 0;                    // calls of both kinds, also those inside a bracket
  uint32_t log_group_ = 0;                     // of comm_
  bool is_described_ = false;                  // log_group_ is known; torch names a group after its creation
  std::string route_text_;                     // how the ranks were connected, for the log
  // Added to the timeouts of works until the first work after the call has ended.
  struct Extension {
    std::chrono::milliseconds timeout;
    bool has_first;
    c10::weak_intrusive_ptr<DeviceWork> first;
  };
  std::vector<Extension> extensions_;
  std::atomic<uint64_t> splits_{0}, shrinks_{0};
  c10::intrusive_ptr<c10d::Store> split_store_;  // of the last split
  const std::shared_ptr<GroupHooks> hooks_ = std::make_shared<GroupHooks>(program_.without_lock);
};

}  // namespace torch_backend
