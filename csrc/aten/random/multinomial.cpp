// multinomial.cpp: sampling from given probabilities by a race of exponential numbers: category i, with rate p[i],
// arrives first with probability p[i]. Unsupported calls go to the CPU's function, which reports errors.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>

#include <limits>

#include "aten/random/random_vendor.h"
#include "hal_op_ids.h"

namespace torch_backend {
namespace {

// With replacement there is an arrival time for every category of every sample; above this number the CPU's method is
// faster.
constexpr int64_t kMostTimes = INT64_C(1) << 24;

bool is_valid(const at::Tensor &self, int64_t count, bool replacement) {
  if (!self.is_floating_point() || self.numel() == 0 || count <= 0) return false;
  if ((self.dim() != 1 && self.dim() != 2) || self.size(-1) > kMostTimes) return false;
  if (replacement ? self.numel() > kMostTimes / count : count > self.size(-1)) return false;
  // Invalid probabilities raise an error immediately, so the host waits for one element, as ATen does on the CPU.
  const double infinity = std::numeric_limits<double>::infinity();
  const at::Tensor known = self.min().ge(0).bitwise_and(self.max().lt(infinity));
  return known.bitwise_and(self.sum(-1).gt(0).all()).item<bool>();
}

at::Tensor sample(const at::Tensor &self, int64_t count, bool replacement, OptionalGenerator generator) {
  at::DimVector chosen(self.sizes()), sizes(self.sizes());
  chosen.back() = count;
  if (replacement) sizes.insert(sizes.end() - 1, count);
  const c10::DeviceIndex device = self.device().index();
  if (has_vendor_op(device, HAL_OP_ID_MULTINOMIAL)) {
    const at::Tensor result = make_empty(chosen, at::kLong, device);
    if (call_random_vendor_op(HAL_OP_ID_MULTINOMIAL, device, generator, c10::multiply_integers(sizes),
                              self.scalar_type(), {argument(self), argument(count), argument(replacement)}, result))
      return result;
  }
  at::Tensor times = make_empty(sizes, self.scalar_type(), self.device().index());
  times.exponential_(1, std::move(generator));
  const at::Tensor speeds = (replacement ? self.unsqueeze(-2) : self).div(times);
  if (replacement) return speeds.argmax(-1);
  return count == 1 ? speeds.argmax(-1, /*keepdim=*/true) : std::get<1>(speeds.topk(count));
}

bool multinomial(Outputs &outputs, const at::Tensor &self, int64_t count, bool replacement,
                 const OptionalGenerator &generator) {
  if (outputs.given(0) && outputs.given(0)->scalar_type() != at::kLong) return false;
  if (!is_valid(self, count, replacement)) return false;
  outputs.put(0, sample(self, count, replacement, generator));
  return true;
}

}  // namespace
}  // namespace torch_backend

#include "aten/random/multinomial.inc"  // registrations: codegen/operators
