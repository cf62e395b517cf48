// products.cpp: products of matrices of 4 and 8-bit elements (_int_mm, _weight_int8pack_mm, _weight_int4pack_mm,
// _scaled_mm), for devices whose plugin has no such operator. A kernel reads weights as they are in memory. Elements of
// other products are converted to float32, in which they and their products are exact.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/BlasBackend.h>
#include <ATen/ops/mm.h>

#include <algorithm>
#include <optional>

#include "aten/low_precision/meta.h"
#include "aten/prepare/call.h"
#include "hal_op_ids.h"

namespace torch_backend {
namespace {

using at::Tensor;

// ---- integers ----

// The sum of as many products of a uint8 and an int8 is an integer below 2^24, which float32 represents exactly.
constexpr int64_t kExactTerms = 512;

Tensor int_mm(const Tensor &self, const Tensor &mat2) {
  const Tensor result = empty_int_mm(self, mat2).zero_();
  for (int64_t from = 0; from < self.size(1); from += kExactTerms) {
    const int64_t count = std::min(kExactTerms, self.size(1) - from);
    result.add_(
        at::mm(self.narrow(1, from, count).to(at::kFloat), mat2.narrow(0, from, count).to(at::kFloat)).to(at::kInt));
  }
  return result;
}

Tensor &int_mm_into(const Tensor &self, const Tensor &mat2, Tensor &out) {
  const Tensor result = int_mm(self, mat2);
  TORCH_CHECK(out.scalar_type() == at::kInt, "_int_mm: expected result dtype to be int32 but got ", out.scalar_type());
  return out.resize_(result.sizes()).copy_(result);
}

// ---- weights of 8 bits ----

// Returns `result`, which the kernel computes that reads weights of 4 or 8 bits as they are, in groups of `group`.
Tensor times_packed(const Tensor &self, const Tensor &weights, c10::ScalarType dtype, const Tensor &scales,
                    const OptionalTensor &zeros, int64_t group, const Tensor &result) {
  Call call(HAL_OP_ID__PACKED_WEIGHT_MM, self.device().index(), dtype);
  call.in(self).in(weights, weights.scalar_type()).in(scales).in(zeros).put(group).out(result).must_run();
  return result;
}

Tensor weight_int8pack_mm(const Tensor &self, const Tensor &mat2, const Tensor &scales) {
  return times_packed(self, mat2, self.scalar_type(), scales, {}, std::max<int64_t>(self.size(1), 1),
                      empty_weight_int8pack_mm(self, mat2, scales));
}

// ---- weights of 4 bits ----

// The packed weights are the bytes as they came, two weights in each. Each product has its own order.
Tensor convert_weight_to_int4pack(const Tensor &self, int64_t inner_tiles) {
  const Tensor result = empty_int4pack(self, inner_tiles);
  result.view(at::kByte).view(self.sizes()).copy_(self);
  return result;
}

Tensor weight_int4pack_mm(const Tensor &self, const Tensor &mat2, int64_t group, const Tensor &scales_and_zeros) {
  return times_packed(self, mat2, self.scalar_type(), scales_and_zeros, {}, group,
                      empty_weight_int4pack_mm(self, mat2, group, scales_and_zeros));
}

// Scales or zeros that are not exact in self's dtype are read in float32.
Tensor weight_int4pack_mm_with_scales_and_zeros(const Tensor &self, const Tensor &mat2, int64_t group,
                                                const Tensor &scales, const Tensor &zeros) {
  const auto dtype = self.scalar_type(), of_zeros = zeros.scalar_type();
  const bool exact = scales.scalar_type() == dtype && (of_zeros == at::kChar || of_zeros == dtype);
  return times_packed(self, mat2, exact ? dtype : at::kFloat, scales, zeros, group,
                      empty_weight_int4pack_mm_with_scales_and_zeros(self, mat2, group, scales, zeros));
}

// ---- float8 with scales ----

// The sides of a block that has one scale.
constexpr int64_t kBlock = 128;

int64_t blocks(int64_t size) { return (size + kBlock - 1) / kBlock; }

bool is_scale_of(const Tensor &scale, int64_t rows, int64_t columns) {
  return scale.dim() == 2 && scale.size(0) == rows && scale.size(1) == columns;
}

// Returns a block's scale for each of `size` elements along `dim`.
Tensor repeated(const Tensor &scale, int64_t dim, int64_t size) {
  return scale.size(dim) == size ? scale : scale.repeat_interleave(kBlock, dim).narrow(dim, 0, size);
}

// Returns the matrix in float32, multiplied by the scales of its blocks.
Tensor scaled_blocks(const Tensor &matrix, const Tensor &scale) {
  return matrix.to(at::kFloat).mul_(repeated(repeated(scale, 0, matrix.size(0)), 1, matrix.size(1)));
}

// The product in float32. Other scales than those of tensors, of rows and columns, and of blocks of 128 run on the CPU.
Tensor scaled_product(const Tensor &self, const Tensor &mat2, const Tensor &scale_a, const Tensor &scale_b) {
  const int64_t m = self.size(0), k = self.size(1), n = mat2.size(1);
  must(scale_a.scalar_type() == at::kFloat && scale_b.scalar_type() == at::kFloat);
  const bool of_tensors = scale_a.numel() == 1 && scale_b.numel() == 1;
  if (of_tensors || (is_scale_of(scale_a, m, 1) && is_scale_of(scale_b, 1, n))) {
    const Tensor product = at::mm(self.to(at::kFloat), mat2.to(at::kFloat));
    return of_tensors ? product.mul_(scale_a.reshape({}).mul(scale_b.reshape({})))
                      : product.mul_(scale_a).mul_(scale_b);
  }
  must((is_scale_of(scale_a, m, blocks(k)) || is_scale_of(scale_a, blocks(m), blocks(k))) &&
       (is_scale_of(scale_b, blocks(k), n) || is_scale_of(scale_b, blocks(k), blocks(n))));
  return at::mm(scaled_blocks(self, scale_a), scaled_blocks(mat2, scale_b));
}

Tensor scaled_mm(const Tensor &self, const Tensor &mat2, const Tensor &scale_a, const Tensor &scale_b,
                 const OptionalTensor &bias, const OptionalTensor &scale_result,
                 std::optional<c10::ScalarType> out_dtype, bool fast) {
  const Tensor result = empty_scaled_mm(self, mat2, scale_a, scale_b, bias, scale_result, out_dtype, fast);
  must(c10::isFloat8Type(self.scalar_type()) && c10::isFloat8Type(mat2.scalar_type()));
  const Tensor product = scaled_product(self, mat2, scale_a, scale_b);
  if (is_given(bias)) product.add_(*bias);
  if (is_given(scale_result) && c10::isFloat8Type(result.scalar_type())) product.div_(*scale_result);
  return result.copy_(product);
}

Tensor &scaled_mm_into(const Tensor &self, const Tensor &mat2, const Tensor &scale_a, const Tensor &scale_b,
                       const OptionalTensor &bias, const OptionalTensor &scale_result,
                       std::optional<c10::ScalarType> out_dtype, bool fast, Tensor &out) {
  TORCH_CHECK(out_dtype.value_or(out.scalar_type()) == out.scalar_type(), "_scaled_mm: out_dtype is ", *out_dtype,
              " but out has the dtype ", out.scalar_type());
  const Tensor result = scaled_mm(self, mat2, scale_a, scale_b, bias, scale_result, out.scalar_type(), fast);
  return out.resize_(result.sizes()).copy_(result);
}

// ---- float8 with scales of recipes ----

using at::blas::ScalingType;

// Returns whether `scale` has the sizes of a recipe, for a matrix whose columns, or rows if not `has_rows`, are summed.
bool fits(const Tensor &scale, int64_t recipe, const Tensor &matrix, bool has_rows) {
  const int64_t rows = matrix.size(0), columns = matrix.size(1);
  switch (static_cast<ScalingType>(recipe)) {
    case ScalingType::TensorWise:
      return scale.numel() == 1;
    case ScalingType::RowWise:
      return has_rows ? is_scale_of(scale, rows, 1) : is_scale_of(scale, 1, columns);
    case ScalingType::BlockWise1x128:
      return has_rows ? is_scale_of(scale, rows, blocks(columns)) : is_scale_of(scale, blocks(rows), columns);
    case ScalingType::BlockWise128x128:
      return is_scale_of(scale, blocks(rows), blocks(columns));
    default:
      return false;
  }
}

// Returns whether a recipe has one scale for each tensor, or for each block of 128.
bool is_of_blocks(int64_t recipe) { return recipe >= static_cast<int64_t>(ScalingType::BlockWise1x128); }

bool has_no_swizzle(at::IntArrayRef swizzle) {
  return std::all_of(swizzle.begin(), swizzle.end(), [](int64_t kind) { return kind == 0; });
}

// The CPU runs, or refuses, what is not of float8, has several scales, another recipe or an order of scales.
Tensor scaled_mm_v2(const Tensor &self, const Tensor &mat2, const at::ITensorListRef &scale_a, at::IntArrayRef recipe_a,
                    at::IntArrayRef swizzle_a, const at::ITensorListRef &scale_b, at::IntArrayRef recipe_b,
                    at::IntArrayRef swizzle_b, const OptionalTensor &bias, std::optional<c10::ScalarType> out_dtype,
                    at::IntArrayRef contraction, bool fast) {
  check_recipes(scale_a, recipe_a, scale_b, recipe_b);
  must(scale_a.size() == 1 && scale_b.size() == 1 && has_no_swizzle(swizzle_a) && has_no_swizzle(swizzle_b));
  must(contraction.empty() || contraction == at::IntArrayRef({-1, 0}) || contraction == at::IntArrayRef({1, 0}));
  must(is_of_blocks(recipe_a[0]) == is_of_blocks(recipe_b[0]) && fits(scale_a.front(), recipe_a[0], self, true) &&
       fits(scale_b.front(), recipe_b[0], mat2, false));
  return scaled_mm(self, mat2, scale_a.front(), scale_b.front(), bias, {}, out_dtype, fast);
}

Tensor &scaled_mm_v2_into(const Tensor &self, const Tensor &mat2, const at::ITensorListRef &scale_a,
                          at::IntArrayRef recipe_a, at::IntArrayRef swizzle_a, const at::ITensorListRef &scale_b,
                          at::IntArrayRef recipe_b, at::IntArrayRef swizzle_b, const OptionalTensor &bias,
                          std::optional<c10::ScalarType> out_dtype, at::IntArrayRef contraction, bool fast,
                          Tensor &out) {
  TORCH_CHECK(out_dtype.value_or(out.scalar_type()) == out.scalar_type(), "_scaled_mm_v2: out_dtype is ", *out_dtype,
              " but out has the dtype ", out.scalar_type());
  const Tensor result = scaled_mm_v2(self, mat2, scale_a, recipe_a, swizzle_a, scale_b, recipe_b, swizzle_b, bias,
                                     out.scalar_type(), contraction, fast);
  return out.resize_(result.sizes()).copy_(result);
}

}  // namespace
}  // namespace torch_backend

#include "aten/low_precision/products.inc"  // registrations: codegen/operators
