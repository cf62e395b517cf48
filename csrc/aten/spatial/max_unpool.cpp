// max_unpool.cpp: the inverse of max pooling: elements are written to the stored indices, all others are zero. A call
// with invalid sizes goes to the CPU's function, which reports the error.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>

#include <algorithm>

#include "aten/prepare/structured.h"

namespace torch_backend {
namespace {

// Returns zeros with the elements at their indices. scatter_ refuses invalid indices.
template <size_t kDims>
bool unpool(Outputs &outputs, const at::Tensor &self, const at::Tensor &indices, c10::IntArrayRef output_size) {
  const auto ndim = static_cast<size_t>(self.dim());
  if (self.sizes() != indices.sizes() || indices.scalar_type() != at::kLong) return false;
  if (output_size.size() != kDims || (ndim != kDims + 1 && ndim != kDims + 2)) return false;
  at::DimVector sizes(self.sizes());
  for (size_t d = ndim - kDims; d < ndim; d++)
    if (sizes[d] == 0 || (sizes[d] = output_size[d - (ndim - kDims)]) <= 0) return false;
  const at::Tensor result = make_empty(sizes, self.scalar_type(), self.device().index());
  result.zero_().flatten(-int64_t{kDims}).scatter_(-1, indices.flatten(-int64_t{kDims}), self.flatten(-int64_t{kDims}));
  outputs.put(0, result);  // contiguous, as torch's decomposition returns
  return true;
}

bool unpool3d(Outputs &outputs, const at::Tensor &self, const at::Tensor &indices, c10::IntArrayRef output_size,
              c10::IntArrayRef stride, c10::IntArrayRef padding) {
  return stride.size() == 3 && padding.size() == 3 && *std::min_element(stride.begin(), stride.end()) > 0 &&
         unpool<3>(outputs, self, indices, output_size);
}

}  // namespace
}  // namespace torch_backend

#include "aten/spatial/max_unpool.inc"  // registrations: codegen/operators
