// layer_norm.cpp: native_layer_norm and its gradients: rows of a contiguous matrix.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/native/layer_norm.h>

#include "aten/norm/norm_parameters.h"
#include "hal_op_ids.h"

namespace torch_backend {
namespace {

std::optional<Three> layer_norm(const at::Tensor &input, c10::IntArrayRef normalized, const OptionalTensor &weight,
                                const OptionalTensor &bias, double eps) {
  const auto [rows, n] =
      at::native::_check_layer_norm_inputs(input, normalized, given_or_undefined(weight), given_or_undefined(bias));
  const auto dtype = input.scalar_type(), wide = at::toOpMathType(dtype);
  const auto device = input.device().index();
  Call call(HAL_OP_ID_NATIVE_LAYER_NORM, input);
  const auto parameters = parameter_dtype(input, {&weight, &bias});
  if (!call.possible() || !are_parameters(input, {&weight, &bias})) return std::nullopt;
  at::DimVector shape(input.sizes());
  std::fill(shape.end() - static_cast<std::ptrdiff_t>(normalized.size()), shape.end(), 1);
  Three results{make_empty(input.sizes(), dtype, device), make_empty(shape, wide, device),
                make_empty(shape, wide, device)};
  const auto &[result, mean, rstd] = results;
  call.in(input)
      .as({rows, n})
      .in(weight, parameters)
      .in(bias, parameters)
      .put(eps)
      .out(result)
      .as({rows, n})
      .out(mean, wide)
      .out(rstd, wide);
  return call.run() ? std::optional(std::move(results)) : std::nullopt;
}

std::optional<Three> layer_norm_backward(const at::Tensor &grad, const at::Tensor &input, c10::IntArrayRef normalized,
                                         const at::Tensor &mean, const at::Tensor &rstd, const OptionalTensor &weight,
                                         const OptionalTensor &bias, std::array<bool, 3> wanted) {
  const auto [rows, n] =
      at::native::_check_layer_norm_inputs(input, normalized, given_or_undefined(weight), given_or_undefined(bias));
  const auto dtype = input.scalar_type(), wide = at::toOpMathType(dtype);
  const auto parameters = parameter_dtype(input, {&weight, &bias});
  Call call(HAL_OP_ID_NATIVE_LAYER_NORM_BACKWARD, input);
  if (!call.possible() || !are_parameters(input, {&weight, &bias}) || grad.scalar_type() != dtype) return std::nullopt;
  const auto device = input.device().index();
  Three results{make_wanted(wanted[0], input.sizes(), dtype, device),
                make_wanted(wanted[1], normalized, parameters, device),
                make_wanted(wanted[2], normalized, parameters, device)};
  const auto &[dx, dweight, dbias] = results;
  call.in(grad).as({rows, n}).in(input).as({rows, n}).in(mean, wide).as({1, rows}).in(rstd, wide).as({1, rows});
  call.in(weight, parameters).out(dx).as({rows, n});
  call.out(dweight, parameters).as({1, n}).out(dbias, parameters).as({1, n});
  return call.run() ? std::optional(std::move(results)) : std::nullopt;
}

}  // namespace
}  // namespace torch_backend

#include "aten/norm/layer_norm.inc"  // registrations: codegen/operators
