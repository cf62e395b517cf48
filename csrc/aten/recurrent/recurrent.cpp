// recurrent.cpp: the fused LSTM and GRU cells. ATen takes them for every device but the CPU, which has no kernel for
// them, so there is no fallback: a cell is one kernel, and where the device has none for a call, pointwise operators.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>

#include <initializer_list>
#include <tuple>
#include <vector>

#include "aten/prepare/call.h"
#include "hal_op_ids.h"

namespace torch_backend {
namespace {

using at::Tensor;

Tensor add_bias(const Tensor &gates, const OptionalTensor &bias) { return is_given(bias) ? gates.add(*bias) : gates; }

// d sigmoid and d tanh, from the function's value.
Tensor sigmoid_slope(const Tensor &y) { return y.mul(y.neg().add_(1)); }
Tensor tanh_slope(const Tensor &y) { return y.mul(y).neg_().add_(1); }

Tensor bias_gradient(const Tensor &gates, bool has_bias) { return has_bias ? gates.sum(0) : Tensor(); }

// ---- the cells in one kernel ----

// The kernel takes `tensor` beside a state `cx`: it is missing, or of these sizes and of the state's dtype.
bool fits(const OptionalTensor &tensor, const Tensor &cx, c10::IntArrayRef sizes) {
  return !is_given(tensor) ||
         (is_device_tensor(*tensor) && tensor->scalar_type() == cx.scalar_type() && tensor->sizes() == sizes);
}

// The kernel takes operands of a state's sizes and of `times` as many columns, and biases, both or none, beside a state `cx`.
bool fit(const Tensor &cx, std::initializer_list<const OptionalTensor> of_state, int64_t times,
         std::initializer_list<const OptionalTensor> of_gates, const OptionalTensor &a = {},
         const OptionalTensor &b = {}) {
  if (!is_device_tensor(cx) || cx.dim() != 2) return false;
  const int64_t gates[] = {cx.size(0), times * cx.size(1)};
  for (const OptionalTensor &tensor : of_state)
    if (!fits(tensor, cx, cx.sizes())) return false;
  for (const OptionalTensor &tensor : of_gates)
    if (!fits(tensor, cx, gates)) return false;
  return is_given(a) == is_given(b) && fits(a, cx, gates[1]) && fits(b, cx, gates[1]);
}

Tensor like_state(const Tensor &cx, int64_t times) {
  return make_empty({cx.size(0), times * cx.size(1)}, cx.scalar_type(), cx.device().index());
}

// Nothing = not a call for the kernel: shapes that are wrong or broadcast, other dtypes, no kernel.
std::optional<std::tuple<Tensor, Tensor, Tensor>> fused_lstm_cell(const Tensor &input_gates, const Tensor &hidden_gates,
                                                                  const Tensor &cx, const OptionalTensor &input_bias,
                                                                  const OptionalTensor &hidden_bias) {
  if (!fit(cx, {}, 4, {input_gates, hidden_gates}, input_bias, hidden_bias)) return std::nullopt;
  Call call(HAL_OP_ID__THNN_FUSED_LSTM_CELL, cx);
  if (!call.possible()) return std::nullopt;
  Tensor hy = like_state(cx, 1), cy = like_state(cx, 1), workspace = like_state(cx, 4);
  call.in(input_gates).in(hidden_gates).in(cx).in(input_bias).in(hidden_bias);
  if (!call.out(hy).out(cy).out(workspace).run()) return std::nullopt;
  return std::tuple(std::move(hy), std::move(cy), std::move(workspace));
}

bool run_lstm_cell_backward(const OptionalTensor &grad_hy, const OptionalTensor &grad_cy, const Tensor &cx,
                            const Tensor &cy, const Tensor &workspace, Tensor &grad_gates, Tensor &grad_cx) {
  if (!fit(cx, {grad_hy, grad_cy, cy}, 4, {workspace})) return false;
  Call call(HAL_OP_ID__THNN_FUSED_LSTM_CELL_BACKWARD_IMPL, cx);
  if (!call.possible()) return false;
  grad_gates = like_state(cx, 4), grad_cx = like_state(cx, 1);
  return call.in(grad_hy).in(grad_cy).in(cx).in(cy).in(workspace).out(grad_gates).out(grad_cx).run();
}

std::optional<std::tuple<Tensor, Tensor>> fused_gru_cell(const Tensor &input_gates, const Tensor &hidden_gates,
                                                         const Tensor &hx, const OptionalTensor &input_bias,
                                                         const OptionalTensor &hidden_bias) {
  if (!fit(hx, {}, 3, {input_gates, hidden_gates}, input_bias, hidden_bias)) return std::nullopt;
  Call call(HAL_OP_ID__THNN_FUSED_GRU_CELL, hx);
  if (!call.possible()) return std::nullopt;
  Tensor hy = like_state(hx, 1), workspace = like_state(hx, 5);
  call.in(input_gates).in(hidden_gates).in(hx).in(input_bias).in(hidden_bias);
  if (!call.out(hy).out(workspace).run()) return std::nullopt;
  return std::tuple(std::move(hy), std::move(workspace));
}

bool run_gru_cell_backward(const Tensor &grad_hy, const Tensor &workspace, bool has_bias, Tensor &input, Tensor &hidden,
                           Tensor &before) {
  if (!fit(grad_hy, {}, 5, {workspace})) return false;
  Call call(HAL_OP_ID__THNN_FUSED_GRU_CELL_BACKWARD, grad_hy);
  if (!call.possible()) return false;
  input = like_state(grad_hy, 3), hidden = like_state(grad_hy, 3), before = like_state(grad_hy, 1);
  return call.in(grad_hy).in(workspace).put(has_bias).out(input).out(hidden).out(before).run();
}

// ---- the cells as pointwise operators ----

// The workspace holds the activated gates: input, forget, cell, output.
std::tuple<Tensor, Tensor, Tensor> lstm_cell(const Tensor &input_gates, const Tensor &hidden_gates, const Tensor &cx,
                                             const OptionalTensor &input_bias, const OptionalTensor &hidden_bias) {
  if (auto results = fused_lstm_cell(input_gates, hidden_gates, cx, input_bias, hidden_bias))
    return *std::move(results);
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
  const bool has_hy = is_given(grad_hy), has_cy = is_given(grad_cy);
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
  if (auto results = fused_gru_cell(input_gates, hidden_gates, hx, input_bias, hidden_bias)) return *std::move(results);
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
  Tensor of_input, of_hidden, of_state;
  if (!run_gru_cell_backward(grad_hy, workspace, has_bias, of_input, of_hidden, of_state)) {
    const std::vector<Tensor> parts = workspace.chunk(5, 1);
    const Tensor &reset = parts[0], &update = parts[1], &fresh = parts[2], &hx = parts[3], &hidden_new = parts[4];
    const Tensor of_update = grad_hy.mul(hx.sub(fresh)).mul_(sigmoid_slope(update));
    const Tensor of_new = grad_hy.mul(update.neg().add_(1)).mul_(tanh_slope(fresh));
    const Tensor of_reset = of_new.mul(hidden_new).mul_(sigmoid_slope(reset));
    of_input = at::cat({of_reset, of_update, of_new}, 1);
    of_hidden = at::cat({of_reset, of_update, of_new.mul(reset)}, 1);
    of_state = grad_hy.mul(update);
  }
  Tensor input_bias = bias_gradient(of_input, has_bias), hidden_bias = bias_gradient(of_hidden, has_bias);
  return {std::move(of_input), std::move(of_hidden), std::move(of_state), std::move(input_bias),
          std::move(hidden_bias)};
}

}  // namespace
}  // namespace torch_backend

#include "aten/recurrent/recurrent.inc"  // registrations: `bodies` of codegen/ops.yaml
