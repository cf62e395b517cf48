// backend.cpp: see backend.h.
#include "distributed/backend.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <c10/util/irange.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <numeric>
#include <utility>

#include "core/device.h"
#include "core/status.h"
#include "distributed/transport.h"
#include "hal/hal.h"

namespace torch_backend {

using c10d::OpType;

// ---- one call of torch ----
// The collectives of one call, or of a bracket of calls, and what they use.
struct DeviceBackend::Submission {
  OpType op = OpType::UNKNOWN;
  std::vector<hal_collective_t> calls;
  TensorList stash, outputs;
  std::chrono::milliseconds timeout = c10d::kUnsetTimeout;
  bool blocks = false;
  std::vector<std::shared_ptr<std::vector<uint64_t>>> arrays;
  std::vector<std::shared_ptr<double>> scales;
  std::vector<std::function<void()>> copies;

  Submission() = default;
  explicit Submission(OpType op, std::chrono::milliseconds timeout = c10d::kUnsetTimeout) : op(op), timeout(timeout) {}

  // A tensor whose elements are read in the order of its sizes.
  at::Tensor operand(const at::Tensor &tensor) {
    stash.push_back(tensor.resolve_conj().resolve_neg().contiguous());
    return stash.back();
  }

  // Memory for a result with the sizes of `tensor`: its own, or some that is copied there.
  at::Tensor result(const at::Tensor &tensor) {
    outputs.push_back(tensor);
    stash.push_back(tensor);
    if (tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg()) return tensor;
    const at::Tensor memory = at::empty(tensor.sizes(), tensor.options().memory_format(c10::MemoryFormat::Contiguous));
    copy_to(tensor, memory);
    return memory;
  }

  // A tensor that is read and written element by element, in the order of its memory where it has no gaps.
  at::Tensor in_place(const at::Tensor &tensor) {
    if (tensor.is_non_overlapping_and_dense() && !tensor.is_conj() && !tensor.is_neg()) {
      outputs.push_back(tensor);
      stash.push_back(tensor);
      return tensor;
    }
    const at::Tensor memory = operand(tensor);
    outputs.push_back(tensor);
    copy_to(tensor, memory);
    return memory;
  }

  // One block of memory for the elements of several results.
  at::Tensor results(const TensorList &tensors) {
    int64_t count = 0;
    for (const auto &tensor : tensors) count += tensor.numel();
    const at::Tensor memory = at::empty({count}, tensors[0].options());
    int64_t start = 0;
    for (const auto &tensor : tensors) {
      outputs.push_back(tensor);
      copy_to(tensor, memory.narrow(0, start, tensor.numel()).view(tensor.sizes()));
      start += tensor.numel();
    }
    return memory;
  }

  // The elements of several operands in one block.
  at::Tensor operands(const TensorList &tensors) {
    TensorList flat;
    for (const auto &tensor : tensors) flat.push_back(tensor.reshape({-1}));
    return operand(at::cat(flat));
  }

  void copy_to(const at::Tensor &tensor, const at::Tensor &memory) {
    stash.push_back(memory);
    copies.emplace_back([tensor, memory] { tensor.copy_(memory); });
  }

  // Sets arrays of counts and displacements; none where all counts are `even`.
  void set_blocks(const uint64_t *&counts, const uint64_t *&displs, const std::vector<int64_t> &sizes, int64_t even) {
    if (std::all_of(sizes.begin(), sizes.end(), [&](int64_t size) { return size == even; })) return;
    auto array = std::make_shared<std::vector<uint64_t>>(sizes.begin(), sizes.end());
    uint64_t start = 0;
    for (const int64_t size : sizes) {
      array->push_back(start);
      start += static_cast<uint64_t>(size);
    }
    counts = array->data(), displs = array->data() + sizes.size();
    arrays.push_back(std::move(array));
  }

  void set_reduction(hal_collective_t &call, const c10d::ReduceOp &op);

