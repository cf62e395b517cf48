// losses.cpp: the reduction of a loss's elements, and the binary cross entropy, whose weight is optional.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/native/Resize.h>

#include "aten/losses/conditions.h"
#include "aten/pointwise/meta.h"
#include "hal_op_ids.h"

namespace torch_backend {

at::Tensor reduced(const at::Tensor &elements, int64_t reduction) {
  if (!is_reduced(reduction)) return elements;
  return reduction == at::Reduction::Mean ? elements.mean() : elements.sum();
}

at::Tensor &reduced_into(at::Tensor &out, const at::Tensor &elements, int64_t reduction) {
  const at::Tensor result = reduced(elements, reduction);
  TORCH_CHECK(c10::canCast(result.scalar_type(), out.scalar_type()), "result type ", result.scalar_type(),
              " can't be cast to the desired output type ", out.scalar_type());
  at::native::resize_output(out, result.sizes());
  return out.copy_(result);
}

namespace {

at::Tensor weighted(at::Tensor &&elements, const OptionalTensor &weight) {
  return is_given(weight) ? elements.mul_(*weight) : std::move(elements);
}

// An element outside of [0, 1] raises at the next synchronization, because the values are on the device.
bool cross_entropy(Outputs &outputs, const at::Tensor &self, const at::Tensor &target, const OptionalTensor &weight,
                   int64_t reduction) {
  auto elements = pointwise<meta::Binary>(HAL_OP_ID_BINARY_CROSS_ENTROPY_ELEMENTS, {}, self, target);
  if (elements) outputs.put(0, reduced(weighted(*std::move(elements), weight), reduction));
  return elements.has_value();
}

bool cross_entropy_backward(Outputs &outputs, const at::Tensor &grad_output, const at::Tensor &self,
                            const at::Tensor &target, const OptionalTensor &weight, int64_t reduction) {
  auto elements = pointwise<meta::Ternary>(HAL_OP_ID_BINARY_CROSS_ENTROPY_BACKWARD_ELEMENTS, share(self, reduction),
                                           grad_output, self, target);
  if (elements) outputs.put(0, weighted(*std::move(elements), weight));
  return elements.has_value();
}

}  // namespace
}  // namespace torch_backend

#include "aten/losses/losses.inc"  // registrations: codegen/operators
