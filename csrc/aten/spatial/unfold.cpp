// unfold.cpp: im2col and col2im, the operators of torch.nn.Unfold and Fold.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/native/im2col_shape_check.h>

#include "aten/prepare/structured.h"
#include "aten/spatial/images.h"
#include "hal_op_ids.h"

namespace torch_backend {
namespace {

struct Counts {
  int64_t values[2];
  Counts(c10::IntArrayRef image, c10::IntArrayRef size, c10::IntArrayRef dilation, c10::IntArrayRef pad,
         c10::IntArrayRef step) {
    for (size_t d = 0; d < 2; d++) {
      values[d] = windows_over(image[image.size() - 2 + d], size[d], step[d], pad[d], dilation[d]);
    }
  }
};

void check_pairs(c10::IntArrayRef size, c10::IntArrayRef dilation, c10::IntArrayRef pad, c10::IntArrayRef step) {
  TORCH_CHECK(size.size() == 2, "It is expected kernel_size equals to 2, but got size ", size.size());
  TORCH_CHECK(dilation.size() == 2, "It is expected dilation equals to 2, but got size ", dilation.size());
  TORCH_CHECK(pad.size() == 2, "It is expected padding equals to 2, but got size ", pad.size());
  TORCH_CHECK(step.size() == 2, "It is expected stride equals to 2, but got size ", step.size());
}

// Checks an unfolding; gives the sizes of the matrix.
at::DimVector unfolded_sizes(const at::Tensor &self, c10::IntArrayRef size, c10::IntArrayRef dilation,
                             c10::IntArrayRef pad, c10::IntArrayRef step) {
  check_pairs(size, dilation, pad, step);
  at::native::im2col_shape_check(self, at::Tensor(), size[0], size[1], dilation[0], dilation[1], pad[0], pad[1],
                                 step[0], step[1]);
  const Counts counts(self.sizes(), size, dilation, pad, step);
  at::DimVector sizes{self.size(-3) * size[0] * size[1], counts.values[0] * counts.values[1]};
  if (self.dim() == 4) sizes.insert(sizes.begin(), self.size(0));
  return sizes;
}

bool unfold(Outputs &outputs, const at::Tensor &self, c10::IntArrayRef size, c10::IntArrayRef dilation,
            c10::IntArrayRef pad, c10::IntArrayRef step) {
  Call call(HAL_OP_ID_IM2COL_WINDOWS, self);
  if (!call.possible()) return false;
  const at::Tensor &out = outputs.make(0, unfolded_sizes(self, size, dilation, pad, step), self);
  if (out.numel() == 0) return true;
  const Counts counts(self.sizes(), size, dilation, pad, step);
  call.layout(Layout::kStrided).in(batched(self, 2));
  call.put(c10::IntArrayRef(counts.values)).put(size).put(dilation).put(pad).put(step);
  return call.layout(Layout::kRows).out(batched(out, 1)).run();
}

// Checks a folding; gives the sizes of the image.
at::DimVector folded_sizes(const at::Tensor &self, c10::IntArrayRef output_size, c10::IntArrayRef size,
                           c10::IntArrayRef dilation, c10::IntArrayRef pad, c10::IntArrayRef step) {
  TORCH_CHECK(output_size.size() == 2, "It is expected output_size equals to 2, but got size ", output_size.size());
  check_pairs(size, dilation, pad, step);
  at::native::col2im_shape_check(self, at::Tensor(), output_size[0], output_size[1], size[0], size[1], dilation[0],
                                 dilation[1], pad[0], pad[1], step[0], step[1]);
  at::DimVector sizes{self.size(-2) / (size[0] * size[1]), output_size[0], output_size[1]};
  if (self.dim() == 3) sizes.insert(sizes.begin(), self.size(0));
  return sizes;
}

bool fold(Outputs &outputs, const at::Tensor &self, c10::IntArrayRef output_size, c10::IntArrayRef size,
          c10::IntArrayRef dilation, c10::IntArrayRef pad, c10::IntArrayRef step) {
  Call call(HAL_OP_ID_COL2IM_WINDOWS, self);
  if (!call.possible()) return false;
  const at::Tensor &out = outputs.make(0, folded_sizes(self, output_size, size, dilation, pad, step), self);
  if (out.numel() == 0) return true;
  const Counts counts(out.sizes(), size, dilation, pad, step);
  call.in(batched(self, 1));
  call.put(c10::IntArrayRef(counts.values)).put(size).put(dilation).put(pad).put(step);
  return call.layout(Layout::kStrided).out(batched(out, 2)).run();
}

}  // namespace
}  // namespace torch_backend

#include "aten/spatial/unfold.inc"  // registrations: `bodies` of codegen/ops.yaml
