// optimizers.cpp: the fused optimizers of torch, one launch per parameter, and the operators of torch.amp.GradScaler. Nothing
// waits for the device: the step, the learning rate, the scale and its flag may be tensors there.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "aten/fallback/fallback_call.h"

#include <ATen/ops/_fused_adagrad_ops.h>
#include <ATen/ops/_fused_adam_ops.h>
#include <ATen/ops/_fused_adamw_ops.h>
#include <ATen/ops/_fused_sgd_ops.h>
#include <ATen/ops/where.h>
#include <torch/library.h>

#include <initializer_list>
#include <memory>

#include "aten/prepare/structured.h"
#include "hal_op_ids.h"

namespace torch_backend {
namespace {

using Optional = std::optional<at::Tensor>;

// A learning rate: a number, or a tensor.
struct Rate {
  double number;
  const at::Tensor *tensor;

  explicit Rate(double given) : number(given), tensor(nullptr) {}
  explicit Rate(const at::Tensor &given)
      : number(given.is_cpu() ? given.item<double>() : 0), tensor(given.is_cpu() ? nullptr : &given) {}
};

// The numbers of one call that lie on the device, as float32 there.
class DeviceNumbers {
 public:
  explicit DeviceNumbers(c10::Device device) : device_(device) {}

  hal_value_t put(const at::Tensor &tensor) {
    tensors_.push_back(tensor.to(device_, at::kFloat, /*non_blocking=*/true));
    descriptors_.push_back(std::make_unique<hal_tensor_t>(describe(tensors_.back())));
    return value(*descriptors_.back());
  }
  hal_value_t put(const Optional &tensor) { return tensor && tensor->defined() ? put(*tensor) : none_value(); }
  hal_value_t put(const Rate &rate) { return rate.tensor ? put(*rate.tensor) : value(rate.number); }

 private:
  c10::Device device_;
  c10::SmallVector<at::Tensor, 4> tensors_;
  c10::SmallVector<std::unique_ptr<hal_tensor_t>, 4> descriptors_;
};

// A parameter, its gradient or its state as a dense row of the kernel's dtype; the tensor itself where it is that.
class Row {
 public:
  Row(const at::Tensor &tensor, const at::Tensor &like, c10::ScalarType dtype)
      : tensor_(tensor), size_(tensor.numel()) {
    const bool in_order = tensor.is_non_overlapping_and_dense() && tensor.strides() == like.strides();
    direct_ = tensor.scalar_type() == dtype && in_order && !tensor.is_neg();
    dense_ = direct_ ? tensor : make_empty_strided(like.sizes(), like.strides(), dtype, tensor.device().index());
    if (!direct_) dense_.copy_(tensor);
    descriptor_ = describe(dense_);
    descriptor_.ndim = 1;
    descriptor_.sizes = &size_;
    descriptor_.strides = &kOne;
  }
  Row(const Row &) = delete;
  Row &operator=(const Row &) = delete;

  const hal_tensor_t *descriptor() const { return &descriptor_; }
  void finish() const {
    if (!direct_) tensor_.copy_(dense_);
  }

