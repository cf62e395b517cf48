// pad.cpp: padding by reflection and by replication, for which ATen has no meta function. A call with invalid sizes
// goes to the CPU's function, which reports the error.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>

#include "aten/prepare/vendor_op.h"
#include "hal_op_ids.h"

namespace torch_backend {
namespace {

// Returns the padded sizes. Returns an empty list if the padding, listed from the last dimension on before and after,
// is invalid. Only the batch may be empty.
at::DimVector padded_sizes(const at::Tensor &self, c10::IntArrayRef padding, size_t dims, bool reflects) {
  const auto ndim = static_cast<size_t>(self.dim());
  if (padding.size() != 2 * dims || (ndim != dims + 1 && ndim != dims + 2) ||
      self.size(-1 - static_cast<int64_t>(dims)) == 0)
    return {};
  at::DimVector sizes(self.sizes());
  for (size_t i = 0; i < 2 * dims; i++) {
    int64_t &size = sizes[ndim - 1 - i / 2];
    if (i % 2 == 0 && size == 0) return {};
    if (reflects && padding[i] >= self.size(-1 - static_cast<int64_t>(i / 2))) return {};
    size += padding[i];
    if (i % 2 == 1 && size < 1) return {};
  }
  return sizes;
}

bool pad(Outputs &outputs, const at::Tensor &self, c10::IntArrayRef padding) {
  const at::DimVector sizes = padded_sizes(self, padding, 2, true);
  if (sizes.empty()) return false;
  outputs.make(0, sizes, self, self.suggest_memory_format());
  return run_kernel(HAL_OP_ID_REFLECTION_PAD2D, {argument(self), argument(padding)}, outputs);
}

template <uint32_t kOp, size_t kDims>
bool pad_backward(Outputs &outputs, const at::Tensor &grad, const at::Tensor &self, c10::IntArrayRef padding) {
  if (grad.sizes() != padded_sizes(self, padding, kDims, kOp == HAL_OP_ID_REFLECTION_PAD2D_BACKWARD)) return false;
  outputs.make(0, self.sizes(), self, c10::MemoryFormat::Contiguous);  // as torch's meta function returns
  return run_kernel(kOp, {argument(grad), argument(self), argument(padding)}, outputs);
}

}  // namespace
}  // namespace torch_backend

#include "aten/spatial/pad.inc"  // registrations: codegen/operators
