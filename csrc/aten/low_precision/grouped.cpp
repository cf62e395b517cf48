// grouped.cpp: products of groups of matrices (_grouped_mm, _scaled_grouped_mm and _v2), for devices whose plugin has
// no such operator: one product for each group, after the ends of the groups are read from the device.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/BlasBackend.h>
#include <ATen/ops/_grouped_mm_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/mm.h>

#include <algorithm>
#include <optional>

#include "aten/low_precision/meta.h"
#include "aten/prepare/call.h"
#include "hal_op_ids.h"

namespace torch_backend {
namespace {

using at::Tensor;

// ATen's own function also has a loop over the groups.
Tensor grouped_mm(const Tensor &self, const Tensor &mat2, const OptionalTensor &offs, const OptionalTensor &bias,
                  std::optional<c10::ScalarType> out_dtype) {
  (void)empty_grouped_mm(self, mat2, offs, bias, out_dtype);
  return at::compositeexplicitautograd::_grouped_mm(self, mat2, offs, bias, out_dtype);
}

// A range of a dimension that has all groups.
struct Range {
  int64_t start, size;
};

// Returns the part of a matrix that belongs to a group: its own matrix, or a range of `dim`.
Tensor part_of(const Tensor &matrix, int64_t group, int64_t dim, const Range &range) {
  return matrix.dim() == 3 ? matrix.select(0, group) : matrix.narrow(dim, range.start, range.size);
}

// Returns a scale for each row or column of a group's matrix: a row of `scale`, or the range of a vector. If the range
// is of the summed dimension, each group has `size` scales.
Tensor scales_of(const Tensor &scale, int64_t group, bool is_summed, int64_t size, const Range &range) {
  if (scale.dim() == 2) return scale.select(0, group);
  return is_summed ? scale.narrow(0, group * size, size) : scale.narrow(0, range.start, range.size);
}

// Each row of `self` and each column of `mat2` has a scale, for each group.
void check_scales(const Tensor &self, const Tensor &mat2, const Tensor &scale_a, const Tensor &scale_b,
                  int64_t groups) {
  const char *const name = "_scaled_grouped_mm";
  const bool is_summed = self.dim() == 2 && mat2.dim() == 2;
  TORCH_CHECK(c10::isFloat8Type(self.scalar_type()) && c10::isFloat8Type(mat2.scalar_type()), name,
              ": expected float8 matrices but got ", self.scalar_type(), " and ", mat2.scalar_type());
  TORCH_CHECK(scale_a.scalar_type() == at::kFloat && scale_b.scalar_type() == at::kFloat, name,
              ": expected a float32 scale for each row of self and each column of mat2 but got ", scale_a.scalar_type(),
              " and ", scale_b.scalar_type());
  const int64_t rows = self.size(-2), columns = mat2.size(-1), times = is_summed ? groups : 1;
  const auto fits = [&](const Tensor &scale, const Tensor &matrix, int64_t size) {
    return matrix.dim() == 3 ? scale.dim() == 2 && scale.size(0) == groups && scale.size(1) == size
                             : scale.dim() == 1 && scale.size(0) == size * times;
  };
  TORCH_CHECK(fits(scale_a, self, rows) && fits(scale_b, mat2, columns), name, ": scales of the sizes ",
              scale_a.sizes(), " and ", scale_b.sizes(), " do not fit matrices of ", self.sizes(), " and ",
              mat2.sizes(), " in ", groups, " groups");
}

// Returns the range of a group of `whole` elements, whose ends are on the host.
Range range_of(const Tensor &ends, int64_t group, int64_t whole) {
  const auto *const end = ends.const_data_ptr<int>();
  const Range range = {group ? end[group - 1] : 0, end[group] - (group ? end[group - 1] : 0)};
  TORCH_CHECK(range.size >= 0 && range.start >= 0 && end[group] <= whole, "_scaled_grouped_mm: offs[", group, "] is ",
              end[group], ", expected ", range.start, " to ", whole);
  return range;
}

Tensor scaled_grouped_mm(const Tensor &self, const Tensor &mat2, const Tensor &scale_a, const Tensor &scale_b,
                         const OptionalTensor &offs, const OptionalTensor &bias, const OptionalTensor &scale_result,
                         std::optional<c10::ScalarType> out_dtype, bool fast) {
  const Tensor result =
      empty_scaled_grouped_mm(self, mat2, scale_a, scale_b, offs, bias, scale_result, out_dtype, fast).zero_();
  const bool flat_a = self.dim() == 2, flat_b = mat2.dim() == 2, is_summed = flat_a && flat_b;
  const int64_t groups = is_given(offs) ? offs->size(0) : self.size(0), rows = self.size(-2), columns = mat2.size(-1);
  check_scales(self, mat2, scale_a, scale_b, groups);
  const Tensor ends = is_given(offs) ? offs->cpu().contiguous() : Tensor();
  const int64_t whole = is_summed ? self.size(1) : flat_a ? rows : columns;
  for (int64_t group = 0; group < groups; group++) {
    const Range range = is_given(offs) ? range_of(ends, group, whole) : Range{0, 0};
    const Tensor a = part_of(self, group, is_summed ? 1 : 0, range), b = part_of(mat2, group, is_summed ? 0 : 1, range);
    const Tensor of_rows = scales_of(scale_a, group, is_summed, rows, range);
    const Tensor of_columns = scales_of(scale_b, group, is_summed, columns, range);
    const Tensor product = at::mm(a.to(at::kFloat), b.to(at::kFloat)).mul_(of_rows.unsqueeze(1)).mul_(of_columns);
    part_of(result, group, flat_a ? 0 : 1, range).copy_(product);
  }
  return result;
}

// A scale for each row of self and each column of mat2, as _scaled_grouped_mm has them.
Tensor scaled_grouped_mm_v2(const Tensor &self, const Tensor &mat2, const at::ITensorListRef &scale_a,
                            at::IntArrayRef recipe_a, at::IntArrayRef swizzle_a, const at::ITensorListRef &scale_b,
                            at::IntArrayRef recipe_b, at::IntArrayRef swizzle_b, const OptionalTensor &offs,
                            const OptionalTensor &bias, std::optional<c10::ScalarType> out_dtype,
                            at::IntArrayRef contraction, bool fast) {
  const char *const name = "_scaled_grouped_mm_v2";
  check_recipes(name, scale_a, recipe_a, scale_b, recipe_b);
  const auto row_wise = static_cast<int64_t>(at::blas::ScalingType::RowWise);
  const auto is_row_wise = [&](at::IntArrayRef recipe) { return recipe.size() == 1 && recipe[0] == row_wise; };
  const auto is_plain = [](at::IntArrayRef swizzle) {
    return std::all_of(swizzle.begin(), swizzle.end(), [](int64_t kind) { return kind == 0; });
  };
  TORCH_CHECK(is_row_wise(recipe_a) && is_row_wise(recipe_b), name, ": expected the recipe RowWise (", row_wise,
              ") for both matrices but got ", recipe_a, " and ", recipe_b);
  TORCH_CHECK(is_plain(swizzle_a) && is_plain(swizzle_b), name, ": expected scales without a swizzle but got ",
              swizzle_a, " and ", swizzle_b);
  TORCH_CHECK(contraction.empty() || contraction == at::IntArrayRef({-1, -2}), name,
              ": expected contraction_dim to be empty or [-1, -2] but got ", contraction);
  return scaled_grouped_mm(self, mat2, scale_a.front(), scale_b.front(), offs, bias, {}, out_dtype, fast);
}

}  // namespace
}  // namespace torch_backend

#include "aten/low_precision/grouped.inc"  // registrations: codegen/operators
