// conditions.h: the functions that entries of codegen/operators/reduce.yaml name.
#pragma once

#include <ATen/core/Tensor.h>

namespace torch_backend {

inline bool is_of_another_dtype(const at::Tensor &tensor, c10::ScalarType dtype) {
  return tensor.scalar_type() != dtype;
}

}  // namespace torch_backend