  // Appends what another call brought.
  void take(Submission &&other) {
    const auto move_to = [](auto &to, auto &from) { to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end())); };
    move_to(calls, other.calls), move_to(stash, other.stash), move_to(outputs, other.outputs);
    move_to(arrays, other.arrays), move_to(scales, other.scales), move_to(copies, other.copies);
    timeout = std::max(timeout, other.timeout);
  }

  std::function<void()> finish() {
    if (copies.empty()) return {};
    return [copies = std::move(copies)] {
      for (const auto &copy : copies) copy();
    };
  }
};

namespace {

// ---- checks ----
const at::Tensor &only(const TensorList &tensors, const char *what) {
  TORCH_CHECK_VALUE(tensors.size() == 1, what, ": expected one tensor, as each process has one device in a group; got ", tensors.size());
  return tensors[0];
}

const TensorList &only(const std::vector<TensorList> &lists, const char *what) {
  TORCH_CHECK_VALUE(lists.size() == 1, what, ": expected one list of tensors; got ", lists.size());
  return lists[0];
}

bool is_on_host(const at::Tensor &tensor) { return tensor.device().is_cpu(); }

void check_dense(const at::Tensor &tensor, const char *what) {
  TORCH_CHECK(tensor.layout() == c10::kStrided, what, ": tensors of layout ", tensor.layout(), " are not supported; use to_dense()");
}

void check_same_type(const at::Tensor &a, const at::Tensor &b, const char *what) {
  TORCH_CHECK_TYPE(a.scalar_type() == b.scalar_type(), what, ": the input is ", a.scalar_type(), ", the output ", b.scalar_type());
}

void check_list(const TensorList &tensors, int size, const at::Tensor &other, const char *what) {
  TORCH_CHECK_VALUE(tensors.size() == static_cast<size_t>(size), what, ": expected a tensor for each of ", size, " ranks; got ", tensors.size());
  for (const auto &tensor : tensors) {
    check_dense(tensor, what);
    check_same_type(other, tensor, what);
  }
}

std::vector<int64_t> counts_of(const TensorList &tensors) {
  std::vector<int64_t> counts;
  for (const auto &tensor : tensors) counts.push_back(tensor.numel());
  return counts;
}

uint32_t reduction_of(const c10d::ReduceOp &op) {
  switch (static_cast<c10d::ReduceOp::RedOpType>(op)) {
    case c10d::ReduceOp::SUM: return HAL_REDUCE_SUM;
    case c10d::ReduceOp::AVG: return HAL_REDUCE_AVG;
    case c10d::ReduceOp::PRODUCT: return HAL_REDUCE_PROD;
    case c10d::ReduceOp::MIN: return HAL_REDUCE_MIN;
    case c10d::ReduceOp::MAX: return HAL_REDUCE_MAX;
    case c10d::ReduceOp::BAND: return HAL_REDUCE_BAND;
    case c10d::ReduceOp::BOR: return HAL_REDUCE_BOR;
    case c10d::ReduceOp::BXOR: return HAL_REDUCE_BXOR;
    case c10d::ReduceOp::PREMUL_SUM: return HAL_REDUCE_PREMUL_SUM;
    default: TORCH_CHECK_VALUE(false, "the reduction ", static_cast<int>(op.op_), " is unknown");
  }
}

}  // namespace

void DeviceBackend::Submission::set_reduction(hal_collective_t &call, const c10d::ReduceOp &op) {
  call.reduce = reduction_of(op);
  if (call.reduce != HAL_REDUCE_PREMUL_SUM) return;
  const auto *factor = dynamic_cast<c10d::PreMulSumSupplement *>(op.supplement_.get());
  TORCH_CHECK_VALUE(factor, "PREMUL_SUM without a factor; make it with torch.distributed._make_nccl_premul_sum");
  const double number = factor->tensor_factor.defined() ? factor->tensor_factor.item<double>() : factor->double_factor;
  auto scale = std::make_shared<double>(number);
  const auto single = static_cast<float>(number);
  if (call.dtype != HAL_FLOAT64) std::memcpy(scale.get(), &single, sizeof(single));
  call.scale = scale.get();
  scales.push_back(std::move(scale));
}

