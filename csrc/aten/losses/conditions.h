// conditions.h: the functions that entries of codegen/operators/losses.yaml name, and the reduction of a loss's
// elements.
#pragma once

#include <ATen/core/Reduction.h>
#include <ATen/core/Tensor.h>

namespace torch_backend {

inline bool is_reduced(int64_t reduction) {
  return reduction == at::Reduction::Mean || reduction == at::Reduction::Sum;
}
// Returns the mean or the sum of a loss's elements.
at::Tensor reduced(const at::Tensor &elements, int64_t reduction);
at::Tensor &reduced_into(at::Tensor &out, const at::Tensor &elements, int64_t reduction);
// Returns the factor of a loss's gradient: 1 / elements for the mean.
inline double share(const at::Tensor &self, int64_t reduction) {
  return reduction == at::Reduction::Mean ? 1.0 / static_cast<double>(self.numel()) : 1.0;
}
inline double twice_the_share(const at::Tensor &self, int64_t reduction) { return 2 * share(self, reduction); }

inline bool is_negative(double number) { return number < 0; }
inline bool is_not_positive(double number) { return number <= 0; }

}  // namespace torch_backend
