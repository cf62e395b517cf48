// average_pool.cpp: pooling by averages over windows of a size and over adaptive ones, forward and backward, as linear maps
// along each spatial dimension.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/native/Resize.h>
#include <ATen/ops/_adaptive_avg_pool2d_backward_ops.h>
#include <ATen/ops/_adaptive_avg_pool2d_ops.h>
#include <ATen/ops/_adaptive_avg_pool3d_backward_ops.h>
#include <ATen/ops/_adaptive_avg_pool3d_ops.h>
#include <ATen/ops/adaptive_avg_pool2d_ops.h>
#include <ATen/ops/adaptive_avg_pool3d_backward_ops.h>
#include <ATen/ops/adaptive_avg_pool3d_ops.h>
#include <ATen/ops/avg_pool2d_backward_meta.h>
#include <ATen/ops/avg_pool2d_backward_ops.h>
#include <ATen/ops/avg_pool2d_meta.h>
#include <ATen/ops/avg_pool2d_ops.h>
#include <ATen/ops/avg_pool3d_backward_meta.h>
#include <ATen/ops/avg_pool3d_backward_ops.h>
#include <ATen/ops/avg_pool3d_meta.h>
#include <ATen/ops/avg_pool3d_ops.h>
#include <torch/library.h>

#include <algorithm>

#include "aten/prepare/structured_body.h"
#include "aten/spatial/linear_map.h"

