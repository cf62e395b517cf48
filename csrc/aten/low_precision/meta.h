// meta.h: checks of products of matrices of 4 and 8-bit elements, and of groups, before a vendor's operator,
// products.cpp or grouped.cpp computes them. Each returns the result, not computed yet.
#pragma once

#include <ATen/ops/empty.h>

#include <optional>
#include <vector>

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

// The bytes of two weights each become int32 in the sizes of ATen's tiles, of 8 rows and 16 * inner_tiles columns.
inline at::Tensor empty_int4pack(const at::Tensor &self, int64_t inner_tiles) {
  const char *const name = "_convert_weight_to_int4pack";
  TORCH_CHECK(self.dim() == 2 && self.scalar_type() == at::kByte, name, ": expected a uint8 matrix but got ",
              self.scalar_type(), " of sizes ", self.sizes());
  TORCH_CHECK(inner_tiles == 2 || inner_tiles == 4 || inner_tiles == 8, name,
              ": expected innerKTiles to be 2, 4 or 8 but got ", inner_tiles);
  const int64_t n = self.size(0), k = self.size(1) * 2;
  TORCH_CHECK(n % 8 == 0 && k % (inner_tiles * 16) == 0, name, ": expected a multiple of 8 rows and of ",
              inner_tiles * 16, " weights in each, but got ", n, " and ", k);
  return at::empty({n / 8, k / (inner_tiles * 16), 32, inner_tiles / 2}, self.options().dtype(at::kInt));
}

// Checks a product with weights of 4 bits. Returns the result, of as many columns as the packed weights have rows: they
// have the sizes of ATen's tiles, or are a matrix.
inline at::Tensor empty_int4_product(const char *name, const at::Tensor &self, const at::Tensor &mat2, int64_t group) {
  const auto dtype = self.scalar_type();
  TORCH_CHECK(self.dim() == 2 && (dtype == at::kFloat || dtype == at::kHalf || dtype == at::kBFloat16), name,
              ": expected self to be a float32, float16 or bfloat16 matrix but got ", dtype, " of sizes ",
              self.sizes());
  TORCH_CHECK((mat2.dim() == 2 || mat2.dim() == 4) && mat2.scalar_type() == at::kInt, name,
              ": expected the result of _convert_weight_to_int4pack but got ", mat2.scalar_type(), " of sizes ",
              mat2.sizes());
  const int64_t n = mat2.dim() == 4 ? mat2.size(0) * 8 : mat2.size(0), k = self.size(1);
  TORCH_CHECK(mat2.numel() * 8 == n * k, name, ": expected ", k, " weights in a row, as self has columns, but got ",
              n > 0 ? mat2.numel() * 8 / n : 0);
  TORCH_CHECK(group > 0 && k % group == 0, name, ": expected qGroupSize to divide ", k, " but got ", group);
  return at::empty({self.size(0), n}, self.options());
}

inline at::Tensor empty_weight_int4pack_mm(const at::Tensor &self, const at::Tensor &mat2, int64_t group,
                                           const at::Tensor &scales_and_zeros) {
  at::Tensor result = empty_int4_product("_weight_int4pack_mm", self, mat2, group);
  const std::vector<int64_t> sizes = {self.size(1) / group, result.size(1), 2};
  TORCH_CHECK(scales_and_zeros.sizes() == sizes && scales_and_zeros.scalar_type() == self.scalar_type(),
              "_weight_int4pack_mm: expected qScaleAndZeros to be a ", self.scalar_type(), " tensor of sizes ",
              at::IntArrayRef(sizes), " but got ", scales_and_zeros.scalar_type(), " of sizes ",
              scales_and_zeros.sizes());
  return result;
}

