// random_vendor.h: functions that the random operators share: numbers of the Philox generator, as many as the tensor
// has elements.
#pragma once

#include <ATen/MemoryOverlap.h>
#include <ATen/core/Tensor.h>

#include "aten/prepare/vendor_op.h"

namespace torch_backend {

using OptionalGenerator = std::optional<at::Generator>;

// Fills `self` by random operator `op`, whose kernel generates the numbers that ATen generates for `dtype`. Element i
// of the sequence is element i in C order whatever the strides. The plugin's own operator takes precedence, with `self`
// unchanged. Returns false if there is no kernel; then no number was generated.
template <class... Numbers>
bool draw(const at::Tensor &self, uint32_t op, const OptionalGenerator &generator, c10::ScalarType dtype,
          const Numbers &...numbers) {
  if (self.numel() == 0) return true;
  const c10::DeviceIndex device = self.device().index();
  const bool own = has_vendor_op(device, op);
  const Declined declined(op);
  Call call(op, device, dtype);
  if (!call.possible() && !own) return false;
  (call.put(numbers), ...);
  const PhiloxState state =
      reserve_words(generator, device, self.numel(), call.possible() ? call.dtype() : self.scalar_type());
  if (own && call_vendor_op(op, {argument(numbers)...}, self, state)) return true;
  return call.random(state).out(self).run();
}

// Calls the plugin's own operator for an operator that is composed of others here, with words for `count` elements of a
// dtype. If it declines, `generator` returns the same words to the next caller.
inline bool call_random_vendor_op(uint32_t op, c10::DeviceIndex device, OptionalGenerator &generator, int64_t count,
                                  c10::ScalarType dtype, std::initializer_list<Argument> arguments,
                                  c10::ArrayRef<at::Tensor> results) {
  if (!has_vendor_op(device, op)) return false;
  const PhiloxState state = reserve_words(generator, device, count, dtype);
  if (call_vendor_op(op, arguments, results, state)) return true;
  generator = generator_at(device, state);
  return false;
}

}  // namespace torch_backend
