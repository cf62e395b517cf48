// cell_autograd.cpp: the fused LSTM and GRU cells under forward-mode AD, for which torch has no formula. ATen selects
// these cells on every device but the CPU, so the pointwise operators that they fuse run here. Without tangents torch's
// own formula is used.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/stack.h>
#include <ATen/ops/_thnn_fused_gru_cell_ops.h>
#include <ATen/ops/_thnn_fused_lstm_cell_ops.h>
#include <ATen/ops/cat.h>
#include <torch/library.h>

#include <tuple>
#include <vector>

#include "aten/prepare/operand.h"
#include "aten/prepare/transforms.h"

namespace torch_backend {
namespace {

using at::Tensor;

// The operands of a cell; `state` is the cell state of an LSTM, and the hidden state of a GRU.
struct CellOperands {
  const Tensor &input_gates, &hidden_gates, &state;
  const OptionalTensor &input_bias, &hidden_bias;

  Tensor from_input() const { return is_given(input_bias) ? input_gates.add(*input_bias) : input_gates; }
  Tensor from_hidden() const { return is_given(hidden_bias) ? hidden_gates.add(*hidden_bias) : hidden_gates; }
  bool any(bool (*condition)(const Tensor &)) const {
    return condition(input_gates) || condition(hidden_gates) || condition(state) ||
           (is_given(input_bias) && condition(*input_bias)) || (is_given(hidden_bias) && condition(*hidden_bias));
  }
};

std::tuple<Tensor, Tensor, Tensor> pointwise(const CellOperands &o) {
  const std::vector<Tensor> gates = o.from_input().add(o.from_hidden()).chunk(4, 1);
  const Tensor input = gates[0].sigmoid(), forget = gates[1].sigmoid(), cell = gates[2].tanh(),
               output = gates[3].sigmoid();
  const Tensor cy = forget.mul(o.state).add(input.mul(cell));
  return {output.mul(cy.tanh()), cy, at::cat({input, forget, cell, output}, 1)};
}

std::tuple<Tensor, Tensor> pointwise_gated(const CellOperands &o) {
  const std::vector<Tensor> input = o.from_input().chunk(3, 1), hidden = o.from_hidden().chunk(3, 1);
  const Tensor reset = input[0].add(hidden[0]).sigmoid(), update = input[1].add(hidden[1]).sigmoid();
  const Tensor fresh = reset.mul(hidden[2]).add(input[2]).tanh();
  return {o.state.sub(fresh).mul(update).add(fresh), at::cat({reset, update, fresh, o.state, hidden[2]}, 1)};
}

// Calls an operator as torch does if no kernel of this backend is registered for autograd: with the kernel of all
// autograd keys.
template <class Op>
torch::jit::Stack call_autograd(c10::DispatchKeySet keys, const CellOperands &o) {
  static const c10::OperatorHandle op = c10::Dispatcher::singleton().findSchemaOrThrow(Op::name, Op::overload_name);
  static const c10::SafeKernelFunction kernel = op.getComputedKernelForDispatchKey(c10::DispatchKey::AutogradOther);
  torch::jit::Stack stack = {o.input_gates, o.hidden_gates, o.state, o.input_bias, o.hidden_bias};
  kernel.callBoxed(op, keys, &stack);
  return stack;
}

bool needs_no_graph(const CellOperands &operands) {
  return !at::GradMode::is_enabled() || !operands.any(wants_gradient);
}

std::tuple<Tensor, Tensor, Tensor> lstm_cell_of_autograd(c10::DispatchKeySet keys, const Tensor &input_gates,
                                                         const Tensor &hidden_gates, const Tensor &cx,
                                                         const OptionalTensor &input_bias,
                                                         const OptionalTensor &hidden_bias) {
  using Op = at::_ops::_thnn_fused_lstm_cell;
  const CellOperands operands = {input_gates, hidden_gates, cx, input_bias, hidden_bias};
  if (operands.any(has_tangent)) return pointwise(operands);
  if (needs_no_graph(operands))
    return Op::redispatch(keys & c10::after_autograd_keyset, input_gates, hidden_gates, cx, input_bias, hidden_bias);
  const torch::jit::Stack results = call_autograd<Op>(keys, operands);
  return {results[0].toTensor(), results[1].toTensor(), results[2].toTensor()};
}

std::tuple<Tensor, Tensor> gru_cell_of_autograd(c10::DispatchKeySet keys, const Tensor &input_gates,
                                                const Tensor &hidden_gates, const Tensor &hx,
                                                const OptionalTensor &input_bias, const OptionalTensor &hidden_bias) {
  using Op = at::_ops::_thnn_fused_gru_cell;
  const CellOperands operands = {input_gates, hidden_gates, hx, input_bias, hidden_bias};
  if (operands.any(has_tangent)) return pointwise_gated(operands);
  if (needs_no_graph(operands))
    return Op::redispatch(keys & c10::after_autograd_keyset, input_gates, hidden_gates, hx, input_bias, hidden_bias);
  const torch::jit::Stack results = call_autograd<Op>(keys, operands);
  return {results[0].toTensor(), results[1].toTensor()};
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) {
  m.impl("_thnn_fused_lstm_cell", TORCH_FN(lstm_cell_of_autograd));
  m.impl("_thnn_fused_gru_cell", TORCH_FN(gru_cell_of_autograd));
}

}  // namespace torch_backend
