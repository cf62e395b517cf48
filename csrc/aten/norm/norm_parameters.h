// norm_parameters.h: weights and statistics of batch and group normalisation. Half precision is computed in float32 and rounded
// once; its weights and statistics may be float32 themselves, as on the CPU.
#pragma once

#include <ATen/core/Tensor.h>

#include <initializer_list>
#include <optional>
#include <tuple>

#include "aten/prepare/op_call.h"

namespace torch_backend {

using OptionalTensor = std::optional<at::Tensor>;
using Three = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

inline bool is_given(const OptionalTensor &tensor) { return tensor && tensor->defined(); }

using Tensors = std::initializer_list<const OptionalTensor *>;

inline c10::ScalarType computing_dtype(const at::Tensor &input) {
  return c10::isReducedFloatingType(input.scalar_type()) ? at::kFloat : input.scalar_type();
}

inline at::Tensor widened(const at::Tensor &tensor) { return tensor.to(computing_dtype(tensor)); }
inline OptionalTensor widened(const OptionalTensor &tensor) {
  return is_given(tensor) ? widened(*tensor) : OptionalTensor();
}

// The dtype of weights and statistics: the first one's that is given, else the input's.
inline c10::ScalarType parameter_dtype(const at::Tensor &input, Tensors parameters) {
  for (const OptionalTensor *parameter : parameters)
    if (is_given(*parameter)) return (*parameter)->scalar_type();
  return input.scalar_type();
}

// An input of a dtype in which operator `op` has kernels, and parameters of one dtype, its own or the computing one; missing
// ones do not matter. Throws for parameters on another device.
inline bool are_native(const at::Tensor &input, Tensors parameters, uint32_t op) {
  const c10::ScalarType dtype = computing_dtype(input), common = parameter_dtype(input, parameters);
  if (!is_device_tensor(input) || !has_kernel(input.device().index(), op, dtype)) return false;
  for (const OptionalTensor *parameter : parameters) {
    if (!is_given(*parameter)) continue;
    if (!is_device_tensor(**parameter) || (*parameter)->scalar_type() != common) return false;
    if ((*parameter)->device() != input.device()) throw_two_devices(input.device(), (*parameter)->device());
  }
  return common == dtype || common == input.scalar_type();
}

// Rounds what was computed to the dtypes of the input and of the parameters.
inline Three rounded(const at::Tensor &first, const at::Tensor &second, const at::Tensor &third, c10::ScalarType input,
                     c10::ScalarType parameters) {
  const auto to = [](const at::Tensor &tensor, c10::ScalarType dtype) {
    return tensor.defined() ? tensor.to(dtype) : tensor;
  };
  return {to(first, input), to(second, parameters), to(third, parameters)};
}

}  // namespace torch_backend
