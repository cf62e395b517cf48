// unfold.cpp: im2col and col2im, the operators of torch.nn.Unfold and Fold.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/native/im2col_shape_check.h>

#include "aten/prepare/vendor_op.h"
#include "hal_op_ids.h"

namespace torch_backend {
namespace {

// The CPU's function refuses lists of other lengths.
bool are_pairs(std::initializer_list<c10::IntArrayRef> lists) {
  for (const c10::IntArrayRef list : lists)
    if (list.size() != 2) return false;
  return true;
}

bool unfold(Outputs &outputs, const at::Tensor &self, c10::IntArrayRef size, c10::IntArrayRef dilation,
            c10::IntArrayRef pad, c10::IntArrayRef step) {
  if (!are_pairs({size, dilation, pad, step})) return false;
  at::native::im2col_shape_check(self, at::Tensor(), size[0], size[1], dilation[0], dilation[1], pad[0], pad[1],
                                 step[0], step[1]);
  int64_t windows = 1;
  for (size_t d = 0; d < 2; d++) {
    const int64_t in = self.size(static_cast<int64_t>(d) - 2);
    windows *= (in + 2 * pad[d] - dilation[d] * (size[d] - 1) - 1) / step[d] + 1;
  }
  at::DimVector sizes{self.size(-3) * size[0] * size[1], windows};
  if (self.dim() == 4) sizes.insert(sizes.begin(), self.size(0));
  outputs.make(0, sizes, self);
  return run_kernel(HAL_OP_ID_IM2COL,
                    {argument(self), argument(size), argument(dilation), argument(pad), argument(step)}, outputs);
}

bool fold(Outputs &outputs, const at::Tensor &self, c10::IntArrayRef image, c10::IntArrayRef size,
          c10::IntArrayRef dilation, c10::IntArrayRef pad, c10::IntArrayRef step) {
  if (!are_pairs({image, size, dilation, pad, step})) return false;
  at::native::col2im_shape_check(self, at::Tensor(), image[0], image[1], size[0], size[1], dilation[0], dilation[1],
                                 pad[0], pad[1], step[0], step[1]);
  at::DimVector sizes{self.size(-2) / (size[0] * size[1]), image[0], image[1]};
  if (self.dim() == 3) sizes.insert(sizes.begin(), self.size(0));
  outputs.make(0, sizes, self);
  return run_kernel(
      HAL_OP_ID_COL2IM,
      {argument(self), argument(image), argument(size), argument(dilation), argument(pad), argument(step)}, outputs);
}

}  // namespace
}  // namespace torch_backend

#include "aten/spatial/unfold.inc"  // registrations: codegen/operators
