// recurrent.cpp: the fused LSTM and GRU cells. ATen takes them for every device but the CPU, which has no kernel for
// them, so there is no fallback: they are written here as pointwise operators, forward and backward.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <torch/library.h>

#include <tuple>
#include <vector>

namespace torch_backend {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

Tensor add_bias(const Tensor &gates, const OptionalTensor &bias) {
  return bias && bias->defined() ? gates.add(*bias) : gates;
}

// d sigmoid and d tanh, from the function's value.
Tensor sigmoid_slope(const Tensor &y) { return y.mul(y.neg().add_(1)); }
Tensor tanh_slope(const Tensor &y) { return y.mul(y).neg_().add_(1); }

Tensor bias_gradient(const Tensor &gates, bool has_bias) { return has_bias ? gates.sum(0) : Tensor(); }

// The workspace holds the activated gates: input, forget, cell, output.
std::tuple<Tensor, Tensor, Tensor> lstm_cell(const Tensor &input_gates, const Tensor &hidden_gates, const Tensor &cx,
                                             const OptionalTensor &input_bias, const OptionalTensor &hidden_bias) {
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
  const bool has_hy = grad_hy && grad_hy->defined(), has_cy = grad_cy && grad_cy->defined();
  if (!has_hy && !has_cy) return {};
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
