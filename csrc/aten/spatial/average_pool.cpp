// average_pool.cpp: adaptive average pooling, forward and backward, for which ATen has no meta functions. An invalid
// call goes to the CPU's function, which reports the error.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS

#include <algorithm>

#include "aten/prepare/vendor_op.h"
#include "hal_op_ids.h"

namespace torch_backend {
namespace {

bool is_image(const at::Tensor &self, size_t dims) {
  if (!self.is_floating_point() ||
      (self.dim() != static_cast<int64_t>(dims) + 1 && self.dim() != static_cast<int64_t>(dims) + 2))
    return false;
  const c10::IntArrayRef space = self.sizes().slice(static_cast<size_t>(self.dim()) - dims);
  return std::find(space.begin(), space.end(), 0) == space.end();
}

template <uint32_t kOp, size_t kDims>
bool adaptive_avg_pool(Outputs &outputs, const at::Tensor &self, c10::IntArrayRef output_size) {
  if (output_size.size() != kDims || !is_image(self, kDims)) return false;
  if (*std::min_element(output_size.begin(), output_size.end()) < 0) return false;
  at::DimVector sizes(self.sizes());
  std::copy(output_size.begin(), output_size.end(), sizes.end() - kDims);
  // The memory format is that of the CPU.
  outputs.make(0, sizes, self, kDims == 2 ? self.suggest_memory_format() : c10::MemoryFormat::Contiguous);
  return run_kernel(kOp, {argument(self), argument(output_size)}, outputs);
}

template <uint32_t kOp, size_t kDims>
bool adaptive_avg_pool_backward(Outputs &outputs, const at::Tensor &grad, const at::Tensor &self) {
  const auto channels = [](const at::Tensor &t) { return t.sizes().slice(0, static_cast<size_t>(t.dim()) - kDims); };
  if (!is_image(self, kDims) || !is_image(grad, kDims) || grad.dim() != self.dim() ||
      grad.scalar_type() != self.scalar_type() || channels(grad) != channels(self))
    return false;
  // The memory format is that of the CPU.
  outputs.make(0, self.sizes(), self, kDims == 2 ? self.suggest_memory_format() : c10::MemoryFormat::Contiguous);
  return run_kernel(kOp, {argument(grad), argument(self)}, outputs);
}

}  // namespace
}  // namespace torch_backend

#include "aten/spatial/average_pool.inc"  // registrations: codegen/operators
