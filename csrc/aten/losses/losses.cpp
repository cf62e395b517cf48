// losses.cpp: what becomes of the elements of a loss, and the binary cross entropy, whose weight is optional.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/native/Resize.h>
#include <ATen/ops/binary_cross_entropy_backward_ops.h>
#include <ATen/ops/binary_cross_entropy_ops.h>
#include <torch/library.h>

#include "aten/prepare/pointwise_meta.h"
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

using Weight = std::optional<at::Tensor>;

at::Tensor weighted(at::Tensor &&elements, const Weight &weight) {
  return weight && weight->defined() ? elements.mul_(*weight) : std::move(elements);
}

// An element outside of [0, 1] raises at the next synchronisation: the values are on the device.
at::Tensor cross_entropy(const at::Tensor &self, const at::Tensor &target, const Weight &weight, int64_t reduction) {
  auto elements = pointwise<meta::Binary>(HAL_OP_ID_BINARY_CROSS_ENTROPY, self, target);
  if (!elements) return call_fallback<at::_ops::binary_cross_entropy>(self, target, weight, reduction);
  return reduced(weighted(std::move(*elements), weight), reduction);
}

at::Tensor &cross_entropy_out(const at::Tensor &self, const at::Tensor &target, const Weight &weight, int64_t reduction,
                              at::Tensor &out) {
  return reduced_into(out, cross_entropy(self, target, weight, at::Reduction::None), reduction);
}

at::Tensor cross_entropy_backward(const at::Tensor &grad_output, const at::Tensor &self, const at::Tensor &target,
                                  const Weight &weight, int64_t reduction) {
  const c10::Scalar norm(share(self, reduction));
  const Argument arguments[] = {operand(grad_output), operand(self), operand(target), number(norm)};
  if (may_run_natively(HAL_OP_ID_BINARY_CROSS_ENTROPY_BACKWARD, arguments)) {
    Outputs outputs;
    Structured<meta::Ternary> structured(outputs);
    structured.meta(grad_output, self, target);
    if (run_elementwise(HAL_OP_ID_BINARY_CROSS_ENTROPY_BACKWARD, structured.maybe_common_dtype(), false, outputs,
                        arguments))
      return weighted(outputs.take(0), weight);
  }
  return call_fallback<at::_ops::binary_cross_entropy_backward>(grad_output, self, target, weight, reduction);
}

at::Tensor &cross_entropy_backward_out(const at::Tensor &grad_output, const at::Tensor &self, const at::Tensor &target,
                                       const Weight &weight, int64_t reduction, at::Tensor &grad_input) {
  return reduced_into(grad_input, cross_entropy_backward(grad_output, self, target, weight, reduction),
                      at::Reduction::None);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("binary_cross_entropy", TORCH_FN(cross_entropy));
  m.impl("binary_cross_entropy.out", TORCH_FN(cross_entropy_out));
  m.impl("binary_cross_entropy_backward", TORCH_FN(cross_entropy_backward));
  m.impl("binary_cross_entropy_backward.grad_input", TORCH_FN(cross_entropy_backward_out));
}

}  // namespace torch_backend