 private:
  static constexpr int64_t kOne = 1;
  const at::Tensor &tensor_;
  at::Tensor dense_;
  bool direct_;
  int64_t size_;
  hal_tensor_t descriptor_{};
};

constexpr size_t kMostState = 5;

// Whether every tensor of the lists is a floating one of ours on one device, and a kernel computes in its dtype.
bool are_native(uint32_t op, std::initializer_list<at::TensorList> lists) {
  const at::Tensor *first = nullptr;
  for (const at::TensorList list : lists) {
    for (const at::Tensor &tensor : list) {
      if (!is_device_tensor(tensor)) return false;
      if (!first) first = &tensor;
      if (tensor.device() != first->device() || tensor.scalar_type() != first->scalar_type()) return false;
      if (!has_kernel(tensor.device().index(), op, tensor.scalar_type())) return false;
    }
  }
  return true;
}

// One launch over the parameter `state[0]` and what belongs to it.
void launch_step(uint32_t op, c10::ArrayRef<const at::Tensor *> state, c10::ArrayRef<hal_value_t> values) {
  const at::Tensor &self = *state[0];
  if (self.numel() == 0) return;
  const c10::DeviceIndex device = self.device().index();
  const auto dtype = *kernel_dtype(hal_op_dtypes(device, op), self.scalar_type());
  const at::Tensor like = self.is_non_overlapping_and_dense() ? self : make_empty(self.sizes(), dtype, device);
  std::optional<Row> rows[kMostState];
  const hal_tensor_t *results[kMostState];
  for (size_t i = 0; i < state.size(); i++) {
    TORCH_CHECK(state[i]->sizes() == self.sizes(), "a fused optimizer needs state of the parameter's size ",
                self.sizes(), ", but got ", state[i]->sizes());
    results[i] = rows[i].emplace(*state[i], like, dtype).descriptor();
  }
  TORCH_CHECK_NOT_IMPLEMENTED(run_op(device, op, values, {results, state.size()}),
                              "the device has no kernel for a fused optimizer in ", dtype);
  for (size_t i = 0; i < state.size(); i++) rows[i]->finish();
}

struct AdamNumbers {
  double beta1, beta2, weight_decay, eps;
  bool amsgrad, maximize, decoupled;
};

bool run_adam(at::TensorList self, at::TensorList grads, at::TensorList exp_avgs, at::TensorList exp_avg_sqs,
              at::TensorList max_exp_avg_sqs, at::TensorList state_steps, const Rate &lr, const AdamNumbers &numbers,
              const Optional &grad_scale, const Optional &found_inf) {
  if (!are_native(HAL_OP_ID__FUSED_ADAM_, {self, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs})) return false;
  for (size_t i = 0; i < self.size(); i++) {
    DeviceNumbers device(self[i].device());
    const hal_value_t values[] = {
        device.put(state_steps[i]), device.put(lr),          device.put(grad_scale),  device.put(found_inf),
        value(numbers.beta1),       value(numbers.beta2),    value(numbers.eps),      value(numbers.weight_decay),
        value(numbers.amsgrad),     value(numbers.maximize), value(numbers.decoupled)};
    const at::Tensor &largest = numbers.amsgrad ? max_exp_avg_sqs[i] : exp_avg_sqs[i];
    launch_step(HAL_OP_ID__FUSED_ADAM_, {&self[i], &grads[i], &exp_avgs[i], &exp_avg_sqs[i], &largest}, values);
  }
  return true;
}

// Adam and AdamW, with a number or a tensor as learning rate; they differ in what weight decay is added to.
template <class Op, bool kDecoupled, class Lr>
void adam(at::TensorList self, at::TensorList grads, at::TensorList exp_avgs, at::TensorList exp_avg_sqs,
          at::TensorList max_exp_avg_sqs, at::TensorList state_steps, Lr lr, double beta1, double beta2,
          double weight_decay, double eps, bool amsgrad, bool maximize, const Optional &grad_scale,
          const Optional &found_inf) {
  const AdamNumbers numbers{beta1, beta2, weight_decay, eps, amsgrad, maximize, kDecoupled};
  if (run_adam(self, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps, Rate(lr), numbers, grad_scale,
               found_inf))
    return;
  call_fallback<Op>(self, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps, lr, beta1, beta2, weight_decay,
                    eps, amsgrad, maximize, grad_scale, found_inf);
}

template <class Op, class Lr>
void sgd(at::TensorList self, at::TensorList grads, at::TensorList momentum_buffers, double weight_decay,
         double momentum, Lr lr, double dampening, bool nesterov, bool maximize, bool is_first_step,
         const Optional &grad_scale, const Optional &found_inf) {
  if (!are_native(HAL_OP_ID__FUSED_SGD_, {self, grads, momentum_buffers}))
    return call_fallback<Op>(self, grads, momentum_buffers, weight_decay, momentum, lr, dampening, nesterov, maximize,
                             is_first_step, grad_scale, found_inf);
  const bool buffered = !momentum_buffers.empty();
  for (size_t i = 0; i < self.size(); i++) {
    DeviceNumbers device(self[i].device());
    const hal_value_t values[] = {
        device.put(Rate(lr)), device.put(grad_scale), device.put(found_inf), value(weight_decay),  value(momentum),
        value(dampening),     value(maximize),        value(buffered),       value(is_first_step), value(nesterov)};
    const at::Tensor &buffer = buffered ? momentum_buffers[i] : self[i];
    launch_step(HAL_OP_ID__FUSED_SGD_, {&self[i], &grads[i], &buffer}, values);
  }
}

template <class Op, class Lr>
void adagrad(at::TensorList self, at::TensorList grads, at::TensorList state_sums, at::TensorList state_steps, Lr lr,
             double lr_decay, double weight_decay, double eps, bool maximize, const Optional &grad_scale,
             const Optional &found_inf) {
  if (!are_native(HAL_OP_ID__FUSED_ADAGRAD_, {self, grads, state_sums}))
    return call_fallback<Op>(self, grads, state_sums, state_steps, lr, lr_decay, weight_decay, eps, maximize,
                             grad_scale, found_inf);
  for (size_t i = 0; i < self.size(); i++) {
    DeviceNumbers device(self[i].device());
    const hal_value_t values[] = {device.put(state_steps[i]),
                                  device.put(Rate(lr)),
                                  device.put(grad_scale),
                                  device.put(found_inf),
                                  value(lr_decay),
                                  value(weight_decay),
                                  value(eps),
                                  value(maximize)};
    launch_step(HAL_OP_ID__FUSED_ADAGRAD_, {&self[i], &grads[i], &state_sums[i]}, values);
  }
}

// ---- torch.amp.GradScaler ----
void check_and_unscale(at::TensorList self, at::Tensor &found_inf, const at::Tensor &inv_scale) {
  TORCH_CHECK(inv_scale.numel() == 1, "inv_scale must be a 1-element tensor.");
  TORCH_CHECK(found_inf.numel() == 1, "found_inf must be a 1-element tensor.");
  for (const at::Tensor &grad : self) {
    if (grad.numel() == 0) continue;
    const at::Tensor wrong = grad.sub(grad).ne(0).any(); /* infinity and NaN less themselves are NaN */
    found_inf.copy_(found_inf.maximum(wrong.to(found_inf.scalar_type()).reshape(found_inf.sizes())));
    at::Tensor scaled = grad;
    scaled.mul_(inv_scale.reshape({}));
  }
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
  const at::Tensor grows = full.logical_and(larger.sub(larger).eq(0)); /* a scale that would overflow stays */
  scale.copy_(at::where(found, scale.mul(backoff_factor), at::where(grows, larger, scale)));
  growth_tracker.copy_(successes.masked_fill(full, 0));
  return scale;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  using Tensor = const at::Tensor &;
  m.impl("_fused_adam_", TORCH_FN((adam<at::_ops::_fused_adam_, false, double>)));
  m.impl("_fused_adam_.tensor_lr", TORCH_FN((adam<at::_ops::_fused_adam__tensor_lr, false, Tensor>)));
  m.impl("_fused_adamw_", TORCH_FN((adam<at::_ops::_fused_adamw_, true, double>)));
  m.impl("_fused_adamw_.tensor_lr", TORCH_FN((adam<at::_ops::_fused_adamw__tensor_lr, true, Tensor>)));
  m.impl("_fused_sgd_", TORCH_FN((sgd<at::_ops::_fused_sgd_, double>)));
  m.impl("_fused_sgd_.tensor_lr", TORCH_FN((sgd<at::_ops::_fused_sgd__tensor_lr, Tensor>)));
  m.impl("_fused_adagrad_.tensor_lr", TORCH_FN((adagrad<at::_ops::_fused_adagrad__tensor_lr, Tensor>)));
  m.impl("_fused_adagrad_", TORCH_FN((adagrad<at::_ops::_fused_adagrad_, double>)));
  m.impl("_amp_foreach_non_finite_check_and_unscale_", TORCH_FN(check_and_unscale));
  m.impl("_amp_update_scale_", TORCH_FN(update_scale));
}

}  // namespace torch_backend
