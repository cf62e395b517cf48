// pointwise_manual.cpp: pointwise operators that are calls of others, relu, and the reductions over all elements.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "aten/pointwise/pointwise.h"

#include <ATen/ScalarOps.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/abs_ops.h>
#include <ATen/ops/bitwise_left_shift.h>
#include <ATen/ops/bitwise_right_shift.h>
#include <ATen/ops/hardtanh_native.h>
#include <ATen/ops/isnan_native.h>
#include <ATen/ops/max_ops.h>
#include <ATen/ops/min_ops.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/pow_ops.h>
#include <ATen/ops/relu_native.h>
#include <ATen/ops/remainder_native.h>
#include <ATen/ops/view_as_real.h>
#include <torch/library.h>

#include "aten/fallback/fallback_call.h"
#include "hal_op_ids.h"

namespace torch_backend {
namespace {

// `out` can take the result as it is: no cast, no other device.
bool fits_out(const at::Tensor &self, const at::Tensor &out, c10::ScalarType dtype) {
  return is_device_tensor(out) && out.device() == self.device() && out.scalar_type() == dtype;
}

bool unary_out(uint32_t op, const at::Tensor &self, const at::Tensor &out, c10::ScalarType dtype) {
  if (!takes_unary(op, self) || !fits_out(self, out, dtype)) return false;
  at::native::resize_output(out, self.sizes());
  at::assert_no_internal_overlap(out);
  at::assert_no_partial_overlap(out, self);
  return self.numel() == 0 || run_unary(op, self, out);
}

at::Tensor abs(const at::Tensor &self) {
  if (takes_unary(HAL_OP_ID_ABS, self)) {
    at::Tensor result = result_like(self, c10::toRealValueType(self.scalar_type()));
    if (self.numel() == 0 || run_unary(HAL_OP_ID_ABS, self, result)) return result;
  }
  return call_fallback<at::_ops::abs>(self);
}

at::Tensor &abs_out(const at::Tensor &self, at::Tensor &out) {
  if (unary_out(HAL_OP_ID_ABS, self, out, c10::toRealValueType(self.scalar_type()))) return out;
  return call_fallback<at::_ops::abs_out>(self, out);
}

// max(a, 0). false = no kernel.
bool run_relu(const at::Tensor &self, const at::Tensor &out) {
  const hal_tensor_t operand = describe(self), result = describe(out);
  const hal_value_t args[] = {value(operand), value(int64_t{0})};
  const hal_tensor_t *const results[] = {&result};
  return run_op(self.device().index(), HAL_OP_ID_CLAMP_MIN, args, results, HAL_CALL_DENSE);
}

// The shortest way for what every network does; ATen's relu() goes through the dispatcher again, to clamp_min.
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

// ATen's own kernel for it dispatches to a kernel table that has no entry for out-of-tree devices.
at::Tensor &conj_physical_out(const at::Tensor &self, at::Tensor &out) {
  TORCH_CHECK(at::can_cast(self.scalar_type(), out.scalar_type()), "result type ", self.scalar_type(),
              " can't be cast to the desired output type ", out.scalar_type());
  at::native::resize_output(out, self.sizes());
  return self.is_complex() ? out.copy_(self.conj()) : out.copy_(self);
}

at::Tensor &conj_physical_(at::Tensor &self) {
  if (self.is_complex()) at::view_as_real(self).select(-1, 1).neg_();
  return self;
}

// ---- operators of Python that are others ----
at::Tensor shift_left_number(const at::Tensor &self, const at::Scalar &other) {
  return at::bitwise_left_shift(self, other);
}
at::Tensor &shift_left_number_(at::Tensor &self, const at::Scalar &other) { return self.bitwise_left_shift_(other); }
at::Tensor shift_left(const at::Tensor &self, const at::Tensor &other) { return at::bitwise_left_shift(self, other); }
at::Tensor &shift_left_(at::Tensor &self, const at::Tensor &other) { return self.bitwise_left_shift_(other); }
at::Tensor shift_right_number(const at::Tensor &self, const at::Scalar &other) {
  return at::bitwise_right_shift(self, other);
}
at::Tensor &shift_right_number_(at::Tensor &self, const at::Scalar &other) { return self.bitwise_right_shift_(other); }
at::Tensor shift_right(const at::Tensor &self, const at::Tensor &other) { return at::bitwise_right_shift(self, other); }
at::Tensor &shift_right_(at::Tensor &self, const at::Tensor &other) { return self.bitwise_right_shift_(other); }

// A number to the power of a tensor: the number counts as a tensor without dimensions.
at::Tensor pow_of_number(const at::Scalar &self, const at::Tensor &exponent) {
  return at::pow(at::native::wrapped_scalar_tensor(self), exponent);
}
at::Tensor &pow_of_number_out(const at::Scalar &self, const at::Tensor &exponent, at::Tensor &out) {
  return at::pow_out(out, at::native::wrapped_scalar_tensor(self), exponent);
}

void check_not_empty(const at::Tensor &self, const char *name) {
  TORCH_CHECK(
      self.numel() > 0, name,
      "(): Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim with the 'dim' "
      "argument.");
}

at::Tensor max(const at::Tensor &self) {
  check_not_empty(self, "max");
  return self.is_complex() ? call_fallback<at::_ops::max>(self) : self.amax(c10::IntArrayRef{});
}

at::Tensor min(const at::Tensor &self) {
  check_not_empty(self, "min");
  return self.is_complex() ? call_fallback<at::_ops::min>(self) : self.amin(c10::IntArrayRef{});
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("abs", TORCH_FN(abs));
  m.impl("abs.out", TORCH_FN(abs_out));
  m.impl("conj_physical.out", TORCH_FN(conj_physical_out));
  m.impl("conj_physical_", TORCH_FN(conj_physical_));
  m.impl("relu", TORCH_FN(relu));
  m.impl("relu_", TORCH_FN(relu_));
  m.impl("max", TORCH_FN(max));
  m.impl("min", TORCH_FN(min));
  m.impl("__lshift__.Scalar", TORCH_FN(shift_left_number));
  m.impl("__lshift__.Tensor", TORCH_FN(shift_left));
  m.impl("__ilshift__.Scalar", TORCH_FN(shift_left_number_));
  m.impl("__ilshift__.Tensor", TORCH_FN(shift_left_));
  m.impl("__rshift__.Scalar", TORCH_FN(shift_right_number));
  m.impl("__rshift__.Tensor", TORCH_FN(shift_right));
  m.impl("__irshift__.Scalar", TORCH_FN(shift_right_number_));
  m.impl("__irshift__.Tensor", TORCH_FN(shift_right_));
  m.impl("pow.Scalar", TORCH_FN(pow_of_number));
  m.impl("pow.Scalar_out", TORCH_FN(pow_of_number_out));
  m.impl("hardtanh", TORCH_FN(at::native::hardtanh));
  m.impl("hardtanh.out", TORCH_FN(at::native::hardtanh_out));
  m.impl("hardtanh_", TORCH_FN(at::native::hardtanh_));
  m.impl("remainder.Scalar_Tensor",
         static_cast<at::Tensor (*)(const at::Scalar &, const at::Tensor &)>(at::native::remainder));
  m.impl("isnan", TORCH_FN(at::native::isnan));
}

}  // namespace torch_backend
