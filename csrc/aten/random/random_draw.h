// random_draw.h: what the random operators share: reserve words of the Philox generator and run a kernel on them.
#pragma once

#include <ATen/MemoryOverlap.h>
#include <ATen/core/Tensor.h>

#include "aten/copy/copy.h"
#include "aten/prepare/op_call.h"

namespace torch_backend {

using OptionalGenerator = std::optional<at::Generator>;

// Blocks of four 32-bit words that `numel` elements use: a word each, two for 64-bit dtypes (hal_random_t in
// hal/plugin.h).
inline uint64_t blocks_for(int64_t numel, size_t itemsize) {
  const uint64_t per_block = itemsize == 8 ? 2 : 4;
  return (static_cast<uint64_t>(numel) + per_block - 1) / per_block;
}

// Fills `self` by random operator `op`, whose kernel makes numbers of dtype `computing`; they are cast when `self` has
// another one. false = no kernel for it; no number was drawn.
template <size_t kArgs>
bool draw(at::Tensor &self, uint32_t op, const hal_value_t (&args)[kArgs], const OptionalGenerator &generator,
          c10::ScalarType computing) {
  const c10::DeviceIndex device = self.device().index();
  if (!has_kernel(device, op, computing)) return false;
  // Element i of the sequence is element i in C order whatever the strides.
  const bool direct = self.is_contiguous() && self.scalar_type() == computing && !has_bits(self);
  const at::Tensor target = direct ? self : make_empty(self.sizes(), computing, device);
  const hal_tensor_t described = describe(target);
  const hal_tensor_t *const results[] = {&described};
  const PhiloxState philox = reserve_philox(generator, device, blocks_for(self.numel(), target.itemsize()));
  if (!run_op(device, op, args, results, 0, philox)) return false;
  if (!direct) copy_on_device(target, self);
  return true;
}

}  // namespace torch_backend
