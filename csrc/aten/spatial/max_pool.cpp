// max_pool.cpp: pooling by the largest element, over windows of a size and adaptive ones, with the places of the elements,
// and its backward, in which every input place gathers what the windows that chose it hand back.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/native/Pool.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/adaptive_max_pool2d_backward_meta.h>
#include <ATen/ops/adaptive_max_pool2d_backward_ops.h>
#include <ATen/ops/adaptive_max_pool2d_meta.h>
#include <ATen/ops/adaptive_max_pool2d_ops.h>
#include <ATen/ops/adaptive_max_pool3d_backward_meta.h>
#include <ATen/ops/adaptive_max_pool3d_backward_ops.h>
#include <ATen/ops/adaptive_max_pool3d_meta.h>
#include <ATen/ops/adaptive_max_pool3d_ops.h>
#include <ATen/ops/max_pool2d_with_indices_backward_meta.h>
#include <ATen/ops/max_pool2d_with_indices_backward_ops.h>
#include <ATen/ops/max_pool2d_with_indices_meta.h>
#include <ATen/ops/max_pool2d_with_indices_ops.h>
#include <ATen/ops/max_pool3d_with_indices_backward_ops.h>
#include <ATen/ops/max_pool3d_with_indices_ops.h>
#include <torch/library.h>

#include "aten/copy/copy.h"
#include "aten/prepare/structured_body.h"
#include "hal_op_ids.h"