inline at::Tensor empty_weight_int4pack_mm_with_scales_and_zeros(const at::Tensor &self, const at::Tensor &mat2,
                                                                 int64_t group, const at::Tensor &scales,
                                                                 const at::Tensor &zeros) {
  const char *const name = "_weight_int4pack_mm_with_scales_and_zeros";
  at::Tensor result = empty_int4_product(name, self, mat2, group);
  const std::vector<int64_t> sizes = {self.size(1) / group, result.size(1)};
  TORCH_CHECK(scales.sizes() == sizes && zeros.sizes() == sizes, name, ": expected qScale and qZeros of sizes ",
              at::IntArrayRef(sizes), " but got ", scales.sizes(), " and ", zeros.sizes());
  return result;
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

// The recipes of _scaled_mm_v2 and _scaled_grouped_mm_v2 are what each scale is of: the tensor, a row, a block.
inline void check_recipes(const char *name, const at::ITensorListRef &scale_a, at::IntArrayRef recipe_a,
                          const at::ITensorListRef &scale_b, at::IntArrayRef recipe_b) {
  TORCH_CHECK(scale_a.size() > 0 && scale_a.size() == recipe_a.size() && scale_b.size() > 0 &&
                  scale_b.size() == recipe_b.size(),
              name, ": expected a recipe for each scale but got ", recipe_a.size(), " for ", scale_a.size(), " and ",
              recipe_b.size(), " for ", scale_b.size());
}

inline at::Tensor empty_scaled_mm_v2(const at::Tensor &self, const at::Tensor &mat2, const at::ITensorListRef &scale_a,
                                     at::IntArrayRef recipe_a, at::IntArrayRef, const at::ITensorListRef &scale_b,
                                     at::IntArrayRef recipe_b, at::IntArrayRef, const OptionalTensor &bias,
                                     std::optional<c10::ScalarType> out_dtype, at::IntArrayRef, bool fast) {
  check_recipes("_scaled_mm_v2", scale_a, recipe_a, scale_b, recipe_b);
  return empty_scaled_mm(self, mat2, scale_a.front(), scale_b.front(), bias, {}, out_dtype, fast);
}

// Products of groups. A matrix of two dimensions has all groups, one after the other: of rows, of columns, or, if both
// matrices have two, of the summed dimension. `offs` are the ends of the groups.
inline at::Tensor empty_grouped_product(const char *name, const at::Tensor &self, const at::Tensor &mat2,
                                        const OptionalTensor &offs, const OptionalTensor &bias,
                                        c10::ScalarType out_dtype) {
  const bool flat_a = self.dim() == 2, flat_b = mat2.dim() == 2;
  TORCH_CHECK((flat_a || self.dim() == 3) && (flat_b || mat2.dim() == 3), name,
              ": expected matrices of 2 or 3 dimensions but got ", self.dim(), " and ", mat2.dim());
  TORCH_CHECK(self.size(-1) == mat2.size(-2), name, ": the matrices of ", self.sizes(), " and ", mat2.sizes(),
              " cannot be multiplied");
  TORCH_CHECK(is_given(offs) == (flat_a || flat_b), name, ": expected offs ",
              flat_a || flat_b ? "for a matrix of 2 dimensions" : "to be None for matrices of 3 dimensions");
  TORCH_CHECK(!is_given(bias), name, ": a bias is not supported; add it to the result");
  TORCH_CHECK(!is_given(offs) || (offs->dim() == 1 && offs->scalar_type() == at::kInt), name,
              ": expected offs to be an int32 vector");
  const int64_t groups = is_given(offs) ? offs->size(0) : self.size(0);
  TORCH_CHECK((flat_a || self.size(0) == groups) && (flat_b || mat2.size(0) == groups), name, ": expected ", groups,
              " groups but got matrices of ", self.sizes(), " and ", mat2.sizes());
  const auto options = self.options().dtype(out_dtype);
  if (flat_a == flat_b) return at::empty({groups, self.size(-2), mat2.size(-1)}, options);
  return at::empty({self.size(-2), mat2.size(-1)}, options);
}

inline at::Tensor empty_grouped_mm(const at::Tensor &self, const at::Tensor &mat2, const OptionalTensor &offs,
                                   const OptionalTensor &bias, std::optional<c10::ScalarType> out_dtype) {
  return empty_grouped_product("_grouped_mm", self, mat2, offs, bias, out_dtype.value_or(self.scalar_type()));
}

inline at::Tensor empty_scaled_grouped_mm(const at::Tensor &self, const at::Tensor &mat2, const at::Tensor &,
                                          const at::Tensor &, const OptionalTensor &offs, const OptionalTensor &bias,
                                          const OptionalTensor &scale_result, std::optional<c10::ScalarType> out_dtype,
                                          bool) {
  TORCH_CHECK(!is_given(scale_result), "_scaled_grouped_mm: scale_result is not supported; multiply the result");
  return empty_grouped_product("_scaled_grouped_mm", self, mat2, offs, bias, out_dtype.value_or(at::kBFloat16));
}

inline at::Tensor empty_scaled_grouped_mm_v2(const at::Tensor &self, const at::Tensor &mat2,
                                             const at::ITensorListRef &scale_a, at::IntArrayRef recipe_a,
                                             at::IntArrayRef, const at::ITensorListRef &scale_b,
                                             at::IntArrayRef recipe_b, at::IntArrayRef, const OptionalTensor &offs,
                                             const OptionalTensor &bias, std::optional<c10::ScalarType> out_dtype,
                                             at::IntArrayRef, bool) {
  const char *const name = "_scaled_grouped_mm_v2";
  check_recipes(name, scale_a, recipe_a, scale_b, recipe_b);
  return empty_grouped_product(name, self, mat2, offs, bias, out_dtype.value_or(at::kBFloat16));
}

}  // namespace torch_backend
