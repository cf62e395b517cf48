// group_norm.cpp: group normalization as ATen composes it of batch normalization. Its gradient consists of reductions
// over the large tensors, arithmetic on the few numbers per group, and one pass.
//
// With h = (x - mean) * rstd, y = h * weight + bias over sets of n elements that share mean and rstd, the gradient is
//   dx = rstd * (g - sum(g) / n - (x - mean) * rstd^2 * sum(g * (x - mean)) / n),  g = dy * weight.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>

#include <ATen/ops/addcmul.h>
#include <ATen/ops/addcmul_ops.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/native_group_norm_native.h>
#include <ATen/ops/sum.h>

#include "aten/norm/norm_parameters.h"
#include "aten/reduce/reductions.h"
#include "hal_op_ids.h"

namespace torch_backend {
namespace {

bool are_native(const at::Tensor &input, Parameters parameters) {
  return input.numel() > 0 && are_parameters(input, parameters) &&
         computing_dtype(input.device().index(), HAL_OP_ID_CENTERED_DOT, input.scalar_type());
}

// Computes x * slope + shift in x's memory format.
at::Tensor line(const at::Tensor &x, const at::Tensor &slope, const at::Tensor &shift) {
  at::Tensor result = at::empty_like(x, x.suggest_memory_format());
  at::_ops::addcmul_out::call(shift, x, slope, 1, result);
  return result;
}

// Computes dy * slope + x * x_slope + shift in x's memory format.
at::Tensor plane(const at::Tensor &dy, const at::Tensor &slope, const at::Tensor &x, const at::Tensor &x_slope,
                 const at::Tensor &shift) {
  at::Tensor result = line(x, x_slope, shift);
  at::_ops::addcmul_out::call(result, dy, slope, 1, result);
  return result;
}

// ---- group normalization: N x C x HxW, C in `groups` groups ----

std::optional<Three> group_norm(const at::Tensor &input, const OptionalTensor &weight, const OptionalTensor &bias,
                                int64_t n, int64_t channels, int64_t positions, int64_t groups, double eps) {
  if (!are_native(input, {&weight, &bias})) return std::nullopt;
  const auto [result, mean, rstd] = at::native::math_group_norm(widened(input).contiguous(), widened(weight),
                                                                widened(bias), n, channels, positions, groups, eps);
  return rounded(result.contiguous(input.suggest_memory_format()), mean, rstd, input.scalar_type(),
                 parameter_dtype(input, {&weight, &bias}));
}

std::optional<Three> group_norm_backward(const at::Tensor &grad, const at::Tensor &input, const at::Tensor &saved_mean,
                                         const at::Tensor &saved_rstd, const OptionalTensor &weight, int64_t n,
                                         int64_t channels, int64_t positions, int64_t groups,
                                         std::array<bool, 3> wanted) {
  const OptionalTensor statistics[] = {saved_mean, saved_rstd};
  if (!are_native(input, {&weight, &statistics[0], &statistics[1]}) || grad.scalar_type() != input.scalar_type())
    return std::nullopt;
  const int64_t depth = channels / groups;
  const double count = static_cast<double>(depth * positions);
  const at::Tensor x = widened(input).contiguous().view({n, groups, depth, positions});
  const at::Tensor dy = widened(grad).contiguous().view({n, groups, depth, positions});
  const at::Tensor mean = widened(saved_mean).reshape({n, groups, 1});
  const at::Tensor rstd = widened(saved_rstd).reshape({n, groups, 1});
  const at::Tensor sums = at::sum(dy, c10::IntArrayRef{3});
  const at::Tensor products = centered_dot(dy, x, mean.unsqueeze(3).expand({n, groups, depth, 1}), {3}, false);
  if (!products.defined()) return std::nullopt;  // x may be wider than the input, and have no kernel
  at::Tensor dx, dweight, dbias;
  if (wanted[1]) dweight = at::sum(products.mul(rstd), c10::IntArrayRef{0}).view({channels});
  if (wanted[2]) dbias = at::sum(sums, c10::IntArrayRef{0}).view({channels});
  if (wanted[0]) {
    const at::Tensor w = is_given(weight) ? widened(*weight).reshape({1, groups, depth}) : at::Tensor();
    const auto total = [&](const at::Tensor &t) {
      return at::sum(w.defined() ? t.mul(w) : t, c10::IntArrayRef{2}, true).mul_(-1 / count);
    };
    const at::Tensor slope = w.defined() ? rstd.mul(w) : rstd.expand({n, groups, depth});
    const at::Tensor x_slope = total(products).mul_(rstd).mul_(rstd).mul_(rstd);
    const at::Tensor shift = at::addcmul(total(sums).mul_(rstd), x_slope, mean, -1);
    dx = plane(dy, slope.unsqueeze(3), x, x_slope.unsqueeze(3), shift.unsqueeze(3))
             .view(input.sizes())
             .contiguous(input.suggest_memory_format());
  }
  return rounded(dx, dweight, dbias, input.scalar_type(), parameter_dtype(input, {&weight}));
}

}  // namespace
}  // namespace torch_backend

#include "aten/norm/group_norm.inc"  // registrations: codegen/operators
