// layer_norm.cpp: native_layer_norm and its gradients: rows of a contiguous matrix.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/native/layer_norm.h>
#include <ATen/ops/native_layer_norm_backward_ops.h>
#include <ATen/ops/native_layer_norm_ops.h>
#include <torch/library.h>

#include "aten/fallback/fallback_call.h"
#include "aten/prepare/op_call.h"
#include "hal_op_ids.h"

namespace torch_backend {
namespace {

using OptionalTensor = std::optional<at::Tensor>;

// A contiguous tensor as a matrix of `rows` rows.
struct Matrix {
  int64_t sizes[2], strides[2];
  hal_tensor_t descriptor;

  Matrix(const at::Tensor &tensor, int64_t rows, int64_t columns)
      : sizes{rows, columns}, strides{columns, 1}, descriptor(describe(tensor)) {
    descriptor.sizes = sizes;
    descriptor.strides = strides;
    descriptor.ndim = 2;
  }
};

// What the mean and rstd of rows of `dtype` are computed in.
c10::ScalarType statistics_dtype(c10::ScalarType dtype) {
  return c10::isReducedFloatingType(dtype) ? at::kFloat : dtype;
}

// The kernel takes the tensor beside an input of `dtype`.
bool takes(const OptionalTensor &tensor, c10::ScalarType dtype) {
  return !tensor || !tensor->defined() || (is_device_tensor(*tensor) && tensor->scalar_type() == dtype);
}

// The dtype of weight and bias beside an input of `dtype`: its own, or that of the statistics; nullopt = another, or two.
std::optional<c10::ScalarType> parameter_dtype(const OptionalTensor &weight, const OptionalTensor &bias,
                                               c10::ScalarType dtype) {
  for (const auto candidate : {dtype, statistics_dtype(dtype)})
    if (takes(weight, candidate) && takes(bias, candidate)) return candidate;
  return std::nullopt;
}

at::Tensor contiguous_or_undefined(const OptionalTensor &tensor) {
  return tensor && tensor->defined() ? tensor->contiguous() : at::Tensor();
}

using Three = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

Three layer_norm(const at::Tensor &input, c10::IntArrayRef normalized, const OptionalTensor &weight,
                 const OptionalTensor &bias, double eps) {
  const at::Tensor w = contiguous_or_undefined(weight), b = contiguous_or_undefined(bias);
  const auto [rows, n] = at::native::_check_layer_norm_inputs(input, normalized, w, b);
  const auto dtype = input.scalar_type();
  const auto device = input.device().index();
  if (has_kernel(device, HAL_OP_ID_NATIVE_LAYER_NORM, dtype) && parameter_dtype(weight, bias, dtype)) {
    const at::Tensor x = input.contiguous();
    c10::SmallVector<int64_t, 6> shape(input.sizes().begin(), input.sizes().end());
    std::fill(shape.end() - static_cast<std::ptrdiff_t>(normalized.size()), shape.end(), 1);
    at::Tensor result = make_empty(input.sizes(), dtype, device);
    at::Tensor mean = make_empty(shape, statistics_dtype(dtype), device);
    at::Tensor rstd = make_empty(shape, statistics_dtype(dtype), device);
    const Matrix a(x, rows, n), r(result, rows, n);
    const hal_tensor_t m = describe(mean), s = describe(rstd);
    const hal_tensor_t w_descriptor = w.defined() ? describe(w) : hal_tensor_t{};
    const hal_tensor_t b_descriptor = b.defined() ? describe(b) : hal_tensor_t{};
    const hal_value_t args[] = {value(a.descriptor), w.defined() ? value(w_descriptor) : none_value(),
                                b.defined() ? value(b_descriptor) : none_value(), value(eps)};
    const hal_tensor_t *const results[] = {&r.descriptor, &m, &s};
    if (run_op(device, HAL_OP_ID_NATIVE_LAYER_NORM, args, results))
      return {std::move(result), std::move(mean), std::move(rstd)};
  }
  return call_fallback<at::_ops::native_layer_norm>(input, normalized, weight, bias, eps);
}

Three layer_norm_backward(const at::Tensor &grad, const at::Tensor &input, c10::IntArrayRef normalized,
                          const at::Tensor &mean, const at::Tensor &rstd, const OptionalTensor &weight,
                          const OptionalTensor &bias, std::array<bool, 3> wanted) {
  const at::Tensor w = contiguous_or_undefined(weight);
  const auto [rows, n] = at::native::_check_layer_norm_inputs(input, normalized, w, bias ? *bias : at::Tensor());
  const auto dtype = input.scalar_type();
  const auto device = input.device().index();
  const auto parameters = parameter_dtype(weight, bias, dtype);
  const bool plain = takes(grad, dtype) && takes(mean, statistics_dtype(dtype)) && takes(rstd, statistics_dtype(dtype));
  if (has_kernel(device, HAL_OP_ID_NATIVE_LAYER_NORM_BACKWARD, dtype) && plain && parameters) {
    const at::Tensor dy = grad.contiguous(), x = input.contiguous(), m = mean.contiguous(), s = rstd.contiguous();
    at::Tensor made[3];
    std::optional<Matrix> results[3];
    const hal_tensor_t *pointers[3] = {};
    for (size_t i = 0; i < 3; i++) {
      if (!wanted[i]) continue;
      made[i] = make_empty(i == 0 ? input.sizes() : normalized, i == 0 ? dtype : *parameters, device);
      results[i].emplace(made[i], i == 0 ? rows : 1, n);
      pointers[i] = &results[i]->descriptor;
    }
    const Matrix g(dy, rows, n), a(x, rows, n), center(m, 1, rows), scale(s, 1, rows);
    const hal_tensor_t w_descriptor = w.defined() ? describe(w) : hal_tensor_t{};
    const hal_value_t args[] = {value(g.descriptor), value(a.descriptor), value(center.descriptor),
                                value(scale.descriptor), w.defined() ? value(w_descriptor) : none_value()};
    if (run_op(device, HAL_OP_ID_NATIVE_LAYER_NORM_BACKWARD, args, pointers))
      return {std::move(made[0]), std::move(made[1]), std::move(made[2])};
  }
  return call_fallback<at::_ops::native_layer_norm_backward>(grad, input, normalized, mean, rstd, weight, bias, wanted);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("native_layer_norm", TORCH_FN(layer_norm));
  m.impl("native_layer_norm_backward", TORCH_FN(layer_norm_backward));
}

}  // namespace torch_backend
