// random.cpp: random numbers from the device's Philox generator. Distributions and dtypes without a kernel take the
// fallback, which is seeded from the same generator.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/Dispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>

#include <limits>

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

bool uniform(at::Tensor &self, double from, double to, const OptionalGenerator &generator) {
  if (!self.is_floating_point()) return false;
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, self.scalar_type(), "check_uniform_bounds",
                                  [&] { check_limits<scalar_t>(from, to, self); });
  at::assert_no_internal_overlap(self);
  return draw(self, HAL_OP_ID_UNIFORM, generator, self.scalar_type(), from, to);
}

bool normal(at::Tensor &self, double mean, double std, const OptionalGenerator &generator) {
  TORCH_CHECK(std >= 0.0, "normal expects std >= 0.0, but found std ", std);
  at::assert_no_internal_overlap(self);
  return self.numel() == 0 || (self.is_floating_point() &&
                               draw(self, HAL_OP_ID_NORMAL_FUNCTIONAL, generator, self.scalar_type(), mean, std));
}

bool bernoulli(at::Tensor &self, double p, const OptionalGenerator &generator) {
  TORCH_CHECK(0 <= p && p <= 1, "bernoulli_ expects p to be in [0, 1], but got p=", p);
  at::assert_no_internal_overlap(self);
  return draw(self, HAL_OP_ID_BERNOULLI_P, generator, self.scalar_type(), p);
}

// The result and its mask in one kernel. The CPU's kernel would draw from the CPU's default generator: it takes none.
std::tuple<at::Tensor, at::Tensor> native_dropout(const at::Tensor &input, double p, std::optional<bool> train) {
  TORCH_CHECK(p >= 0 && p <= 1, "dropout probability has to be between 0 and 1, but got ", p);
  at::Tensor mask = make_empty(input.sizes(), at::kBool, input.device().index());
  if (train && !*train) return {input.clone(), mask.fill_(true)};
  const c10::DeviceIndex device = input.device().index();
  OptionalGenerator generator;
  at::Tensor result = at::empty_like(input);
  if (input.numel() == 0) return {result, mask};
  if (ask_to_draw(HAL_OP_ID_NATIVE_DROPOUT, device, generator, input.numel(), at::kBool,
                  {given(input), given(p), given(train)}, {result, mask}))
    return {result, mask};
  if (input.is_contiguous() && input.is_floating_point()) {
    const Declined asked_here(HAL_OP_ID_NATIVE_DROPOUT);
    Call call(HAL_OP_ID_NATIVE_DROPOUT, input);
    call.in(input).put(p);
    if (call.possible()) call.random(reserve_words(generator, device, input.numel(), at::kBool));
    if (call.out(result).out(mask, at::kBool).run()) return {result, mask};
  }
  mask.bernoulli_(1 - p, generator);
  const double scale = p == 1 ? 0.0 : 1.0 / (1.0 - p);
  return {input.mul(mask).mul_(scale), mask};
}

at::Tensor native_dropout_backward(const at::Tensor &grad, const at::Tensor &mask, double scale) {
  const at::Tensor kept = grad.mul(mask);
  return grad.is_floating_point() || grad.is_complex() ? kept.mul_(scale) : kept.mul(scale);  // integers become floats
}

}  // namespace
}  // namespace torch_backend

#include "aten/random/random.inc"  // registrations: `bodies` of codegen/ops.yaml
