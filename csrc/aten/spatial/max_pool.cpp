// max_pool.cpp: pooling by the largest element, over windows of a size and adaptive ones, with the places of the elements,
// and its backward, in which every input place gathers what the windows that chose it hand back.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/native/Pool.h>

#include "aten/prepare/structured.h"
#include "aten/spatial/images.h"
#include "hal_op_ids.h"

namespace torch_backend {
namespace {

// The lists of a call in the order of codegen/ops.yaml; none for adaptive windows.
using Lists = c10::SmallVector<c10::IntArrayRef, 4>;

Lists lists(c10::IntArrayRef size, c10::IntArrayRef step, c10::IntArrayRef pad, c10::IntArrayRef dilation) {
  return {size, step.empty() ? size : step, pad, dilation};
}

// Fills values and places, which have the right sizes.
bool pool(uint32_t op, int64_t dims, const at::Tensor &self, const Lists &lists, const at::Tensor &values,
          const at::Tensor &indices) {
  Call call(op, self);
  if (!call.possible()) return false;
  if (values.numel() == 0) return true;
  call.in(batched(self, dims));
  for (const c10::IntArrayRef list : lists) call.put(list);
  return call.out(batched(values, dims)).places(batched(indices, dims)).run();
}

bool pool_backward(uint32_t op, int64_t dims, const at::Tensor &grad, const at::Tensor &indices, const Lists &lists,
                   const at::Tensor &result) {
  Call call(op, grad);
  if (!call.possible() || indices.scalar_type() != at::kLong || result.scalar_type() != grad.scalar_type())
    return false;
  if (result.numel() == 0) return true;
  if (grad.sizes() != indices.sizes()) return false;  // the CPU's function says what is wrong
  call.in(batched(grad, dims)).index(batched(indices, dims));
  for (const c10::IntArrayRef list : lists) call.put(list);
  return call.out(batched(result, dims)).run();
}

// ---- structured operators ----

bool max_pool2d(const Outputs &outputs, const at::Tensor &self, c10::IntArrayRef size, c10::IntArrayRef step,
                c10::IntArrayRef pad, c10::IntArrayRef dilation, bool) {
  return pool(HAL_OP_ID_MAX_POOL2D_WITH_INDICES, 2, self, lists(size, step, pad, dilation), outputs[0], outputs[1]);
}

bool max_pool2d_backward(const Outputs &outputs, const at::Tensor &grad, const at::Tensor &, c10::IntArrayRef size,
                         c10::IntArrayRef step, c10::IntArrayRef pad, c10::IntArrayRef dilation, bool,
                         const at::Tensor &indices) {
  return pool_backward(HAL_OP_ID_MAX_POOL2D_WITH_INDICES_BACKWARD, 2, grad, indices, lists(size, step, pad, dilation),
                       outputs[0]);
}

template <uint32_t kOp, int64_t kDims>
bool adaptive(const Outputs &outputs, const at::Tensor &self, c10::IntArrayRef) {
  if (!self.is_floating_point()) return false;  // as on the CPU, which says so
  return pool(kOp, kDims, self, {}, outputs[0], outputs[1]);
}

template <uint32_t kOp, int64_t kDims>
bool adaptive_backward(const Outputs &outputs, const at::Tensor &grad, const at::Tensor &, const at::Tensor &indices) {
  return pool_backward(kOp, kDims, grad, indices, {}, outputs[0]);
}

// ---- three dimensions, which ATen has not structured ----

// The sizes of the result, checked in the CPU's words. Nothing = lists of wrong lengths.
std::optional<at::DimVector> max_pool3d_sizes(const at::Tensor &self, const Lists &lists, bool ceil) {
  for (const c10::IntArrayRef list : lists)
    if (list.size() != 1 && list.size() != 3) return std::nullopt;
  if (self.dim() != 4 && self.dim() != 5) return std::nullopt;
  at::DimVector sizes(self.sizes());
  int64_t n[4][3], *out = &sizes[sizes.size() - 3];
  const int64_t *in = &self.sizes()[sizes.size() - 3];
  for (size_t d = 0; d < 3; d++) {
    for (size_t i = 0; i < 4; i++) n[i][d] = at_dim(lists[i], d);
    out[d] = at::native::pooling_output_shape<int64_t>(in[d], n[0][d], n[2][d], n[1][d], n[3][d], ceil);
  }
  at::native::pool3d_shape_check(self, self.size(-4), n[0][0], n[0][1], n[0][2], n[1][0], n[1][1], n[1][2], n[2][0],
                                 n[2][1], n[2][2], n[3][0], n[3][1], n[3][2], in[0], in[1], in[2], out[0], out[1],
                                 out[2], "max_pool3d_with_indices_out_cpu_template()");
  return sizes;
}

// Of a result of `sizes` in the memory format of the images, which may have no batch.
at::DimVector strides_like(const at::Tensor &images, c10::IntArrayRef sizes) {
  at::DimVector shape(sizes), strides;
  if (images.dim() == 4) shape.insert(shape.begin(), 1);
  const at::Tensor batch = batched(images, 3);  // the stride of a batch of one says nothing
  const bool last = images.dim() == 4 ? !batch.is_contiguous() && batch.is_contiguous(c10::MemoryFormat::ChannelsLast3d)
                                      : batch.suggest_memory_format() == c10::MemoryFormat::ChannelsLast3d;
  if (last)
    for (const int64_t stride : c10::get_channels_last_strides_3d(shape)) strides.push_back(stride);
  else
    strides = c10::contiguous_strides(shape);
  if (images.dim() == 4) strides.erase(strides.begin());
  return strides;
}

bool max_pool3d(Outputs &outputs, const at::Tensor &self, c10::IntArrayRef size, c10::IntArrayRef step,
                c10::IntArrayRef pad, c10::IntArrayRef dilation, bool ceil) {
  const Lists given = lists(size, step, pad, dilation);
  const auto sizes = max_pool3d_sizes(self, given, ceil);
  if (!sizes) return false;
  const at::DimVector strides = strides_like(self, *sizes);
  outputs.set(0, *sizes, strides, self.options());
  outputs.set(1, *sizes, strides, self.options().dtype(at::kLong));
  return pool(HAL_OP_ID_MAX_POOL3D_WITH_INDICES, 3, self, given, outputs[0], outputs[1]);
}

bool max_pool3d_backward(Outputs &outputs, const at::Tensor &grad, const at::Tensor &self, c10::IntArrayRef size,
                         c10::IntArrayRef step, c10::IntArrayRef pad, c10::IntArrayRef dilation, bool ceil,
                         const at::Tensor &indices) {
  const Lists given = lists(size, step, pad, dilation);
  const auto sizes = max_pool3d_sizes(self, given, ceil);
  if (!sizes || grad.sizes() != *sizes) return false;
  const at::Tensor &result = outputs.make(0, self.sizes(), self, self.suggest_memory_format());
  return pool_backward(HAL_OP_ID_MAX_POOL3D_WITH_INDICES_BACKWARD, 3, grad, indices, given, result);
}

}  // namespace
}  // namespace torch_backend

#include "aten/spatial/max_pool.inc"  // registrations: `bodies` of codegen/ops.yaml
