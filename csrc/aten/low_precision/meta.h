// meta.h: checks of products of matrices of 8-bit elements, before a vendor's operator or products.cpp computes them.
// Each returns the result, not computed yet.
#pragma once

#include <ATen/ops/empty.h>

#include <optional>

#include "aten/prepare/call.h"

namespace torch_backend {

inline at::Tensor empty_int_mm(const at::Tensor &self, const at::Tensor &mat2) {
  TORCH_CHECK(self.dim() == 2, "_int_mm: expected self to be of dimension 2 but got ", self.dim());
  TORCH_CHECK(mat2.dim() == 2, "_int_mm: expected mat2 to be of dimension 2 but got ", mat2.dim());
  TORCH_CHECK(self.scalar_type() == at::kChar || self.scalar_type() == at::kByte,
              "_int_mm: expected self dtype to be int8 or uint8 but got ", self.scalar_type());
  TORCH_CHECK(mat2.scalar_type() == at::kChar, "_int_mm: expected mat2 dtype to be int8 but got ", mat2.scalar_type());
  TORCH_CHECK(self.size(1) == mat2.size(0), "_int_mm: self.size(1) needs to match mat2.size(0) but got ", self.size(1),
              " and ", mat2.size(0));
  return at::empty({self.size(0), mat2.size(1)}, self.options().dtype(at::kInt));
}

inline at::Tensor empty_weight_int8pack_mm(const at::Tensor &self, const at::Tensor &mat2, const at::Tensor &scales) {
  const auto dtype = self.scalar_type();
  TORCH_CHECK(self.dim() == 2 && mat2.dim() == 2, "_weight_int8pack_mm: expected two matrices but got ", self.dim(),
              " and ", mat2.dim(), " dimensions");
  TORCH_CHECK(dtype == at::kFloat || dtype == at::kHalf || dtype == at::kBFloat16,
              "_weight_int8pack_mm: expected self to be a float32, float16 or bfloat16 tensor but got ", dtype);
  TORCH_CHECK(mat2.scalar_type() == at::kChar, "_weight_int8pack_mm: expected mat2 to be an int8 tensor but got ",
              mat2.scalar_type());
  TORCH_CHECK(mat2.size(1) == self.size(1), "_weight_int8pack_mm: expected mat2.size(1) == ", self.size(1), " but got ",
              mat2.size(1));
  TORCH_CHECK(scales.dim() == 1 && scales.size(0) == mat2.size(0) && scales.scalar_type() == dtype,
              "_weight_int8pack_mm: expected scales to be a ", dtype, " tensor of size ", mat2.size(0), " but got ",
              scales.scalar_type(), " of sizes ", scales.sizes());
  return at::empty({self.size(0), mat2.size(0)}, self.options());
}

inline at::Tensor empty_scaled_mm(const at::Tensor &self, const at::Tensor &mat2, const at::Tensor &,
                                  const at::Tensor &, const OptionalTensor &, const OptionalTensor &,
                                  std::optional<c10::ScalarType> out_dtype, bool) {
  TORCH_CHECK(self.dim() == 2 && mat2.dim() == 2, "_scaled_mm: expected two matrices but got ", self.dim(), " and ",
              mat2.dim(), " dimensions");
  TORCH_CHECK(self.size(1) == mat2.size(0), "_scaled_mm: the matrices of ", self.sizes(), " and ", mat2.sizes(),
              " cannot be multiplied");
  return at::empty({self.size(0), mat2.size(1)}, self.options().dtype(out_dtype.value_or(self.scalar_type())));
}

}  // namespace torch_backend