namespace torch_backend {
namespace {

// How windows lie along one dimension, and what their sums are divided by.
struct AveragedWindows {
  int64_t size, step, pad;
  bool count_padding;
  std::optional<int64_t> divisor;  // instead of the number of places
};

LinearMap average(const AveragedWindows &w, int64_t in, int64_t out) {
  LinearMap map(in);
  for (int64_t o = 0; o < out; o++) {
    const int64_t begin = o * w.step - w.pad, end = std::min(begin + w.size, in + w.pad);
    const int64_t first = std::max<int64_t>(begin, 0), last = std::min(end, in);
    const int64_t count = w.divisor.value_or(w.count_padding ? end - begin : last - first);
    for (int64_t i = first; i < last; i++) map.add(i, 1.0 / static_cast<double>(count));
    map.end_row();
  }
  return map;
}

LinearMap adaptive_average(int64_t in, int64_t out) {
  LinearMap map(in);
  for (int64_t o = 0; o < out; o++) {
    const int64_t first = o * in / out, last = ((o + 1) * in + out - 1) / out;
    for (int64_t i = first; i < last; i++) map.add(i, 1.0 / static_cast<double>(last - first));
    map.end_row();
  }
  return map;
}

// One number stands for all dimensions.
int64_t at_dim(c10::IntArrayRef list, size_t d) { return list.size() == 1 ? list[0] : list[d]; }

// `input` and `result`: sizes of the tensors, of which the last `dims` are pooled.
std::vector<LinearMap> average_maps(size_t dims, c10::IntArrayRef input, c10::IntArrayRef result, c10::IntArrayRef size,
                                    c10::IntArrayRef step, c10::IntArrayRef pad, bool count_padding,
                                    std::optional<int64_t> divisor) {
  std::vector<LinearMap> maps;
  for (size_t d = 0; d < dims; d++) {
    // A given divisor holds for the whole window: the first dimension divides, the others sum.
    const std::optional<int64_t> own = divisor ? std::optional<int64_t>(d == 0 ? *divisor : 1) : std::nullopt;
    const AveragedWindows windows{at_dim(size, d), at_dim(step.empty() ? size : step, d), at_dim(pad, d), count_padding,
                                  own};
    maps.push_back(average(windows, input[input.size() - dims + d], result[result.size() - dims + d]));
  }
  return maps;
}

template <size_t kDims>
bool avg_pool(const Outputs &outputs, const at::Tensor &self, c10::IntArrayRef size, c10::IntArrayRef step,
              c10::IntArrayRef pad, bool, bool count_padding, std::optional<int64_t> divisor) {
  const at::Tensor &result = outputs[0];
  if (!self.is_floating_point()) return false;
  return apply_maps(self, average_maps(kDims, self.sizes(), result.sizes(), size, step, pad, count_padding, divisor),
                    result);
}

template <size_t kDims>
bool avg_pool_backward(const Outputs &outputs, const at::Tensor &grad, const at::Tensor &self, c10::IntArrayRef size,
                       c10::IntArrayRef step, c10::IntArrayRef pad, bool, bool count_padding,
                       std::optional<int64_t> divisor) {
  const auto maps = average_maps(kDims, self.sizes(), grad.sizes(), size, step, pad, count_padding, divisor);
  return grad.is_floating_point() && apply_maps(grad, transposed(maps), outputs[0]);
}

// ---- adaptive: not structured; a call that is not right goes to the CPU's function, which says why ----

std::vector<LinearMap> adaptive_maps(size_t dims, c10::IntArrayRef input, c10::IntArrayRef result) {
  std::vector<LinearMap> maps;
  for (size_t d = 0; d < dims; d++) {
    maps.push_back(adaptive_average(input[input.size() - dims + d], result[result.size() - dims + d]));
  }
  return maps;
}

bool is_image(const at::Tensor &self, int64_t dims) {
  if (!is_device_tensor(self) || !self.is_floating_point() || (self.dim() != dims + 1 && self.dim() != dims + 2))
    return false;
  for (int64_t d = self.dim() - dims; d < self.dim(); d++) {
    if (self.size(d) == 0) return false;
  }
  return true;
}

std::optional<at::DimVector> adaptive_sizes(const at::Tensor &self, c10::IntArrayRef output_size, size_t dims) {
  if (output_size.size() != dims || !is_image(self, static_cast<int64_t>(dims))) return std::nullopt;
  at::DimVector sizes(self.sizes());
  for (size_t d = 0; d < dims; d++) {
    if (output_size[d] < 0) return std::nullopt;
    sizes[sizes.size() - dims + d] = output_size[d];
  }
  return sizes;
}

template <size_t kDims, class Op>
at::Tensor adaptive_avg_pool(const at::Tensor &self, c10::IntArrayRef output_size) {
  if (const auto sizes = adaptive_sizes(self, output_size, kDims)) {
    at::Tensor result = make_empty(*sizes, self.scalar_type(), self.device().index(), self.suggest_memory_format());
    if (apply_maps(self, adaptive_maps(kDims, self.sizes(), *sizes), result)) return result;
  }
  return call_fallback<Op>(self, output_size);
}

template <size_t kDims, class Op>
at::Tensor &adaptive_avg_pool_out(const at::Tensor &self, c10::IntArrayRef output_size, at::Tensor &out) {
  const auto sizes = adaptive_sizes(self, output_size, kDims);
  if (sizes && is_device_tensor(out) && out.device() == self.device() && out.scalar_type() == self.scalar_type()) {
    at::native::resize_output(out, *sizes);
    if (apply_maps(self, adaptive_maps(kDims, self.sizes(), *sizes), out)) return out;
  }
  return call_fallback<Op>(self, output_size, out);
}

bool is_gradient(const at::Tensor &grad, const at::Tensor &self, int64_t dims) {
  return is_image(self, dims) && is_image(grad, dims) && grad.device() == self.device() && grad.dim() == self.dim() &&
         grad.scalar_type() == self.scalar_type() &&
         grad.sizes().slice(0, static_cast<size_t>(grad.dim() - dims)) ==
             self.sizes().slice(0, static_cast<size_t>(grad.dim() - dims));
}

template <size_t kDims, class Op>
at::Tensor adaptive_avg_pool_backward(const at::Tensor &grad, const at::Tensor &self) {
  if (is_gradient(grad, self, kDims)) {
    at::Tensor result =
        make_empty(self.sizes(), self.scalar_type(), self.device().index(), self.suggest_memory_format());
    if (apply_maps(grad, transposed(adaptive_maps(kDims, self.sizes(), grad.sizes())), result)) return result;
  }
  return call_fallback<Op>(grad, self);
}

at::Tensor &adaptive_avg_pool3d_backward_out(const at::Tensor &grad, const at::Tensor &self, at::Tensor &out) {
  const bool fits = is_device_tensor(out) && out.device() == self.device() && out.scalar_type() == self.scalar_type();
  if (fits && is_gradient(grad, self, 3)) {
    at::native::resize_output(out, self.sizes());
    if (apply_maps(grad, transposed(adaptive_maps(3, self.sizes(), grad.sizes())), out)) return out;
  }
  return call_fallback<at::_ops::adaptive_avg_pool3d_backward_grad_input>(grad, self, out);
}

}  // namespace

// Registers an average over windows and its backward, in both forms.
#define AVG_POOL(op, dims)                                                                                    \
  m.impl(#op, TORCH_FN((Functional<at::_ops::op, at::meta::structured_##op, &avg_pool<dims>>::call)));        \
  m.impl(#op ".out", TORCH_FN((Out<at::_ops::op##_out, at::meta::structured_##op, &avg_pool<dims>>::call)));  \
  m.impl(#op "_backward", TORCH_FN((Functional<at::_ops::op##_backward, at::meta::structured_##op##_backward, \
                                               &avg_pool_backward<dims>>::call)));                            \
  m.impl(#op "_backward.grad_input",                                                                          \
         TORCH_FN((Out<at::_ops::op##_backward_grad_input, at::meta::structured_##op##_backward,              \
                       &avg_pool_backward<dims>>::call)));

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  AVG_POOL(avg_pool2d, 2)
  AVG_POOL(avg_pool3d, 3)
  m.impl("_adaptive_avg_pool2d", TORCH_FN((adaptive_avg_pool<2, at::_ops::_adaptive_avg_pool2d>)));
  m.impl("_adaptive_avg_pool3d", TORCH_FN((adaptive_avg_pool<3, at::_ops::_adaptive_avg_pool3d>)));
  m.impl("adaptive_avg_pool2d.out", TORCH_FN((adaptive_avg_pool_out<2, at::_ops::adaptive_avg_pool2d_out>)));
  m.impl("adaptive_avg_pool3d.out", TORCH_FN((adaptive_avg_pool_out<3, at::_ops::adaptive_avg_pool3d_out>)));
  m.impl("_adaptive_avg_pool2d_backward",
         TORCH_FN((adaptive_avg_pool_backward<2, at::_ops::_adaptive_avg_pool2d_backward>)));
  m.impl("_adaptive_avg_pool3d_backward",
         TORCH_FN((adaptive_avg_pool_backward<3, at::_ops::_adaptive_avg_pool3d_backward>)));
  m.impl("adaptive_avg_pool3d_backward.grad_input", TORCH_FN(adaptive_avg_pool3d_backward_out));
}

}  // namespace torch_backend
