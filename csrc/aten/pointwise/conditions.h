// conditions.h: the functions that entries of codegen/operators/pointwise*.yaml name: numbers that are computed from
// ATen's arguments (`precomputed`), and conditions of calls that go to the fallback (`fallback_if`), which computes
// them or reports their error.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

#include <cmath>
#include <cstdlib>
#include <optional>

#include "aten/prepare/structured_iterator.h"

namespace torch_backend {

// ---- numbers ----
inline double power_of_ten(int64_t exponent) { return std::pow(10.0, std::abs(static_cast<double>(exponent))); }
// Returns an absent number as a negative one, which is not a valid argument.
inline double given_or_negative(const std::optional<double> &number) { return number.value_or(-1.0); }
// Returns the number by which nan_to_num replaces NaN (sign 0) or an infinity: the given number, or 0 or the largest of
// the dtype. 0 for integers, which have neither.
c10::Scalar replacement(const at::Tensor &self, const std::optional<double> &given, int sign);
inline c10::Scalar in_place_of_nan(const at::Tensor &self, const std::optional<double> &given) {
  return replacement(self, given, 0);
}
inline c10::Scalar in_place_of_infinity(const at::Tensor &self, const std::optional<double> &given) {
  return replacement(self, given, 1);
}
inline c10::Scalar in_place_of_minus_infinity(const at::Tensor &self, const std::optional<double> &given) {
  return replacement(self, given, -1);
}

// ---- conditions ----
bool is_integer_zero_of_host(const at::Tensor &self, const at::Tensor &other);

// Returns whether a divisor is a number and, in the dtype of the computation, the integer 0.
inline bool is_integer_zero(const at::Tensor &self, const at::Tensor &other) {
  if (C10_LIKELY(!dense::has_keys(other.unsafeGetTensorImpl(), dense::kHostKeySet))) return false;
  return is_integer_zero_of_host(self, other);
}
inline bool is_negative(int64_t number) { return number < 0; }
// Returns whether a gradient is computed from the result, whose sign a negative factor has changed.
inline bool loses_signs(bool from_result, const c10::Scalar &factor) { return from_result && factor.toDouble() < 0; }
inline bool is_reduced_floating(const at::Tensor &a, const at::Tensor &b) {
  return c10::isReducedFloatingType(a.scalar_type()) || c10::isReducedFloatingType(b.scalar_type());
}

}  // namespace torch_backend
