// lstm_direction.cpp: one direction of a layer of an LSTM. With gradients it is one node of autograd: its backward pass
// multiplies once per step, by the weight, and computes the gradient of the weight as one product of all steps. Nodes
// for each operator of each step would compute that gradient as a product and a sum per step. A gradient that is itself
// differentiated is that of the single operators.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "aten/recurrent/lstm_direction.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/_thnn_fused_lstm_cell.h>
#include <ATen/ops/_thnn_fused_lstm_cell_backward_impl.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <array>
#include <vector>

#include "aten/prepare/transforms.h"

namespace torch_backend {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Operands {
  const Tensor &gates, &weight, &h, &c;
  bool backwards;

  std::array<const Tensor *, 4> tensors() const { return {&gates, &weight, &h, &c}; }
  bool any(bool (*condition)(const Tensor &)) const {
    const auto all = tensors();
    return std::any_of(all.begin(), all.end(), [&](const Tensor *tensor) { return condition(*tensor); });
  }
  // Returns the place of step `i` of the order of computation.
  size_t place(size_t i) const { return backwards ? static_cast<size_t>(gates.size(0)) - 1 - i : i; }
};

// The states, the last h and c; cell states and workspaces by place.
struct Run {
  Tensor states, h, c;
  std::vector<Tensor> cells, workspaces;
};

Run run_steps(const Operands &o) {
  const std::vector<Tensor> gates = o.gates.unbind(0);
  const Tensor weight = o.weight.t();
  std::vector<Tensor> states(gates.size());
  Run run = {{}, o.h, o.c, std::vector<Tensor>(gates.size()), std::vector<Tensor>(gates.size())};
  for (size_t i = 0; i < gates.size(); i++) {
    const size_t at = o.place(i);
    std::tie(run.h, run.c, run.workspaces[at]) = at::_thnn_fused_lstm_cell(gates[at], at::mm(run.h, weight), run.c);
    states[at] = run.h;
    run.cells[at] = run.c;
  }
  run.states = at::stack(states, 0);
  return run;
}

Tensor sum_of(const Tensor &a, const Tensor &b) { return !a.defined() ? b : !b.defined() ? a : a.add(b); }

// Returns the state before each step.
Tensor states_before(const Operands &o, const Tensor &states) {
  const int64_t others = states.size(0) - 1;
  const Tensor first = o.h.unsqueeze(0);
  return o.backwards ? at::cat({states.narrow(0, 1, others), first}, 0)
                     : at::cat({first, states.narrow(0, 0, others)}, 0);
}

// The gradients of the operands, by the kernels of the cell. `run.h` is not used.
variable_list gradients(const Operands &o, const Run &run, const variable_list &grads, bool of_weight) {
  const std::vector<Tensor> of_states = grads[0].defined() ? grads[0].unbind(0) : std::vector<Tensor>();
  const size_t steps = run.cells.size();
  std::vector<Tensor> of_gates(steps);
  Tensor grad_h = grads[1], grad_c = grads[2];
  for (size_t i = steps; i-- > 0;) {
    const size_t at = o.place(i);
    if (!of_states.empty()) grad_h = sum_of(grad_h, of_states[at]);
    if (!grad_h.defined() && !grad_c.defined()) grad_c = at::zeros_like(o.c);
    std::tie(of_gates[at], grad_c, std::ignore) = at::_thnn_fused_lstm_cell_backward_impl(
        grad_h, grad_c, i == 0 ? o.c : run.cells[o.place(i - 1)], run.cells[at], run.workspaces[at], false);
    grad_h = at::mm(of_gates[at], o.weight);
  }
  const Tensor all = at::stack(of_gates, 0);
  Tensor weight;
  if (of_weight) weight = at::mm(all.view({-1, all.size(2)}).t(), states_before(o, run.states).view({-1, o.h.size(1)}));
  return {all, weight, grad_h, grad_c, Tensor()};
}

// The same with a graph of its own: the gradients of the single operators.
variable_list differentiable_gradients(const Operands &o, const variable_list &grads) {
  const Run run = run_steps(o);
  variable_list outputs, of_outputs, inputs, result(5);
  for (const auto &[output, grad] :
       {std::tie(run.states, grads[0]), std::tie(run.h, grads[1]), std::tie(run.c, grads[2])}) {
    if (!grad.defined() || !output.requires_grad()) continue;
    outputs.push_back(output);
    of_outputs.push_back(grad);
  }
  for (const Tensor *tensor : o.tensors())
    if (tensor->requires_grad()) inputs.push_back(*tensor);
  if (outputs.empty()) return result;
  const variable_list found = torch::autograd::grad(outputs, inputs, of_outputs, /*retain_graph=*/true,
                                                    /*create_graph=*/true, /*allow_unused=*/true);
  size_t next = 0, i = 0;
  for (const Tensor *tensor : o.tensors()) result[i++] = tensor->requires_grad() ? found[next++] : Tensor();
  return result;
}

class Direction : public torch::autograd::Function<Direction> {
 public:
  static variable_list forward(AutogradContext *context, const Tensor &gates, const Tensor &weight, const Tensor &h,
                               const Tensor &c, bool backwards) {
    const at::AutoDispatchBelowADInplaceOrView below;
    Run run = run_steps({gates, weight, h, c, backwards});
    variable_list saved = {gates, weight, h, c, run.states};
    saved.insert(saved.end(), run.cells.begin(), run.cells.end());
    saved.insert(saved.end(), run.workspaces.begin(), run.workspaces.end());
    context->save_for_backward(std::move(saved));
    context->saved_data["backwards"] = backwards;
    context->set_materialize_grads(false);
    return {run.states, run.h, run.c};
  }

  static variable_list backward(AutogradContext *context, const variable_list &grads) {
    const variable_list saved = context->get_saved_variables();
    const Operands o = {saved[0], saved[1], saved[2], saved[3], context->saved_data["backwards"].toBool()};
    if (std::none_of(grads.begin(), grads.end(), [](const Tensor &grad) { return grad.defined(); }))
      return variable_list(5);
    // The operands have one dtype (autocast.cpp); autocast would cast some of them if this runs within it.
    const c10::impl::ExcludeDispatchKeyGuard without_autocast(c10::DispatchKey::AutocastPrivateUse1);
    if (at::GradMode::is_enabled()) return differentiable_gradients(o, grads);
    const at::AutoDispatchBelowADInplaceOrView below;
    const auto cells = saved.begin() + 5, workspaces = cells + (saved.end() - cells) / 2;
    const Run run = {saved[4], {}, {}, {cells, workspaces}, {workspaces, saved.end()}};
    return gradients(o, run, grads, context->needs_input_grad(1));
  }
};

}  // namespace

std::tuple<Tensor, Tensor, Tensor> lstm_direction(const Tensor &gates, const Tensor &weight, const Tensor &h,
                                                  const Tensor &c, bool backwards) {
  const Operands operands = {gates, weight, h, c, backwards};
  const bool one_node =
      at::GradMode::is_enabled() && operands.any(wants_gradient) && !is_in_functorch() && !operands.any(has_tangent);
  if (one_node) {
    const variable_list results = Direction::apply(gates, weight, h, c, backwards);
    return {results[0], results[1], results[2]};
  }
  Run run = run_steps(operands);
  return {std::move(run.states), std::move(run.h), std::move(run.c)};
}

}  // namespace torch_backend
