// activations.cpp: activations whose ATen operators have two results or split a tensor in halves.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/native/Resize.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/copysign.h>

#include <cmath>
#include <limits>
#include <vector>

#include "aten/pointwise/conditions.h"
#include "aten/pointwise/meta.h"
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

// ---- log_sigmoid: the second result is exp(-|x|), as in FakeTensor; the device's backward does not read it ----
bool log_sigmoid(Outputs &outputs, const at::Tensor &self) {
  auto result = pointwise<meta::Unary>(HAL_OP_ID_LOG_SIGMOID_FORWARD, {}, self);
  if (!result) return false;
  outputs.put(0, *std::move(result));
  outputs.put(1, at::copysign(self, -1).exp_());
  return true;
}

// ---- prelu: the weight has the shape of the operand ----
bool prelu(Outputs &outputs, const at::Tensor &self, const at::Tensor &weight) {
  auto result = pointwise<meta::Binary>(HAL_OP_ID__PRELU_KERNEL, {}, self, weight);
  if (result) outputs.put(0, *std::move(result));
  return result.has_value();
}

bool prelu_backward(Outputs &outputs, const at::Tensor &grad_output, const at::Tensor &self, const at::Tensor &weight) {
  auto input = pointwise<meta::Ternary>(HAL_OP_ID__PRELU_KERNEL_BACKWARD, {}, self, weight, grad_output);
  auto of_weight = pointwise<meta::Binary>(HAL_OP_ID__PRELU_KERNEL_BACKWARD_WEIGHT, {}, self, grad_output);
  if (!input || !of_weight) return false;
  outputs.put(0, *std::move(input));
  outputs.put(1, *std::move(of_weight));
  return true;
}

// ---- glu: the first half of a dimension, gated by the second ----
bool glu(const Outputs &outputs, const at::Tensor &self, int64_t dim) {
  const std::vector<at::Tensor> halves = self.chunk(2, dim);
  return Call(HAL_OP_ID_GLU_GATE, self).in(halves[0]).in(halves[1]).elementwise().out(outputs[0]).run();
}

bool glu_backward(Outputs &outputs, const at::Tensor &grad_output, const at::Tensor &self, int64_t dim) {
  const int64_t size = self.dim() ? self.size(dim) : 1;
  if (size % 2 != 0) return false;  // the CPU's function reports the error
  const at::Tensor first = self.narrow(dim, 0, size / 2), second = self.narrow(dim, size / 2, size / 2);
  auto of_first = pointwise<meta::Binary>(HAL_OP_ID_GLU_GATE, {}, grad_output, second);
  auto of_second = pointwise<meta::Ternary>(HAL_OP_ID_GLU_BACKWARD_GATE, {}, grad_output, first, second);
  if (!of_first || !of_second) return false;
  outputs.put(0, at::cat({*of_first, *of_second}, dim));
  return true;
}

}  // namespace
}  // namespace torch_backend

#include "aten/pointwise/activations.inc"  // registrations: codegen/operators
