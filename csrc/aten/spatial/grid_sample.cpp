// grid_sample.cpp: sampling of images at the positions of a grid, in half precision. Positions and weights are computed
// in float32; the CPU's half kernel would round each of them. float32 goes to the CPU's kernel.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/ops/grid_sampler_2d_backward_ops.h>
#include <ATen/ops/grid_sampler_2d_ops.h>
#include <ATen/ops/grid_sampler_3d_backward_ops.h>
#include <ATen/ops/grid_sampler_3d_ops.h>

#include <array>
#include <optional>
#include <tuple>

namespace torch_backend {
namespace {

// For other dtypes the fallback is equally accurate.
bool is_widened(const at::Tensor &input, const at::Tensor &grid) {
  return c10::isReducedFloatingType(input.scalar_type()) && grid.scalar_type() == input.scalar_type();
}

template <class Op>
std::optional<at::Tensor> sample(const at::Tensor &input, const at::Tensor &grid, int64_t interpolation,
                                 int64_t padding, bool align_corners) {
  if (!is_widened(input, grid)) return std::nullopt;
  return Op::call(input.to(at::kFloat), grid.to(at::kFloat), interpolation, padding, align_corners)
      .to(input.scalar_type());
}

template <class Op>
std::optional<std::tuple<at::Tensor, at::Tensor>> sample_backward(const at::Tensor &grad, const at::Tensor &input,
                                                                  const at::Tensor &grid, int64_t interpolation,
                                                                  int64_t padding, bool align_corners,
                                                                  std::array<bool, 2> wanted) {
  if (!is_widened(input, grid)) return std::nullopt;
  const auto [dx, dgrid] = Op::call(grad.to(at::kFloat), input.to(at::kFloat), grid.to(at::kFloat), interpolation,
                                    padding, align_corners, wanted);
  const auto narrowed = [&](const at::Tensor &tensor) {
    return tensor.defined() ? tensor.to(input.scalar_type()) : tensor;
  };
  return std::tuple{narrowed(dx), narrowed(dgrid)};
}

}  // namespace
}  // namespace torch_backend

#include "aten/spatial/grid_sample.inc"  // registrations: codegen/operators
