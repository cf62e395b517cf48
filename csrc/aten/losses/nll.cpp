// nll.cpp: nll_loss and nll_loss2d with their gradients: one kernel over N x classes x positions.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Reduction.h>
#include <ATen/core/Tensor.h>

#include "aten/prepare/structured.h"
#include "hal_op_ids.h"

namespace torch_backend {
namespace {

// The kernel's view of inputs of sizes [classes], [n, classes] or [n, classes, height, width].
struct LossShape {
  int64_t n, classes, positions;

  explicit LossShape(const at::Tensor &self)
      : n(self.dim() == 1 ? 1 : self.size(0)),
        classes(self.size(self.dim() == 1 ? 0 : 1)),
        positions(self.dim() == 4 ? self.size(2) * self.size(3) : 1) {}
};

// The loss of one sample is a number, whatever the reduction.
int64_t kernel_reduction(const at::Tensor &self, int64_t reduction) {
  const bool alone = self.dim() == 1 && reduction == at::Reduction::None;
  return alone ? static_cast<int64_t>(at::Reduction::Sum) : reduction;
}

bool takes_loss(const at::Tensor &self, const at::Tensor &target, const OptionalTensor &weight) {
  return (target.scalar_type() == at::kLong || target.scalar_type() == at::kByte) &&
         (!is_given(weight) || weight->scalar_type() == self.scalar_type());
}

bool nll_loss(const Outputs &outputs, const at::Tensor &self, const at::Tensor &target, const OptionalTensor &weight,
              int64_t reduction, int64_t ignore) {
  if (!takes_loss(self, target, weight)) return false;
  const LossShape shape(self);
  const int64_t kind = kernel_reduction(self, reduction);
  Call call(HAL_OP_ID_NLL_LOSS_FORWARD, self);
  call.in(self).as({shape.n, shape.classes, shape.positions}).index(target).as({shape.n, shape.positions}).in(weight);
  if (!call.put(kind).put(ignore).out(outputs[0]).out(outputs[1]).run()) return false;
  if (kind == at::Reduction::None) outputs[1].zero_();
  return true;
}

bool nll_loss_backward(const Outputs &outputs, const at::Tensor &grad_output, const at::Tensor &self,
                       const at::Tensor &target, const OptionalTensor &weight, int64_t reduction, int64_t ignore,
                       const at::Tensor &total_weight) {
  if (!takes_loss(self, target, weight) || grad_output.scalar_type() != self.scalar_type()) return false;
  const LossShape shape(self);
  Call call(HAL_OP_ID_NLL_LOSS_BACKWARD, self);
  call.in(grad_output).index(target).as({shape.n, shape.positions}).in(weight).in(total_weight);
  call.put(kernel_reduction(self, reduction)).put(ignore);
  return call.out(outputs[0]).as({shape.n, shape.classes, shape.positions}).run();
}

// ---- one target for each position of an image: the shapes are checked here, as ATen has no meta function ----

bool are_images(const at::Tensor &self, const at::Tensor &target, const OptionalTensor &weight) {
  if (self.dim() != 4 || target.dim() != 3) return false;  // the CPU kernel reports the error
  if (self.size(0) != target.size(0) || self.size(2) != target.size(1) || self.size(3) != target.size(2)) return false;
  return !is_given(weight) || weight->numel() == self.size(1);
}

bool nll_loss2d(Outputs &outputs, const at::Tensor &self, const at::Tensor &target, const OptionalTensor &weight,
                int64_t reduction, int64_t ignore) {
  if (!are_images(self, target, weight) || !takes_loss(self, target, weight)) return false;
  outputs.make(0, reduction == at::Reduction::None ? target.sizes() : c10::IntArrayRef(), self);
  outputs.make(1, {}, self);
  return nll_loss(outputs, self, target, weight, reduction, ignore);
}

bool nll_loss2d_backward(Outputs &outputs, const at::Tensor &grad_output, const at::Tensor &self,
                         const at::Tensor &target, const OptionalTensor &weight, int64_t reduction, int64_t ignore,
                         const at::Tensor &total_weight) {
  if (!are_images(self, target, weight) || !takes_loss(self, target, weight)) return false;
  if (grad_output.numel() != (reduction == at::Reduction::None ? target.numel() : 1)) return false;
  outputs.make(0, self.sizes(), self);
  return nll_loss_backward(outputs, grad_output, self, target, weight, reduction, ignore, total_weight);
}

}  // namespace
}  // namespace torch_backend

#include "aten/losses/nll.inc"  // registrations: codegen/operators
