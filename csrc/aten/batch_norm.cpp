// batch_norm.cpp: batch and group normalisation, made of reductions over the large tensors, arithmetic on the few numbers
// per channel, and one pass x * slope + shift.
//
// With h = (x - mean) * rstd, y = h * weight + bias over sets of n elements that share mean and rstd, the gradient is
//   dx = rstd * (g - sum(g) / n - (x - mean) * rstd^2 * sum(g * (x - mean)) / n),  g = dy * weight.
// Half precision is computed in float32 and rounded once; its weights and statistics may be float32 themselves, as on the CPU.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>

#include <ATen/ops/_batch_norm_with_update_ops.h>
#include <ATen/ops/_native_batch_norm_legit_ops.h>
#include <ATen/ops/addcmul.h>
#include <ATen/ops/addcmul_ops.h>
#include <ATen/ops/batch_norm_backward_ops.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mul_ops.h>
#include <ATen/ops/native_batch_norm_backward_ops.h>
#include <ATen/ops/native_batch_norm_ops.h>
#include <ATen/ops/native_group_norm_backward_ops.h>
#include <ATen/ops/native_group_norm_ops.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/var_mean.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include "aten/fallback_call.h"
#include "aten/op_call.h"
#include "aten/reductions.h"
#include "hal_op_ids.h"

