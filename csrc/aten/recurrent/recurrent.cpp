// recurrent.cpp: the fused LSTM and GRU cells. ATen takes them for every device but the CPU, which has no kernel for
// them, so there is no fallback: they are written here as pointwise operators, forward and backward. An LSTM's cell is one kernel
// where the device has it.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <torch/library.h>

#include <initializer_list>
#include <tuple>
#include <vector>

#include "aten/prepare/op_call.h"
#include "hal_op_ids.h"

namespace torch_backend {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

bool is_defined(const OptionalTensor &tensor) { return tensor && tensor->defined(); }

Tensor add_bias(const Tensor &gates, const OptionalTensor &bias) { return is_defined(bias) ? gates.add(*bias) : gates; }

// d sigmoid and d tanh, from the function's value.
Tensor sigmoid_slope(const Tensor &y) { return y.mul(y.neg().add_(1)); }
Tensor tanh_slope(const Tensor &y) { return y.mul(y).neg_().add_(1); }

Tensor bias_gradient(const Tensor &gates, bool has_bias) { return has_bias ? gates.sum(0) : Tensor(); }

// ---- the LSTM's cell in one kernel ----
// An operand that is contiguous, and its descriptor; nothing when it is missing.
class Dense {
 public:
  explicit Dense(const OptionalTensor &tensor) {
    if (!is_defined(tensor)) return;
    tensor_ = tensor->contiguous();
    descriptor_ = describe(tensor_);
  }
  Dense(const Dense &) = delete;
  Dense &operator=(const Dense &) = delete;
  hal_value_t as_value() const { return tensor_.defined() ? value(descriptor_) : none_value(); }

