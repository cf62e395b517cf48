// conditions.h: what assignment by indices checks before ATen's function does.
#pragma once

#include <algorithm>

#include "aten/index/index_plan.h"

namespace torch_backend {

// Returns the indices. Raises an error if none is a tensor: ATen's function does not check this, and its kernels for
// the CPU fail with an internal assertion.
inline const Indices &with_an_index(const Indices &indices) {
  const auto is_tensor = [](const std::optional<at::Tensor> &index) { return index && index->defined(); };
  TORCH_CHECK(std::any_of(indices.begin(), indices.end(), is_tensor),
              "index_put_: expected at least one tensor among the indices, and got ", indices.size(),
              " indices without one");
  return indices;
}

}  // namespace torch_backend
