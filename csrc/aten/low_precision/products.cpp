// products.cpp: products of matrices of 4 and 8-bit elements (_int_mm, _weight_int8pack_mm, _weight_int4pack_mm,
// _scaled_mm), for devices whose plugin has no such operator. Kernels read integers and weights as they are in memory.
// Elements of other products are converted to float32, in which they and their products are exact.
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

Tensor int_mm(const Tensor &self, const Tensor &mat2) {
  const Tensor result = empty_int_mm(self, mat2);
  Call(HAL_OP_ID__INT_MM, self).in(self).in(mat2, at::kChar).out(result, at::kInt).must_run();
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

// ---- float4 and float8 with scales of small blocks ----

constexpr auto kFloat4 = c10::ScalarType::Float4_e2m1fn_x2, kOfSixteen = c10::ScalarType::Float8_e4m3fn,
               kOfThirtyTwo = c10::ScalarType::Float8_e8m0fnu;

bool is_float4(const Tensor &matrix) { return matrix.scalar_type() == kFloat4; }

int64_t round_up(int64_t size, int64_t multiple) { return (size + multiple - 1) / multiple * multiple; }

// Returns rows of elements of 4 or 8 bits in float32, multiplied by the scales of blocks of `size` elements. `tiled`:
// scales are in the order of matrix units, tiles of 128 rows and 4 blocks; otherwise they are [row][block].
Tensor dequantized(const Tensor &matrix, const Tensor &scale, int64_t size, bool tiled) {
  const int64_t rows = matrix.size(0), columns = matrix.size(1) * (is_float4(matrix) ? 2 : 1);
  const int64_t count = (columns + size - 1) / size;
  const int64_t expected = tiled ? round_up(rows, kBlock) * round_up(count, 4) : rows * count;
  TORCH_CHECK(scale.numel() == expected && (tiled || is_scale_of(scale, rows, count)), "_scaled_mm: expected ",
              expected, tiled ? " scales in tiles of 128 x 4" : " scales", " for ", rows, " x ", columns,
              " elements in blocks of ", size, " but got a tensor of sizes ", scale.sizes());
  const Tensor codes = matrix.is_contiguous() ? matrix : matrix.view(at::kByte).contiguous().view(matrix.scalar_type());
  const Tensor result = at::empty({rows, columns}, matrix.options().dtype(at::kFloat));
  Call call(HAL_OP_ID__DEQUANTIZE_BLOCKS, matrix.device().index(), at::kFloat);
  call.in(codes, codes.scalar_type()).in(scale, scale.scalar_type()).put(size).put(tiled).out(result).must_run();
  return result;
}

// Blocks of 16 float4 have scales of float8_e4m3fn (nvfp4), blocks of 32 float4 or float8 those of float8_e8m0fnu (MX).
Tensor product_of_blocks(const Tensor &self, const Tensor &mat2, const Tensor &scale_a, const Tensor &scale_b,
                         bool tiled_a, bool tiled_b) {
  const auto kind = scale_a.scalar_type();
  const bool four = is_float4(self) && is_float4(mat2);
  const bool eight = c10::isFloat8Type(self.scalar_type()) && c10::isFloat8Type(mat2.scalar_type());
  TORCH_CHECK(
      scale_b.scalar_type() == kind && ((four && kind == kOfSixteen) || ((four || eight) && kind == kOfThirtyTwo)),
      "_scaled_mm: expected float4 matrices with float8_e4m3fn scales, or float4 or float8 matrices with "
      "float8_e8m0fnu scales, but got ",
      self.scalar_type(), " and ", mat2.scalar_type(), " with ", kind, " and ", scale_b.scalar_type());
  const int64_t size = kind == kOfSixteen ? 16 : 32;
  return at::mm(dequantized(self, scale_a, size, tiled_a), dequantized(mat2.t(), scale_b, size, tiled_b).t());
}

// ---- float8 with other scales ----

// The product in float32. Other scales than those of tensors, of rows and columns, and of blocks run on the CPU.
Tensor scaled_product(const Tensor &self, const Tensor &mat2, const Tensor &scale_a, const Tensor &scale_b) {
  const int64_t m = self.size(0), k = self.size(1), n = mat2.size(1);
  const auto kind = scale_a.scalar_type();
  if (is_float4(self) || is_float4(mat2) || kind == kOfSixteen || kind == kOfThirtyTwo)
    return product_of_blocks(self, mat2, scale_a, scale_b, true, true);
  must(c10::isFloat8Type(self.scalar_type()) && c10::isFloat8Type(mat2.scalar_type()) && kind == at::kFloat &&
       scale_b.scalar_type() == at::kFloat);
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

// Returns the result: a product in float32, with the bias, in the result's dtype.
Tensor finished(const Tensor &product, const OptionalTensor &bias, const OptionalTensor &scale_result,
                const Tensor &result) {
  TORCH_CHECK(!is_float4(result), "_scaled_mm: results of float4 are not supported; pass another out_dtype");
  if (is_given(bias)) product.add_(*bias);
  if (is_given(scale_result) && c10::isFloat8Type(result.scalar_type())) product.div_(*scale_result);
  return result.copy_(product);
}

Tensor scaled_mm(const Tensor &self, const Tensor &mat2, const Tensor &scale_a, const Tensor &scale_b,
                 const OptionalTensor &bias, const OptionalTensor &scale_result,
                 std::optional<c10::ScalarType> out_dtype, bool fast) {
  const Tensor result = empty_scaled_mm(self, mat2, scale_a, scale_b, bias, scale_result, out_dtype, fast);
  return finished(scaled_product(self, mat2, scale_a, scale_b), bias, scale_result, result);
}

Tensor &scaled_mm_into(const Tensor &self, const Tensor &mat2, const Tensor &scale_a, const Tensor &scale_b,
                       const OptionalTensor &bias, const OptionalTensor &scale_result,
                       std::optional<c10::ScalarType> out_dtype, bool fast, Tensor &out) {
  TORCH_CHECK(out_dtype.value_or(out.scalar_type()) == out.scalar_type(), "_scaled_mm: out_dtype is ", *out_dtype,
              " but out has the dtype ", out.scalar_type());
  const Tensor result = scaled_mm(self, mat2, scale_a, scale_b, bias, scale_result, out.scalar_type(), fast);
  return out.resize_(result.sizes()).copy_(result);
}

// ---- scales of recipes ----

using at::blas::ScalingType;
using at::blas::SwizzleType;

Tensor if_sizes(const Tensor &scale, int64_t rows, int64_t columns) {
  return is_scale_of(scale, rows, columns) ? scale : Tensor();
}

// Returns scales in the order of _scaled_mm; undefined if their sizes do not fit the recipe. `of_rows`: each row of the
// matrix has its own, otherwise each column. The scales of blocks have torch's order, in which those of a column are a
// row, and the blocks of a square are first and padded to a multiple of 4; or the order of _scaled_mm.
Tensor ordered(const Tensor &scale, int64_t recipe, const Tensor &matrix, bool of_rows) {
  const int64_t lines = matrix.size(of_rows ? 0 : 1), along = blocks(matrix.size(of_rows ? 1 : 0));
  switch (static_cast<ScalingType>(recipe)) {
    case ScalingType::TensorWise:
      return scale.numel() == 1 ? scale : Tensor();
    case ScalingType::RowWise:
      return of_rows ? if_sizes(scale, lines, 1) : if_sizes(scale, 1, lines);
    case ScalingType::BlockWise1x128:
      if (is_scale_of(scale, lines, along)) return of_rows ? scale : scale.t();
      return of_rows ? Tensor() : if_sizes(scale, along, lines);
    case ScalingType::BlockWise128x128:
      if (is_scale_of(scale, round_up(along, 4), blocks(lines)))
        return of_rows ? scale.narrow(0, 0, along).t() : scale.narrow(0, 0, along);
      return of_rows ? if_sizes(scale, blocks(lines), along) : if_sizes(scale, along, blocks(lines));
    default:
      return Tensor();
  }
}

// Returns whether a recipe has one scale for each tensor, or for each block of 128.
bool is_of_blocks(int64_t recipe) { return recipe >= static_cast<int64_t>(ScalingType::BlockWise1x128); }

bool has_no_swizzle(at::IntArrayRef swizzle) {
  return std::all_of(swizzle.begin(), swizzle.end(), [](int64_t kind) { return kind == 0; });
}

bool is_tiled(at::IntArrayRef swizzle) {
  return !swizzle.empty() && swizzle[0] == static_cast<int64_t>(SwizzleType::SWIZZLE_32_4_4);
}

// Small blocks: the scales' dtype is the recipe's. A second scale of each matrix, of nvfp4, is that of the tensor.
bool has_small_blocks(int64_t recipe) {
  return recipe == static_cast<int64_t>(ScalingType::BlockWise1x16) ||
         recipe == static_cast<int64_t>(ScalingType::BlockWise1x32);
}

Tensor product_of_recipes(const Tensor &self, const Tensor &mat2, const at::ITensorListRef &scale_a,
                          at::IntArrayRef recipe, at::IntArrayRef swizzle_a, const at::ITensorListRef &scale_b,
                          at::IntArrayRef recipe_b, at::IntArrayRef swizzle_b) {
  const bool of_sixteen = recipe[0] == static_cast<int64_t>(ScalingType::BlockWise1x16), two = recipe.size() == 2;
  TORCH_CHECK(
      recipe == recipe_b && has_small_blocks(recipe[0]) &&
          (recipe.size() == 1 || (of_sixteen && two && recipe[1] == static_cast<int64_t>(ScalingType::TensorWise))) &&
          scale_a.front().scalar_type() == (of_sixteen ? kOfSixteen : kOfThirtyTwo),
      "_scaled_mm_v2: expected for both matrices BlockWise1x16 with float8_e4m3fn scales, the same with a "
      "second TensorWise scale, or BlockWise1x32 with float8_e8m0fnu scales, but got the recipes ",
      recipe, " and ", recipe_b, " with scales of ", scale_a.front().scalar_type());
  const Tensor product =
      product_of_blocks(self, mat2, scale_a.front(), scale_b.front(), is_tiled(swizzle_a), is_tiled(swizzle_b));
  if (!two) return product;
  const Tensor &of_a = *++scale_a.begin(), &of_b = *++scale_b.begin();
  TORCH_CHECK(
      of_a.numel() == 1 && of_b.numel() == 1 && of_a.scalar_type() == at::kFloat && of_b.scalar_type() == at::kFloat,
      "_scaled_mm_v2: expected TensorWise scales of one float32 element but got ", of_a.scalar_type(), " of ",
      of_a.sizes(), " and ", of_b.scalar_type(), " of ", of_b.sizes());
  return product.mul_(of_a.reshape({}).mul(of_b.reshape({})));
}

// The CPU runs, or refuses, what is not of float8, has several scales, another recipe or an order of scales.
Tensor scaled_mm_v2(const Tensor &self, const Tensor &mat2, const at::ITensorListRef &scale_a, at::IntArrayRef recipe_a,
                    at::IntArrayRef swizzle_a, const at::ITensorListRef &scale_b, at::IntArrayRef recipe_b,
                    at::IntArrayRef swizzle_b, const OptionalTensor &bias, std::optional<c10::ScalarType> out_dtype,
                    at::IntArrayRef contraction, bool fast) {
  check_recipes("_scaled_mm_v2", scale_a, recipe_a, scale_b, recipe_b);
  must(contraction.empty() || contraction == at::IntArrayRef({-1, 0}) || contraction == at::IntArrayRef({1, 0}));
  if (is_float4(self) || is_float4(mat2) || has_small_blocks(recipe_a[0]) || has_small_blocks(recipe_b[0]))
    return finished(product_of_recipes(self, mat2, scale_a, recipe_a, swizzle_a, scale_b, recipe_b, swizzle_b), bias,
                    {}, empty_scaled_mm(self, mat2, scale_a.front(), scale_b.front(), bias, {}, out_dtype, fast));
  must(scale_a.size() == 1 && scale_b.size() == 1 && has_no_swizzle(swizzle_a) && has_no_swizzle(swizzle_b));
  const Tensor of_a = ordered(scale_a.front(), recipe_a[0], self, true);
  const Tensor of_b = ordered(scale_b.front(), recipe_b[0], mat2, false);
  must(is_of_blocks(recipe_a[0]) == is_of_blocks(recipe_b[0]) && of_a.defined() && of_b.defined());
  return scaled_mm(self, mat2, of_a, of_b, bias, {}, out_dtype, fast);
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
