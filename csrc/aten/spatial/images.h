// images.h: tensors of images: (channel, space ...) or (batch, channel, space ...).
#pragma once

#include <ATen/core/Tensor.h>

#include "aten/prepare/call.h"

namespace torch_backend {

// Images without a batch are a batch of one. `dims`: of space.
inline at::Tensor batched(const at::Tensor &tensor, int64_t dims) {
  return tensor.dim() == dims + 1 ? tensor.unsqueeze(0) : tensor;
}

// Of a list with a number for each dimension of space, or one for all.
inline int64_t at_dim(c10::IntArrayRef list, size_t d) { return list.size() == 1 ? list[0] : list[d]; }

// How many windows lie in a dimension of images.
inline int64_t windows_over(int64_t in, int64_t size, int64_t step, int64_t pad, int64_t dilation) {
  return (in + 2 * pad - dilation * (size - 1) - 1) / step + 1;
}

}  // namespace torch_backend
