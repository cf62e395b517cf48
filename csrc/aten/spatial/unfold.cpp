// unfold.cpp: im2col and col2im, the operators of torch.nn.Unfold and Fold.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/native/Resize.h>
#include <ATen/native/im2col_shape_check.h>
#include <ATen/ops/col2im_ops.h>
#include <ATen/ops/im2col_ops.h>
#include <torch/library.h>

#include "aten/copy/copy.h"
#include "aten/fallback/fallback_call.h"
#include "aten/prepare/op_call.h"
#include "hal_op_ids.h"

namespace torch_backend {
namespace {

// The windows that slide over the spatial dimensions of an image (batch, channel, ...); `count` of them per dimension.
struct SlidingWindows {
  c10::IntArrayRef count, size, dilation, pad, step;
};

// Writes the matrix of an image (batch, channel x place in the window, window), or the image whose places sum what the windows of a
// matrix have there. false = no kernel for the dtype.
bool run_columns(uint32_t op, const at::Tensor &self, const SlidingWindows &windows, const at::Tensor &result) {
  const hal_tensor_t operand = describe(self), target = describe(result);
  const hal_value_t args[] = {value(operand),          value(windows.count), value(windows.size),
                              value(windows.dilation), value(windows.pad),   value(windows.step)};
  const hal_tensor_t *const results[] = {&target};
  return run_op(result.device().index(), op, args, results);
}

bool may_run(uint32_t op, const at::Tensor &self, const at::Tensor *out) {
  if (!is_device_tensor(self) || has_bits(self)) return false;
  if (out && (!is_device_tensor(*out) || out->device() != self.device() || out->scalar_type() != self.scalar_type())) {
    return false;
  }
  const c10::DeviceIndex device = self.device().index();
  return has_kernel(device, op, self.scalar_type()) ||
         (c10::isReducedFloatingType(self.scalar_type()) && has_kernel(device, op, at::kFloat));
}

// Runs in the dtype of a kernel, into `out`, whose size is right, or into a temporary that is copied there.
template <class Run>
bool run_into(uint32_t op, const at::Tensor &self, const at::Tensor &out, const Run &run) {
  if (out.numel() == 0) return true;
  const bool exact = has_kernel(self.device().index(), op, self.scalar_type());
  const c10::ScalarType dtype = exact ? self.scalar_type() : at::kFloat;
  const bool direct = exact && out.is_contiguous() && !out.is_alias_of(self);
  const at::Tensor target = direct ? out : make_empty(out.sizes(), dtype, out.device().index());
  if (!run(self.to(dtype), target)) return false;
  if (!direct) copy_on_device(target, out);
  return true;
}

int64_t window_count(int64_t in, int64_t size, int64_t dilation, int64_t pad, int64_t step) {
  return (in + 2 * pad - (dilation * (size - 1) + 1)) / step + 1;
}

struct Counts {
  int64_t values[2];
  Counts(c10::IntArrayRef image, c10::IntArrayRef size, c10::IntArrayRef dilation, c10::IntArrayRef pad,
         c10::IntArrayRef step) {
    for (size_t d = 0; d < 2; d++) {
      values[d] = window_count(image[image.size() - 2 + d], size[d], dilation[d], pad[d], step[d]);
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

bool unfold(const at::Tensor &self, c10::IntArrayRef size, c10::IntArrayRef dilation, c10::IntArrayRef pad,
            c10::IntArrayRef step, const at::Tensor &out) {
  const Counts counts(self.sizes(), size, dilation, pad, step);
  const bool batched = self.dim() == 4;
  return run_into(HAL_OP_ID_IM2COL, self, out, [&](const at::Tensor &image, const at::Tensor &matrix) {
    return run_columns(HAL_OP_ID_IM2COL, batched ? image : image.unsqueeze(0),
                       {counts.values, size, dilation, pad, step}, batched ? matrix : matrix.unsqueeze(0));
  });
}

at::Tensor &im2col_out(const at::Tensor &self, c10::IntArrayRef size, c10::IntArrayRef dilation, c10::IntArrayRef pad,
                       c10::IntArrayRef step, at::Tensor &out) {
  if (may_run(HAL_OP_ID_IM2COL, self, &out)) {
    at::native::resize_output(out, unfolded_sizes(self, size, dilation, pad, step));
    if (unfold(self, size, dilation, pad, step, out)) return out;
  }
  return call_fallback<at::_ops::im2col_out>(self, size, dilation, pad, step, out);
}

at::Tensor im2col(const at::Tensor &self, c10::IntArrayRef size, c10::IntArrayRef dilation, c10::IntArrayRef pad,
                  c10::IntArrayRef step) {
  if (may_run(HAL_OP_ID_IM2COL, self, nullptr)) {
    at::Tensor out =
        make_empty(unfolded_sizes(self, size, dilation, pad, step), self.scalar_type(), self.device().index());
    if (unfold(self, size, dilation, pad, step, out)) return out;
  }
  return call_fallback<at::_ops::im2col>(self, size, dilation, pad, step);
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

bool fold(const at::Tensor &self, c10::IntArrayRef size, c10::IntArrayRef dilation, c10::IntArrayRef pad,
          c10::IntArrayRef step, const at::Tensor &out) {
  const Counts counts(out.sizes(), size, dilation, pad, step);
  const bool batched = self.dim() == 3;
  return run_into(HAL_OP_ID_COL2IM, self, out, [&](const at::Tensor &given, const at::Tensor &image) {
    const at::Tensor matrix = given.stride(-1) == 1 ? given : given.contiguous();
    return run_columns(HAL_OP_ID_COL2IM, batched ? matrix : matrix.unsqueeze(0),
                       {counts.values, size, dilation, pad, step}, batched ? image : image.unsqueeze(0));
  });
}

at::Tensor &col2im_out(const at::Tensor &self, c10::IntArrayRef output_size, c10::IntArrayRef size,
                       c10::IntArrayRef dilation, c10::IntArrayRef pad, c10::IntArrayRef step, at::Tensor &out) {
  if (may_run(HAL_OP_ID_COL2IM, self, &out)) {
    at::native::resize_output(out, folded_sizes(self, output_size, size, dilation, pad, step));
    if (fold(self, size, dilation, pad, step, out)) return out;
  }
  return call_fallback<at::_ops::col2im_out>(self, output_size, size, dilation, pad, step, out);
}

at::Tensor col2im(const at::Tensor &self, c10::IntArrayRef output_size, c10::IntArrayRef size,
                  c10::IntArrayRef dilation, c10::IntArrayRef pad, c10::IntArrayRef step) {
  if (may_run(HAL_OP_ID_COL2IM, self, nullptr)) {
    const auto sizes = folded_sizes(self, output_size, size, dilation, pad, step);
    at::Tensor out = make_empty(sizes, self.scalar_type(), self.device().index());
    if (fold(self, size, dilation, pad, step, out)) return out;
  }
  return call_fallback<at::_ops::col2im>(self, output_size, size, dilation, pad, step);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("im2col", TORCH_FN(im2col));
  m.impl("im2col.out", TORCH_FN(im2col_out));
  m.impl("col2im", TORCH_FN(col2im));
  m.impl("col2im.out", TORCH_FN(col2im_out));
}

}  // namespace torch_backend
