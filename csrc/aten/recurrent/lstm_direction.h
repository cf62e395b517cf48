// lstm_direction.h: one direction of a layer of an LSTM, over the gates that the products of the input produce.
#pragma once

#include <ATen/core/Tensor.h>

#include <tuple>

namespace torch_backend {

// Computes all steps, from the last one to the first if `backwards` is true. `gates` is (steps, batch, 4 * width),
// `weight` is (4 * width, width), `h` and `c` are (batch, width). Returns the states (steps, batch, width), and the
// last h and c. The results are differentiable, also twice.
std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_direction(const at::Tensor &gates, const at::Tensor &weight,
                                                              const at::Tensor &h, const at::Tensor &c, bool backwards);

}  // namespace torch_backend