// ---- life ----
DeviceBackend::DeviceBackend(int rank, int size, c10::intrusive_ptr<DeviceOptions> options, MakeHostBackend make_host_backend,
                             WithoutLock without_lock)
    : Backend(rank, size), options_(std::move(options)), make_host_backend_(std::move(make_host_backend)), without_lock_(std::move(without_lock)) {
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
    case HAL_OK: return c10d::ErrorType::SUCCESS;
    case HAL_NOT_READY: return c10d::ErrorType::TIMEOUT;
    case HAL_UNAVAILABLE: return c10d::ErrorType::REMOTE_ERROR;
    default: return c10d::ErrorType::COMM_ERROR;
  }
}

c10d::Backend &DeviceBackend::host() {
  const std::lock_guard<std::mutex> guard(lock_);
  if (!host_) host_ = make_host_backend_("cpu");
  return *host_;
}

// ---- submitting ----
// The lock is held.
hal_comm_t *DeviceBackend::communicator_of(int device) {
  TORCH_CHECK(!is_shut_down_, "the process group '", getGroupUid(), "' was shut down");
  TORCH_CHECK_VALUE(comm_ == nullptr || device == device_, "the process group '", getGroupUid(), "' uses ", kDevice, ":", device_,
                    ", but a tensor is on ", kDevice, ":", device, "; set the device of the process before its first collective, or make another group");
  if (comm_ != nullptr) return comm_;
  hal_comm_config_t config{};
  config.struct_size = sizeof(config);
  config.device = device, config.rank = getRank(), config.size = getSize();
  config.timeout_ns = std::chrono::nanoseconds(options_->timeout).count();
  const std::string name = getGroupDesc().empty() ? getGroupUid() : getGroupDesc();
  config.name = name.c_str();
  config.transport = make_host_transport(make_host_backend_("collectives"));
  const hal_status_t status = hal_comm_create(&config, &comm_);
  if (status != HAL_OK) config.transport.destroy(config.transport.context);
  check(status);
  device_ = device;
  return comm_;
}

hal_collective_t DeviceBackend::collective(uint32_t op, const at::Tensor &send, const at::Tensor &recv, int64_t count) const {
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
  const bool is_pair = std::all_of(submission.calls.begin(), submission.calls.end(),
                                   [](const auto &call) { return call.op == HAL_COMM_SEND || call.op == HAL_COMM_RECV; });
  if (!is_pair) sequence_++;
  auto work = c10::make_intrusive<DeviceWork>(getRank(), submission.op, device, submission.outputs, submission.finish(), submission.blocks);
  DeviceWork::submit(work, comm, submission.calls, timeout, std::move(submission.stash), sequence_);
  stashes_.push_back(work->stash());
  return work;
}

