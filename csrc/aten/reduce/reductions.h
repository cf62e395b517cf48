// reductions.h: reductions that are used by other operators.
#pragma once

#include <ATen/core/Tensor.h>

namespace torch_backend {

// Returns the sum of self * (other - center) over `dims`; floating tensors of one shape and dtype. `center` (undefined
// = 0) has size 1 in the reduced dimensions and may have stride 0 in others. Undefined if there is no kernel.
at::Tensor centered_dot(const at::Tensor &self, const at::Tensor &other, const at::Tensor &center,
                        c10::IntArrayRef dims, bool keepdim);

}  // namespace torch_backend
