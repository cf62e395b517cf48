// batch_norm_sync.cpp: batch normalization over the batches of several processes (torch.nn.SyncBatchNorm): statistics
// of one batch, those of all batches, and the two halves of the gradient, computed on the device in float32 at least.
// Channels are dimension 1.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/var_mean.h>

#include "aten/norm/norm_parameters.h"

namespace torch_backend {
namespace {

using Two = std::tuple<at::Tensor, at::Tensor>;
using Four = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

void check_input(const at::Tensor &input) {
  TORCH_CHECK(input.dim() >= 2, "batch normalization needs an input of at least 2 dimensions, batch and channels, got ",
              input.dim());
  TORCH_CHECK(input.is_floating_point(), "batch normalization needs a floating input, got ", input.dtype());
}

// Returns numbers of the channels in the computing dtype, to be broadcast to the input.
at::Tensor spread(const at::Tensor &numbers, const at::Tensor &input) {
  at::DimVector sizes(static_cast<size_t>(input.dim()), 1);
  sizes[1] = numbers.size(0);
  return widened(numbers).view(sizes);
}

at::Tensor rstd_of(const at::Tensor &variance, double eps) { return variance.add(eps).rsqrt(); }

Two statistics(const at::Tensor &input, double eps) {
  check_input(input);
  const auto [variance, mean] = at::var_mean(widened(input), dims_but(input.dim(), 1), 0, false);
  return {mean, rstd_of(variance, eps)};
}

at::Tensor normalised(const at::Tensor &input, const OptionalTensor &weight, const OptionalTensor &bias,
                      const at::Tensor &mean, const at::Tensor &rstd, double) {
  check_input(input);
  const at::Tensor slope = is_given(weight) ? widened(*weight).mul(rstd) : rstd;
  at::Tensor result = widened(input).sub(spread(mean, input)).mul_(spread(slope, input));
  if (is_given(bias)) result.add_(spread(*bias, input));
  return result.to(input.scalar_type());
}

at::Tensor &normalised_into(const at::Tensor &input, const OptionalTensor &weight, const OptionalTensor &bias,
                            const at::Tensor &mean, const at::Tensor &rstd, double eps, at::Tensor &out) {
  out.resize_(input.sizes());
  return out.copy_(normalised(input, weight, bias, mean, rstd, eps));
}

// Updates a running statistic with a new number, weighted by the momentum.
void update(const OptionalTensor &running, const at::Tensor &number, double momentum) {
  if (!is_given(running)) return;
  at::Tensor kept = *running;
  kept.mul_(1 - momentum).add_(number.to(kept.scalar_type()), momentum);
}

// From batches of `counts` elements with means and rstds, each (batches, channels): computes those of all batches, and
// updates running statistics.
Two gather_counted(const at::Tensor &, const at::Tensor &means, const at::Tensor &rstds,
                   const OptionalTensor &running_mean, const OptionalTensor &running_var, double momentum, double eps,
                   const at::Tensor &counts) {
  const at::Tensor centers = widened(means), n = counts.to(centers.scalar_type()).reshape({-1, 1});
  const at::Tensor total = n.sum(), mean = centers.mul(n).sum(0).div(total);
  const at::Tensor variances = widened(rstds).pow(-2).sub(eps), shifts = centers.sub(mean);
  const at::Tensor squares = shifts.mul(shifts).add(variances).mul(n).sum(0);
  update(running_mean, mean, momentum);
  update(running_var, squares.div(total.sub(1)), momentum);
  return {mean, rstd_of(squares.div(total), eps)};
}

Two gather(const at::Tensor &input, const at::Tensor &means, const at::Tensor &rstds,
           const OptionalTensor &running_mean, const OptionalTensor &running_var, double momentum, double eps,
           int64_t count) {
  const at::Tensor counts = at::full_like(means.select(1, 0), static_cast<double>(count), means.options());
  return gather_counted(input, means, rstds, running_mean, running_var, momentum, eps, counts);
}

// Computes for this process: sums of dy and of dy (x - mean), and the gradients of weight and bias.
Four backward_reduce(const at::Tensor &grad, const at::Tensor &input, const at::Tensor &mean, const at::Tensor &rstd,
                     const OptionalTensor &weight, bool input_wanted, bool weight_wanted, bool bias_wanted) {
  check_input(input);
  const at::DimVector dims = dims_but(input.dim(), 1);
  const at::Tensor dy = widened(grad), sum = dy.sum(dims);
  const at::Tensor product = dy.mul(widened(input).sub(spread(mean, input))).sum(dims);
  const c10::ScalarType as = is_given(weight) ? weight->scalar_type() : input.scalar_type();
  const auto wanted = [](bool yes, const at::Tensor &tensor) { return yes ? tensor : at::Tensor(); };
  return {wanted(input_wanted, sum), wanted(input_wanted, product),
          wanted(weight_wanted, product.mul(widened(rstd)).to(as)), wanted(bias_wanted, sum.to(as))};
}

// Computes the input's gradient from the sums over all processes.
at::Tensor backward_elements(const at::Tensor &grad, const at::Tensor &input, const at::Tensor &mean,
                             const at::Tensor &rstd, const OptionalTensor &weight, const at::Tensor &sum,
                             const at::Tensor &product, const at::Tensor &counts) {
  check_input(input);
  const at::Tensor scale = widened(rstd), share = counts.sum().to(scale.scalar_type()).reciprocal();
  const at::Tensor shift = widened(sum).mul(share), slope = widened(product).mul(share).mul(scale).mul(scale);
  const at::Tensor outer = is_given(weight) ? widened(*weight).mul(scale) : scale;
  const at::Tensor along = widened(input).sub(spread(mean, input)).mul_(spread(slope, input));
  return widened(grad).sub(spread(shift, input)).sub_(along).mul_(spread(outer, input)).to(input.scalar_type());
}

}  // namespace
}  // namespace torch_backend

#include "aten/norm/batch_norm_sync.inc"  // registrations: codegen/operators
