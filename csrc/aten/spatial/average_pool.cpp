// average_pool.cpp: pooling by averages over windows of a size and over adaptive ones, forward and backward, as linear maps
// along each spatial dimension.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS

#include <algorithm>

#include "aten/prepare/structured.h"
#include "aten/spatial/images.h"
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

LinearMap adaptive_average(size_t, int64_t in, int64_t out) {
  LinearMap map(in);
  for (int64_t o = 0; o < out; o++) {
    const int64_t first = o * in / out, last = ((o + 1) * in + out - 1) / out;
    for (int64_t i = first; i < last; i++) map.add(i, 1.0 / static_cast<double>(last - first));
    map.end_row();
  }
  return map;
}

// `input` and `result`: sizes of the tensors, of which the last `dims` are pooled.
std::vector<LinearMap> average_maps(size_t dims, c10::IntArrayRef input, c10::IntArrayRef result, c10::IntArrayRef size,
                                    c10::IntArrayRef step, c10::IntArrayRef pad, bool count_padding,
                                    std::optional<int64_t> divisor) {
  return maps_along(dims, input, result, [&](size_t d, int64_t in, int64_t out) {
    // A given divisor holds for the whole window: the first dimension divides, the others sum.
    const std::optional<int64_t> own = divisor ? std::optional<int64_t>(d == 0 ? *divisor : 1) : std::nullopt;
    return average({at_dim(size, d), at_dim(step.empty() ? size : step, d), at_dim(pad, d), count_padding, own}, in,
                   out);
  });
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

bool is_image(const at::Tensor &self, int64_t dims) {
  if (!self.is_floating_point() || (self.dim() != dims + 1 && self.dim() != dims + 2)) return false;
  const c10::IntArrayRef space = self.sizes().slice(static_cast<size_t>(self.dim() - dims));
  return std::find(space.begin(), space.end(), 0) == space.end();
}

template <size_t kDims>
bool adaptive_avg_pool(Outputs &outputs, const at::Tensor &self, c10::IntArrayRef output_size) {
  if (output_size.size() != kDims || !is_image(self, kDims)) return false;
  at::DimVector sizes(self.sizes());
  for (size_t d = 0; d < kDims; d++) {
    if (output_size[d] < 0) return false;
    sizes[sizes.size() - kDims + d] = output_size[d];
  }
  const auto format = kDims == 2 ? self.suggest_memory_format() : c10::MemoryFormat::Contiguous;  // as on the CPU
  const at::Tensor &result = outputs.make(0, sizes, self, format);
  return apply_maps(self, maps_along(kDims, self.sizes(), sizes, adaptive_average), result);
}

template <size_t kDims>
bool adaptive_avg_pool_backward(Outputs &outputs, const at::Tensor &grad, const at::Tensor &self) {
  const auto channels = [](const at::Tensor &t) { return t.sizes().slice(0, static_cast<size_t>(t.dim()) - kDims); };
  if (!is_image(self, kDims) || !is_image(grad, kDims) || grad.dim() != self.dim() ||
      grad.scalar_type() != self.scalar_type() || channels(grad) != channels(self))
    return false;
  const at::Tensor &result = outputs.make(0, self.sizes(), self, self.suggest_memory_format());
  return apply_maps(grad, transposed(maps_along(kDims, self.sizes(), grad.sizes(), adaptive_average)), result);
}

}  // namespace
}  // namespace torch_backend

#include "aten/spatial/average_pool.inc"  // registrations: `bodies` of codegen/ops.yaml
