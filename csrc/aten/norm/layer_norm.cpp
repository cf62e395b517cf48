// layer_norm.cpp: native_layer_norm and its gradients: rows of a contiguous matrix.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/native/layer_norm.h>

#include "aten/norm/norm_parameters.h"
#include "hal_op_ids.h"

namespace torch_backend {
namespace {

// The kernel takes the tensor beside an input of `dtype`.
bool takes(const OptionalTensor &tensor, c10::ScalarType dtype) {
  return !is_given(tensor) || (is_device_tensor(*tensor) && tensor->scalar_type() == dtype);
}

// The dtype of weight and bias beside an input of `dtype`: its own, or that of the statistics; nullopt = another, or two.
std::optional<c10::ScalarType> dtype_of_parameters(const OptionalTensor &weight, const OptionalTensor &bias,
                                                   c10::ScalarType dtype) {
  for (const auto candidate : {dtype, at::toOpMathType(dtype)})
    if (takes(weight, candidate) && takes(bias, candidate)) return candidate;
  return std::nullopt;
}

std::optional<Three> layer_norm(const at::Tensor &input, c10::IntArrayRef normalized, const OptionalTensor &weight,
                                const OptionalTensor &bias, double eps) {
  const auto [rows, n] =
      at::native::_check_layer_norm_inputs(input, normalized, given_or_undefined(weight), given_or_undefined(bias));
  const auto dtype = input.scalar_type(), wide = at::toOpMathType(dtype);
  const auto device = input.device().index();
  Call call(HAL_OP_ID_NATIVE_LAYER_NORM, input);
  const auto parameters = dtype_of_parameters(weight, bias, dtype);
  if (!call.possible() || !parameters) return std::nullopt;
  at::DimVector shape(input.sizes());
  std::fill(shape.end() - static_cast<std::ptrdiff_t>(normalized.size()), shape.end(), 1);
  Three results{make_empty(input.sizes(), dtype, device), make_empty(shape, wide, device),
                make_empty(shape, wide, device)};
  const auto &[result, mean, rstd] = results;
  call.in(input)
      .as({rows, n})
      .in(weight, *parameters)
      .in(bias, *parameters)
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
  const auto parameters = dtype_of_parameters(weight, bias, dtype);
  Call call(HAL_OP_ID_NATIVE_LAYER_NORM_BACKWARD, input);
  if (!call.possible() || !parameters || !takes(grad, dtype) || !takes(mean, wide) || !takes(rstd, wide))
    return std::nullopt;
  const auto room = [&](bool wants, c10::IntArrayRef sizes, c10::ScalarType as) {
    return wants ? make_empty(sizes, as, input.device().index()) : at::Tensor();
  };
  Three results{room(wanted[0], input.sizes(), dtype), room(wanted[1], normalized, *parameters),
                room(wanted[2], normalized, *parameters)};
  const auto &[dx, dweight, dbias] = results;
  call.in(grad).as({rows, n}).in(input).as({rows, n}).in(mean, wide).as({1, rows}).in(rstd, wide).as({1, rows});
  call.in(weight, *parameters).out(dx).as({rows, n});
  call.out(dweight, *parameters).as({1, n}).out(dbias, *parameters).as({1, n});
  return call.run() ? std::optional(std::move(results)) : std::nullopt;
}

}  // namespace
}  // namespace torch_backend

#include "aten/norm/layer_norm.inc"  // registrations: `bodies` of codegen/ops.yaml
