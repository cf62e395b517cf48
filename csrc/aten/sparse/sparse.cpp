// sparse.cpp: sparse tensors of the device, which consist of device tensors. The CPU's sparse kernels compute them.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include "aten/fallback/fallback_route.h"
#include "aten/prepare/cpu_operators.h"
#include "core/compat.h"

namespace torch_backend {
namespace {

template <c10::DispatchKey kCpuKey>
void sparse_fallback(const c10::OperatorHandle &op, torch::jit::Stack *stack) {
  run_on_cpu(op, op, kCpuKey, stack);
}

// A key's fallback is called only for operators without any default. Many sparse operators have a default that throws
// (the accessors) or that allocates a strided result (structured operators). So the operators with a sparse kernel of
// the CPU are listed by name.
template <c10::DispatchKey kCpuKey>
void register_operators(torch::Library &library) {
  for_each_cpu_operator(kCpuKey, [&](const std::string &name) {
    library.impl(name.c_str(), torch::CppFunction::makeFromBoxedFunction<&sparse_fallback<kCpuKey>>());
  });
}

// Returns each index as one number, by which torch checks whether they are sorted.
at::Tensor flat_indices(const at::Tensor &indices, c10::IntArrayRef sizes) {
  at::Tensor flat = at::zeros({indices.size(1)}, indices.options());
  for (size_t d = 0; d < sizes.size(); d++) flat = flat.mul(sizes[d]).add(indices.select(0, static_cast<int64_t>(d)));
  return flat;
}

}  // namespace
}  // namespace torch_backend

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(flatten_indices_stub, &torch_backend::flat_indices)
}  // namespace at::native

namespace torch_backend {

TORCH_LIBRARY_IMPL(_, SparsePrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&sparse_fallback<c10::DispatchKey::SparseCPU>>());
}
TORCH_LIBRARY_IMPL(_, SparseCsrPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&sparse_fallback<c10::DispatchKey::SparseCsrCPU>>());
}
TORCH_LIBRARY_IMPL(aten, SparsePrivateUse1, m) { register_operators<c10::DispatchKey::SparseCPU>(m); }
TORCH_LIBRARY_IMPL(aten, SparseCsrPrivateUse1, m) { register_operators<c10::DispatchKey::SparseCsrCPU>(m); }

}  // namespace torch_backend