void DeviceBackend::startCoalescing() {
  const std::lock_guard<std::mutex> guard(lock_);
  TORCH_CHECK(!bracket_, "startCoalescing: the bracket before was not ended");
  bracket_ = std::make_unique<Submission>(OpType::COALESCED);
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

// ---- collectives ----
WorkPtr DeviceBackend::broadcast(TensorList &tensors, const c10d::BroadcastOptions &options) {
  const at::Tensor &tensor = only(tensors, "broadcast");
  if (is_on_host(tensor)) return host().broadcast(tensors, options);
  check_dense(tensor, "broadcast");
  Submission work(OpType::BROADCAST, options.timeout);
  const at::Tensor memory = work.in_place(tensor);
  work.calls.push_back(collective(HAL_COMM_BROADCAST, memory, memory, memory.numel()));
  work.calls.back().peer = static_cast<int32_t>(options.rootRank);
  if (getRank() != options.rootRank) work.calls.back().send = nullptr;
  return submit(std::move(work), tensor.get_device());
}

WorkPtr DeviceBackend::allreduce(TensorList &tensors, const c10d::AllreduceOptions &options) {
  const at::Tensor &tensor = only(tensors, "all_reduce");
  if (is_on_host(tensor)) return host().allreduce(tensors, options);
  return reduce_all(tensors, options, OpType::ALLREDUCE);
}

WorkPtr DeviceBackend::allreduce_coalesced(TensorList &tensors, const c10d::AllreduceCoalescedOptions &options) {
  TORCH_CHECK_VALUE(!tensors.empty(), "all_reduce_coalesced: no tensor");
  if (is_on_host(tensors[0])) return host().allreduce_coalesced(tensors, options);
  return reduce_all(tensors, options, OpType::ALLREDUCE_COALESCED);
}

WorkPtr DeviceBackend::reduce_all(const TensorList &tensors, const c10d::AllreduceOptions &options, OpType op) {
  Submission work(op, options.timeout);
  for (const auto &tensor : tensors) {
    check_dense(tensor, "all_reduce");
    const at::Tensor memory = work.in_place(tensor);
    work.calls.push_back(collective(HAL_COMM_ALL_REDUCE, memory, memory, memory.numel()));
    work.set_reduction(work.calls.back(), options.reduceOp);
  }
  return submit(std::move(work), tensors[0].get_device());
}

WorkPtr DeviceBackend::reduce(TensorList &tensors, const c10d::ReduceOptions &options) {
  const at::Tensor &tensor = only(tensors, "reduce");
  if (is_on_host(tensor)) return host().reduce(tensors, options);
  check_dense(tensor, "reduce");
  Submission work(OpType::REDUCE, options.timeout);
  const bool is_root = getRank() == options.rootRank;
  const at::Tensor memory = is_root ? work.in_place(tensor) : work.operand(tensor);
  work.calls.push_back(collective(HAL_COMM_REDUCE, memory, is_root ? memory : at::Tensor(), memory.numel()));
  work.calls.back().peer = static_cast<int32_t>(options.rootRank);
  work.set_reduction(work.calls.back(), options.reduceOp);
  return submit(std::move(work), tensor.get_device());
}

WorkPtr DeviceBackend::allgather(std::vector<TensorList> &outputs, TensorList &inputs, const c10d::AllgatherOptions &options) {
  const at::Tensor &input = only(inputs, "all_gather");
  if (is_on_host(input)) return host().allgather(outputs, inputs, options);
  const TensorList &list = only(outputs, "all_gather");
  check_dense(input, "all_gather");
  check_list(list, getSize(), input, "all_gather");
  TORCH_CHECK_VALUE(list[static_cast<size_t>(getRank())].numel() == input.numel(), "all_gather: the input has ", input.numel(),
                    " elements, the output of this rank ", list[static_cast<size_t>(getRank())].numel());
  Submission work(OpType::ALLGATHER, options.timeout);
  hal_collective_t call = collective(HAL_COMM_ALL_GATHER, work.operand(input), work.results(list), input.numel());
  work.set_blocks(call.recv_counts, call.recv_displs, counts_of(list), input.numel());
  work.calls.push_back(call);
  return submit(std::move(work), input.get_device());
}

WorkPtr DeviceBackend::_allgather_base(at::Tensor &output, at::Tensor &input, const c10d::AllgatherOptions &options) {
  if (is_on_host(input)) return host()._allgather_base(output, input, options);
  TensorList outputs{output}, inputs{input};
  return gather_all(outputs, inputs, options, OpType::_ALLGATHER_BASE);
}

WorkPtr DeviceBackend::allgather_into_tensor_coalesced(TensorList &outputs, TensorList &inputs, const c10d::AllgatherOptions &options) {
  TORCH_CHECK_VALUE(!inputs.empty() && inputs.size() == outputs.size(), "all_gather_into_tensor_coalesced: ", inputs.size(),
                    " inputs and ", outputs.size(), " outputs");
  if (is_on_host(inputs[0])) return host().allgather_into_tensor_coalesced(outputs, inputs, options);
  return gather_all(outputs, inputs, options, OpType::COALESCED);
}

WorkPtr DeviceBackend::gather_all(const TensorList &outputs, const TensorList &inputs, const c10d::AllgatherOptions &options, OpType op) {
  Submission work(op, options.timeout);
  for (const auto i : c10::irange(inputs.size())) {
    check_dense(inputs[i], "all_gather_into_tensor"), check_dense(outputs[i], "all_gather_into_tensor");
    check_same_type(inputs[i], outputs[i], "all_gather_into_tensor");
    TORCH_CHECK_VALUE(outputs[i].numel() == inputs[i].numel() * getSize(), "all_gather_into_tensor: the output has ", outputs[i].numel(),
                      " elements; it must have those of the input, ", inputs[i].numel(), ", for each of ", getSize(), " ranks");
    work.calls.push_back(collective(HAL_COMM_ALL_GATHER, work.operand(inputs[i]), work.result(outputs[i]), inputs[i].numel()));
  }
  return submit(std::move(work), inputs[0].get_device());
}

WorkPtr DeviceBackend::gather(std::vector<TensorList> &outputs, TensorList &inputs, const c10d::GatherOptions &options) {
  const at::Tensor &input = only(inputs, "gather");
  if (is_on_host(input)) return host().gather(outputs, inputs, options);
  check_dense(input, "gather");
  Submission work(OpType::GATHER, options.timeout);
  hal_collective_t call = collective(HAL_COMM_GATHER, work.operand(input), at::Tensor(), input.numel());
  call.peer = static_cast<int32_t>(options.rootRank);
  if (getRank() == options.rootRank) {
    const TensorList &list = only(outputs, "gather");
    check_list(list, getSize(), input, "gather");
    for (const auto &tensor : list)
      TORCH_CHECK_VALUE(tensor.numel() == input.numel(), "gather: an output has ", tensor.numel(), " elements, the input ", input.numel());
    call.recv = work.results(list).mutable_data_ptr();
  } else {
    TORCH_CHECK_VALUE(outputs.empty() || outputs[0].empty(), "gather: outputs on rank ", getRank(), ", which is not the destination");
  }
  work.calls.push_back(call);
  return submit(std::move(work), input.get_device());
}

WorkPtr DeviceBackend::scatter(TensorList &outputs, std::vector<TensorList> &inputs, const c10d::ScatterOptions &options) {
  const at::Tensor &output = only(outputs, "scatter");
  if (is_on_host(output)) return host().scatter(outputs, inputs, options);
  check_dense(output, "scatter");
  Submission work(OpType::SCATTER, options.timeout);
  hal_collective_t call = collective(HAL_COMM_SCATTER, at::Tensor(), work.result(output), output.numel());
  call.peer = static_cast<int32_t>(options.rootRank);
  if (getRank() == options.rootRank) {
    const TensorList &list = only(inputs, "scatter");
    check_list(list, getSize(), output, "scatter");
    for (const auto &tensor : list)
      TORCH_CHECK_VALUE(tensor.numel() == output.numel(), "scatter: an input has ", tensor.numel(), " elements, the output ", output.numel());
    call.send = work.operands(list).const_data_ptr();
  } else {
    TORCH_CHECK_VALUE(inputs.empty() || inputs[0].empty(), "scatter: inputs on rank ", getRank(), ", which is not the source");
  }
  work.calls.push_back(call);
  return submit(std::move(work), output.get_device());
}

WorkPtr DeviceBackend::reduce_scatter(TensorList &outputs, std::vector<TensorList> &inputs, const c10d::ReduceScatterOptions &options) {
  const at::Tensor &output = only(outputs, "reduce_scatter");
  if (is_on_host(output)) return host().reduce_scatter(outputs, inputs, options);
  const TensorList &list = only(inputs, "reduce_scatter");
  check_dense(output, "reduce_scatter");
  check_list(list, getSize(), output, "reduce_scatter");
  TORCH_CHECK_VALUE(list[static_cast<size_t>(getRank())].numel() == output.numel(), "reduce_scatter: the output has ", output.numel(),
                    " elements, the input of this rank ", list[static_cast<size_t>(getRank())].numel());
  Submission work(OpType::REDUCE_SCATTER, options.timeout);
  hal_collective_t call = collective(HAL_COMM_REDUCE_SCATTER, work.operands(list), work.result(output), output.numel());
  work.set_blocks(call.send_counts, call.send_displs, counts_of(list), output.numel());
  work.set_reduction(call, options.reduceOp);
  work.calls.push_back(call);
  return submit(std::move(work), output.get_device());
}

WorkPtr DeviceBackend::_reduce_scatter_base(at::Tensor &output, at::Tensor &input, const c10d::ReduceScatterOptions &options) {
  if (is_on_host(input)) return host()._reduce_scatter_base(output, input, options);
  return reduce_and_scatter({output}, {input}, options, OpType::_REDUCE_SCATTER_BASE);
}

WorkPtr DeviceBackend::reduce_scatter_tensor_coalesced(TensorList &outputs, TensorList &inputs, const c10d::ReduceScatterOptions &options) {
  TORCH_CHECK_VALUE(!inputs.empty() && inputs.size() == outputs.size(), "reduce_scatter_tensor_coalesced: ", inputs.size(), " inputs and ",
                    outputs.size(), " outputs");
  if (is_on_host(inputs[0])) return host().reduce_scatter_tensor_coalesced(outputs, inputs, options);
  return reduce_and_scatter(outputs, inputs, options, OpType::REDUCE_SCATTER_TENSOR_COALESCED);
}

WorkPtr DeviceBackend::reduce_and_scatter(const TensorList &outputs, const TensorList &inputs, const c10d::ReduceScatterOptions &options,
                                          OpType op) {
  Submission work(op, options.timeout);
  for (const auto i : c10::irange(inputs.size())) {
    check_dense(inputs[i], "reduce_scatter_tensor"), check_dense(outputs[i], "reduce_scatter_tensor");
    check_same_type(inputs[i], outputs[i], "reduce_scatter_tensor");
    TORCH_CHECK_VALUE(inputs[i].numel() == outputs[i].numel() * getSize(), "reduce_scatter_tensor: the input has ", inputs[i].numel(),
                      " elements; it must have those of the output, ", outputs[i].numel(), ", for each of ", getSize(), " ranks");
    work.calls.push_back(collective(HAL_COMM_REDUCE_SCATTER, work.operand(inputs[i]), work.result(outputs[i]), outputs[i].numel()));
    work.set_reduction(work.calls.back(), options.reduceOp);
  }
  return submit(std::move(work), inputs[0].get_device());
}

// Elements for each rank: of whole rows, evenly where no splits are given.
static std::vector<int64_t> elements_by_rank(const at::Tensor &tensor, const std::vector<int64_t> &splits, int size, const char *side) {
  const int64_t rows = tensor.dim() ? tensor.size(0) : 0;
  if (splits.empty()) {
    TORCH_CHECK_VALUE(rows % size == 0, "all_to_all_single: the ", rows, " rows of the ", side, " do not divide by ", size, " ranks; give split sizes");
    return std::vector<int64_t>(static_cast<size_t>(size), tensor.numel() / size);
  }
  TORCH_CHECK_VALUE(splits.size() == static_cast<size_t>(size), "all_to_all_single: ", splits.size(), " split sizes of the ", side, " for ", size, " ranks");
  TORCH_CHECK_VALUE(std::accumulate(splits.begin(), splits.end(), int64_t{0}) == rows &&
                        std::all_of(splits.begin(), splits.end(), [](int64_t split) { return split >= 0; }),
                    "all_to_all_single: the split sizes of the ", side, ", ", splits, ", do not add up to its ", rows, " rows");
  std::vector<int64_t> elements;
  for (const int64_t split : splits) elements.push_back(rows ? split * (tensor.numel() / rows) : 0);
  return elements;
}

WorkPtr DeviceBackend::alltoall_base(at::Tensor &output, at::Tensor &input, std::vector<int64_t> &output_splits,
                                     std::vector<int64_t> &input_splits, const c10d::AllToAllOptions &options) {
  if (is_on_host(input)) return host().alltoall_base(output, input, output_splits, input_splits, options);
  check_dense(input, "all_to_all_single"), check_dense(output, "all_to_all_single");
  check_same_type(input, output, "all_to_all_single");
  const auto sent = elements_by_rank(input, input_splits, getSize(), "input");
  const auto received = elements_by_rank(output, output_splits, getSize(), "output");
  Submission work(OpType::ALLTOALL_BASE, options.timeout);
  hal_collective_t call = collective(HAL_COMM_ALL_TO_ALL, work.operand(input), work.result(output), sent[0]);
  set_exchange(work, call, sent, received);
  return submit(std::move(work), input.get_device());
}

// A rank cannot know whether the others' counts are even: with splits, arrays are given in any case.
void DeviceBackend::set_exchange(Submission &work, hal_collective_t &call, const std::vector<int64_t> &sent, const std::vector<int64_t> &received) {
  const int64_t never = -1;
  work.set_blocks(call.send_counts, call.send_displs, sent, never);
  work.set_blocks(call.recv_counts, call.recv_displs, received, never);
  work.calls.push_back(call);
}

WorkPtr DeviceBackend::alltoall(TensorList &outputs, TensorList &inputs, const c10d::AllToAllOptions &options) {
  TORCH_CHECK_VALUE(!inputs.empty(), "all_to_all: no tensor");
  if (is_on_host(inputs[0])) return host().alltoall(outputs, inputs, options);
  check_list(inputs, getSize(), inputs[0], "all_to_all");
  check_list(outputs, getSize(), inputs[0], "all_to_all");
  Submission work(OpType::ALLTOALL, options.timeout);
  hal_collective_t call = collective(HAL_COMM_ALL_TO_ALL, work.operands(inputs), work.results(outputs), inputs[0].numel());
  set_exchange(work, call, counts_of(inputs), counts_of(outputs));
  return submit(std::move(work), inputs[0].get_device());
}

// ---- pairs, barriers ----
WorkPtr DeviceBackend::send(TensorList &tensors, int destination, int tag) {
  const at::Tensor &tensor = only(tensors, "send");
  if (is_on_host(tensor)) return host().send(tensors, destination, tag);
  check_dense(tensor, "send");
  Submission work(OpType::SEND);
  work.calls.push_back(collective(HAL_COMM_SEND, work.operand(tensor), at::Tensor(), tensor.numel()));
  work.calls.back().peer = destination, work.calls.back().tag = static_cast<uint32_t>(tag);
  return submit(std::move(work), tensor.get_device());
}

WorkPtr DeviceBackend::recv(TensorList &tensors, int source, int tag) {
  const at::Tensor &tensor = only(tensors, "recv");
  if (is_on_host(tensor)) return host().recv(tensors, source, tag);
  check_dense(tensor, "recv");
  Submission work(OpType::RECV);
  work.calls.push_back(collective(HAL_COMM_RECV, at::Tensor(), work.result(tensor), tensor.numel()));
  work.calls.back().peer = source, work.calls.back().tag = static_cast<uint32_t>(tag);
  return submit(std::move(work), tensor.get_device());
}

WorkPtr DeviceBackend::recvAnysource(TensorList &tensors, int tag) {
  const at::Tensor &tensor = only(tensors, "recv");
  TORCH_CHECK_NOT_IMPLEMENTED(is_on_host(tensor), "recv without a source is not supported on the device; name `src`, or receive a CPU tensor");
  return host().recvAnysource(tensors, tag);
}

WorkPtr DeviceBackend::barrier(const c10d::BarrierOptions &options) {
  Submission work(OpType::BARRIER, options.timeout);
  int32_t device = device_;
  const auto bound = options.device && options.device->has_index() ? options.device : getBoundDeviceId();
  if (device < 0 && bound && bound->type() == kDevice) device = bound->index();
  if (device < 0) device = hal_device_current();
  hal_collective_t call{};
  call.struct_size = sizeof(call), call.op = HAL_COMM_BARRIER;
  work.calls.push_back(call);
  work.blocks = true;
  return submit(std::move(work), device);
}

void DeviceBackend::monitoredBarrier(const c10d::BarrierOptions &options, bool wait_for_all) { host().monitoredBarrier(options, wait_for_all); }

}  // namespace torch_backend
