// recurrent.cpp: the fused LSTM and GRU cells. ATen uses them on every device but the CPU, which has no kernel for
// them, so there is no fallback. A cell is one kernel, or pointwise operators if the device has no kernel for a call.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>

#include <algorithm>
#include <initializer_list>
#include <tuple>
#include <vector>

#include "aten/prepare/call.h"
#include "hal_op_ids.h"

namespace torch_backend {
namespace {

using at::Tensor;

Tensor add_bias(const Tensor &gates, const OptionalTensor &bias) { return is_given(bias) ? gates.add(*bias) : gates; }

// Compute the derivatives of sigmoid and tanh from the function's value.
Tensor sigmoid_slope(const Tensor &y) { return y.mul(y.neg().add_(1)); }
Tensor tanh_slope(const Tensor &y) { return y.mul(y).neg_().add_(1); }

Tensor bias_gradient(const Tensor &gates, bool has_bias) { return has_bias ? gates.sum(0) : Tensor(); }

// Returns whether a kernel supports the operands: all of its dtype, some with a state's sizes, some with `times` as
// many columns, and biases, both or none, of that many elements.
bool fit(const Tensor &state, std::initializer_list<const OptionalTensor> of_state, int64_t times,
         std::initializer_list<const OptionalTensor> of_gates, const OptionalTensor &a = {},
         const OptionalTensor &b = {}) {
  if (!is_device_tensor(state) || state.dim() != 2 || is_given(a) != is_given(b)) return false;
  const int64_t gates[] = {state.size(0), times * state.size(1)};
  const auto fits = [&](const OptionalTensor &tensor, c10::IntArrayRef sizes) {
    return !is_given(tensor) || (tensor->scalar_type() == state.scalar_type() && tensor->sizes() == sizes);
  };
  return std::all_of(of_state.begin(), of_state.end(),
                     [&](const auto &tensor) { return fits(tensor, state.sizes()); }) &&
         std::all_of(of_gates.begin(), of_gates.end(), [&](const auto &tensor) { return fits(tensor, gates); }) &&
         fits(a, gates[1]) && fits(b, gates[1]);
}

Tensor like_state(const Tensor &cx, int64_t times) {
  return make_empty({cx.size(0), times * cx.size(1)}, cx.scalar_type(), cx.device().index());
}

// The workspace contains the activated gates: input, forget, cell, output.
std::tuple<Tensor, Tensor, Tensor> lstm_cell(const Tensor &input_gates, const Tensor &hidden_gates, const Tensor &cx,
                                             const OptionalTensor &input_bias, const OptionalTensor &hidden_bias) {
  if (fit(cx, {}, 4, {input_gates, hidden_gates}, input_bias, hidden_bias)) {
    const Tensor hy = like_state(cx, 1), cy = like_state(cx, 1), workspace = like_state(cx, 4);
    Call call(HAL_OP_ID__THNN_FUSED_LSTM_CELL, cx);
    call.in(input_gates).in(hidden_gates).in(cx).in(input_bias).in(hidden_bias);
    if (call.out(hy).out(cy).out(workspace).run()) return {hy, cy, workspace};
  }
  const Tensor gates = add_bias(add_bias(input_gates, input_bias).add(hidden_gates), hidden_bias);
  const std::vector<Tensor> parts = gates.chunk(4, 1);
  const Tensor input = parts[0].sigmoid(), forget = parts[1].sigmoid(), cell = parts[2].tanh(),
               output = parts[3].sigmoid();
  const Tensor cy = forget.mul(cx).add_(input.mul(cell));
  return {output.mul(cy.tanh()), cy, at::cat({input, forget, cell, output}, 1)};
}

std::tuple<Tensor, Tensor, Tensor> lstm_cell_backward(const OptionalTensor &grad_hy, const OptionalTensor &grad_cy,
                                                      const Tensor &cx, const Tensor &cy, const Tensor &workspace,
                                                      bool has_bias) {
  const bool has_hy = is_given(grad_hy), has_cy = is_given(grad_cy);
  if (!has_hy && !has_cy) return {};
  if (fit(cx, {grad_hy, grad_cy, cy}, 4, {workspace})) {
    const Tensor of_gates = like_state(cx, 4), of_state = like_state(cx, 1);
    Call call(HAL_OP_ID__THNN_FUSED_LSTM_CELL_BACKWARD_IMPL, cx);
    if (call.in(grad_hy).in(grad_cy).in(cx).in(cy).in(workspace).out(of_gates).out(of_state).run())
      return {of_gates, of_state, bias_gradient(of_gates, has_bias)};
  }
  const std::vector<Tensor> parts = workspace.chunk(4, 1);
  const Tensor &input = parts[0], &forget = parts[1], &cell = parts[2], &output = parts[3], squashed = cy.tanh();
  Tensor of_cell_state = has_cy ? *grad_cy : Tensor();
  if (has_hy) {
    const Tensor through = grad_hy->mul(output).mul_(tanh_slope(squashed));
    of_cell_state = has_cy ? through.add(*grad_cy) : through;
  }
  const Tensor of_output = has_hy ? grad_hy->mul(squashed).mul_(sigmoid_slope(output)) : output.mul(0);
  const Tensor of_gates =
      at::cat({of_cell_state.mul(cell).mul_(sigmoid_slope(input)), of_cell_state.mul(cx).mul_(sigmoid_slope(forget)),
               of_cell_state.mul(input).mul_(tanh_slope(cell)), of_output},
              1);
  return {of_gates, of_cell_state.mul(forget), bias_gradient(of_gates, has_bias)};
}

// The workspace contains reset, update and new gates, the hidden state, and the hidden part of the new gate.
std::tuple<Tensor, Tensor> gru_cell(const Tensor &input_gates, const Tensor &hidden_gates, const Tensor &hx,
                                    const OptionalTensor &input_bias, const OptionalTensor &hidden_bias) {
  if (fit(hx, {}, 3, {input_gates, hidden_gates}, input_bias, hidden_bias)) {
    const Tensor hy = like_state(hx, 1), workspace = like_state(hx, 5);
    Call call(HAL_OP_ID__THNN_FUSED_GRU_CELL, hx);
    call.in(input_gates).in(hidden_gates).in(hx).in(input_bias).in(hidden_bias);
    if (call.out(hy).out(workspace).run()) return {hy, workspace};
  }
  const std::vector<Tensor> from_input = add_bias(input_gates, input_bias).chunk(3, 1);
  const std::vector<Tensor> from_hidden = add_bias(hidden_gates, hidden_bias).chunk(3, 1);
  const Tensor reset = from_input[0].add(from_hidden[0]).sigmoid_();
  const Tensor update = from_input[1].add(from_hidden[1]).sigmoid_();
  const Tensor fresh = reset.mul(from_hidden[2]).add_(from_input[2]).tanh_();
  return {hx.sub(fresh).mul_(update).add_(fresh), at::cat({reset, update, fresh, hx, from_hidden[2]}, 1)};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> gru_cell_backward(const Tensor &grad_hy, const Tensor &workspace,
                                                                     bool has_bias) {
  const auto with_biases = [&](const Tensor &of_input, const Tensor &of_hidden, const Tensor &of_state) {
    return std::tuple(of_input, of_hidden, of_state, bias_gradient(of_input, has_bias),
                      bias_gradient(of_hidden, has_bias));
  };
  if (fit(grad_hy, {}, 5, {workspace})) {
    const Tensor of_input = like_state(grad_hy, 3), of_hidden = like_state(grad_hy, 3),
                 of_state = like_state(grad_hy, 1);
    Call call(HAL_OP_ID__THNN_FUSED_GRU_CELL_BACKWARD, grad_hy);
    if (call.in(grad_hy).in(workspace).put(has_bias).out(of_input).out(of_hidden).out(of_state).run())
      return with_biases(of_input, of_hidden, of_state);
  }
  const std::vector<Tensor> parts = workspace.chunk(5, 1);
  const Tensor &reset = parts[0], &update = parts[1], &fresh = parts[2], &hx = parts[3], &hidden_new = parts[4];
  const Tensor of_update = grad_hy.mul(hx.sub(fresh)).mul_(sigmoid_slope(update));
  const Tensor of_new = grad_hy.mul(update.neg().add_(1)).mul_(tanh_slope(fresh));
  const Tensor of_reset = of_new.mul(hidden_new).mul_(sigmoid_slope(reset));
  return with_biases(at::cat({of_reset, of_update, of_new}, 1), at::cat({of_reset, of_update, of_new.mul(reset)}, 1),
                     grad_hy.mul(update));
}

}  // namespace
}  // namespace torch_backend

#include "aten/recurrent/recurrent.inc"  // registrations: codegen/operators
