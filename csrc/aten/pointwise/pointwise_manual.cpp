// pointwise_manual.cpp: pointwise operators that call others, relu, and the reductions over all elements.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "aten/pointwise/pointwise.h"

#include <ATen/TensorIterator.h>
#include <ATen/native/UnaryOps.h>
#include <ATen/ops/bitwise_left_shift_ops.h>
#include <ATen/ops/bitwise_right_shift_ops.h>
#include <ATen/ops/hardtanh_native.h>
#include <ATen/ops/isnan_native.h>
#include <ATen/ops/relu_native.h>

#include "aten/prepare/structured.h"
#include "hal_op_ids.h"

namespace torch_backend {
namespace {

bool absolute(Outputs &outputs, const at::Tensor &self) {
  const c10::ScalarType dtype = c10::toRealValueType(self.scalar_type());
  if (!takes_unary(HAL_OP_ID_ABS, self)) return false;
  if (const at::Tensor *out = outputs.given(0)) {
    if (out->scalar_type() != dtype) return false;  // the CPU kernel casts
    outputs.make(0, self.sizes(), dtype, self.device());
    at::assert_no_partial_overlap(*out, self);
  } else {
    outputs.put(0, result_like(self, dtype));
  }
  return self.numel() == 0 || run_unary(HAL_OP_ID_ABS, self, outputs[0]);
}

// Computes max(a, 0). false = no kernel.
bool run_relu(const at::Tensor &self, const at::Tensor &out) {
  const hal_tensor_t operand = describe(self), result = describe(out);
  const hal_value_t args[] = {value(operand), value(int64_t{0})};
  const hal_tensor_t *const results[] = {&result};
  return run_op(self.device().index(), HAL_OP_ID_CLAMP_MIN, args, results, HAL_CALL_DENSE);
}

// The shortest path for an operator of every network; ATen's relu() goes through the dispatcher again, to clamp_min.
bool plain_relu(const at::Tensor &self) {
  return self.is_contiguous() && self.scalar_type() != at::kBool && takes_unary(HAL_OP_ID_CLAMP_MIN, self);
}

at::Tensor relu(const at::Tensor &self) {
  if (C10_LIKELY(plain_relu(self))) {
    at::Tensor result = make_empty(self.sizes(), self.scalar_type(), self.device().index());
    if (self.numel() == 0 || run_relu(self, result)) return result;
  }
  return at::native::relu(self);
}

at::Tensor &relu_(at::Tensor &self) {
  if (plain_relu(self) && (self.numel() == 0 || run_relu(self, self))) return self;
  return at::native::relu_(self);
}

void conjugate(at::TensorIteratorBase &it) { it.tensor(0).copy_(it.tensor(1).conj()); }

}  // namespace
}  // namespace torch_backend

#include "aten/pointwise/pointwise_manual.inc"  // registrations: codegen/operators
