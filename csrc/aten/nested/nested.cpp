// nested.cpp: nested tensors of the strided layout: a buffer on the device, and sizes on the host. Most of ATen's
// functions for them call operators on the buffer, on any device. They are registered for the CPU's key; here they are
// also registered for the device. The few that access the buffer's memory directly are implemented here.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/NestedTensorImpl.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/nested/NestedTensorUtils.h>
#include <ATen/ops/_nested_from_padded_native.h>
#include <ATen/ops/_nested_tensor_from_mask_left_aligned_native.h>
#include <ATen/ops/_nested_tensor_from_mask_native.h>
#include <ATen/ops/_nested_tensor_from_tensor_list.h>
#include <ATen/ops/_nested_view_from_buffer_native.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "aten/prepare/cpu_operators.h"

namespace torch_backend {
namespace {

using at::Tensor;
using Three = std::tuple<Tensor, Tensor, Tensor>;
using OptionalTensor = std::optional<Tensor>;

// Returns a guard for the device of the first tensor of a call, which is a nested one.
c10::OptionalDeviceGuard guard_of(const torch::jit::Stack &stack, size_t arguments) {
  for (const c10::IValue &value : c10::ArrayRef<c10::IValue>(stack).slice(stack.size() - arguments)) {
    if (value.isTensor() && value.toTensor().defined()) return c10::OptionalDeviceGuard(value.toTensor().device());
    if (value.isTensorList() && !value.toTensorList().empty())
      return c10::OptionalDeviceGuard(value.toTensorList().get(0).device());
  }
  return c10::OptionalDeviceGuard();
}

void run_on_buffers(const c10::OperatorHandle &op, torch::jit::Stack *stack) {
  const c10::OptionalDeviceGuard guard = guard_of(*stack, op.schema().arguments().size());
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::NestedTensorCPU), stack);
}

void refuse(const c10::OperatorHandle &op, torch::jit::Stack *) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "The operator '", op.operator_name(),
                              "' of nested tensors of layout torch.strided ",
                              "is supported on the CPU only; use layout=torch.jagged, or move the tensor to the CPU");
}

// Returns whether ATen's function reads the buffer's memory, so that it must not run here.
bool reads_host_memory(const std::string &name) {
  static constexpr std::string_view names[] = {
      "native_layer_norm",    "native_layer_norm_backward",  "sum.dim_IntList",
      "_nested_sum_backward", "_transform_bias_rescale_qkv", "_native_multi_head_attention"};
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

// ---- layer normalization: all sequences have the same last dimension ----

// Returns the buffer as rows of the normalized shape.
Tensor rows_of(const Tensor &nested, c10::IntArrayRef normalized) {
  const Tensor contiguous = nested.contiguous();
  return at::native::get_nested_tensor_impl(contiguous)->get_buffer().view({-1, c10::multiply_integers(normalized)});
}

Tensor flat(const Tensor &tensor) { return tensor.defined() ? tensor.reshape(-1) : tensor; }

OptionalTensor flat(const OptionalTensor &tensor) { return tensor ? OptionalTensor(flat(*tensor)) : tensor; }

// Returns a nested tensor with the sizes of another.
Tensor like(const Tensor &nested, const Tensor &rows) {
  return at::native::wrap_buffer(rows.reshape(-1), at::native::get_nested_tensor_impl(nested)->get_nested_sizes());
}

Three layer_norm(const Tensor &input, c10::IntArrayRef normalized, const OptionalTensor &weight,
                 const OptionalTensor &bias, double eps) {
  const Tensor rows = rows_of(input, normalized);
  const auto [result, mean, rstd] = at::native_layer_norm(rows, {rows.size(1)}, flat(weight), flat(bias), eps);
  return {like(input, result), mean.reshape(-1), rstd.reshape(-1)};
}

Three layer_norm_backward(const Tensor &grad, const Tensor &input, c10::IntArrayRef normalized, const Tensor &mean,
                          const Tensor &rstd, const OptionalTensor &weight, const OptionalTensor &bias,
                          std::array<bool, 3> wanted) {
  const Tensor rows = rows_of(input, normalized);
  const auto [dx, dweight, dbias] =
      at::native_layer_norm_backward(rows_of(grad, normalized), rows, {rows.size(1)}, mean.view({-1, 1}),
                                     rstd.view({-1, 1}), flat(weight), flat(bias), wanted);
  const auto shaped = [&](const Tensor &tensor) { return tensor.defined() ? tensor.view(normalized) : tensor; };
  return {dx.defined() ? like(input, dx) : dx, shaped(dweight), shaped(dbias)};
}

// ---- sums over the last dimension ----

Tensor sum(const Tensor &self, c10::OptionalIntArrayRef dims, bool keepdim, std::optional<c10::ScalarType> dtype) {
  TORCH_CHECK(dims && dims->size() == 1 && c10::maybe_wrap_dim(dims->front(), self.dim()) == self.dim() - 1,
              "NestedTensor only allows reduction across the last dimension");
  TORCH_CHECK(keepdim, "NestedTensor always requires keepdim=True for now.");
  TORCH_CHECK(!dtype, "NestedTensor does not support dtype argument for now.");
  std::vector<Tensor> sums;
  for (const Tensor &part : self.unbind()) sums.push_back(part.sum(-1, /*keepdim=*/true));
  return at::_nested_tensor_from_tensor_list(sums);
}

Tensor sum_backward(const Tensor &grad, const Tensor &self, c10::OptionalIntArrayRef, bool) {
  const std::vector<Tensor> grads = grad.unbind(), parts = self.unbind();
  std::vector<Tensor> results;
  for (size_t i = 0; i < parts.size(); i++) results.push_back(grads[i].expand_as(parts[i]));
  return at::_nested_tensor_from_tensor_list(results);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, NestedTensorPrivateUse1, m) {
  for_each_cpu_operator(c10::DispatchKey::NestedTensorCPU, [&](const std::string &name) {
    if (!reads_host_memory(name)) m.impl(name.c_str(), torch::CppFunction::makeFromBoxedFunction<&run_on_buffers>());
  });
  m.impl("native_layer_norm", TORCH_FN(layer_norm));
  m.impl("native_layer_norm_backward", TORCH_FN(layer_norm_backward));
  m.impl("sum.dim_IntList", TORCH_FN(sum));
  m.impl("_nested_sum_backward", TORCH_FN(sum_backward));
  m.impl("_transform_bias_rescale_qkv", torch::CppFunction::makeFromBoxedFunction<&refuse>());
}

}  // namespace torch_backend
