// nll.cpp: nll_loss and nll_loss2d with their gradients: one kernel over N x classes x places.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Reduction.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/nll_loss2d_backward_ops.h>
#include <ATen/ops/nll_loss2d_forward_ops.h>
#include <ATen/ops/nll_loss_backward_meta.h>
#include <ATen/ops/nll_loss_backward_ops.h>
#include <ATen/ops/nll_loss_forward_meta.h>
#include <ATen/ops/nll_loss_forward_ops.h>
#include <torch/library.h>

#include "aten/prepare/structured.h"
#include "hal_op_ids.h"

namespace torch_backend {
namespace {

using OptionalTensor = std::optional<at::Tensor>;

// A contiguous tensor as one of other sizes.
struct View {
  int64_t sizes[3], strides[3];
  hal_tensor_t descriptor;

  View(const at::Tensor &tensor, std::initializer_list<int64_t> shape) : descriptor(describe(tensor)) {
    std::copy(shape.begin(), shape.end(), sizes);
    int64_t stride = 1;
    for (size_t d = shape.size(); d-- > 0; stride *= sizes[d]) strides[d] = stride;
    descriptor.sizes = sizes;
    descriptor.strides = strides;
    descriptor.ndim = static_cast<int32_t>(shape.size());
  }
};

// The operands of both directions, ready for the kernel.
struct Loss {
  int64_t n, classes, places;
  at::Tensor target, weight;  // weight may be undefined
  int64_t reduction, ignore;