 private:
  Tensor tensor_;
  hal_tensor_t descriptor_{};
};

// The kernel takes `tensor` beside a state `cx`: it is missing, or of these sizes and of the state's dtype and device.
bool fits(const OptionalTensor &tensor, const Tensor &cx, c10::IntArrayRef sizes) {
  return !is_defined(tensor) || (is_device_tensor(*tensor) && tensor->device() == cx.device() && !tensor->is_neg() &&
                                 tensor->scalar_type() == cx.scalar_type() && tensor->sizes() == sizes);
}

// The kernel takes operands of a state's and of gates' sizes, beside a state `cx`.
bool takes_cell(uint32_t op, const Tensor &cx, std::initializer_list<const OptionalTensor> of_state,
                std::initializer_list<const OptionalTensor> of_gates) {
  if (!is_device_tensor(cx) || cx.dim() != 2 || cx.is_neg()) return false;
  if (!has_kernel(cx.device().index(), op, cx.scalar_type())) return false;
  const int64_t gates[] = {cx.size(0), 4 * cx.size(1)};
  for (const OptionalTensor &tensor : of_state)
    if (!fits(tensor, cx, cx.sizes())) return false;
  for (const OptionalTensor &tensor : of_gates)
    if (!fits(tensor, cx, gates)) return false;
  return true;
}

Tensor like_state(const Tensor &cx, int64_t times) {
  return make_empty({cx.size(0), times * cx.size(1)}, cx.scalar_type(), cx.device().index());
}

// False = not a call for the kernel: shapes that are wrong or broadcast, other dtypes, no kernel.
bool run_lstm_cell(const Tensor &input_gates, const Tensor &hidden_gates, const Tensor &cx,
                   const OptionalTensor &input_bias, const OptionalTensor &hidden_bias,
                   std::tuple<Tensor, Tensor, Tensor> &results) {
  if (!takes_cell(HAL_OP_ID__THNN_FUSED_LSTM_CELL, cx, {}, {input_gates, hidden_gates})) return false;
  const int64_t columns = 4 * cx.size(1);
  if (is_defined(input_bias) != is_defined(hidden_bias)) return false;
  if (!fits(input_bias, cx, columns) || !fits(hidden_bias, cx, columns)) return false;
  const Dense a(input_gates), b(hidden_gates), c(cx), bias_a(input_bias), bias_b(hidden_bias);
  Tensor hy = like_state(cx, 1), cy = like_state(cx, 1), workspace = like_state(cx, 4);
  const hal_value_t args[] = {a.as_value(), b.as_value(), c.as_value(), bias_a.as_value(), bias_b.as_value()};
  const hal_tensor_t made[] = {describe(hy), describe(cy), describe(workspace)};
  const hal_tensor_t *const pointers[] = {&made[0], &made[1], &made[2]};
  if (!run_op(cx.device().index(), HAL_OP_ID__THNN_FUSED_LSTM_CELL, args, pointers)) return false;
  results = {std::move(hy), std::move(cy), std::move(workspace)};
  return true;
}

bool run_lstm_cell_backward(const OptionalTensor &grad_hy, const OptionalTensor &grad_cy, const Tensor &cx,
                            const Tensor &cy, const Tensor &workspace, Tensor &grad_gates, Tensor &grad_cx) {
  constexpr uint32_t kOp = HAL_OP_ID__THNN_FUSED_LSTM_CELL_BACKWARD_IMPL;
  if (!takes_cell(kOp, cx, {grad_hy, grad_cy, cy}, {workspace})) return false;
  const Dense h(grad_hy), c(grad_cy), before(cx), after(cy), gates(workspace);
  Tensor of_gates = like_state(cx, 4), of_state = like_state(cx, 1);
  const hal_value_t args[] = {h.as_value(), c.as_value(), before.as_value(), after.as_value(), gates.as_value()};
  const hal_tensor_t made[] = {describe(of_gates), describe(of_state)};
  const hal_tensor_t *const pointers[] = {&made[0], &made[1]};
  if (!run_op(cx.device().index(), kOp, args, pointers)) return false;
  grad_gates = std::move(of_gates);
  grad_cx = std::move(of_state);
  return true;
}

// ---- the cells as pointwise operators ----

// The workspace holds the activated gates: input, forget, cell, output.
std::tuple<Tensor, Tensor, Tensor> lstm_cell(const Tensor &input_gates, const Tensor &hidden_gates, const Tensor &cx,
                                             const OptionalTensor &input_bias, const OptionalTensor &hidden_bias) {
  std::tuple<Tensor, Tensor, Tensor> results;
  if (run_lstm_cell(input_gates, hidden_gates, cx, input_bias, hidden_bias, results)) return results;
  const Tensor gates = add_bias(add_bias(input_gates, input_bias).add(hidden_gates), hidden_bias);
  const std::vector<Tensor> parts = gates.chunk(4, 1);
  const Tensor input = parts[0].sigmoid(), forget = parts[1].sigmoid(), cell = parts[2].tanh(),
               output = parts[3].sigmoid();
  Tensor cy = forget.mul(cx).add_(input.mul(cell));
  Tensor hy = output.mul(cy.tanh());
  return {std::move(hy), std::move(cy), at::cat({input, forget, cell, output}, 1)};
}

std::tuple<Tensor, Tensor, Tensor> lstm_cell_backward(const OptionalTensor &grad_hy, const OptionalTensor &grad_cy,
                                                      const Tensor &cx, const Tensor &cy, const Tensor &workspace,
                                                      bool has_bias) {
  const bool has_hy = is_defined(grad_hy), has_cy = is_defined(grad_cy);
  if (!has_hy && !has_cy) return {};
  Tensor of_gates, of_state;
  if (run_lstm_cell_backward(grad_hy, grad_cy, cx, cy, workspace, of_gates, of_state)) {
    Tensor of_bias = bias_gradient(of_gates, has_bias);
    return {std::move(of_gates), std::move(of_state), std::move(of_bias)};
  }
  const std::vector<Tensor> parts = workspace.chunk(4, 1);
  const Tensor &input = parts[0], &forget = parts[1], &cell = parts[2], &output = parts[3];
  const Tensor squashed = cy.tanh();
  Tensor grad_cell_state = has_cy ? *grad_cy : Tensor();
  if (has_hy) {
    const Tensor through = grad_hy->mul(output).mul_(tanh_slope(squashed));
    grad_cell_state = has_cy ? through.add(*grad_cy) : through;
  }
  const Tensor grad_output = has_hy ? grad_hy->mul(squashed).mul_(sigmoid_slope(output)) : output.mul(0);
  Tensor grad_gates = at::cat(
      {grad_cell_state.mul(cell).mul_(sigmoid_slope(input)), grad_cell_state.mul(cx).mul_(sigmoid_slope(forget)),
       grad_cell_state.mul(input).mul_(tanh_slope(cell)), grad_output},
      1);
  Tensor grad_bias = bias_gradient(grad_gates, has_bias);
  return {std::move(grad_gates), grad_cell_state.mul(forget), std::move(grad_bias)};
}

// The workspace holds reset, update and new gates, the hidden state, and the hidden part of the new gate.
std::tuple<Tensor, Tensor> gru_cell(const Tensor &input_gates, const Tensor &hidden_gates, const Tensor &hx,
                                    const OptionalTensor &input_bias, const OptionalTensor &hidden_bias) {
  const std::vector<Tensor> from_input = add_bias(input_gates, input_bias).chunk(3, 1);
  const std::vector<Tensor> from_hidden = add_bias(hidden_gates, hidden_bias).chunk(3, 1);
  const Tensor reset = from_input[0].add(from_hidden[0]).sigmoid_();
  const Tensor update = from_input[1].add(from_hidden[1]).sigmoid_();
  const Tensor fresh = reset.mul(from_hidden[2]).add_(from_input[2]).tanh_();
  Tensor hy = hx.sub(fresh).mul_(update).add_(fresh);
  return {std::move(hy), at::cat({reset, update, fresh, hx, from_hidden[2]}, 1)};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> gru_cell_backward(const Tensor &grad_hy, const Tensor &workspace,
                                                                     bool has_bias) {
  const std::vector<Tensor> parts = workspace.chunk(5, 1);
  const Tensor &reset = parts[0], &update = parts[1], &fresh = parts[2], &hx = parts[3], &hidden_new = parts[4];
  const Tensor grad_update = grad_hy.mul(hx.sub(fresh)).mul_(sigmoid_slope(update));
  const Tensor grad_new = grad_hy.mul(update.neg().add_(1)).mul_(tanh_slope(fresh));
  const Tensor grad_reset = grad_new.mul(hidden_new).mul_(sigmoid_slope(reset));
  Tensor grad_input = at::cat({grad_reset, grad_update, grad_new}, 1);
  Tensor grad_hidden = at::cat({grad_reset, grad_update, grad_new.mul(reset)}, 1);
  Tensor input_bias = bias_gradient(grad_input, has_bias), hidden_bias = bias_gradient(grad_hidden, has_bias);
  return {std::move(grad_input), std::move(grad_hidden), grad_hy.mul(update), std::move(input_bias),
          std::move(hidden_bias)};
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_thnn_fused_lstm_cell", TORCH_FN(lstm_cell));
  m.impl("_thnn_fused_lstm_cell_backward_impl", TORCH_FN(lstm_cell_backward));
  m.impl("_thnn_fused_gru_cell", TORCH_FN(gru_cell));
  m.impl("_thnn_fused_gru_cell_backward", TORCH_FN(gru_cell_backward));
}

}  // namespace torch_backend
