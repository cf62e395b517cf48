// batch_norm.cpp: batch normalisation in all its entries, by one kernel call forward and one backward. Channels are dimension 1.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>

#include <ATen/ops/_batch_norm_with_update_ops.h>
#include <ATen/ops/_native_batch_norm_legit_ops.h>
#include <ATen/ops/batch_norm_backward_ops.h>
#include <ATen/ops/native_batch_norm_backward_ops.h>
#include <ATen/ops/native_batch_norm_ops.h>
#include <torch/library.h>

#include "aten/fallback/fallback_call.h"
#include "aten/norm/norm_parameters.h"
#include "hal_op_ids.h"

namespace torch_backend {
namespace {

// A number per channel as the kernels take it: contiguous, in the computing dtype; or none.
class PerChannel {
 public:
  PerChannel(const OptionalTensor &tensor, c10::ScalarType dtype) {
    if (is_given(tensor)) *this = PerChannel(tensor->to(dtype).contiguous());
  }
  static PerChannel made(int64_t channels, c10::ScalarType dtype, c10::DeviceIndex device) {
    return PerChannel(make_empty({channels}, dtype, device));
  }

  // They borrow from this object.
  hal_value_t argument() const { return tensor_.defined() ? value(descriptor_) : none_value(); }
  const hal_tensor_t *result() const { return tensor_.defined() ? &descriptor_ : nullptr; }
  const at::Tensor &tensor() const { return tensor_; }

 private:
  explicit PerChannel(at::Tensor tensor) : tensor_(std::move(tensor)), descriptor_(describe(tensor_)) {}

  at::Tensor tensor_;
  hal_tensor_t descriptor_{};
};

// Brings what a kernel wrote to where it belongs, when that is not where the kernel wrote.
void write_back(const OptionalTensor &running, const PerChannel &written) {
  if (is_given(running) && !running->is_same(written.tensor())) running->copy_(written.tensor());
}

bool can_batch_norm(const at::Tensor &input, const OptionalTensor &weight, const OptionalTensor &bias,
                    const OptionalTensor &running_mean, const OptionalTensor &running_var, bool training) {
  if (training && input.numel() == 0) return false;  // the CPU's kernel words the error
  return input.dim() >= 2 &&
         are_native(input, {&weight, &bias, &running_mean, &running_var}, HAL_OP_ID_NATIVE_BATCH_NORM) &&
         (training || (is_given(running_mean) && is_given(running_var)));
}

// Outputs: result, saved mean, saved rstd; the latter are empty in evaluation. Nothing = there is no kernel after all.
std::optional<Three> try_batch_norm(const at::Tensor &input, const OptionalTensor &weight, const OptionalTensor &bias,
                                    const OptionalTensor &running_mean, const OptionalTensor &running_var,
                                    bool training, double momentum, double eps) {
  if (!can_batch_norm(input, weight, bias, running_mean, running_var, training)) return std::nullopt;
  const auto device = input.device().index();
  const auto dtype = input.scalar_type(), wide = computing_dtype(input);
  const auto format = input.suggest_memory_format();
  const at::Tensor x = input.contiguous(format);
  const PerChannel w(weight, wide), b(bias, wide), old_mean(running_mean, wide), old_var(running_var, wide);
  at::Tensor result = make_empty(x.sizes(), dtype, device, format);
  const PerChannel mean = PerChannel::made(training ? x.size(1) : 0, wide, device);
  const PerChannel rstd = PerChannel::made(training ? x.size(1) : 0, wide, device);
  const hal_tensor_t a = describe(x), r = describe(result);
  const hal_value_t args[] = {value(a),           w.argument(),    b.argument(),    old_mean.argument(),
                              old_var.argument(), value(training), value(momentum), value(eps)};
  const hal_tensor_t *const results[] = {&r, training ? mean.result() : nullptr, training ? rstd.result() : nullptr,
                                         training ? old_mean.result() : nullptr, training ? old_var.result() : nullptr};
  if (!run_op(device, HAL_OP_ID_NATIVE_BATCH_NORM, args, results)) return std::nullopt;
  if (training) write_back(running_mean, old_mean), write_back(running_var, old_var);
  return rounded(result, mean.tensor(), rstd.tensor(), dtype,
                 parameter_dtype(input, {&weight, &bias, &running_mean, &running_var}));
}

Three batch_norm(const at::Tensor &input, const OptionalTensor &weight, const OptionalTensor &bias,
                 const OptionalTensor &running_mean, const OptionalTensor &running_var, bool training, double momentum,
                 double eps) {
  if (auto results = try_batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps))
    return std::move(*results);
  return call_fallback<at::_ops::native_batch_norm>(input, weight, bias, running_mean, running_var, training, momentum,
                                                    eps);
}

Three batch_norm_legit(const at::Tensor &input, const OptionalTensor &weight, const OptionalTensor &bias,
                       at::Tensor &running_mean, at::Tensor &running_var, bool training, double momentum, double eps) {
  if (auto results = try_batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps))
    return std::move(*results);
  return call_fallback<at::_ops::_native_batch_norm_legit>(input, weight, bias, running_mean, running_var, training,
                                                           momentum, eps);
}

