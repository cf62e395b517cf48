// optimizers.cpp: torch's fused optimizers, one launch per parameter, and the operators of torch.amp.GradScaler. These
// do not wait for the device: the step, the learning rate, the scale and its flag may be device tensors.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/ops/where.h>

#include <algorithm>
#include <initializer_list>

#include "aten/prepare/call.h"
#include "hal_op_ids.h"

namespace torch_backend {
namespace {

using Tensor = const at::Tensor &;
using State = std::initializer_list<const at::Tensor *>;

// A learning rate is a number or a tensor. Numbers on the device are float32.
Call &put_rate(Call &call, double rate) { return call.put(rate); }
Call &put_rate(Call &call, const at::Tensor &rate) {
  return rate.is_cpu() ? call.put(rate.item<double>()) : call.in(rate, at::kFloat);
}

// Returns whether every tensor of the lists is a device tensor of one dtype for which there is a kernel.
bool are_native(uint32_t op, std::initializer_list<at::TensorList> lists) {
  const at::Tensor *first = nullptr;
  for (const at::TensorList list : lists) {
    for (const at::Tensor &tensor : list) {
      if (!is_device_tensor(tensor)) return false;
      if (!first) first = &tensor;
      if (tensor.scalar_type() != first->scalar_type()) return false;
    }
  }
  return !first || computing_dtype(first->device().index(), op, first->scalar_type());
}

// Runs launch `i` of an operator over a list. Returns false if the plugin's own operator declines the first one, and
// there is no other kernel. Then nothing is written, and the fallback can run the whole list.
bool launch(Call &call, size_t i, const at::Tensor &self) {
  const bool done = call.run();
  TORCH_CHECK_NOT_IMPLEMENTED(done || i == 0,
                              "the plugin's own operator has run some tensors of a list and declines one in ",
                              self.dtype(), ", for which the device has no kernel");
  return done;
}

// Runs one launch over a parameter, its gradient and its state. The kernel sees rows, in memory order if all have the
// same layout. Returns as launch().
bool launch_step(Call &call, size_t i, State state) {
  const at::Tensor &self = **state.begin();
  if (self.numel() == 0) return true;
  const bool alike = std::all_of(state.begin(), state.end(), [&](const at::Tensor *tensor) {
    return tensor->is_non_overlapping_and_dense() && tensor->strides() == self.strides();
  });
  call.layout(alike && call.dtype() == self.scalar_type() ? Layout::kStrided : Layout::kContiguous);
  for (const at::Tensor *tensor : state) {
    TORCH_CHECK(tensor->sizes() == self.sizes(), "a fused optimizer needs state of the parameter's size ", self.sizes(),
                ", but got ", tensor->sizes());
    call.update(*tensor).as({self.numel()});
  }
  return launch(call, i, self);
}

// Adam and AdamW, with a number or a tensor as learning rate; they differ in the tensor to which weight decay is added.
template <bool kDecoupled, class Lr>
bool adam(at::TensorList self, at::TensorList grads, at::TensorList exp_avgs, at::TensorList exp_avg_sqs,
          at::TensorList max_exp_avg_sqs, at::TensorList state_steps, Lr lr, double beta1, double beta2,
          double weight_decay, double eps, bool amsgrad, bool maximize, const OptionalTensor &grad_scale,
          const OptionalTensor &found_inf) {
  if (!are_native(HAL_OP_ID__FUSED_ADAM_, {self, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs})) return false;
  for (size_t i = 0; i < self.size(); i++) {
    Call call(HAL_OP_ID__FUSED_ADAM_, self[i]);
    put_rate(call.in(state_steps[i], at::kFloat), lr).in(grad_scale, at::kFloat).in(found_inf, at::kFloat);
    call.put(beta1).put(beta2).put(eps).put(weight_decay).put(amsgrad).put(maximize).put(kDecoupled);
    const at::Tensor &largest = amsgrad ? max_exp_avg_sqs[i] : exp_avg_sqs[i];
    if (!launch_step(call, i, {&self[i], &grads[i], &exp_avgs[i], &exp_avg_sqs[i], &largest})) return false;
  }
  return true;
}

template <class Lr>
bool sgd(at::TensorList self, at::TensorList grads, at::TensorList momentum_buffers, double weight_decay,
         double momentum, Lr lr, double dampening, bool nesterov, bool maximize, bool is_first_step,
         const OptionalTensor &grad_scale, const OptionalTensor &found_inf) {
  if (!are_native(HAL_OP_ID__FUSED_SGD_, {self, grads, momentum_buffers})) return false;
  const bool buffered = !momentum_buffers.empty();
  for (size_t i = 0; i < self.size(); i++) {
    Call call(HAL_OP_ID__FUSED_SGD_, self[i]);
    put_rate(call, lr).in(grad_scale, at::kFloat).in(found_inf, at::kFloat).put(weight_decay).put(momentum);
    call.put(dampening).put(maximize).put(buffered).put(is_first_step).put(nesterov);
    if (!launch_step(call, i, {&self[i], &grads[i], buffered ? &momentum_buffers[i] : &self[i]})) return false;
  }
  return true;
}

template <class Lr>
bool adagrad(at::TensorList self, at::TensorList grads, at::TensorList state_sums, at::TensorList state_steps, Lr lr,
             double lr_decay, double weight_decay, double eps, bool maximize, const OptionalTensor &grad_scale,
             const OptionalTensor &found_inf) {
  if (!are_native(HAL_OP_ID__FUSED_ADAGRAD_, {self, grads, state_sums})) return false;
  for (size_t i = 0; i < self.size(); i++) {
    Call call(HAL_OP_ID__FUSED_ADAGRAD_, self[i]);
    put_rate(call.in(state_steps[i], at::kFloat), lr).in(grad_scale, at::kFloat).in(found_inf, at::kFloat);
    call.put(lr_decay).put(weight_decay).put(eps).put(maximize);
    if (!launch_step(call, i, {&self[i], &grads[i], &state_sums[i]})) return false;
  }
  return true;
}

// ---- torch.amp.GradScaler ----
bool check_and_unscale(at::TensorList self, at::Tensor &found_inf, const at::Tensor &inv_scale) {
  TORCH_CHECK(inv_scale.numel() == 1, "inv_scale must be a 1-element tensor.");
  TORCH_CHECK(found_inf.numel() == 1, "found_inf must be a 1-element tensor.");
  for (const at::Tensor &grad : self) {
    if (!computing_dtype(grad.device().index(), HAL_OP_ID__AMP_UNSCALE_, grad.scalar_type()) || !is_device_tensor(grad))
      return false;
  }
  for (size_t i = 0; i < self.size(); i++) {
    Call call(HAL_OP_ID__AMP_UNSCALE_, self[i]);
    call.in(inv_scale, at::kFloat).update(self[i]).out(found_inf, at::kFloat);
    if (!launch(call, i, self[i])) return false;
  }
  return true;
}

at::Tensor &update_scale(at::Tensor &scale, at::Tensor &growth_tracker, const at::Tensor &found_inf,
                         double growth_factor, double backoff_factor, int64_t growth_interval) {
  TORCH_CHECK(growth_tracker.numel() == 1, "growth_tracker must be a 1-element tensor.");
  TORCH_CHECK(scale.numel() == 1, "current_scale must be a 1-element tensor.");
  TORCH_CHECK(found_inf.numel() == 1, "found_inf must be a 1-element tensor.");
  const at::Tensor found = found_inf.ne(0).reshape(scale.sizes());
  const at::Tensor successes = growth_tracker.add(1).masked_fill(found, 0);
  const at::Tensor full = successes.eq(growth_interval);
  const at::Tensor larger = scale.mul(growth_factor);
  const at::Tensor grows = full.logical_and(larger.sub(larger).eq(0)); /* a scale that would overflow does not change */
  scale.copy_(at::where(found, scale.mul(backoff_factor), at::where(grows, larger, scale)));
  growth_tracker.copy_(successes.masked_fill(full, 0));
  return scale;
}

}  // namespace
}  // namespace torch_backend

#include "aten/optimizers/optimizers.inc"  // registrations: codegen/operators
