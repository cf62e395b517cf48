// pointwise.h: results and calls of the hand-written pointwise operators.
#pragma once

#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/core/Tensor.h>

#include <array>

#include "aten/prepare/op_call.h"

namespace torch_backend {

// Returns a new tensor with the sizes and memory order of `like`, as TensorIterator creates for a pointwise result.
inline at::Tensor result_like(const at::Tensor &like, c10::ScalarType dtype) {
  const c10::DeviceIndex device = like.device().index();
  if (C10_LIKELY(like.is_contiguous())) return make_empty(like.sizes(), dtype, device);
  if (like.is_non_overlapping_and_dense()) return make_empty_strided(like.sizes(), like.strides(), dtype, device);
  return make_empty_strided(like.sizes(), at::infer_dense_strides(like.sizes(), like.strides()), dtype, device);
}

// Runs a unary operator with the computing dtype of `self` into `out` of the same sizes.
inline bool run_unary(uint32_t op, const at::Tensor &self, const at::Tensor &out) {
  const hal_tensor_t operand = describe(self), result = describe(out);
  const hal_value_t args[] = {value(operand)};
  const hal_tensor_t *const results[] = {&result};
  const bool dense = self.scalar_type() == out.scalar_type() && self.is_contiguous() && out.is_contiguous();
  return run_op(self.device().index(), op, args, results, dense ? HAL_CALL_DENSE : 0);
}

// Returns whether the operator has a kernel for the operand, which is a plain device tensor.
inline bool takes_unary(uint32_t op, const at::Tensor &self) {
  return is_device_tensor(self) && has_kernel(self.device().index(), op, self.scalar_type());
}

}  // namespace torch_backend
