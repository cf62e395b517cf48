// where.cpp: where(condition, self, other): broadcast, promoted, and moved as elements of one size whatever their
// dtype.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/MemoryOverlap.h>
#include <ATen/native/TypeProperties.h>

#include "aten/pointwise/pointwise.h"
#include "aten/prepare/structured.h"
#include "hal_op_ids.h"

namespace torch_backend {
namespace {

c10::ScalarType promoted(const at::Tensor &a, const at::Tensor &b) {
  at::native::ResultTypeState state = at::native::update_result_type_state(a, {});
  return at::native::result_type(at::native::update_result_type_state(b, state));
}

// Numbers that lie on the host move to the device; other tensors are there.
bool where(Outputs &outputs, const at::Tensor &condition, const at::Tensor &self, const at::Tensor &other) {
  TORCH_CHECK(condition.scalar_type() == at::kBool || condition.scalar_type() == at::kByte,
              "where expected condition to be a boolean tensor, but got a tensor with dtype ", condition.scalar_type());
  const at::Tensor *const operands[] = {&condition, &self, &other};
  const at::Tensor *first = nullptr, *order = nullptr;  // on the device; what gives the result its memory order
  const auto inner = at::infer_size_dimvector(self.sizes(), other.sizes());
  const auto shape = at::infer_size_dimvector(condition.sizes(), inner);
  for (const at::Tensor *tensor : operands) {
    if (!first && tensor->device().type() == kDevice) first = tensor;
    const bool spread = tensor->sizes() != shape;
    if (tensor != &condition && !order && !spread && tensor->is_non_overlapping_and_dense()) order = tensor;
  }
  const c10::ScalarType dtype = promoted(self, other);
  const at::Tensor *out = outputs.given(0);
  if (!first || (out && out->scalar_type() != dtype)) return false;
  if (!out && order && !order->is_contiguous())
    outputs.set(0, shape, order->strides(), first->options().dtype(dtype));
  else if (!out && !order && condition.sizes() == shape)
    outputs.put(0, result_like(condition, dtype));
  else
    outputs.make(0, shape, dtype, first->device());
  for (const at::Tensor *tensor : operands)
    if (out && tensor->device() == out->device()) at::assert_no_partial_overlap(*out, *tensor);
  if (outputs[0].numel() == 0) return true;
  Call call(HAL_OP_ID_WHERE_SELF, first->device().index(), dtype);
  call.in(condition, at::kBool).expand(shape).in(self).expand(shape).in(other).expand(shape);
  return call.elementwise().out(outputs[0]).run();
}

}  // namespace
}  // namespace torch_backend

#include "aten/pointwise/where.inc"  // registrations: `bodies` of codegen/ops.yaml
