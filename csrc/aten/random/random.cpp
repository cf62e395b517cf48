// random.cpp: random numbers from the device's Philox generator. Distributions and dtypes without a kernel take the
// fallback, which is seeded from the same generator.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/Dispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/bernoulli_ops.h>
#include <ATen/ops/normal_ops.h>
#include <ATen/ops/uniform_ops.h>
#include <torch/library.h>

#include <limits>

#include "aten/fallback/fallback_call.h"
#include "aten/random/random_draw.h"
#include "hal_op_ids.h"

namespace torch_backend {
namespace {

template <typename T>
void check_limits(double from, double to, const at::Tensor &self) {
  const double lowest = static_cast<double>(std::numeric_limits<T>::lowest());
  const double highest = static_cast<double>(std::numeric_limits<T>::max());
  TORCH_CHECK(from >= lowest && from <= highest, "from is out of bounds for ", self.dtype());
  TORCH_CHECK(to >= lowest && to <= highest, "to is out of bounds for ", self.dtype());
  TORCH_CHECK(from <= to, "uniform_ expects to return a [from, to) range, but found from=", from, " > to=", to);
  TORCH_CHECK(to - from <= highest, "uniform_ expects to-from <= std::numeric_limits<",
              c10::toString(self.scalar_type()), ">::max(), but found to=", to, " and from=", from,
              " which result in to-from to exceed the limit");
}

at::Tensor &uniform_(at::Tensor &self, double from, double to, OptionalGenerator generator) {
  const c10::ScalarType dtype = self.scalar_type();
  if (self.is_floating_point()) {
    AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, dtype, "check_uniform_bounds",
                                    [&] { check_limits<scalar_t>(from, to, self); });
    if (self.numel() == 0) return self;
    at::assert_no_internal_overlap(self);
    if (draw(self, HAL_OP_ID_UNIFORM, {value(from), value(to)}, generator, dtype)) return self;
  }
  return call_fallback<at::_ops::uniform_>(self, from, to, generator);
}

at::Tensor &normal_(at::Tensor &self, double mean, double std, OptionalGenerator generator) {
  TORCH_CHECK(std >= 0.0, "normal expects std >= 0.0, but found std ", std);
  if (self.numel() == 0) return self;
  at::assert_no_internal_overlap(self);
  if (draw(self, HAL_OP_ID_NORMAL_FUNCTIONAL, {value(mean), value(std)}, generator, self.scalar_type())) return self;
  return call_fallback<at::_ops::normal_>(self, mean, std, generator);
}

at::Tensor &bernoulli_(at::Tensor &self, double p, OptionalGenerator generator) {
  TORCH_CHECK(0 <= p && p <= 1, "bernoulli_ expects p to be in [0, 1], but got p=", p);
  if (self.numel() == 0) return self;
  at::assert_no_internal_overlap(self);
  if (draw(self, HAL_OP_ID_BERNOULLI_P, {value(p)}, generator, self.scalar_type())) return self;
  return call_fallback<at::_ops::bernoulli__float>(self, p, generator);
}

// The result and its mask in one kernel. false = none for these operands.
bool run_dropout(const at::Tensor &input, double p, const at::Tensor &result, const at::Tensor &mask) {
  const c10::DeviceIndex device = input.device().index();
  if (!input.is_contiguous() || !has_kernel(device, HAL_OP_ID_NATIVE_DROPOUT, input.scalar_type())) return false;
  const hal_tensor_t operand = describe(input), first = describe(result), second = describe(mask);
  const hal_value_t args[] = {value(operand), value(p)};
  const hal_tensor_t *const results[] = {&first, &second};
  const PhiloxState philox = reserve_philox(std::nullopt, device, blocks_for(input.numel(), mask.itemsize()));
  return run_op(device, HAL_OP_ID_NATIVE_DROPOUT, args, results, 0, philox);
}

// The CPU's kernel would draw from the CPU's default generator: it takes none.
std::tuple<at::Tensor, at::Tensor> native_dropout(const at::Tensor &input, double p, std::optional<bool> train) {
  TORCH_CHECK(p >= 0 && p <= 1, "dropout probability has to be between 0 and 1, but got ", p);
  at::Tensor mask = make_empty(input.sizes(), at::kBool, input.device().index());
  if (train && !*train) return {input.clone(), mask.fill_(true)};
  if (input.is_contiguous() && input.is_floating_point()) {
    at::Tensor result = make_empty(input.sizes(), input.scalar_type(), input.device().index());
    if (input.numel() == 0 || run_dropout(input, p, result, mask)) return {result, mask};
  }
  bernoulli_(mask, 1 - p, std::nullopt);
  const double scale = p == 1 ? 0.0 : 1.0 / (1.0 - p);
  return {input.mul(mask).mul_(scale), mask};
}

at::Tensor native_dropout_backward(const at::Tensor &grad, const at::Tensor &mask, double scale) {
  const at::Tensor kept = grad.mul(mask);
  return grad.is_floating_point() || grad.is_complex() ? kept.mul_(scale) : kept.mul(scale);  // integers become floats
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("uniform_", TORCH_FN(uniform_));
  m.impl("normal_", TORCH_FN(normal_));
  m.impl("bernoulli_.float", TORCH_FN(bernoulli_));
  m.impl("native_dropout", TORCH_FN(native_dropout));
  m.impl("native_dropout_backward", TORCH_FN(native_dropout_backward));
}

}  // namespace torch_backend
