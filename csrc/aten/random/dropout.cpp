// dropout.cpp: dropout with numbers of the device's Philox generator.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>

#include "aten/random/random_vendor.h"
#include "hal_op_ids.h"

namespace torch_backend {
namespace {

// Computes the result and its mask in one kernel. The CPU's kernel takes no generator and would use the CPU's default
// one.
std::tuple<at::Tensor, at::Tensor> native_dropout(const at::Tensor &input, double p, std::optional<bool> train) {
  TORCH_CHECK(p >= 0 && p <= 1, "dropout probability has to be between 0 and 1, but got ", p);
  at::Tensor mask = make_empty(input.sizes(), at::kBool, input.device().index());
  if (train && !*train) return {input.clone(), mask.fill_(true)};
  const c10::DeviceIndex device = input.device().index();
  OptionalGenerator generator;
  at::Tensor result = at::empty_like(input);
  if (input.numel() == 0) return {result, mask};
  if (call_random_vendor_op(HAL_OP_ID_NATIVE_DROPOUT, device, generator, input.numel(), at::kBool,
                            {argument(input), argument(p), argument(train)}, {result, mask}))
    return {result, mask};
  if (input.is_contiguous() && input.is_floating_point()) {
    const Declined declined(HAL_OP_ID_NATIVE_DROPOUT);
    Call call(HAL_OP_ID_NATIVE_DROPOUT, input);
    call.in(input).put(p);
    if (call.possible()) call.random(reserve_words(generator, device, input.numel(), at::kBool));
    if (call.out(result).out(mask, at::kBool).run()) return {result, mask};
  }
  mask.bernoulli_(1 - p, generator);
  const double scale = p == 1 ? 0.0 : 1.0 / (1.0 - p);
  return {input.mul(mask).mul_(scale), mask};
}

}  // namespace
}  // namespace torch_backend

#include "aten/random/dropout.inc"  // registrations: codegen/operators
