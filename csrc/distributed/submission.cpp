// submission.cpp: see submission.h.
#include "distributed/submission.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

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

}  // namespace

at::Tensor Submission::operand(const at::Tensor &tensor) {
  stash.push_back(tensor.resolve_conj().resolve_neg().contiguous());
  return stash.back();
}

at::Tensor Submission::result(const at::Tensor &tensor) {
  outputs.push_back(tensor);
  stash.push_back(tensor);
  if (tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg()) return tensor;
  const at::Tensor memory = at::empty(tensor.sizes(), tensor.options().memory_format(c10::MemoryFormat::Contiguous));
  copy_to(tensor, memory);
  return memory;
}

at::Tensor Submission::in_place(const at::Tensor &tensor) {
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

at::Tensor Submission::results(const TensorList &tensors) {
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
  for (const auto &tensor : tensors) flat.push_back(tensor.reshape({-1}));
  return operand(at::cat(flat));
}

void Submission::copy_to(const at::Tensor &tensor, const at::Tensor &memory) {
  stash.push_back(memory);
  copies.emplace_back([tensor, memory] { tensor.copy_(memory); });
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
  const auto move_to = [](auto &to, auto &from) {
    to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
  };
  move_to(calls, other.calls), move_to(stash, other.stash), move_to(outputs, other.outputs);
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
