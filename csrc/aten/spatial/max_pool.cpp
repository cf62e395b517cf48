// max_pool.cpp: max pooling in three dimensions with indices, which is not structured in ATen.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/native/Pool.h>

#include "aten/prepare/vendor_op.h"
#include "hal_op_ids.h"

namespace torch_backend {
namespace {

// Returns the sizes of the result, checked with the CPU's error messages; empty = lists of wrong lengths.
at::DimVector max_pool3d_sizes(const at::Tensor &self, c10::IntArrayRef size, c10::IntArrayRef step,
                               c10::IntArrayRef pad, c10::IntArrayRef dilation, bool ceil) {
  const c10::IntArrayRef lists[] = {size, step.empty() ? size : step, pad, dilation};
  for (const c10::IntArrayRef list : lists)
    if (list.size() != 1 && list.size() != 3) return {};
  if (self.dim() != 4 && self.dim() != 5) return {};
  at::DimVector sizes(self.sizes());
  int64_t n[4][3], *out = &sizes[sizes.size() - 3];
  const int64_t *in = &self.sizes()[sizes.size() - 3];
  for (size_t d = 0; d < 3; d++) {
    for (size_t i = 0; i < 4; i++) n[i][d] = lists[i].size() == 1 ? lists[i][0] : lists[i][d];
    out[d] = at::native::pooling_output_shape<int64_t>(in[d], n[0][d], n[2][d], n[1][d], n[3][d], ceil);
  }
  at::native::pool3d_shape_check(self, self.size(-4), n[0][0], n[0][1], n[0][2], n[1][0], n[1][1], n[1][2], n[2][0],
                                 n[2][1], n[2][2], n[3][0], n[3][1], n[3][2], in[0], in[1], in[2], out[0], out[1],
                                 out[2], "max_pool3d_with_indices_out_cpu_template()");
  return sizes;
}

// Returns the strides of a result of `sizes` in the memory format of the images, which may have no batch.
at::DimVector strides_like(const at::Tensor &images, c10::IntArrayRef sizes) {
  constexpr auto kLast = c10::MemoryFormat::ChannelsLast3d;
  const bool last = images.dim() == 5 ? images.suggest_memory_format() == kLast
                                      : !images.is_contiguous() && images.unsqueeze(0).is_contiguous(kLast);
  if (!last) return c10::contiguous_strides(sizes);
  const auto strides = c10::get_channels_last_strides_3d(sizes);
  return {strides.begin(), strides.end()};
}

bool max_pool3d(Outputs &outputs, const at::Tensor &self, c10::IntArrayRef size, c10::IntArrayRef step,
                c10::IntArrayRef pad, c10::IntArrayRef dilation, bool ceil) {
  const at::DimVector sizes = max_pool3d_sizes(self, size, step, pad, dilation, ceil);
  if (sizes.empty()) return false;
  const at::DimVector strides = strides_like(self, sizes);
  outputs.set(0, sizes, strides, self.options());
  outputs.set(1, sizes, strides, self.options().dtype(at::kLong));
  return run_kernel(HAL_OP_ID_MAX_POOL3D_WITH_INDICES,
                    {argument(self), argument(size), argument(step), argument(pad), argument(dilation)}, outputs, 2);
}

bool max_pool3d_backward(Outputs &outputs, const at::Tensor &grad, const at::Tensor &self, c10::IntArrayRef size,
                         c10::IntArrayRef step, c10::IntArrayRef pad, c10::IntArrayRef dilation, bool ceil,
                         const at::Tensor &indices) {
  const at::DimVector sizes = max_pool3d_sizes(self, size, step, pad, dilation, ceil);
  if (sizes.empty() || grad.sizes() != sizes || indices.sizes() != sizes) return false;
  outputs.make(0, self.sizes(), self, self.suggest_memory_format());
  return run_kernel(
      HAL_OP_ID_MAX_POOL3D_WITH_INDICES_BACKWARD,
      {argument(grad), argument(indices), argument(size), argument(step), argument(pad), argument(dilation)}, outputs);
}

}  // namespace
}  // namespace torch_backend

#include "aten/spatial/max_pool.inc"  // registrations: codegen/operators
