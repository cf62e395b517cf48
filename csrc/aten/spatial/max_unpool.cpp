// max_unpool.cpp: the inverse of max pooling: elements go to the places that were stored, everything else is zero. A call
// with sizes that do not fit goes to the CPU's function, which says why.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/max_unpool2d_ops.h>
#include <ATen/ops/max_unpool3d_ops.h>
#include <torch/library.h>

#include "aten/fallback/fallback_call.h"
#include "aten/prepare/op_call.h"

namespace torch_backend {
namespace {

std::optional<at::DimVector> sizes_of(const at::Tensor &self, const at::Tensor &indices, c10::IntArrayRef output_size,
                                      size_t dims) {
  const bool images = is_device_tensor(self) && is_device_tensor(indices) && self.device() == indices.device() &&
                      self.sizes() == indices.sizes() && indices.scalar_type() == at::kLong;
  const auto ndim = static_cast<size_t>(self.dim());
  if (!images || output_size.size() != dims || (ndim != dims + 1 && ndim != dims + 2)) return std::nullopt;
  at::DimVector sizes(self.sizes());
  for (size_t d = 0; d < dims; d++) {
    if (self.size(static_cast<int64_t>(ndim - dims + d)) == 0 || output_size[d] <= 0) return std::nullopt;
    sizes[ndim - dims + d] = output_size[d];
  }
  return sizes;
}

// Zeros with the elements in their places. Places that do not exist are refused by scatter_.
at::Tensor scattered(const at::Tensor &self, const at::Tensor &indices, const at::DimVector &sizes, size_t dims) {
  const at::Tensor result = make_empty(sizes, self.scalar_type(), self.device().index());
  result.zero_();
  const auto first = self.dim() - static_cast<int64_t>(dims);
  result.flatten(first).scatter_(first, indices.flatten(first), self.flatten(first));
  return result;
}

at::Tensor max_unpool2d(const at::Tensor &self, const at::Tensor &indices, c10::IntArrayRef output_size) {
  const auto sizes = sizes_of(self, indices, output_size, 2);
  if (!sizes) return call_fallback<at::_ops::max_unpool2d>(self, indices, output_size);
  return scattered(self, indices, *sizes, 2).contiguous(self.suggest_memory_format());
}

at::Tensor max_unpool3d(const at::Tensor &self, const at::Tensor &indices, c10::IntArrayRef output_size,
                        c10::IntArrayRef stride, c10::IntArrayRef padding) {
  const auto sizes = sizes_of(self, indices, output_size, 3);
  bool right = sizes && stride.size() == 3 && padding.size() == 3;
  for (const int64_t step : stride) right = right && step > 0;
  if (!right) return call_fallback<at::_ops::max_unpool3d>(self, indices, output_size, stride, padding);
  return scattered(self, indices, *sizes, 3);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("max_unpool2d", TORCH_FN(max_unpool2d));
  m.impl("max_unpool3d", TORCH_FN(max_unpool3d));
}

}  // namespace torch_backend