namespace torch_backend {
namespace {

// The lists of a call in the order of codegen/ops.yaml; none for adaptive windows.
using WindowLists = c10::SmallVector<c10::IntArrayRef, 4>;

WindowLists lists(c10::IntArrayRef size, c10::IntArrayRef step, c10::IntArrayRef pad, c10::IntArrayRef dilation) {
  return {size, step.empty() ? size : step, pad, dilation};
}

// The kernel's dtype for elements of `dtype`: itself, or one that holds it exactly.
std::optional<c10::ScalarType> computing_dtype(uint32_t op, c10::ScalarType dtype, c10::DeviceIndex device) {
  for (const auto computing : {dtype, c10::isIntegralType(dtype, false) ? at::kLong : at::kFloat}) {
    const bool holds = computing == dtype || c10::isReducedFloatingType(dtype) || c10::isIntegralType(dtype, false);
    if (holds && has_kernel(device, op, computing)) return computing;
  }
  return std::nullopt;
}

// Images without a batch are a batch of one.
at::Tensor batched(const at::Tensor &tensor, int64_t dims) {
  return tensor.dim() == dims + 1 ? tensor.unsqueeze(0) : tensor;
}

bool run(uint32_t op, c10::ArrayRef<const at::Tensor> operands, const WindowLists &lists,
         c10::ArrayRef<const at::Tensor> results) {
  c10::SmallVector<hal_tensor_t, 4> described;
  for (const at::Tensor &tensor : operands) described.push_back(describe(tensor));
  for (const at::Tensor &tensor : results) described.push_back(describe(tensor));
  c10::SmallVector<hal_value_t, 6> args;
  for (size_t i = 0; i < operands.size(); i++) args.push_back(value(described[i]));
  for (const c10::IntArrayRef list : lists) args.push_back(value(list));
  const hal_tensor_t *pointers[2];
  for (size_t i = 0; i < results.size(); i++) pointers[i] = &described[operands.size() + i];
  return run_op(operands[0].device().index(), op, args, {pointers, results.size()});
}

// Fills values and places, which have the right sizes.
bool pool(uint32_t op, int64_t dims, const at::Tensor &self, const WindowLists &lists, const at::Tensor &values,
          const at::Tensor &indices) {
  const auto computing = computing_dtype(op, self.scalar_type(), self.device().index());
  if (!computing || indices.scalar_type() != at::kLong || values.scalar_type() != self.scalar_type()) return false;
  if (values.numel() == 0) return true;
  const at::Tensor operand = batched(self.to(*computing), dims);
  const Destination destination(values, *computing, shares_storage(values, self, true));
  if (!run(op, {operand}, lists, {batched(destination.tensor(), dims), batched(indices, dims)})) return false;
  destination.finish();
  return true;
}

bool pool_backward(uint32_t op, int64_t dims, const at::Tensor &grad, const at::Tensor &indices,
                   const WindowLists &lists, const at::Tensor &result) {
  const auto computing = computing_dtype(op, grad.scalar_type(), grad.device().index());
  if (!computing || indices.scalar_type() != at::kLong || result.scalar_type() != grad.scalar_type()) return false;
  if (result.numel() == 0) return true;
  if (grad.sizes() != indices.sizes()) return false;  // the CPU's function says what is wrong
  const at::Tensor operand = batched(grad.to(*computing), dims);
  const Destination destination(result, *computing, shares_storage(result, grad, true));
  if (!run(op, {operand, batched(indices, dims)}, lists, {batched(destination.tensor(), dims)})) return false;
  destination.finish();
  return true;
}

// ---- structured operators ----

bool max_pool2d(const Outputs &outputs, const at::Tensor &self, c10::IntArrayRef size, c10::IntArrayRef step,
                c10::IntArrayRef pad, c10::IntArrayRef dilation, bool) {
  return pool(HAL_OP_ID_MAX_POOL2D_WITH_INDICES, 2, self, lists(size, step, pad, dilation), outputs[0], outputs[1]);
}

bool max_pool2d_backward(const Outputs &outputs, const at::Tensor &grad, const at::Tensor &, c10::IntArrayRef size,
                         c10::IntArrayRef step, c10::IntArrayRef pad, c10::IntArrayRef dilation, bool,
                         const at::Tensor &indices) {
  return pool_backward(HAL_OP_ID_MAX_POOL2D_WITH_INDICES_BACKWARD, 2, grad, indices, lists(size, step, pad, dilation),
                       outputs[0]);
}

template <uint32_t kOp, int64_t kDims>
bool adaptive(const Outputs &outputs, const at::Tensor &self, c10::IntArrayRef) {
  return pool(kOp, kDims, self, {}, outputs[0], outputs[1]);
}

template <uint32_t kOp, int64_t kDims>
bool adaptive_backward(const Outputs &outputs, const at::Tensor &grad, const at::Tensor &, const at::Tensor &indices) {
  return pool_backward(kOp, kDims, grad, indices, {}, outputs[0]);
}

// ---- three dimensions, which ATen has not structured ----

// The sizes of the result. Throws as the CPU does.
at::DimVector max_pool3d_sizes(const at::Tensor &self, const WindowLists &lists, bool ceil) {
  at::DimVector sizes(self.sizes());
  for (size_t d = 0; d < 3; d++) {
    const auto number = [&](size_t list) { return lists[list].size() == 1 ? lists[list][0] : lists[list][d]; };
    int64_t &size = sizes[sizes.size() - 3 + d];
    size = at::native::pooling_output_shape<int64_t>(size, number(0), number(2), number(1), number(3), ceil);
  }
  return sizes;
}

bool is_right(const at::Tensor &self, const WindowLists &lists) {
  if (!is_device_tensor(self) || (self.dim() != 4 && self.dim() != 5)) return false;
  for (int64_t d = self.dim() - 4; d < self.dim(); d++) {
    if (self.size(d) == 0) return false;
  }
  for (size_t i = 0; i < 4; i++) {
    if (lists[i].size() != 1 && lists[i].size() != 3) return false;
    for (const int64_t number : lists[i]) {
      if (number < (i == 2 ? 0 : 1)) return false;
    }
  }
  for (size_t d = 0; d < 3; d++) {
    const auto number = [&](size_t list) { return lists[list].size() == 1 ? lists[list][0] : lists[list][d]; };
    if (2 * number(2) > number(0)) return false;
  }
  return true;
}

bool is_positive(c10::IntArrayRef sizes) {
  return std::all_of(sizes.begin() + static_cast<std::ptrdiff_t>(sizes.size()) - 3, sizes.end(),
                     [](int64_t s) { return s > 0; });
}

std::tuple<at::Tensor, at::Tensor> max_pool3d(const at::Tensor &self, c10::IntArrayRef size, c10::IntArrayRef step,
                                              c10::IntArrayRef pad, c10::IntArrayRef dilation, bool ceil) {
  const WindowLists given = lists(size, step, pad, dilation);
  if (is_right(self, given)) {
    const at::DimVector sizes = max_pool3d_sizes(self, given, ceil);
    if (is_positive(sizes)) {
      const auto format = self.suggest_memory_format();
      const c10::DeviceIndex device = self.device().index();
      at::Tensor values = make_empty(sizes, self.scalar_type(), device, format);
      at::Tensor indices = make_empty(sizes, at::kLong, device, format);
      if (pool(HAL_OP_ID_MAX_POOL3D_WITH_INDICES, 3, self, given, values, indices)) return {values, indices};
    }
  }
  return call_fallback<at::_ops::max_pool3d_with_indices>(self, size, step, pad, dilation, ceil);
}

at::Tensor max_pool3d_backward(const at::Tensor &grad, const at::Tensor &self, c10::IntArrayRef size,
                               c10::IntArrayRef step, c10::IntArrayRef pad, c10::IntArrayRef dilation, bool ceil,
                               const at::Tensor &indices) {
  const WindowLists given = lists(size, step, pad, dilation);
  const bool right = is_right(self, given) && is_device_tensor(grad) && is_device_tensor(indices) &&
                     grad.scalar_type() == self.scalar_type() && grad.sizes() == max_pool3d_sizes(self, given, ceil);
  if (right) {
    at::Tensor result =
        make_empty(self.sizes(), self.scalar_type(), self.device().index(), self.suggest_memory_format());
    if (pool_backward(HAL_OP_ID_MAX_POOL3D_WITH_INDICES_BACKWARD, 3, grad, indices, given, result)) return result;
  }
  return call_fallback<at::_ops::max_pool3d_with_indices_backward>(grad, self, size, step, pad, dilation, ceil,
                                                                   indices);
}

}  // namespace

// Registers a structured operator and its backward, in both forms.
#define MAX_POOL(op, forward, backward)                                                                          \
  m.impl(#op, TORCH_FN((Functional<at::_ops::op, at::meta::structured_##op, forward>::call)));                   \
  m.impl(#op ".out", TORCH_FN((Out<at::_ops::op##_out, at::meta::structured_##op, forward>::call)));             \
  m.impl(#op "_backward",                                                                                        \
         TORCH_FN((Functional<at::_ops::op##_backward, at::meta::structured_##op##_backward, backward>::call))); \
  m.impl(#op "_backward.grad_input",                                                                             \
         TORCH_FN((Out<at::_ops::op##_backward_grad_input, at::meta::structured_##op##_backward, backward>::call)));

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  MAX_POOL(max_pool2d_with_indices, &max_pool2d, &max_pool2d_backward)
  MAX_POOL(adaptive_max_pool2d, (&adaptive<HAL_OP_ID_ADAPTIVE_MAX_POOL2D, 2>),
           (&adaptive_backward<HAL_OP_ID_ADAPTIVE_MAX_POOL2D_BACKWARD, 2>))
  MAX_POOL(adaptive_max_pool3d, (&adaptive<HAL_OP_ID_ADAPTIVE_MAX_POOL3D, 3>),
           (&adaptive_backward<HAL_OP_ID_ADAPTIVE_MAX_POOL3D_BACKWARD, 3>))
  m.impl("max_pool3d_with_indices", TORCH_FN(max_pool3d));
  m.impl("max_pool3d_with_indices_backward", TORCH_FN(max_pool3d_backward));
}

}  // namespace torch_backend
