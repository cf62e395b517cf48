// submission.cpp: see submission.h.
#include "distributed/submission.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

namespace torch_backend {
namespace {

uint32_t reduction_of(const c10d::ReduceOp &op) {
  switch (static_cast<c10d::ReduceOp::RedOpType>(op)) {
    case c10d::ReduceOp::SUM:
      return HAL_REDUCE_SUM;
    case c10d::ReduceOp::AVG:
      return HAL_REDUCE_AVG;
    case c10d::ReduceOp::PRODUCT:
      return HAL_REDUCE_PROD;
    case c10d::ReduceOp::MIN:
      return HAL_REDUCE_MIN;
    case c10d::ReduceOp::MAX:
      return HAL_REDUCE_MAX;
    case c10d::ReduceOp::BAND:
      return HAL_REDUCE_BAND;
    case c10d::ReduceOp::BOR:
      return HAL_REDUCE_BOR;
    case c10d::ReduceOp::BXOR:
      return HAL_REDUCE_BXOR;
    case c10d::ReduceOp::PREMUL_SUM:
      return HAL_REDUCE_PREMUL_SUM;
    default:
      TORCH_CHECK_VALUE(false, "the reduction ", static_cast<int>(op.op_), " is unknown");
  }
}

// Torch's analyzer of flight recorder dumps compares calls by these names.
const char *name_of(c10d::OpType op) {
  using c10d::OpType;
  switch (op) {
    case OpType::BROADCAST:
      return "broadcast";
    case OpType::ALLREDUCE:
      return "all_reduce";
    case OpType::ALLREDUCE_COALESCED:
      return "allreduce_coalesced";
    case OpType::REDUCE:
      return "reduce";
    case OpType::ALLGATHER:
      return "all_gather";
    case OpType::_ALLGATHER_BASE:
      return "_all_gather_base";
    case OpType::ALLGATHER_COALESCED:
      return "ALLGATHER_coalesced";
    case OpType::GATHER:
      return "gather";
    case OpType::SCATTER:
      return "scatter";
    case OpType::REDUCE_SCATTER:
      return "reduce_scatter";
    case OpType::_REDUCE_SCATTER_BASE:
      return "_reduce_scatter_base";
    case OpType::REDUCE_SCATTER_TENSOR_COALESCED:
      return "reduce_scatter_tensor_coalesced";
    case OpType::ALLTOALL:
    case OpType::ALLTOALL_BASE:
      return "all_to_all";
    case OpType::BARRIER:
      return "barrier";
    default:
      return "coalesced";
  }
}

}  // namespace

Shape Submission::shape_of(const at::Tensor &tensor) {
  Shape shape{tensor.scalar_type(), {}};
  shape.sizes.append(tensor.sizes().begin(), tensor.sizes().end());
  return shape;
}

Shape Submission::shape_of(const TensorList &tensors) {
  Shape shape = shape_of(tensors[0]);
  if (tensors.size() == 1) return shape;
  const bool is_even = std::all_of(tensors.begin(), tensors.end(),
                                   [&](const auto &tensor) { return tensor.sizes().equals(tensors[0].sizes()); });
  if (is_even) return shape.sizes.insert(shape.sizes.begin(), static_cast<int64_t>(tensors.size())), shape;
  int64_t count = 0;
  for (const auto &tensor : tensors) count += tensor.numel();
  shape.sizes = {count};
  return shape;
}

std::string Submission::name(int rank) const {
  if (op == c10d::OpType::SEND) return "send " + std::to_string(rank) + "->" + std::to_string(calls[0].peer);
  if (op == c10d::OpType::RECV) return "recv " + std::to_string(rank) + "<-" + std::to_string(calls[0].peer);
  return name_of(op);
}

// The analyzer of torch 2.13 and 2.14 accepts names of libraries that it knows only: host memory is moved as by Gloo.
std::string Submission::logged_name(int rank) const { return "gloo:" + name(rank); }

LogEntry::LogEntry(const Submission &submission, uint32_t group, int rank, bool is_pair, uint64_t sequence,
                   uint64_t operation, const char *stack)
    : name_(submission.logged_name(rank)) {
  for (const auto *shapes : {&submission.inputs_logged, &submission.outputs_logged})
    for (const auto &shape : *shapes)
      tensors_.push_back(
          {static_cast<hal_dtype_t>(shape.dtype), static_cast<uint32_t>(shape.sizes.size()), shape.sizes.data()});
  entry_.struct_size = sizeof(entry_);
  entry_.group = group, entry_.is_message = is_pair, entry_.sequence = sequence, entry_.operation = operation;
  entry_.name = name_.c_str(), entry_.stack = stack;
  entry_.input_count = static_cast<uint32_t>(submission.inputs_logged.size());
  entry_.output_count = static_cast<uint32_t>(submission.outputs_logged.size());
  entry_.tensors = tensors_.data();
  entry_.flags = submission.waits ? HAL_COMM_CALLER_WAITS : HAL_COMM_WAITER_RUNS;
  // torch's brackets of sends and receives are called on all ranks that take part, in the order of the group's
  // collectives.
  if (submission.op == c10d::OpType::COALESCED) entry_.flags |= HAL_COMM_IS_ORDERED;
}

void Submission::check_device(c10::Device other) {
  TORCH_CHECK_VALUE(!device || *device == other, name_of(op), ": tensors are on ", *device, " and ", other,
                    "; move all tensors of the call to one device");
  device = other;
}

at::Tensor Submission::operand(const at::Tensor &tensor) {
  check_device(tensor.device());
  log_input(tensor);
  stash.push_back(tensor.resolve_conj().resolve_neg().contiguous());
  return stash.back();
}

at::Tensor Submission::operand(const at::Tensor &tensor, const at::Tensor &result, std::optional<int64_t> in_place) {
  const at::Tensor memory = operand(tensor);
  const auto start = [](const at::Tensor &one) { return reinterpret_cast<uintptr_t>(one.const_data_ptr()); };
  const uintptr_t first = start(memory), second = start(result);
  const bool overlaps = first < second + result.nbytes() && second < first + memory.nbytes();
  const bool is_in_place = in_place && static_cast<int64_t>(first - second) == *in_place * result.element_size();
  if (overlaps && !is_in_place) stash.back() = memory.clone();
  return stash.back();
}

at::Tensor Submission::result(const at::Tensor &tensor) {
  check_device(tensor.device());
  log_output(tensor);
  outputs.push_back(tensor);
  stash.push_back(tensor);
  if (tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg()) return tensor;
  const at::Tensor memory = at::empty(tensor.sizes(), tensor.options().memory_format(c10::MemoryFormat::Contiguous));
  copy_to(tensor, memory);
  return memory;
}

at::Tensor Submission::in_place(const at::Tensor &tensor) {
  check_device(tensor.device());
  log_output(tensor);
  if (tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg()) {
    log_input(tensor);
    outputs.push_back(tensor);
    stash.push_back(tensor);
    return tensor;
  }
  const at::Tensor memory = operand(tensor);
  outputs.push_back(tensor);
  copy_to(tensor, memory);
  return memory;
}

at::Tensor Submission::results(const TensorList &tensors) {
  for (const auto &tensor : tensors) check_device(tensor.device());
  outputs_logged.push_back(shape_of(tensors));
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

at::Tensor Submission::operands(const TensorList &tensors) {
  TensorList flat;
  for (const auto &tensor : tensors) check_device(tensor.device());
  for (const auto &tensor : tensors) flat.push_back(tensor.reshape({-1}));
  const at::Tensor memory = operand(at::cat(flat));
  inputs_logged.back() = shape_of(tensors);
  return memory;
}

// The copy may run on another thread. A tensor of inference mode can be written only in this mode.
void Submission::copy_to(const at::Tensor &tensor, const at::Tensor &memory) {
  at::assert_no_internal_overlap(tensor);
  stash.push_back(memory);
  copies.emplace_back([tensor, memory] {
    std::optional<c10::InferenceMode> mode;
    if (tensor.is_inference()) mode.emplace();
    tensor.copy_(memory);
  });
}

void Submission::set_blocks(const uint64_t *&counts, const uint64_t *&displs, const std::vector<int64_t> &sizes,
                            int64_t even) {
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

void Submission::take(Submission &&other) {
  if (other.device) check_device(*other.device);
  const auto move_to = [](auto &to, auto &from) {
    to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
  };
  move_to(calls, other.calls), move_to(stash, other.stash), move_to(outputs, other.outputs);
  move_to(inputs_logged, other.inputs_logged), move_to(outputs_logged, other.outputs_logged);
  move_to(arrays, other.arrays), move_to(scales, other.scales), move_to(copies, other.copies);
  timeout = std::max(timeout, other.timeout);
}

std::function<void()> Submission::finish() {
  if (copies.empty()) return {};
  return [copies = std::move(copies)] {
    for (const auto &copy : copies) copy();
  };
}

void Submission::set_reduction(hal_collective_t &call, const c10d::ReduceOp &op) {
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

}  // namespace torch_backend