  // `self` has sizes [classes], [n, classes] or [n, classes, height, width].
  Loss(const at::Tensor &self, const at::Tensor &target_, const OptionalTensor &weight_, int64_t reduction_,
       int64_t ignore_)
      : n(self.dim() == 1 ? 1 : self.size(0)),
        classes(self.size(self.dim() == 1 ? 0 : 1)),
        places(self.dim() == 4 ? self.size(2) * self.size(3) : 1),
        target(target_.to(at::kLong).contiguous()),
        reduction(self.dim() == 1 && reduction_ == at::Reduction::None ? static_cast<int64_t>(at::Reduction::Sum)
                                                                       : reduction_),
        ignore(ignore_) {
    if (weight_ && weight_->defined()) weight = weight_->contiguous();
  }
};

bool takes(uint32_t op, const at::Tensor &self, const at::Tensor &target, const OptionalTensor &weight) {
  if (!is_device_tensor(self) || !has_kernel(self.device().index(), op, self.scalar_type())) return false;
  if (!is_device_tensor(target) || target.device() != self.device()) return false;
  if (target.scalar_type() != at::kLong && target.scalar_type() != at::kByte) return false;
  return !weight || !weight->defined() || (is_device_tensor(*weight) && weight->scalar_type() == self.scalar_type());
}

bool run_forward(const at::Tensor &self, const Loss &loss, const at::Tensor &output, const at::Tensor &total_weight) {
  const bool each = loss.reduction == at::Reduction::None;
  const at::Tensor a = self.contiguous();
  const Destination result(output, self.scalar_type(), !output.is_contiguous());
  const View input(a, {loss.n, loss.classes, loss.places}), target(loss.target, {loss.n, loss.places});
  const hal_tensor_t weight = loss.weight.defined() ? describe(loss.weight) : hal_tensor_t{};
  const hal_tensor_t r = describe(result.tensor()), total = describe(total_weight);
  const hal_value_t args[] = {value(input.descriptor), value(target.descriptor),
                              loss.weight.defined() ? value(weight) : none_value(), value(loss.reduction),
                              value(loss.ignore)};
  const hal_tensor_t *const results[] = {&r, &total};
  if (!run_op(self.device().index(), HAL_OP_ID_NLL_LOSS_FORWARD, args, results)) return false;
  if (each) total_weight.zero_();
  result.finish();
  return true;
}

bool run_backward(const at::Tensor &grad_output, const at::Tensor &self, const Loss &loss,
                  const at::Tensor &total_weight, const at::Tensor &grad_input) {
  if (!is_device_tensor(grad_output) || grad_output.scalar_type() != self.scalar_type()) return false;
  const at::Tensor dy = grad_output.contiguous();
  const Destination result(grad_input, self.scalar_type(), !grad_input.is_contiguous());
  const View output(result.tensor(), {loss.n, loss.classes, loss.places});
  const View target(loss.target, {loss.n, loss.places});
  const hal_tensor_t weight = loss.weight.defined() ? describe(loss.weight) : hal_tensor_t{};
  const hal_tensor_t grad = describe(dy), total = describe(total_weight);
  const hal_value_t args[] = {
      value(grad),  value(target.descriptor), loss.weight.defined() ? value(weight) : none_value(),
      value(total), value(loss.reduction),    value(loss.ignore)};
  const hal_tensor_t *const results[] = {&output.descriptor};
  if (!run_op(self.device().index(), HAL_OP_ID_NLL_LOSS_BACKWARD, args, results)) return false;
  result.finish();
  return true;
}

// ---- one target for each row ----

bool forward(Outputs &outputs, const at::Tensor &self, const at::Tensor &target, const OptionalTensor &weight,
             int64_t reduction, int64_t ignore) {
  if (!takes(HAL_OP_ID_NLL_LOSS_FORWARD, self, target, weight)) return false;
  Structured<at::meta::structured_nll_loss_forward> structured(outputs);
  structured.meta(self, target, weight ? at::OptionalTensorRef(*weight) : at::OptionalTensorRef(), reduction, ignore);
  return run_forward(self, Loss(self, target, weight, reduction, ignore), outputs[0], outputs[1]);
}

bool backward(Outputs &outputs, const at::Tensor &grad_output, const at::Tensor &self, const at::Tensor &target,
              const OptionalTensor &weight, int64_t reduction, int64_t ignore, const at::Tensor &total_weight) {
  if (!takes(HAL_OP_ID_NLL_LOSS_BACKWARD, self, target, weight)) return false;
  Structured<at::meta::structured_nll_loss_backward> structured(outputs);
  structured.meta(grad_output, self, target, weight ? at::OptionalTensorRef(*weight) : at::OptionalTensorRef(),
                  reduction, ignore, total_weight);
  return run_backward(grad_output, self, Loss(self, target, weight, reduction, ignore), total_weight, outputs[0]);
}

std::tuple<at::Tensor, at::Tensor> nll_loss(const at::Tensor &self, const at::Tensor &target,
                                            const OptionalTensor &weight, int64_t reduction, int64_t ignore) {
  Outputs outputs;
  if (forward(outputs, self, target, weight, reduction, ignore)) return {outputs.take(0), outputs.take(1)};
  return call_fallback<at::_ops::nll_loss_forward>(self, target, weight, reduction, ignore);
}

std::tuple<at::Tensor &, at::Tensor &> nll_loss_out(const at::Tensor &self, const at::Tensor &target,
                                                    const OptionalTensor &weight, int64_t reduction, int64_t ignore,
                                                    at::Tensor &output, at::Tensor &total_weight) {
  Outputs outputs(Form::kOut, output, total_weight);
  if (forward(outputs, self, target, weight, reduction, ignore)) return {output, total_weight};
  return call_fallback<at::_ops::nll_loss_forward_output>(self, target, weight, reduction, ignore, output,
                                                          total_weight);
}

at::Tensor nll_loss_backward(const at::Tensor &grad_output, const at::Tensor &self, const at::Tensor &target,
                             const OptionalTensor &weight, int64_t reduction, int64_t ignore,
                             const at::Tensor &total_weight) {
  Outputs outputs;
  if (backward(outputs, grad_output, self, target, weight, reduction, ignore, total_weight)) return outputs.take(0);
  return call_fallback<at::_ops::nll_loss_backward>(grad_output, self, target, weight, reduction, ignore, total_weight);
}

at::Tensor &nll_loss_backward_out(const at::Tensor &grad_output, const at::Tensor &self, const at::Tensor &target,
                                  const OptionalTensor &weight, int64_t reduction, int64_t ignore,
                                  const at::Tensor &total_weight, at::Tensor &grad_input) {
  Outputs outputs(Form::kOut, grad_input);
  if (backward(outputs, grad_output, self, target, weight, reduction, ignore, total_weight)) return grad_input;
  return call_fallback<at::_ops::nll_loss_backward_grad_input>(grad_output, self, target, weight, reduction, ignore,
                                                               total_weight, grad_input);
}

// ---- one target for each place of an image: the shapes are checked here, as ATen has no meta function ----

bool are_images(const at::Tensor &self, const at::Tensor &target, const OptionalTensor &weight) {
  if (self.dim() != 4 || target.dim() != 3) return false;  // the CPU kernel words the error
  if (self.size(0) != target.size(0) || self.size(2) != target.size(1) || self.size(3) != target.size(2)) return false;
  return !weight || !weight->defined() || weight->numel() == self.size(1);
}

bool takes_images(uint32_t op, const at::Tensor &self, const at::Tensor &target, const OptionalTensor &weight) {
  return takes(op, self, target, weight) && are_images(self, target, weight);
}

bool forward_images(Outputs &outputs, const at::Tensor &self, const at::Tensor &target, const OptionalTensor &weight,
                    int64_t reduction, int64_t ignore) {
  if (!takes_images(HAL_OP_ID_NLL_LOSS_FORWARD, self, target, weight)) return false;
  outputs.set(0, reduction == at::Reduction::None ? target.sizes() : c10::IntArrayRef(), {}, self.options());
  outputs.set(1, {}, {}, self.options());
  return run_forward(self, Loss(self, target, weight, reduction, ignore), outputs[0], outputs[1]);
}

bool backward_images(Outputs &outputs, const at::Tensor &grad_output, const at::Tensor &self, const at::Tensor &target,
                     const OptionalTensor &weight, int64_t reduction, int64_t ignore, const at::Tensor &total_weight) {
  if (!takes_images(HAL_OP_ID_NLL_LOSS_BACKWARD, self, target, weight)) return false;
  if (grad_output.numel() != (reduction == at::Reduction::None ? target.numel() : 1)) return false;
  outputs.set(0, self.sizes(), {}, self.options());
  return run_backward(grad_output, self, Loss(self, target, weight, reduction, ignore), total_weight, outputs[0]);
}

std::tuple<at::Tensor, at::Tensor> nll_loss2d(const at::Tensor &self, const at::Tensor &target,
                                              const OptionalTensor &weight, int64_t reduction, int64_t ignore) {
  Outputs outputs;
  if (forward_images(outputs, self, target, weight, reduction, ignore)) return {outputs.take(0), outputs.take(1)};
  return call_fallback<at::_ops::nll_loss2d_forward>(self, target, weight, reduction, ignore);
}

std::tuple<at::Tensor &, at::Tensor &> nll_loss2d_out(const at::Tensor &self, const at::Tensor &target,
                                                      const OptionalTensor &weight, int64_t reduction, int64_t ignore,
                                                      at::Tensor &output, at::Tensor &total_weight) {
  Outputs outputs(Form::kOut, output, total_weight);
  if (forward_images(outputs, self, target, weight, reduction, ignore)) return {output, total_weight};
  return call_fallback<at::_ops::nll_loss2d_forward_output>(self, target, weight, reduction, ignore, output,
                                                            total_weight);
}

at::Tensor nll_loss2d_backward(const at::Tensor &grad_output, const at::Tensor &self, const at::Tensor &target,
                               const OptionalTensor &weight, int64_t reduction, int64_t ignore,
                               const at::Tensor &total_weight) {
  Outputs outputs;
  if (backward_images(outputs, grad_output, self, target, weight, reduction, ignore, total_weight))
    return outputs.take(0);
  return call_fallback<at::_ops::nll_loss2d_backward>(grad_output, self, target, weight, reduction, ignore,
                                                      total_weight);
}

at::Tensor &nll_loss2d_backward_out(const at::Tensor &grad_output, const at::Tensor &self, const at::Tensor &target,
                                    const OptionalTensor &weight, int64_t reduction, int64_t ignore,
                                    const at::Tensor &total_weight, at::Tensor &grad_input) {
  Outputs outputs(Form::kOut, grad_input);
  if (backward_images(outputs, grad_output, self, target, weight, reduction, ignore, total_weight)) return grad_input;
  return call_fallback<at::_ops::nll_loss2d_backward_grad_input>(grad_output, self, target, weight, reduction, ignore,
                                                                 total_weight, grad_input);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("nll_loss_forward", TORCH_FN(nll_loss));
  m.impl("nll_loss_forward.output", TORCH_FN(nll_loss_out));
  m.impl("nll_loss_backward", TORCH_FN(nll_loss_backward));
  m.impl("nll_loss_backward.grad_input", TORCH_FN(nll_loss_backward_out));
  m.impl("nll_loss2d_forward", TORCH_FN(nll_loss2d));
  m.impl("nll_loss2d_forward.output", TORCH_FN(nll_loss2d_out));
  m.impl("nll_loss2d_backward", TORCH_FN(nll_loss2d_backward));
  m.impl("nll_loss2d_backward.grad_input", TORCH_FN(nll_loss2d_backward_out));
}

}  // namespace torch_backend
