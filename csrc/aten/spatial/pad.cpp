// pad.cpp: padding by reflection and replication, forward and backward, as linear maps along each dimension; tensors of
// integers are gathered by index. A call with sizes that do not fit goes to the CPU's function, which says why.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/ops/reflection_pad1d_backward_ops.h>
#include <ATen/ops/reflection_pad1d_ops.h>
#include <ATen/ops/reflection_pad2d_backward_ops.h>
#include <ATen/ops/reflection_pad2d_ops.h>
#include <ATen/ops/reflection_pad3d_backward_ops.h>
#include <ATen/ops/reflection_pad3d_ops.h>
#include <ATen/ops/replication_pad1d_backward_ops.h>
#include <ATen/ops/replication_pad1d_ops.h>
#include <ATen/ops/replication_pad2d_backward_ops.h>
#include <ATen/ops/replication_pad2d_ops.h>
#include <ATen/ops/replication_pad3d_backward_ops.h>
#include <ATen/ops/replication_pad3d_ops.h>
#include <torch/library.h>

#include <algorithm>

#include "aten/copy/copy.h"
#include "aten/fallback/fallback_call.h"
#include "aten/spatial/linear_map.h"

#include <ATen/native/Resize.h>

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
int64_t source(bool reflects, int64_t o, int64_t pad, int64_t in) {
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
  if (!is_device_tensor(self) || static_cast<int64_t>(padding.size()) != 2 * dims) return false;
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
  std::vector<LinearMap> maps;
  for (int64_t d = 0; d < dims; d++) {
    const int64_t in = self.size(self.dim() - dims + d), front = before(padding, dims, d);
    LinearMap map(in);
    for (int64_t o = 0; o < in + front + after(padding, dims, d); o++) {
      map.add(source(reflects, o, front, in), 1);
      map.end_row();
    }
    maps.push_back(std::move(map));
  }
  return maps;
}

// Integers and bool: only copies of elements.
void gather(const at::Tensor &self, const std::vector<LinearMap> &maps, const at::Tensor &result) {
  at::Tensor current = self;
  const int64_t first = self.dim() - static_cast<int64_t>(maps.size());
  for (size_t i = 0; i < maps.size(); i++) {
    if (maps[i].is_identity()) continue;
    const at::Tensor places = make_empty({maps[i].outputs()}, at::kLong, self.device().index());
    const at::Tensor host(at::detail::empty_cpu({maps[i].outputs()}, at::kLong));
    std::copy(maps[i].indices().begin(), maps[i].indices().end(), host.mutable_data_ptr<int64_t>());
    copy_from_host(host, places, /*non_blocking=*/false);
    current = current.index_select(first + static_cast<int64_t>(i), places);
  }
  copy_on_device(current, result);
}

bool fill_padded(bool reflects, const at::Tensor &self, c10::IntArrayRef padding, int64_t dims,
                 const at::Tensor &result) {
  if (result.numel() == 0) return true;
  const std::vector<LinearMap> maps = padding_maps(reflects, self, padding, dims);
  if (apply_maps(self, maps, result)) return true;
  if (!c10::isIntegralType(self.scalar_type(), true) || result.scalar_type() != self.scalar_type()) return false;
  gather(self, maps, result);
  return true;
}

template <bool kReflects, int64_t kDims, class Op>
at::Tensor pad(const at::Tensor &self, c10::IntArrayRef padding) {
  if (is_valid(kReflects, self, padding, kDims)) {
    const at::Tensor result = make_empty(padded_sizes(self, padding, kDims), self.scalar_type(), self.device().index(),
                                         kDims == 2 ? self.suggest_memory_format() : c10::MemoryFormat::Contiguous);
    if (fill_padded(kReflects, self, padding, kDims, result)) return result;
  }
  return call_fallback<Op>(self, padding);
}

template <bool kReflects, int64_t kDims, class Op>
at::Tensor &pad_out(const at::Tensor &self, c10::IntArrayRef padding, at::Tensor &out) {
  const bool fits = is_device_tensor(out) && out.device() == self.device() && out.scalar_type() == self.scalar_type();
  if (fits && is_valid(kReflects, self, padding, kDims)) {
    at::native::resize_output(out, padded_sizes(self, padding, kDims));
    if (fill_padded(kReflects, self, padding, kDims, out)) return out;
  }
  return call_fallback<Op>(self, padding, out);
}

bool fill_gradient(bool reflects, const at::Tensor &grad, const at::Tensor &self, c10::IntArrayRef padding,
                   int64_t dims, const at::Tensor &result) {
  return result.numel() == 0 || apply_maps(grad, transposed(padding_maps(reflects, self, padding, dims)), result);
}

bool is_valid_gradient(bool reflects, const at::Tensor &grad, const at::Tensor &self, c10::IntArrayRef padding,
                       int64_t dims) {
  return is_valid(reflects, self, padding, dims) && is_device_tensor(grad) && grad.device() == self.device() &&
         grad.scalar_type() == self.scalar_type() && grad.sizes() == padded_sizes(self, padding, dims);
}

template <bool kReflects, int64_t kDims, class Op>
at::Tensor pad_backward(const at::Tensor &grad, const at::Tensor &self, c10::IntArrayRef padding) {
  if (is_valid_gradient(kReflects, grad, self, padding, kDims)) {
    const at::Tensor result = make_empty(self.sizes(), self.scalar_type(), self.device().index(),
                                         kDims == 2 ? self.suggest_memory_format() : c10::MemoryFormat::Contiguous);
    if (fill_gradient(kReflects, grad, self, padding, kDims, result)) return result;
  }
  return call_fallback<Op>(grad, self, padding);
}

template <bool kReflects, int64_t kDims, class Op>
at::Tensor &pad_backward_out(const at::Tensor &grad, const at::Tensor &self, c10::IntArrayRef padding,
                             at::Tensor &out) {
  const bool fits = is_device_tensor(out) && out.device() == self.device() && out.scalar_type() == self.scalar_type();
  if (fits && is_valid_gradient(kReflects, grad, self, padding, kDims)) {
    at::native::resize_output(out, self.sizes());
    if (fill_gradient(kReflects, grad, self, padding, kDims, out)) return out;
  }
  return call_fallback<Op>(grad, self, padding, out);
}

}  // namespace

// Registers padding and its backward, in both forms.
#define PAD(op, reflects, dims)                                                               \
  m.impl(#op, TORCH_FN((pad<reflects, dims, at::_ops::op>)));                                 \
  m.impl(#op ".out", TORCH_FN((pad_out<reflects, dims, at::_ops::op##_out>)));                \
  m.impl(#op "_backward", TORCH_FN((pad_backward<reflects, dims, at::_ops::op##_backward>))); \
  m.impl(#op "_backward.grad_input", TORCH_FN((pad_backward_out<reflects, dims, at::_ops::op##_backward_grad_input>)));

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  PAD(reflection_pad1d, true, 1)
  PAD(reflection_pad2d, true, 2)
  PAD(reflection_pad3d, true, 3)
  PAD(replication_pad1d, false, 1)
  PAD(replication_pad2d, false, 2)
  PAD(replication_pad3d, false, 3)
}

}  // namespace torch_backend
