// conditions.cpp: see conditions.h.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "aten/pointwise/conditions.h"

#include <ATen/ops/result_type.h>

namespace torch_backend {

bool is_integer_zero_of_host(const at::Tensor &self, const at::Tensor &other) {
  if (other.dim() != 0) return false;
  const c10::ScalarType dtype = at::result_type(self, other);
  return c10::isIntegralType(dtype, true) && !other.to(dtype).is_nonzero();
}

}  // namespace torch_backend
