// random_draw.h: what the random operators share: numbers of the Philox generator, as many as the tensor has elements.
#pragma once

#include <ATen/MemoryOverlap.h>
#include <ATen/core/Tensor.h>

#include "aten/prepare/call.h"

namespace torch_backend {

using OptionalGenerator = std::optional<at::Generator>;

// Fills `self` by random operator `op`, whose kernel makes numbers where ATen makes those of `dtype`; element i of the sequence is
// element i in C order whatever the strides. False = no kernel for it; no number was drawn.
template <class... Numbers>
bool draw(const at::Tensor &self, uint32_t op, const OptionalGenerator &generator, c10::ScalarType dtype,
          const Numbers &...numbers) {
  if (self.numel() == 0) return true;
  Call call(op, self.device().index(), dtype);
  (call.put(numbers), ...);
  return call.random(generator, self.numel()).out(self).run();
}

}  // namespace torch_backend
