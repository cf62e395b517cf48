// pad.cpp: padding by reflection and replication, forward and backward, as linear maps along each dimension; tensors of
// integers are gathered by index. A call with sizes that do not fit goes to the CPU's function, which says why.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/ops/tensor.h>

#include <algorithm>

#include "aten/copy/copy.h"
#include "aten/prepare/structured.h"
#include "aten/spatial/linear_map.h"

namespace torch_backend {
namespace {

// Padding is listed from the last dimension on: before, after.
int64_t before(c10::IntArrayRef padding, int64_t dims, int64_t d) {
  return padding[static_cast<size_t>(2 * (dims - 1 - d))];
}
int64_t after(c10::IntArrayRef padding, int64_t dims, int64_t d) {
  return padding[static_cast<size_t>(2 * (dims - 1 - d) + 1)];
}

// The place of the input that element `o` of the result repeats.
int64_t padding_source(bool reflects, int64_t o, int64_t pad, int64_t in) {
  const int64_t place = o - pad;
  if (!reflects) return std::clamp<int64_t>(place, 0, in - 1);
  const int64_t inward = place < 0 ? -place : place;
  return inward < in ? inward : 2 * (in - 1) - inward;
}

at::DimVector padded_sizes(const at::Tensor &self, c10::IntArrayRef padding, int64_t dims) {
  at::DimVector sizes(self.sizes());
  const int64_t first = self.dim() - dims;
  for (int64_t d = 0; d < dims; d++) {
    sizes[static_cast<size_t>(first + d)] += before(padding, dims, d) + after(padding, dims, d);
  }
  return sizes;
}

bool is_valid(bool reflects, const at::Tensor &self, c10::IntArrayRef padding, int64_t dims) {
  if (static_cast<int64_t>(padding.size()) != 2 * dims) return false;
  if (self.dim() != dims + 1 && self.dim() != dims + 2) return false;
  for (int64_t d = self.dim() - dims - 1; d < self.dim(); d++) {
    if (self.size(d) == 0) return false;  // an empty batch is the only emptiness
  }
  for (int64_t d = 0; d < dims; d++) {
    const int64_t size = self.size(self.dim() - dims + d), front = before(padding, dims, d),
                  back = after(padding, dims, d);
    if (size + front + back < 1 || (reflects && (front >= size || back >= size))) return false;
  }
  return true;
}

std::vector<LinearMap> padding_maps(bool reflects, const at::Tensor &self, c10::IntArrayRef padding, int64_t dims) {
  const auto padded = padded_sizes(self, padding, dims);
  return maps_along(static_cast<size_t>(dims), self.sizes(), padded, [&](size_t d, int64_t in, int64_t out) {
    LinearMap map(in);
    for (int64_t o = 0; o < out; o++) {
      map.add(padding_source(reflects, o, before(padding, dims, static_cast<int64_t>(d)), in), 1);
      map.end_row();
    }
    return map;
  });
}

// Integers and bool: only copies of elements. The places of all dimensions come by one upload.
void gather_padded(const at::Tensor &self, const std::vector<LinearMap> &maps, const at::Tensor &result) {
  std::vector<int64_t> all;
  for (const LinearMap &map : maps) all.insert(all.end(), map.indices().begin(), map.indices().end());
  const at::Tensor places = at::tensor(all, at::kLong).to(self.device());
  at::Tensor current = self;
  const int64_t first = self.dim() - static_cast<int64_t>(maps.size());
  int64_t at = 0;
  for (size_t i = 0; i < maps.size(); i++) {
    if (!maps[i].is_identity())
      current = current.index_select(first + static_cast<int64_t>(i), places.narrow(0, at, maps[i].outputs()));
    at += maps[i].outputs();
  }
  copy_on_device(current, result);
}

template <bool kReflects, int64_t kDims>
bool pad(Outputs &outputs, const at::Tensor &self, c10::IntArrayRef padding) {
  if (!is_valid(kReflects, self, padding, kDims)) return false;
  const at::Tensor &result = outputs.make(0, padded_sizes(self, padding, kDims), self, self.suggest_memory_format());
  if (result.numel() == 0) return true;
  const std::vector<LinearMap> maps = padding_maps(kReflects, self, padding, kDims);
  if (apply_maps(self, maps, result)) return true;
  if (!c10::isIntegralType(self.scalar_type(), true)) return false;
  gather_padded(self, maps, result);
  return true;
}

template <bool kReflects, int64_t kDims>
bool pad_backward(Outputs &outputs, const at::Tensor &grad, const at::Tensor &self, c10::IntArrayRef padding) {
  if (!is_valid(kReflects, self, padding, kDims) || grad.scalar_type() != self.scalar_type() ||
      grad.sizes() != padded_sizes(self, padding, kDims))
    return false;
  const at::Tensor &result = outputs.make(0, self.sizes(), self, self.suggest_memory_format());
  return result.numel() == 0 || apply_maps(grad, transposed(padding_maps(kReflects, self, padding, kDims)), result);
}

}  // namespace
}  // namespace torch_backend

#include "aten/spatial/pad.inc"  // registrations: `bodies` of codegen/ops.yaml
