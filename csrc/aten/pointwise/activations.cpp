// activations.cpp: activations whose ATen operators have two results or look at halves of a tensor.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/WrapDimUtils.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_prelu_kernel_backward_ops.h>
#include <ATen/ops/_prelu_kernel_ops.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/glu_backward_ops.h>
#include <ATen/ops/glu_ops.h>
#include <ATen/ops/log_sigmoid_forward_ops.h>
#include <torch/library.h>

#include <cmath>
#include <limits>
#include <tuple>

#include "aten/prepare/pointwise_meta.h"
#include "hal_op_ids.h"

namespace torch_backend {

c10::Scalar replacement(const at::Tensor &self, const std::optional<double> &given, int sign) {
  const auto dtype = self.scalar_type();
  if (!c10::isFloatingType(dtype)) return c10::Scalar(int64_t{0});
  if (given) return c10::Scalar(*given);
  if (sign == 0) return c10::Scalar(0.0);
  const double largest = dtype == at::kDouble  ? std::numeric_limits<double>::max()
                         : dtype == at::kFloat ? std::numeric_limits<float>::max()
                         : dtype == at::kHalf  ? 65504.0
                                               : static_cast<double>(std::numeric_limits<at::BFloat16>::max());
  return c10::Scalar(sign * largest);
}

namespace {

// ---- log_sigmoid: the second result is the CPU's own; nothing reads it here ----
std::tuple<at::Tensor, at::Tensor> bounded(const at::Tensor &self) {
  auto output = pointwise<meta::Unary>(HAL_OP_ID_LOG_SIGMOID_FORWARD, self);
  if (!output) return call_fallback<at::_ops::log_sigmoid_forward>(self);
  return {std::move(*output), at::empty({0}, self.options())};
}

std::tuple<at::Tensor &, at::Tensor &> bounded_out(const at::Tensor &self, at::Tensor &output, at::Tensor &buffer) {
  reduced_into(output, std::get<0>(bounded(self)), at::Reduction::None);
  return {output, buffer};
}

// ---- prelu: the weight comes in the shape of the operand ----
at::Tensor prelu(const at::Tensor &self, const at::Tensor &weight) {
  auto result = pointwise<meta::Binary>(HAL_OP_ID__PRELU_KERNEL, self, weight);
  return result ? std::move(*result) : call_fallback<at::_ops::_prelu_kernel>(self, weight);
}

std::tuple<at::Tensor, at::Tensor> prelu_backward(const at::Tensor &grad_output, const at::Tensor &self,
                                                  const at::Tensor &weight) {
  auto input = pointwise<meta::Ternary>(HAL_OP_ID__PRELU_KERNEL_BACKWARD, self, weight, grad_output);
  if (!input) return call_fallback<at::_ops::_prelu_kernel_backward>(grad_output, self, weight);
  auto of_weight = pointwise<meta::Binary>(HAL_OP_ID__PRELU_KERNEL_BACKWARD_WEIGHT, self, grad_output);
  if (!of_weight) return call_fallback<at::_ops::_prelu_kernel_backward>(grad_output, self, weight);
  return {std::move(*input), std::move(*of_weight)};
}

// ---- glu: the first half of a dimension, gated by the second ----
struct Halves {
  int64_t dim;
  at::Tensor first, second;

  Halves(const at::Tensor &self, int64_t given) : dim(c10::maybe_wrap_dim(given, self.dim())) {
    TORCH_CHECK(self.dim() > 0, "glu does not support 0-dimensional tensors");
    const int64_t size = self.size(dim);
    TORCH_CHECK(size % 2 == 0, "Halving dimension must be even, but dimension ", dim, " is size ", size);
    first = self.narrow(dim, 0, size / 2);
    second = self.narrow(dim, size / 2, size / 2);
  }
};

at::Tensor gated(const at::Tensor &self, int64_t dim) {
  const Halves halves(self, dim);
  auto result = pointwise<meta::Binary>(HAL_OP_ID_GLU, halves.first, halves.second);
  return result ? std::move(*result) : call_fallback<at::_ops::glu>(self, dim);
}

at::Tensor &gated_out(const at::Tensor &self, int64_t dim, at::Tensor &out) {
  return reduced_into(out, gated(self, dim), at::Reduction::None);
}

at::Tensor gated_backward(const at::Tensor &grad_output, const at::Tensor &self, int64_t dim) {
  const Halves halves(self, dim);
  auto first = pointwise<meta::Binary>(HAL_OP_ID_GLU, grad_output, halves.second);
  auto second = pointwise<meta::Ternary>(HAL_OP_ID_GLU_BACKWARD_GATE, grad_output, halves.first, halves.second);
  if (!first || !second) return call_fallback<at::_ops::glu_backward>(grad_output, self, dim);
  return at::cat({*first, *second}, halves.dim);
}

at::Tensor &gated_backward_out(const at::Tensor &grad_output, const at::Tensor &self, int64_t dim,
                               at::Tensor &grad_input) {
  return reduced_into(grad_input, gated_backward(grad_output, self, dim), at::Reduction::None);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("log_sigmoid_forward", TORCH_FN(bounded));
  m.impl("log_sigmoid_forward.output", TORCH_FN(bounded_out));
  m.impl("_prelu_kernel", TORCH_FN(prelu));
  m.impl("_prelu_kernel_backward", TORCH_FN(prelu_backward));
  m.impl("glu", TORCH_FN(gated));
  m.impl("glu.out", TORCH_FN(gated_out));
  m.impl("glu_backward", TORCH_FN(gated_backward));
  m.impl("glu_backward.grad_input", TORCH_FN(gated_backward_out));
}

}  // namespace torch_backend
