// norm_parameters.h: weights and statistics of normalizations. Half precision is computed in float32 and rounded once;
// its weights and statistics may be float32, as on the CPU.
#pragma once

#include <ATen/OpMathType.h>
#include <ATen/core/Tensor.h>

#include <initializer_list>
#include <optional>
#include <tuple>

#include "aten/prepare/call.h"

namespace torch_backend {

using Three = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
using Parameters = std::initializer_list<const OptionalTensor *>;

inline at::Tensor widened(const at::Tensor &tensor) { return tensor.to(at::toOpMathType(tensor.scalar_type())); }
inline OptionalTensor widened(const OptionalTensor &tensor) {
  return is_given(tensor) ? widened(*tensor) : OptionalTensor();
}

// Returns the dtype of weights and statistics: that of the first one present, else the input's.
inline c10::ScalarType parameter_dtype(const at::Tensor &input, Parameters parameters) {
  for (const OptionalTensor *parameter : parameters)
    if (is_given(*parameter)) return (*parameter)->scalar_type();
  return input.scalar_type();
}

// Returns whether the parameters have one dtype, the input's or the computing one; missing ones are ignored.
inline bool are_parameters(const at::Tensor &input, Parameters parameters) {
  const c10::ScalarType dtype = input.scalar_type(), common = parameter_dtype(input, parameters);
  for (const OptionalTensor *parameter : parameters)
    if (is_given(*parameter) && (!is_device_tensor(**parameter) || (*parameter)->scalar_type() != common)) return false;
  return is_device_tensor(input) && (common == dtype || common == at::toOpMathType(dtype));
}

// Rounds results to the dtypes of the input and of the parameters.
inline Three rounded(const at::Tensor &first, const at::Tensor &second, const at::Tensor &third, c10::ScalarType input,
                     c10::ScalarType parameters) {
  const auto to = [](const at::Tensor &tensor, c10::ScalarType dtype) {
    return tensor.defined() ? tensor.to(dtype) : tensor;
  };
  return {to(first, input), to(second, parameters), to(third, parameters)};
}

}  // namespace torch_backend