namespace torch_backend {
namespace {

using OptionalTensor = std::optional<at::Tensor>;
using Three = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
using Dims = c10::SmallVector<int64_t, 6>;

bool is_given(const OptionalTensor &tensor) { return tensor && tensor->defined(); }

using Tensors = std::initializer_list<const OptionalTensor *>;

c10::ScalarType computing_dtype(const at::Tensor &input) {
  return c10::isReducedFloatingType(input.scalar_type()) ? at::kFloat : input.scalar_type();
}

at::Tensor widened(const at::Tensor &tensor) { return tensor.to(computing_dtype(tensor)); }
OptionalTensor widened(const OptionalTensor &tensor) { return is_given(tensor) ? widened(*tensor) : OptionalTensor(); }

// The dtype of weights and statistics: the first one's that is given, else the input's.
c10::ScalarType parameter_dtype(const at::Tensor &input, Tensors parameters) {
  for (const OptionalTensor *parameter : parameters)
    if (is_given(*parameter)) return (*parameter)->scalar_type();
  return input.scalar_type();
}

// An input of a dtype with kernels and parameters of one dtype, its own or the computing one; missing ones do not matter.
bool are_native(const at::Tensor &input, Tensors parameters) {
  const c10::ScalarType dtype = computing_dtype(input), common = parameter_dtype(input, parameters);
  if (!is_device_tensor(input) || !has_kernel(input.device().index(), HAL_OP_ID_CENTERED_DOT, dtype)) return false;
  for (const OptionalTensor *parameter : parameters)
    if (is_given(*parameter) && (!is_device_tensor(**parameter) || (*parameter)->scalar_type() != common)) return false;
  return common == dtype || common == input.scalar_type();
}

// Rounds what was computed to the dtypes of the input and of the parameters.
Three rounded(const at::Tensor &first, const at::Tensor &second, const at::Tensor &third, c10::ScalarType input,
              c10::ScalarType parameters) {
  const auto to = [](const at::Tensor &tensor, c10::ScalarType dtype) {
    return tensor.defined() ? tensor.to(dtype) : tensor;
  };
  return {to(first, input), to(second, parameters), to(third, parameters)};
}

// x * slope + shift in x's memory format.
at::Tensor line(const at::Tensor &x, const at::Tensor &slope, const at::Tensor &shift) {
  at::Tensor result = at::empty_like(x, x.suggest_memory_format());
  at::_ops::addcmul_out::call(shift, x, slope, 1, result);
  return result;
}

// dy * slope + x * x_slope + shift in x's memory format.
at::Tensor plane(const at::Tensor &dy, const at::Tensor &slope, const at::Tensor &x, const at::Tensor &x_slope,
                 const at::Tensor &shift) {
  at::Tensor result = line(x, x_slope, shift);
  at::_ops::addcmul_out::call(result, dy, slope, 1, result);
  return result;
}

// ---- batch normalisation: channels are dimension 1 ----

// One number per channel in the shape that broadcasts over the input.
at::Tensor per_channel(const at::Tensor &numbers, const at::Tensor &input) {
  Dims shape(static_cast<size_t>(input.dim()), 1);
  shape[1] = input.size(1);
  return numbers.reshape(shape);
}

Dims all_but_channels(const at::Tensor &input) {
  Dims dims;
  for (int64_t d = 0; d < input.dim(); d++)
    if (d != 1) dims.push_back(d);
  return dims;
}

// running = (1 - momentum) * running + momentum * scale * value
void move_average(const OptionalTensor &running, const at::Tensor &value, double momentum, double scale) {
  if (!is_given(running)) return;
  if (running->scalar_type() == value.scalar_type())
    running->mul_(1 - momentum).add_(value, momentum * scale);
  else
    running->copy_(running->to(value.scalar_type()).mul_(1 - momentum).add_(value, momentum * scale));
}

at::Tensor normalise(const at::Tensor &input, const OptionalTensor &weight, const OptionalTensor &bias,
                     const at::Tensor &mean, const at::Tensor &rstd) {
  const at::Tensor slope = is_given(weight) ? rstd.mul(*weight) : rstd;
  const at::Tensor shift = is_given(bias) ? at::addcmul(*bias, mean, slope, -1) : mean.mul(slope).neg();
  return line(input, per_channel(slope, input), per_channel(shift, input));
}

// Outputs: result, saved mean, saved rstd; the latter are empty in evaluation.
Three batch_norm_wide(const at::Tensor &input, const OptionalTensor &weight, const OptionalTensor &bias,
                      const OptionalTensor &running_mean, const OptionalTensor &running_var, bool training,
                      double momentum, double eps) {
  if (!training) {
    const at::Tensor rstd = widened(*running_var).add(eps).rsqrt();
    at::Tensor none = at::empty({0}, input.options());
    return {normalise(input, weight, bias, widened(*running_mean), rstd), none, at::empty({0}, input.options())};
  }
  auto [var, mean] = at::var_mean(input, all_but_channels(input), 0, false);
  at::Tensor rstd = var.add(eps).rsqrt();
  const double n = static_cast<double>(input.numel() / std::max<int64_t>(input.size(1), 1));
  move_average(running_mean, mean, momentum, 1);
  move_average(running_var, var, momentum, n / (n - 1));
  return {normalise(input, weight, bias, mean, rstd), mean, rstd};
}

Three batch_norm_native(const at::Tensor &input, const OptionalTensor &weight, const OptionalTensor &bias,
                        const OptionalTensor &running_mean, const OptionalTensor &running_var, bool training,
                        double momentum, double eps) {
  const auto [result, mean, rstd] = batch_norm_wide(widened(input), widened(weight), widened(bias), running_mean,
                                                    running_var, training, momentum, eps);
  return rounded(result, mean, rstd, input.scalar_type(),
                 parameter_dtype(input, {&weight, &bias, &running_mean, &running_var}));
}

bool can_batch_norm(const at::Tensor &input, const OptionalTensor &weight, const OptionalTensor &bias,
                    const OptionalTensor &running_mean, const OptionalTensor &running_var, bool training) {
  return input.dim() >= 2 && are_native(input, {&weight, &bias, &running_mean, &running_var}) &&
         (training || (is_given(running_mean) && is_given(running_var)));
}

Three batch_norm(const at::Tensor &input, const OptionalTensor &weight, const OptionalTensor &bias,
                 const OptionalTensor &running_mean, const OptionalTensor &running_var, bool training, double momentum,
                 double eps) {
  if (can_batch_norm(input, weight, bias, running_mean, running_var, training))
    return batch_norm_native(input, weight, bias, running_mean, running_var, training, momentum, eps);
  return call_fallback<at::_ops::native_batch_norm>(input, weight, bias, running_mean, running_var, training, momentum,
                                                    eps);
}

Three batch_norm_legit(const at::Tensor &input, const OptionalTensor &weight, const OptionalTensor &bias,
                       at::Tensor &running_mean, at::Tensor &running_var, bool training, double momentum, double eps) {
  if (can_batch_norm(input, weight, bias, running_mean, running_var, training))
    return batch_norm_native(input, weight, bias, running_mean, running_var, training, momentum, eps);
  return call_fallback<at::_ops::_native_batch_norm_legit>(input, weight, bias, running_mean, running_var, training,
                                                           momentum, eps);
}

Three batch_norm_no_stats(const at::Tensor &input, const OptionalTensor &weight, const OptionalTensor &bias,
                          bool training, double momentum, double eps) {
  if (can_batch_norm(input, weight, bias, {}, {}, training))
    return batch_norm_native(input, weight, bias, {}, {}, training, momentum, eps);
  return call_fallback<at::_ops::_native_batch_norm_legit_no_stats>(input, weight, bias, training, momentum, eps);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> batch_norm_with_update(
    const at::Tensor &input, const OptionalTensor &weight, const OptionalTensor &bias, at::Tensor &running_mean,
    at::Tensor &running_var, double momentum, double eps) {
  if (can_batch_norm(input, weight, bias, running_mean, running_var, true)) {
    auto [result, mean, rstd] = batch_norm_native(input, weight, bias, running_mean, running_var, true, momentum, eps);
    return {result, mean, rstd, at::empty({0}, input.options().dtype(at::kByte))};
  }
  return call_fallback<at::_ops::_batch_norm_with_update>(input, weight, bias, running_mean, running_var, momentum,
                                                          eps);
}

// The gradients about saved (training) or running statistics.
Three batch_norm_gradients(const at::Tensor &grad, const at::Tensor &x, const OptionalTensor &parameter,
                           const at::Tensor &saved_mean, const at::Tensor &saved_rstd, bool training,
                           std::array<bool, 3> wanted) {
  const at::Tensor dy = widened(grad), input = widened(x), mean = widened(saved_mean), rstd = widened(saved_rstd);
  const OptionalTensor weight = widened(parameter);
  const Dims dims = all_but_channels(input);
  const double n = static_cast<double>(input.numel() / std::max<int64_t>(input.size(1), 1));
  const at::Tensor scale = is_given(weight) ? rstd.mul(*weight) : rstd;
  at::Tensor dx, dweight, dbias, product;
  if (wanted[2] || (wanted[0] && training)) dbias = at::sum(dy, dims);
  if (wanted[1] || (wanted[0] && training)) {
    product = centered_dot(dy, input, per_channel(mean, input).contiguous(), dims, false);
    if (wanted[1]) dweight = product.mul(rstd);
  }
  if (wanted[0] && !training) {
    dx = at::empty_like(input, input.suggest_memory_format());
    at::_ops::mul_out::call(dy, per_channel(scale, input), dx);
  } else if (wanted[0]) {
    const at::Tensor x_slope = product.mul(rstd).mul_(rstd).mul_(scale).mul_(-1 / n);
    const at::Tensor shift = at::addcmul(dbias.mul(scale).mul_(-1 / n), x_slope, mean, -1);
    dx = plane(dy, per_channel(scale, input), input, per_channel(x_slope, input), per_channel(shift, input));
  }
  if (!wanted[2]) dbias = at::Tensor();
  return rounded(dx, dweight, dbias, x.scalar_type(), parameter_dtype(x, {&parameter}));
}

bool can_differentiate(const at::Tensor &dy, const at::Tensor &input, const OptionalTensor &weight,
                       const OptionalTensor &mean, const OptionalTensor &var) {
  return input.dim() >= 2 && is_given(mean) && is_given(var) && are_native(input, {&weight, &mean, &var}) &&
         is_device_tensor(dy) && dy.scalar_type() == input.scalar_type();
}

Three batch_norm_backward(const at::Tensor &dy, const at::Tensor &input, const OptionalTensor &weight,
                          const OptionalTensor &running_mean, const OptionalTensor &running_var,
                          const OptionalTensor &saved_mean, const OptionalTensor &saved_rstd, bool training, double eps,
                          std::array<bool, 3> wanted) {
  if (training && can_differentiate(dy, input, weight, saved_mean, saved_rstd))
    return batch_norm_gradients(dy, input, weight, *saved_mean, *saved_rstd, true, wanted);
  if (!training && can_differentiate(dy, input, weight, running_mean, running_var))
    return batch_norm_gradients(dy, input, weight, *running_mean, widened(*running_var).add(eps).rsqrt(), false,
                                wanted);
  return call_fallback<at::_ops::native_batch_norm_backward>(dy, input, weight, running_mean, running_var, saved_mean,
                                                             saved_rstd, training, eps, wanted);
}

Three batch_norm_backward_after_update(const at::Tensor &dy, const at::Tensor &input, const at::Tensor &weight,
                                       const OptionalTensor &running_mean, const OptionalTensor &running_var,
                                       const OptionalTensor &saved_mean, const OptionalTensor &saved_rstd, bool update,
                                       double eps, std::array<bool, 3> wanted, const at::Tensor &) {
  return batch_norm_backward(dy, input, weight, running_mean, running_var, saved_mean, saved_rstd, update, eps, wanted);
}

// ---- group normalisation: N x C x HxW, C in `groups` groups ----

Three group_norm(const at::Tensor &input, const OptionalTensor &weight, const OptionalTensor &bias, int64_t n,
                 int64_t channels, int64_t places, int64_t groups, double eps) {
  if (!are_native(input, {&weight, &bias}) || input.numel() == 0)
    return call_fallback<at::_ops::native_group_norm>(input, weight, bias, n, channels, places, groups, eps);
  const int64_t depth = channels / groups;
  const at::Tensor x = widened(input).contiguous();
  const OptionalTensor w = widened(weight), b = widened(bias);
  auto [var, mean] = at::var_mean(x.view({n, groups, depth * places}), c10::IntArrayRef{2}, 0, true);
  const at::Tensor rstd = var.add(eps).rsqrt();
  at::Tensor slope = is_given(w) ? rstd.mul(w->reshape({1, groups, depth})) : rstd;
  at::Tensor shift = is_given(b) ? at::addcmul(b->reshape({1, groups, depth}), mean, slope, -1) : mean.mul(slope).neg();
  const auto spread = [&](const at::Tensor &numbers) {
    return numbers.expand({n, groups, depth}).reshape({n, channels, 1});
  };
  at::Tensor result = line(x.view({n, channels, places}), spread(slope), spread(shift));
  return rounded(result.view(input.sizes()), mean.view({n, groups}), rstd.view({n, groups}), input.scalar_type(),
                 parameter_dtype(input, {&weight, &bias}));
}

Three group_norm_backward(const at::Tensor &grad, const at::Tensor &input, const at::Tensor &saved_mean,
                          const at::Tensor &saved_rstd, const OptionalTensor &weight, int64_t n, int64_t channels,
                          int64_t places, int64_t groups, std::array<bool, 3> wanted) {
  const OptionalTensor statistics[] = {saved_mean, saved_rstd};
  if (!are_native(input, {&weight, &statistics[0], &statistics[1]}) || input.numel() == 0 || !is_device_tensor(grad) ||
      grad.scalar_type() != input.scalar_type())
    return call_fallback<at::_ops::native_group_norm_backward>(grad, input, saved_mean, saved_rstd, weight, n, channels,
                                                               places, groups, wanted);
  const int64_t depth = channels / groups;
  const double count = static_cast<double>(depth * places);
  const at::Tensor x = widened(input).contiguous().view({n, groups, depth, places});
  const at::Tensor dy = widened(grad).contiguous().view({n, groups, depth, places});
  const at::Tensor mean = widened(saved_mean).reshape({n, groups, 1});
  const at::Tensor rstd = widened(saved_rstd).reshape({n, groups, 1});
  const at::Tensor sums = at::sum(dy, c10::IntArrayRef{3});
  const at::Tensor products =
      centered_dot(dy, x, mean.unsqueeze(3).expand({n, groups, depth, 1}), c10::IntArrayRef{3}, false);
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
    dx = plane(dy, slope.unsqueeze(3), x, x_slope.unsqueeze(3), shift.unsqueeze(3)).view(input.sizes());
  }
  return rounded(dx, dweight, dbias, input.scalar_type(), parameter_dtype(input, {&weight}));
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("native_batch_norm", TORCH_FN(batch_norm));
  m.impl("_native_batch_norm_legit", TORCH_FN(batch_norm_legit));
  m.impl("_native_batch_norm_legit.no_stats", TORCH_FN(batch_norm_no_stats));
  m.impl("_batch_norm_with_update", TORCH_FN(batch_norm_with_update));
  m.impl("native_batch_norm_backward", TORCH_FN(batch_norm_backward));
  m.impl("batch_norm_backward", TORCH_FN(batch_norm_backward_after_update));
  m.impl("native_group_norm", TORCH_FN(group_norm));
  m.impl("native_group_norm_backward", TORCH_FN(group_norm_backward));
}

}  // namespace torch_backend
