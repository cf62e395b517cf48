// batch_norm.cpp: batch normalization with all its ATen operators, by one kernel call forward and one backward.
// Channels are dimension 1.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/ops/add.h>
#include <ATen/ops/rsqrt.h>

#include "aten/norm/norm_parameters.h"
#include "hal_op_ids.h"

namespace torch_backend {
namespace {

// Returns result, saved mean and saved rstd, with the sizes and dtypes that FakeTensor describes for every device but
// the CPU. The CPU saves nothing in evaluation, and rounds to half precision. `evaluated`: the saved tensors are
// written.
Three results_of(const at::Tensor &input, const OptionalTensor &running_mean, const OptionalTensor &running_var,
                 double eps, bool evaluated) {
  const auto device = input.device().index();
  const auto dtype = input.scalar_type(), wide = at::toOpMathType(dtype);
  const int64_t channels[] = {input.size(1)};
  const at::Tensor result = make_empty(input.sizes(), dtype, device, input.suggest_memory_format());
  if (!evaluated) return {result, make_empty(channels, wide, device), make_empty(channels, wide, device)};
  return {result, running_mean->to(wide, /*non_blocking=*/false, /*copy=*/true),
          running_var->to(wide).add(eps).rsqrt_()};
}

bool has_statistics(const at::Tensor &input, const OptionalTensor &running_mean, const OptionalTensor &running_var,
                    bool training) {
  return training ? input.numel() != 0 : is_given(running_mean) && is_given(running_var);
}

// Returns results for vendors' operators (`meta` of their entries), for which ATen has a meta function in Python only;
// undefined ones for an invalid call, whose error the CPU's function reports.
Three make_batch_norm(const at::Tensor &input, const OptionalTensor &, const OptionalTensor &,
                      const OptionalTensor &running_mean, const OptionalTensor &running_var, bool training, double,
                      double eps) {
  if (input.dim() < 2 || !has_statistics(input, running_mean, running_var, training)) return {};
  return results_of(input, running_mean, running_var, eps, !training);
}

Three make_batch_norm_gradients(const at::Tensor &, const at::Tensor &input, const OptionalTensor &weight,
                                const OptionalTensor &, const OptionalTensor &, const OptionalTensor &,
                                const OptionalTensor &, bool, double, std::array<bool, 3> wanted) {
  if (input.dim() < 2) return {};
  const auto device = input.device().index();
  const auto dtype = parameter_dtype(input, {&weight});
  return {make_wanted(wanted[0], input.sizes(), input.scalar_type(), device, input.suggest_memory_format()),
          make_wanted(wanted[1], input.size(1), dtype, device), make_wanted(wanted[2], input.size(1), dtype, device)};
}

// nullopt = there is no kernel for the call.
std::optional<Three> batch_norm(const at::Tensor &input, const OptionalTensor &weight, const OptionalTensor &bias,
                                const OptionalTensor &running_mean, const OptionalTensor &running_var, bool training,
                                double momentum, double eps) {
  const Parameters parameters = {&weight, &bias, &running_mean, &running_var};
  if (input.dim() < 2 || !has_statistics(input, running_mean, running_var, training)) return std::nullopt;
  if (!are_parameters(input, parameters)) return std::nullopt;
  const auto device = input.device().index();
  const auto dtype = input.scalar_type(), wide = at::toOpMathType(dtype);
  Call call(HAL_OP_ID_NATIVE_BATCH_NORM, device, dtype);
  if (!call.possible()) return std::nullopt;
  // Plugins may omit the saved statistics of an evaluation, and without elements no kernel runs.
  const bool saves = training || (input.numel() != 0 && !has_vendor_op(device, HAL_OP_ID_NATIVE_BATCH_NORM));
  auto [result, mean, rstd] = results_of(input, running_mean, running_var, eps, !saves);
  const at::Tensor none;
  call.in(input).in(weight, wide).in(bias, wide).in(running_mean, wide).in(running_var, wide);
  call.put(training).put(momentum).put(eps).out(result);
  call.out(saves ? mean : none, wide).out(saves ? rstd : none, wide);
  // New running statistics replace the old ones in place.
  call.elementwise();
  call.out(training ? given_or_undefined(running_mean) : none, wide);
  call.out(training ? given_or_undefined(running_var) : none, wide);
  return call.run() ? std::optional(Three(result, mean, rstd)) : std::nullopt;
}

std::optional<Three> batch_norm_without_statistics(const at::Tensor &input, const OptionalTensor &weight,
                                                   const OptionalTensor &bias, bool training, double momentum,
                                                   double eps) {
  return batch_norm(input, weight, bias, {}, {}, training, momentum, eps);
}

using Four = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

std::optional<Four> batch_norm_with_update(const at::Tensor &input, const OptionalTensor &weight,
                                           const OptionalTensor &bias, const at::Tensor &running_mean,
                                           const at::Tensor &running_var, double momentum, double eps) {
  auto results = batch_norm(input, weight, bias, running_mean, running_var, true, momentum, eps);
  if (!results) return std::nullopt;
  auto [result, mean, rstd] = *std::move(results);
  return Four{result, mean, rstd, make_empty({0}, at::kByte, input.device().index())};
}

// Returns the gradients with saved (training) or running statistics. nullopt = there is no kernel for the call.
std::optional<Three> gradients(const at::Tensor &dy, const at::Tensor &input, const OptionalTensor &weight,
                               const OptionalTensor &mean, const OptionalTensor &scale, bool training, double eps,
                               std::array<bool, 3> wanted) {
  if (input.dim() < 2 || !is_given(mean) || !is_given(scale) || !is_device_tensor(dy)) return std::nullopt;
  if (dy.scalar_type() != input.scalar_type()) return std::nullopt;
  if (!are_parameters(input, {&weight}) || !are_parameters(input, {&mean, &scale})) return std::nullopt;
  const auto device = input.device().index();
  const auto dtype = input.scalar_type(), wide = at::toOpMathType(dtype);
  Call call(HAL_OP_ID_NATIVE_BATCH_NORM_BACKWARD, device, dtype);
  if (!call.possible()) return std::nullopt;
  auto results = make_batch_norm_gradients(dy, input, weight, {}, {}, {}, {}, training, eps, wanted);
  const auto &[dx, dweight, dbias] = results;
  call.in(dy.contiguous(input.suggest_memory_format())).in(input).in(weight, wide);
  if (training) call.none().none();
  call.in(mean, wide).in(scale, wide);
  if (!training) call.none().none();
  call.put(training).put(eps).out(dx).out(dweight, wide).out(dbias, wide);
  return call.run() ? std::optional(std::move(results)) : std::nullopt;
}

std::optional<Three> batch_norm_backward(const at::Tensor &dy, const at::Tensor &input, const OptionalTensor &weight,
                                         const OptionalTensor &running_mean, const OptionalTensor &running_var,
                                         const OptionalTensor &saved_mean, const OptionalTensor &saved_rstd,
                                         bool training, double eps, std::array<bool, 3> wanted) {
  const OptionalTensor &mean = training ? saved_mean : running_mean, &scale = training ? saved_rstd : running_var;
  return gradients(dy, input, weight, mean, scale, training, eps, wanted);
}

// The last argument is the reserved tensor of the forward pass, which is empty.
std::optional<Three> batch_norm_backward_after_update(const at::Tensor &dy, const at::Tensor &input,
                                                      const at::Tensor &weight, const OptionalTensor &running_mean,
                                                      const OptionalTensor &running_var,
                                                      const OptionalTensor &saved_mean,
                                                      const OptionalTensor &saved_rstd, bool update, double eps,
                                                      std::array<bool, 3> wanted, const at::Tensor &) {
  return batch_norm_backward(dy, input, weight, running_mean, running_var, saved_mean, saved_rstd, update, eps, wanted);
}

}  // namespace
}  // namespace torch_backend

#include "aten/norm/batch_norm.inc"  // registrations: codegen/operators
