// sparse.cpp: all_reduce of sparse tensors of the device. The group's backend for CPU tensors reduces copies of them.
// Other collectives of sparse tensors are errors.
#include <ATen/core/ivalue.h>
#include <torch/library.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <chrono>
#include <vector>

#include "distributed/backend.h"

namespace torch_backend {
namespace {

// The arguments of c10d::allreduce_ that every version of torch has, in this order.
constexpr size_t kTensors = 0, kGroup = 1, kReduction = 2;

// The host waits for the result: the number of its elements is known only then.
void all_reduce_sparse(const c10::OperatorHandle &op, torch::jit::Stack *stack) {
  const auto &arguments = op.schema().arguments();
  const auto argument = [&](size_t index) -> const c10::IValue & {
    return torch::jit::peek(*stack, index, arguments.size());
  };
  const std::vector<at::Tensor> tensors = argument(kTensors).toTensorVector();
  TORCH_CHECK_VALUE(!tensors.empty(), "all_reduce: expected a tensor");
  const auto group = argument(kGroup).toCustomClass<c10d::ProcessGroup>();
  c10d::AllreduceOptions options;
  options.reduceOp = *argument(kReduction).toCustomClass<c10d::ReduceOp>();
  if (const auto index = op.schema().argumentIndexWithName("timeout")) {
    options.timeout = std::chrono::milliseconds(argument(static_cast<size_t>(*index)).toInt());
  }
  std::vector<at::Tensor> copies;
  for (const at::Tensor &tensor : tensors) copies.push_back(tensor.cpu().coalesce());
  group->getBackend(tensors[0].device().type())->allreduce(copies, options)->wait();
  for (size_t i = 0; i < tensors.size(); i++) {
    at::Tensor target = tensors[i];
    target.copy_(copies[i].to(target.device()));
  }
  torch::jit::drop(*stack, arguments.size());
  torch::jit::push(*stack, tensors, c10::IValue(ended_work(tensors, {tensors[0].device()})));
}

// The operators of c10d whose operands are tensors, but for allreduce_.
constexpr const char *kDenseOnly[] = {
    "broadcast_",
    "reduce_",
    "allgather_",
    "_allgather_base_",
    "reduce_scatter_",
    "_reduce_scatter_base_",
    "gather_",
    "scatter_",
    "alltoall_",
    "alltoall_base_",
    "send",
    "recv_",
    "recv_any_source_",
    "allreduce_coalesced_",
};

void refuse_sparse(const c10::OperatorHandle &op, torch::jit::Stack *) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, op.schema().name(),
                              ": sparse tensors are not supported, except by all_reduce; use to_dense()");
}

}  // namespace
}  // namespace torch_backend

TORCH_LIBRARY_IMPL(c10d, SparsePrivateUse1, m) {
  for (const char *name : torch_backend::kDenseOnly) {
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&torch_backend::refuse_sparse>());
  }
  m.impl("allreduce_", torch::CppFunction::makeFromBoxedFunction<&torch_backend::all_reduce_sparse>());
}
