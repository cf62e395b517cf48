// conditions.h: the functions that rows of codegen/ops.yaml name: numbers that are computed from ATen's arguments (`numbers`), and
// calls that the fallback serves or words the error of (`refuse`).
#pragma once

#include <cmath>
#include <cstdlib>
#include <optional>

#include "aten/prepare/pointwise_meta.h"

namespace torch_backend {

// ---- numbers ----
inline double power_of_ten(int64_t exponent) { return std::pow(10.0, std::abs(static_cast<double>(exponent))); }
// An absent number as a negative one, which no caller can give.
inline double given_or_negative(const std::optional<double> &number) { return number.value_or(-1.0); }
inline double twice_the_share(const at::Tensor &self, int64_t reduction) { return 2 * share(self, reduction); }
inline c10::Scalar in_place_of_nan(const at::Tensor &self, const std::optional<double> &given) {
  return replacement(self, given, 0);
}
inline c10::Scalar in_place_of_infinity(const at::Tensor &self, const std::optional<double> &given) {
  return replacement(self, given, 1);
}
inline c10::Scalar in_place_of_minus_infinity(const at::Tensor &self, const std::optional<double> &given) {
  return replacement(self, given, -1);
}

// The dimensions of a reduction, however the operator takes them, for the plugin's own operator.
inline c10::OptionalIntArrayRef dimensions(const c10::OptionalIntArrayRef &dims) { return dims; }
inline c10::OptionalIntArrayRef dimensions(const int64_t &dim) { return c10::IntArrayRef(dim); }
inline c10::OptionalIntArrayRef dimensions(const std::optional<int64_t> &dim) {
  return dim ? c10::OptionalIntArrayRef(c10::IntArrayRef(*dim)) : c10::OptionalIntArrayRef();
}

// ---- conditions ----
inline bool is_negative(double number) { return number < 0; }
inline bool is_negative(int64_t number) { return number < 0; }
inline bool is_not_positive(double number) { return number <= 0; }
// A gradient is asked for from the result, whose sign a negative factor has changed.
inline bool loses_signs(bool from_result, const c10::Scalar &factor) { return from_result && factor.toDouble() < 0; }
inline bool is_of_another_dtype(const at::Tensor &tensor, c10::ScalarType dtype) {
  return tensor.scalar_type() != dtype;
}

}  // namespace torch_backend
