// collectives.cpp: translates torch's collectives into those of the HAL.
#include <c10/util/irange.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/device.h"
#include "core/status.h"
#include "core/tensor_kind.h"
#include "distributed/backend.h"
#include "hal/hal.h"

namespace torch_backend {

using c10d::OpType;

namespace {

// ---- checks ----
const at::Tensor &only(const TensorList &tensors, const char *what) {
  TORCH_CHECK_VALUE(tensors.size() == 1, what, ": expected one tensor, as each process has one device in a group; got ",
                    tensors.size());
  return tensors[0];
}

const TensorList &only(const std::vector<TensorList> &lists, const char *what) {
  TORCH_CHECK_VALUE(lists.size() == 1, what, ": expected one list of tensors; got ", lists.size());
  return lists[0];
}

bool is_on_host(const at::Tensor &tensor) { return tensor.device().is_cpu(); }

void check_dense(const at::Tensor &tensor, const char *what) {
  TORCH_CHECK(tensor.layout() == c10::kStrided && !tensor.is_quantized(), what, ": a ", tensor_kind(tensor),
              " tensor is not supported; use to_dense() or dequantize()");
}

void check_same_type(const at::Tensor &a, const at::Tensor &b, const char *what) {
  TORCH_CHECK_TYPE(a.scalar_type() == b.scalar_type(), what, ": the input is ", a.scalar_type(), ", the output ",
                   b.scalar_type());
}

void check_list(const TensorList &tensors, int size, const at::Tensor &other, const char *what) {
  TORCH_CHECK_VALUE(tensors.size() == static_cast<size_t>(size), what, ": expected a tensor for each of ", size,
                    " ranks; got ", tensors.size());
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

}  // namespace

// ---- collectives ----
WorkPtr DeviceBackend::broadcast(TensorList &tensors, const c10d::BroadcastOptions &options) {
  const at::Tensor &tensor = only(tensors, "broadcast");
  if (is_on_host(tensor)) return on_host(host().broadcast(tensors, options));
  check_dense(tensor, "broadcast");
  Submission work(OpType::BROADCAST, options);
  const at::Tensor memory = work.in_place(tensor);
  work.calls.push_back(collective(HAL_COMM_BROADCAST, memory, memory, memory.numel()));
  work.calls.back().peer = static_cast<int32_t>(options.rootRank);
  if (getRank() != options.rootRank) work.calls.back().send = nullptr;
  return submit(std::move(work), tensor.get_device());
}

WorkPtr DeviceBackend::allreduce(TensorList &tensors, const c10d::AllreduceOptions &options) {
  const at::Tensor &tensor = only(tensors, "all_reduce");
  if (is_on_host(tensor)) return on_host(host().allreduce(tensors, options));
  return reduce_all(tensors, options, OpType::ALLREDUCE);
}

WorkPtr DeviceBackend::allreduce_coalesced(TensorList &tensors, const c10d::AllreduceCoalescedOptions &options) {
  TORCH_CHECK_VALUE(!tensors.empty(), "all_reduce_coalesced: no tensor");
  if (is_on_host(tensors[0])) return on_host(host().allreduce_coalesced(tensors, options));
  return reduce_all(tensors, options, OpType::ALLREDUCE_COALESCED);
}

WorkPtr DeviceBackend::reduce_all(const TensorList &tensors, const c10d::AllreduceOptions &options, OpType op) {
  Submission work(op, options);
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
  if (is_on_host(tensor)) return on_host(host().reduce(tensors, options));
  check_dense(tensor, "reduce");
  Submission work(OpType::REDUCE, options);
  const bool is_root = getRank() == options.rootRank;
  const at::Tensor memory = is_root ? work.in_place(tensor) : work.operand(tensor);
  if (!is_root) work.log_output(tensor);  // the ranks' calls are compared with each other
  work.calls.push_back(collective(HAL_COMM_REDUCE, memory, is_root ? memory : at::Tensor(), memory.numel()));
  work.calls.back().peer = static_cast<int32_t>(options.rootRank);
  work.set_reduction(work.calls.back(), options.reduceOp);
  return submit(std::move(work), tensor.get_device());
}

WorkPtr DeviceBackend::allgather(std::vector<TensorList> &outputs, TensorList &inputs,
                                 const c10d::AllgatherOptions &options) {
  const at::Tensor &input = only(inputs, "all_gather");
  if (is_on_host(input)) return on_host(host().allgather(outputs, inputs, options));
  const TensorList &list = only(outputs, "all_gather");
  check_dense(input, "all_gather");
  check_list(list, getSize(), input, "all_gather");
  TORCH_CHECK_VALUE(list[static_cast<size_t>(getRank())].numel() == input.numel(), "all_gather: the input has ",
                    input.numel(), " elements, the output of this rank ", list[static_cast<size_t>(getRank())].numel());
  Submission work(OpType::ALLGATHER, options);
  hal_collective_t call = collective(HAL_COMM_ALL_GATHER, work.operand(input), work.results(list), input.numel());
  work.set_blocks(call.recv_counts, call.recv_displs, counts_of(list), input.numel());
  work.calls.push_back(call);
  return submit(std::move(work), input.get_device());
}

WorkPtr DeviceBackend::_allgather_base(at::Tensor &output, at::Tensor &input, const c10d::AllgatherOptions &options) {
  if (is_on_host(input)) return on_host(host()._allgather_base(output, input, options));
  TensorList outputs{output}, inputs{input};
  return gather_all(outputs, inputs, options, OpType::_ALLGATHER_BASE);
}

WorkPtr DeviceBackend::allgather_into_tensor_coalesced(TensorList &outputs, TensorList &inputs,
                                                       const c10d::AllgatherOptions &options) {
  TORCH_CHECK_VALUE(!inputs.empty() && inputs.size() == outputs.size(),
                    "all_gather_into_tensor_coalesced: ", inputs.size(), " inputs and ", outputs.size(), " outputs");
  if (is_on_host(inputs[0])) return on_host(host().allgather_into_tensor_coalesced(outputs, inputs, options));
  return gather_all(outputs, inputs, options, OpType::COALESCED);
}

WorkPtr DeviceBackend::gather_all(const TensorList &outputs, const TensorList &inputs,
                                  const c10d::AllgatherOptions &options, OpType op) {
  Submission work(op, options);
  for (const auto i : c10::irange(inputs.size())) {
    check_dense(inputs[i], "all_gather_into_tensor"), check_dense(outputs[i], "all_gather_into_tensor");
    check_same_type(inputs[i], outputs[i], "all_gather_into_tensor");
    TORCH_CHECK_VALUE(outputs[i].numel() == inputs[i].numel() * getSize(), "all_gather_into_tensor: the output has ",
                      outputs[i].numel(), " elements; it must have those of the input, ", inputs[i].numel(),
                      ", for each of ", getSize(), " ranks");
    const at::Tensor result = work.result(outputs[i]);
    const at::Tensor operand = work.operand(inputs[i], result, getRank() * inputs[i].numel());
    work.calls.push_back(collective(HAL_COMM_ALL_GATHER, operand, result, inputs[i].numel()));
  }
  return submit(std::move(work), inputs[0].get_device());
}

// The outputs are lists by rank, each with a tensor for each input.
WorkPtr DeviceBackend::allgather_coalesced(std::vector<TensorList> &outputs, TensorList &inputs,
                                           const c10d::AllgatherOptions &options) {
  TORCH_CHECK_VALUE(!inputs.empty() && outputs.size() == static_cast<size_t>(getSize()),
                    "all_gather_coalesced: ", inputs.size(), " inputs, and ", outputs.size(), " lists of outputs for ",
                    getSize(), " ranks");
  if (is_on_host(inputs[0])) return on_host(host().allgather_coalesced(outputs, inputs, options));
  Submission work(OpType::ALLGATHER_COALESCED, options);
  for (const auto i : c10::irange(inputs.size())) {
    TensorList list;
    for (const auto &of_rank : outputs) {
      TORCH_CHECK_VALUE(of_rank.size() == inputs.size() && of_rank[i].numel() == inputs[i].numel(),
                        "all_gather_coalesced: each rank's outputs must have the sizes of the inputs");
      list.push_back(of_rank[i]);
    }
    check_dense(inputs[i], "all_gather_coalesced");
    check_list(list, getSize(), inputs[i], "all_gather_coalesced");
    work.calls.push_back(
        collective(HAL_COMM_ALL_GATHER, work.operand(inputs[i]), work.results(list), inputs[i].numel()));
  }
  return submit(std::move(work), inputs[0].get_device());
}

WorkPtr DeviceBackend::gather_into_tensor(at::Tensor &output, at::Tensor &input, const c10d::GatherOptions &options) {
  const bool is_root = getRank() == options.rootRank;
  if (is_on_host(input)) {  // Gloo gathers lists only
    TensorList inputs{input};
    std::vector<TensorList> outputs;
    if (is_root) outputs.push_back(output.view({getSize(), -1}).unbind());
    if (is_root)
      for (auto &part : outputs[0]) part = part.view(input.sizes());
    return on_host(host().gather(outputs, inputs, options));
  }
  check_dense(input, "gather_single");
  Submission work(OpType::GATHER, options);
  hal_collective_t call = collective(HAL_COMM_GATHER, work.operand(input), at::Tensor(), input.numel());
  call.peer = static_cast<int32_t>(options.rootRank);
  if (is_root) {
    check_dense(output, "gather_single"), check_same_type(input, output, "gather_single");
    TORCH_CHECK_VALUE(output.numel() == input.numel() * getSize(), "gather_single: the output has ", output.numel(),
                      " elements; it must have those of the input, ", input.numel(), ", for each of ", getSize(),
                      " ranks");
    call.recv = work.result(output).mutable_data_ptr();
  }
  work.calls.push_back(call);
  return submit(std::move(work), input.get_device());
}

WorkPtr DeviceBackend::gather(std::vector<TensorList> &outputs, TensorList &inputs,
                              const c10d::GatherOptions &options) {
  const at::Tensor &input = only(inputs, "gather");
  if (is_on_host(input)) return on_host(host().gather(outputs, inputs, options));
  check_dense(input, "gather");
  Submission work(OpType::GATHER, options);
  hal_collective_t call = collective(HAL_COMM_GATHER, work.operand(input), at::Tensor(), input.numel());
  call.peer = static_cast<int32_t>(options.rootRank);
  if (getRank() == options.rootRank) {
    const TensorList &list = only(outputs, "gather");
    check_list(list, getSize(), input, "gather");
    for (const auto &tensor : list)
      TORCH_CHECK_VALUE(tensor.numel() == input.numel(), "gather: an output has ", tensor.numel(),
                        " elements, the input ", input.numel());
    call.recv = work.results(list).mutable_data_ptr();
  } else {
    TORCH_CHECK_VALUE(outputs.empty() || outputs[0].empty(), "gather: outputs on rank ", getRank(),
                      ", which is not the destination");
  }
  work.calls.push_back(call);
  return submit(std::move(work), input.get_device());
}

WorkPtr DeviceBackend::scatter(TensorList &outputs, std::vector<TensorList> &inputs,
                               const c10d::ScatterOptions &options) {
  const at::Tensor &output = only(outputs, "scatter");
  if (is_on_host(output)) return on_host(host().scatter(outputs, inputs, options));
  check_dense(output, "scatter");
  Submission work(OpType::SCATTER, options);
  hal_collective_t call = collective(HAL_COMM_SCATTER, at::Tensor(), work.result(output), output.numel());
  call.peer = static_cast<int32_t>(options.rootRank);
  if (getRank() == options.rootRank) {
    const TensorList &list = only(inputs, "scatter");
    check_list(list, getSize(), output, "scatter");
    for (const auto &tensor : list)
      TORCH_CHECK_VALUE(tensor.numel() == output.numel(), "scatter: an input has ", tensor.numel(),
                        " elements, the output ", output.numel());
    call.send = work.operands(list).const_data_ptr();
  } else {
    TORCH_CHECK_VALUE(inputs.empty() || inputs[0].empty(), "scatter: inputs on rank ", getRank(),
                      ", which is not the source");
  }
  work.calls.push_back(call);
  return submit(std::move(work), output.get_device());
}

WorkPtr DeviceBackend::reduce_scatter(TensorList &outputs, std::vector<TensorList> &inputs,
                                      const c10d::ReduceScatterOptions &options) {
  const at::Tensor &output = only(outputs, "reduce_scatter");
  if (is_on_host(output)) return on_host(host().reduce_scatter(outputs, inputs, options));
  const TensorList &list = only(inputs, "reduce_scatter");
  check_dense(output, "reduce_scatter");
  check_list(list, getSize(), output, "reduce_scatter");
  TORCH_CHECK_VALUE(list[static_cast<size_t>(getRank())].numel() == output.numel(), "reduce_scatter: the output has ",
                    output.numel(), " elements, the input of this rank ", list[static_cast<size_t>(getRank())].numel());
  Submission work(OpType::REDUCE_SCATTER, options);
  hal_collective_t call = collective(HAL_COMM_REDUCE_SCATTER, work.operands(list), work.result(output), output.numel());
  work.set_blocks(call.send_counts, call.send_displs, counts_of(list), output.numel());
  work.set_reduction(call, options.reduceOp);
  work.calls.push_back(call);
  return submit(std::move(work), output.get_device());
}

WorkPtr DeviceBackend::_reduce_scatter_base(at::Tensor &output, at::Tensor &input,
                                            const c10d::ReduceScatterOptions &options) {
  if (is_on_host(input)) return on_host(host()._reduce_scatter_base(output, input, options));
  return reduce_and_scatter({output}, {input}, options, OpType::_REDUCE_SCATTER_BASE);
}

WorkPtr DeviceBackend::reduce_scatter_tensor_coalesced(TensorList &outputs, TensorList &inputs,
                                                       const c10d::ReduceScatterOptions &options) {
  TORCH_CHECK_VALUE(!inputs.empty() && inputs.size() == outputs.size(),
                    "reduce_scatter_tensor_coalesced: ", inputs.size(), " inputs and ", outputs.size(), " outputs");
  if (is_on_host(inputs[0])) return on_host(host().reduce_scatter_tensor_coalesced(outputs, inputs, options));
  return reduce_and_scatter(outputs, inputs, options, OpType::REDUCE_SCATTER_TENSOR_COALESCED);
}

WorkPtr DeviceBackend::reduce_and_scatter(const TensorList &outputs, const TensorList &inputs,
                                          const c10d::ReduceScatterOptions &options, OpType op) {
  Submission work(op, options);
  for (const auto i : c10::irange(inputs.size())) {
    check_dense(inputs[i], "reduce_scatter_tensor"), check_dense(outputs[i], "reduce_scatter_tensor");
    check_same_type(inputs[i], outputs[i], "reduce_scatter_tensor");
    TORCH_CHECK_VALUE(inputs[i].numel() == outputs[i].numel() * getSize(), "reduce_scatter_tensor: the input has ",
                      inputs[i].numel(), " elements; it must have those of the output, ", outputs[i].numel(),
                      ", for each of ", getSize(), " ranks");
    const at::Tensor result = work.result(outputs[i]);
    const at::Tensor operand = work.operand(inputs[i], result, -getRank() * outputs[i].numel());
    work.calls.push_back(collective(HAL_COMM_REDUCE_SCATTER, operand, result, outputs[i].numel()));
    work.set_reduction(work.calls.back(), options.reduceOp);
  }
  return submit(std::move(work), inputs[0].get_device());
}

// Returns the number of elements for each rank, in whole rows; the same for all ranks if there are no splits.
static std::vector<int64_t> elements_by_rank(const at::Tensor &tensor, const std::vector<int64_t> &splits, int size,
                                             const char *side) {
  TORCH_CHECK_VALUE(tensor.dim() > 0, "all_to_all_single: the ", side,
                    " has no dimensions, so it has no rows for the ranks; pass a tensor with at least one dimension");
  const int64_t rows = tensor.size(0);
  if (splits.empty()) {
    TORCH_CHECK_VALUE(rows % size == 0, "all_to_all_single: the ", rows, " rows of the ", side, " do not divide by ",
                      size, " ranks; pass split sizes");
    return std::vector<int64_t>(static_cast<size_t>(size), tensor.numel() / size);
  }
  TORCH_CHECK_VALUE(splits.size() == static_cast<size_t>(size), "all_to_all_single: ", splits.size(),
                    " split sizes of the ", side, " for ", size, " ranks");
  TORCH_CHECK_VALUE(std::accumulate(splits.begin(), splits.end(), int64_t{0}) == rows &&
                        std::all_of(splits.begin(), splits.end(), [](int64_t split) { return split >= 0; }),
                    "all_to_all_single: the split sizes of the ", side, ", ", splits, ", do not add up to its ", rows,
                    " rows");
  std::vector<int64_t> elements;
  for (const int64_t split : splits) elements.push_back(rows ? split * (tensor.numel() / rows) : 0);
  return elements;
}

WorkPtr DeviceBackend::alltoall_base(at::Tensor &output, at::Tensor &input, std::vector<int64_t> &output_splits,
                                     std::vector<int64_t> &input_splits, const c10d::AllToAllOptions &options) {
  if (is_on_host(input)) return on_host(host().alltoall_base(output, input, output_splits, input_splits, options));
  check_dense(input, "all_to_all_single"), check_dense(output, "all_to_all_single");
  check_same_type(input, output, "all_to_all_single");
  const auto sent = elements_by_rank(input, input_splits, getSize(), "input");
  const auto received = elements_by_rank(output, output_splits, getSize(), "output");
  Submission work(OpType::ALLTOALL_BASE, options);
  const at::Tensor result = work.result(output);
  const at::Tensor operand = work.operand(input, result, std::nullopt);
  hal_collective_t call = collective(HAL_COMM_ALL_TO_ALL, operand, result, sent[0]);
  set_exchange(work, call, sent, received);
  return submit(std::move(work), input.get_device());
}

// With splits, the arrays are always passed, because a rank cannot know whether the counts of the others are equal.
void DeviceBackend::set_exchange(Submission &work, hal_collective_t &call, const std::vector<int64_t> &sent,
                                 const std::vector<int64_t> &received) {
  const int64_t never = -1;
  work.set_blocks(call.send_counts, call.send_displs, sent, never);
  work.set_blocks(call.recv_counts, call.recv_displs, received, never);
  work.calls.push_back(call);
}

WorkPtr DeviceBackend::alltoall(TensorList &outputs, TensorList &inputs, const c10d::AllToAllOptions &options) {
  TORCH_CHECK_VALUE(!inputs.empty(), "all_to_all: no tensor");
  if (is_on_host(inputs[0])) return on_host(host().alltoall(outputs, inputs, options));
  check_list(inputs, getSize(), inputs[0], "all_to_all");
  check_list(outputs, getSize(), inputs[0], "all_to_all");
  Submission work(OpType::ALLTOALL, options);
  hal_collective_t call =
      collective(HAL_COMM_ALL_TO_ALL, work.operands(inputs), work.results(outputs), inputs[0].numel());
  set_exchange(work, call, counts_of(inputs), counts_of(outputs));
  return submit(std::move(work), inputs[0].get_device());
}

// ---- pairs, barriers ----
WorkPtr DeviceBackend::send(TensorList &tensors, int destination, int tag) {
  const at::Tensor &tensor = only(tensors, "send");
  if (is_on_host(tensor)) return on_host(host().send(tensors, destination, tag));
  check_dense(tensor, "send");
  Submission work(OpType::SEND);
  work.calls.push_back(collective(HAL_COMM_SEND, work.operand(tensor), at::Tensor(), tensor.numel()));
  work.calls.back().peer = destination, work.calls.back().tag = static_cast<uint32_t>(tag);
  return submit(std::move(work), tensor.get_device());
}

WorkPtr DeviceBackend::recv(TensorList &tensors, int source, int tag) {
  const at::Tensor &tensor = only(tensors, "recv");
  if (is_on_host(tensor)) return on_host(host().recv(tensors, source, tag));
  check_dense(tensor, "recv");
  Submission work(OpType::RECV);
  work.calls.push_back(collective(HAL_COMM_RECV, at::Tensor(), work.result(tensor), tensor.numel()));
  work.calls.back().peer = source, work.calls.back().tag = static_cast<uint32_t>(tag);
  return submit(std::move(work), tensor.get_device());
}

WorkPtr DeviceBackend::recvAnysource(TensorList &tensors, int tag) {
  const at::Tensor &tensor = only(tensors, "recv");
  TORCH_CHECK_NOT_IMPLEMENTED(
      is_on_host(tensor), "recv without a source is not supported on the device; name `src`, or receive a CPU tensor");
  return on_host(host().recvAnysource(tensors, tag));
}

WorkPtr DeviceBackend::barrier(const c10d::BarrierOptions &options) {
  int32_t device = device_;
  const auto bound = options.device && options.device->has_index() ? options.device : getBoundDeviceId();
  if (!(bound && bound->type() == kDevice) && has_no_device()) return first_barrier(options);
  Submission work(OpType::BARRIER, options);
  if (device < 0 && bound && bound->type() == kDevice) device = bound->index();
  if (device < 0) device = hal_device_current();
  hal_collective_t call{};
  call.struct_size = sizeof(call), call.op = HAL_COMM_BARRIER;
  work.calls.push_back(call);
  work.blocks = true;
  return submit(std::move(work), device);
}

void DeviceBackend::monitoredBarrier(const c10d::BarrierOptions &options, bool wait_for_all) {
  host().monitoredBarrier(options, wait_for_all);
}

}  // namespace torch_backend
