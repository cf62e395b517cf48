// lstm.cpp: an LSTM over dense sequences. On every device but the CPU, ATen multiplies by the input's weights once per
// step. Here one product serves all steps, and it adds the biases; lstm_direction.cpp computes the steps.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/lstm_native.h>
#include <ATen/ops/lstm_ops.h>
#include <ATen/ops/stack.h>
#include <torch/library.h>

#include <algorithm>
#include <tuple>
#include <vector>

#include "aten/prepare/op_call.h"
#include "aten/prepare/transforms.h"
#include "aten/recurrent/lstm_direction.h"
#include "hal_op_ids.h"

namespace torch_backend {
namespace {

using at::Tensor;

// The weights of one direction of a layer; biases are undefined if there are none.
struct Weights {
  const Tensor &input, &hidden;
  Tensor bias;
};

size_t weights_per_direction(bool has_biases) { return has_biases ? 4 : 2; }

Weights weights_of(at::TensorList params, size_t direction, bool has_biases) {
  const size_t first = direction * weights_per_direction(has_biases);
  return {params[first], params[first + 1], has_biases ? params[first + 2].add(params[first + 3]) : Tensor()};
}

// Returns whether a tensor has real elements on a device. Tracers and tensor wrappers use ATen's own decomposition.
bool is_plain(const Tensor &tensor) {
  return is_device_tensor(tensor) && !tensor.key_set().has_any(c10::python_ks) &&
         !tensor.unsafeGetTensorImpl()->has_symbolic_sizes_strides();
}

// Returns whether the sizes are those of a network without projections; ATen reports the errors of others.
bool is_regular(const Tensor &input, at::TensorList hx, at::TensorList params, bool has_biases, int64_t layers,
                bool bidirectional, bool batch_first) {
  const int64_t directions = bidirectional ? 2 : 1;
  const auto rows = static_cast<size_t>(layers * directions);
  if (!is_plain(input) || hx.size() != 2 || params.size() != rows * weights_per_direction(has_biases)) return false;
  if (!std::all_of(hx.begin(), hx.end(), is_plain) || !std::all_of(params.begin(), params.end(), is_plain))
    return false;
  if (input.dim() != 3 || input.size(batch_first ? 1 : 0) == 0 || hx[0].dim() != 3) return false;
  const int64_t width = hx[0].size(2), state[] = {layers * directions, input.size(batch_first ? 0 : 1), width};
  if (hx[0].sizes() != state || hx[1].sizes() != state) return false;
  for (size_t i = 0; i < rows; i++) {
    const size_t first = i * weights_per_direction(has_biases);
    const int64_t of_input[] = {4 * width, i < static_cast<size_t>(directions) ? input.size(2) : directions * width};
    const int64_t of_hidden[] = {4 * width, width};
    if (params[first].sizes() != of_input || params[first + 1].sizes() != of_hidden) return false;
    for (size_t k = 2; k < weights_per_direction(has_biases); k++)
      if (params[first + k].sizes() != c10::IntArrayRef(4 * width)) return false;
  }
  return true;
}

// Returns results for the plugin's own operator; undefined ones if there is dropout, or if ATen reports an error.
std::tuple<Tensor, Tensor, Tensor> empty_lstm(const Tensor &input, at::TensorList hx, at::TensorList params,
                                              bool has_biases, int64_t layers, double dropout, bool train,
                                              bool bidirectional, bool batch_first) {
  const bool drops = dropout != 0 && train && layers > 1;
  if (drops || !is_regular(input, hx, params, has_biases, layers, bidirectional, batch_first)) return {};
  const int64_t sizes[] = {input.size(0), input.size(1), (bidirectional ? 2 : 1) * hx[0].size(2)};
  const auto room = [&](c10::IntArrayRef of) { return make_empty(of, input.scalar_type(), input.device().index()); };
  return {room(sizes), room(hx[0].sizes()), room(hx[1].sizes())};
}

std::tuple<Tensor, Tensor, Tensor> lstm(const Tensor &input, at::TensorList hx, at::TensorList params, bool has_biases,
                                        int64_t layers, double dropout, bool train, bool bidirectional,
                                        bool batch_first) {
  if (!is_regular(input, hx, params, has_biases, layers, bidirectional, batch_first))
    return at::native::lstm(input, hx, params, has_biases, layers, dropout, train, bidirectional, batch_first);
  const std::vector<Tensor> h = hx[0].unbind(0), c = hx[1].unbind(0);
  const size_t directions = bidirectional ? 2 : 1;
  std::vector<Tensor> last_h(h.size()), last_c(h.size());
  Tensor states = batch_first ? input.transpose(0, 1) : input;
  for (size_t first = 0; first < h.size(); first += directions) {
    Tensor results[2];
    for (size_t d = 0; d < directions; d++) {
      const size_t i = first + d;
      const Weights weights = weights_of(params, i, has_biases);
      const Tensor gates = at::linear(states, weights.input, weights.bias);
      std::tie(results[d], last_h[i], last_c[i]) = lstm_direction(gates, weights.hidden, h[i], c[i], d == 1);
    }
    states = bidirectional ? at::cat({results[0], results[1]}, -1) : results[0];
    if (dropout != 0 && train && first + directions < h.size()) states = at::dropout(states, dropout, true);
  }
  return {batch_first ? states.transpose(0, 1) : states, at::stack(last_h, 0), at::stack(last_c, 0)};
}

}  // namespace

// With gradients, an LSTM runs the operators that it is composed of, so that autograd records those. Without, the
// plugin's own operator may run it as a whole.
static std::tuple<Tensor, Tensor, Tensor> lstm_of_autograd(const Tensor &input, at::TensorList hx,
                                                           at::TensorList params, bool has_biases, int64_t layers,
                                                           double dropout, bool train, bool bidirectional,
                                                           bool batch_first) {
  const bool gradients =
      at::GradMode::is_enabled() && (wants_gradient(input) || std::any_of(hx.begin(), hx.end(), wants_gradient) ||
                                     std::any_of(params.begin(), params.end(), wants_gradient));
  if (gradients || !is_plain(input) || !has_vendor_op(input.device().index(), HAL_OP_ID_LSTM_INPUT))
    return torch_backend::lstm(input, hx, params, has_biases, layers, dropout, train, bidirectional, batch_first);
  const at::AutoDispatchBelowADInplaceOrView below;
  return at::_ops::lstm_input::call(input, hx, params, has_biases, layers, dropout, train, bidirectional, batch_first);
}

TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) { m.impl("lstm.input", TORCH_FN(lstm_of_autograd)); }

}  // namespace torch_backend

#include "aten/recurrent/lstm.inc"  // registrations: codegen/operators
