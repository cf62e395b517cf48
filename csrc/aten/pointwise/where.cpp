// where.cpp: where(condition, self, other): broadcast, promoted, and moved as elements of one size whatever their
// dtype.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/native/Resize.h>
#include <ATen/native/TypeProperties.h>
#include <ATen/ops/where_ops.h>
#include <torch/library.h>

#include <initializer_list>

#include "aten/fallback/fallback_call.h"
#include "aten/pointwise/pointwise.h"
#include "aten/prepare/raw_elements.h"
#include "hal_op_ids.h"

namespace torch_backend {
namespace {

// A number that lies on the host moves to the device; other tensors must be there.
at::Tensor on_device(const at::Tensor &tensor, c10::Device device) {
  if (tensor.device() == device) return tensor;
  if (tensor.is_cpu() && tensor.dim() == 0) return tensor.to(device);
  throw_two_devices(device, tensor.device());
}

c10::Device common_device(std::initializer_list<at::Tensor> tensors) {
  for (const at::Tensor &tensor : tensors) {
    if (tensor.device().type() == kDevice) return tensor.device();
  }
  return c10::Device(kDevice, static_cast<c10::DeviceIndex>(hal_device_current()));
}

c10::ScalarType promoted(const at::Tensor &a, const at::Tensor &b) {
  at::native::ResultTypeState state = at::native::update_result_type_state(a, {});
  return at::native::result_type(at::native::update_result_type_state(b, state));
}

struct Operands {
  at::Tensor condition, self, other;
};

Operands prepare(const at::Tensor &condition, const at::Tensor &self, const at::Tensor &other) {
  TORCH_CHECK(condition.scalar_type() == at::kBool || condition.scalar_type() == at::kByte,
              "where expected condition to be a boolean tensor, but got a tensor with dtype ", condition.scalar_type());
  const c10::Device device = common_device({condition, self, other});
  const c10::ScalarType dtype = promoted(self, other);
  // Bits and dtypes are settled before the kernel moves elements.
  const auto elements = [&](const at::Tensor &tensor) {
    at::Tensor moved = on_device(tensor, device);
    if (C10_UNLIKELY(moved.scalar_type() != dtype)) moved = moved.to(dtype);
    return C10_UNLIKELY(moved.is_conj() || moved.is_neg()) ? moved.resolve_conj().resolve_neg() : moved;
  };
  at::Tensor flags = on_device(condition, device);
  if (C10_UNLIKELY(flags.scalar_type() != at::kBool)) flags = flags.to(at::kBool);
  Operands operands{std::move(flags), elements(self), elements(other)};
  const at::DimVector inner = at::infer_size_dimvector(operands.self.sizes(), operands.other.sizes());
  const at::DimVector shape = at::infer_size_dimvector(operands.condition.sizes(), inner);
  for (at::Tensor *tensor : {&operands.condition, &operands.self, &operands.other}) {
    if (tensor->sizes() != shape) *tensor = tensor->expand(shape);
  }
  return operands;
}

bool run_where(const Operands &operands, const at::Tensor &out) {
  if (out.numel() == 0) return true;
  if (out.itemsize() == 16) return false;
  RawElements self(operands.self), other(operands.other), result(out);
  const hal_tensor_t condition = describe(operands.condition);
  const hal_value_t args[] = {value(condition), value(self.tensor()), value(other.tensor())};
  const hal_tensor_t *const results[] = {&result.tensor()};
  return run_op(out.device().index(), HAL_OP_ID_WHERE_SELF, args, results);
}

// The operand that gives the result its memory order: the first one that is not spread over it.
const at::Tensor &order_of(const Operands &operands) {
  for (const at::Tensor *tensor : {&operands.self, &operands.other}) {
    if (tensor->is_non_overlapping_and_dense()) return *tensor;
  }
  return operands.condition;
}

at::Tensor where(const at::Tensor &condition, const at::Tensor &self, const at::Tensor &other) {
  const Operands operands = prepare(condition, self, other);
  at::Tensor result = result_like(order_of(operands), operands.self.scalar_type());
  if (run_where(operands, result)) return result;
  return call_fallback<at::_ops::where_self>(condition, self, other);
}

at::Tensor &where_out(const at::Tensor &condition, const at::Tensor &self, const at::Tensor &other, at::Tensor &out) {
  const Operands operands = prepare(condition, self, other);
  if (is_device_tensor(out) && out.device() == operands.self.device() &&
      out.scalar_type() == operands.self.scalar_type() && !out.is_conj() && !out.is_neg()) {
    at::native::resize_output(out, operands.self.sizes());
    at::assert_no_internal_overlap(out);
    for (const at::Tensor *tensor : {&operands.condition, &operands.self, &operands.other}) {
      at::assert_no_partial_overlap(out, *tensor);
    }
    if (run_where(operands, out)) return out;
  }
  return call_fallback<at::_ops::where_self_out>(condition, self, other, out);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("where.self", TORCH_FN(where));
  m.impl("where.self_out", TORCH_FN(where_out));
}

}  // namespace torch_backend