Three batch_norm_no_stats(const at::Tensor &input, const OptionalTensor &weight, const OptionalTensor &bias,
                          bool training, double momentum, double eps) {
  if (auto results = try_batch_norm(input, weight, bias, {}, {}, training, momentum, eps)) return std::move(*results);
  return call_fallback<at::_ops::_native_batch_norm_legit_no_stats>(input, weight, bias, training, momentum, eps);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> batch_norm_with_update(
    const at::Tensor &input, const OptionalTensor &weight, const OptionalTensor &bias, at::Tensor &running_mean,
    at::Tensor &running_var, double momentum, double eps) {
  if (auto results = try_batch_norm(input, weight, bias, running_mean, running_var, true, momentum, eps)) {
    auto [result, mean, rstd] = std::move(*results);
    return {result, mean, rstd, make_empty({0}, at::kByte, input.device().index())};
  }
  return call_fallback<at::_ops::_batch_norm_with_update>(input, weight, bias, running_mean, running_var, momentum,
                                                          eps);
}

bool can_differentiate(const at::Tensor &dy, const at::Tensor &input, const OptionalTensor &weight,
                       const OptionalTensor &mean, const OptionalTensor &var) {
  if (input.dim() < 2 || !is_given(mean) || !is_given(var) || !is_device_tensor(dy)) return false;
  if (dy.device() != input.device()) throw_two_devices(dy.device(), input.device());
  return dy.scalar_type() == input.scalar_type() &&
         are_native(input, {&weight, &mean, &var}, HAL_OP_ID_NATIVE_BATCH_NORM_BACKWARD);
}

// The gradients about saved (training) or running statistics. Nothing = there is no kernel after all.
std::optional<Three> try_gradients(const at::Tensor &dy, const at::Tensor &input, const OptionalTensor &weight,
                                   const OptionalTensor &mean, const OptionalTensor &scale, bool training, double eps,
                                   std::array<bool, 3> wanted) {
  if (!can_differentiate(dy, input, weight, mean, scale)) return std::nullopt;
  const auto device = input.device().index();
  const auto dtype = input.scalar_type(), wide = computing_dtype(input);
  const auto format = input.suggest_memory_format();
  const at::Tensor x = input.contiguous(format), grad = dy.contiguous(format);
  const PerChannel w(weight, wide), center(mean, wide), spread(scale, wide), none({}, wide);
  const at::Tensor dx = wanted[0] ? make_empty(x.sizes(), dtype, device, format) : at::Tensor();
  const PerChannel dweight = wanted[1] ? PerChannel::made(x.size(1), wide, device) : none;
  const PerChannel dbias = wanted[2] ? PerChannel::made(x.size(1), wide, device) : none;
  const hal_tensor_t g = describe(grad), a = describe(x), r = wanted[0] ? describe(dx) : hal_tensor_t{};
  const PerChannel &saved_mean = training ? center : none, &saved_rstd = training ? spread : none;
  const PerChannel &running_mean = training ? none : center, &running_var = training ? none : spread;
  const hal_value_t args[] = {value(g),
                              value(a),
                              w.argument(),
                              running_mean.argument(),
                              running_var.argument(),
                              saved_mean.argument(),
                              saved_rstd.argument(),
                              value(training),
                              value(eps)};
  const hal_tensor_t *const results[] = {wanted[0] ? &r : nullptr, dweight.result(), dbias.result()};
  if (!run_op(device, HAL_OP_ID_NATIVE_BATCH_NORM_BACKWARD, args, results)) return std::nullopt;
  return rounded(dx, dweight.tensor(), dbias.tensor(), dtype, parameter_dtype(input, {&weight}));
}

Three batch_norm_backward(const at::Tensor &dy, const at::Tensor &input, const OptionalTensor &weight,
                          const OptionalTensor &running_mean, const OptionalTensor &running_var,
                          const OptionalTensor &saved_mean, const OptionalTensor &saved_rstd, bool training, double eps,
                          std::array<bool, 3> wanted) {
  const OptionalTensor &mean = training ? saved_mean : running_mean, &scale = training ? saved_rstd : running_var;
  if (auto results = try_gradients(dy, input, weight, mean, scale, training, eps, wanted)) return std::move(*results);
  return call_fallback<at::_ops::native_batch_norm_backward>(dy, input, weight, running_mean, running_var, saved_mean,
                                                             saved_rstd, training, eps, wanted);
}

Three batch_norm_backward_after_update(const at::Tensor &dy, const at::Tensor &input, const at::Tensor &weight,
                                       const OptionalTensor &running_mean, const OptionalTensor &running_var,
                                       const OptionalTensor &saved_mean, const OptionalTensor &saved_rstd, bool update,
                                       double eps, std::array<bool, 3> wanted, const at::Tensor &) {
  return batch_norm_backward(dy, input, weight, running_mean, running_var, saved_mean, saved_rstd, update, eps, wanted);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("native_batch_norm", TORCH_FN(batch_norm));
  m.impl("_native_batch_norm_legit", TORCH_FN(batch_norm_legit));
  m.impl("_native_batch_norm_legit.no_stats", TORCH_FN(batch_norm_no_stats));
  m.impl("_batch_norm_with_update", TORCH_FN(batch_norm_with_update));
  m.impl("native_batch_norm_backward", TORCH_FN(batch_norm_backward));
  m.impl("batch_norm_backward", TORCH_FN(batch_norm_backward_after_update));
}

}  // namespace torch_backend
