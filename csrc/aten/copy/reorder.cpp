// reorder.cpp: flip, as a copy of dimensions that are read backwards; pixel_unshuffle, as a copy into a view of the result.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/WrapDimUtilsMulti.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/PixelShuffle.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/util/safe_numerics.h>

#include "aten/prepare/op_call.h"
#include "aten/prepare/operand.h"
#include "hal_op_ids.h"

namespace torch_backend {
namespace {

std::optional<at::Tensor> flip(const at::Tensor &self, c10::IntArrayRef dims) {
  const auto flipped = at::dim_list_to_bitset(dims, static_cast<size_t>(self.dim()));
  at::Tensor result = at::empty_like(self);
  if (self.numel() == 0) return result;
  Operand from(self), to(result);
  const hal_dtype_t dtype = dtype_of_size(self.itemsize());
  for (size_t d = 0; d < from.dim(); d++)
    if (flipped[d]) from.flip(d);
  const hal_value_t args[] = {value(from.told(dtype).descriptor())};
  if (run_op(self.device().index(), HAL_OP_ID_COPY, args, {&to.told(dtype).descriptor()})) return result;
  return std::nullopt;
}

// ATen's function for devices other than the CPU loses the memory format, which FakeTensor says is that of self.
at::Tensor pixel_unshuffle(const at::Tensor &self, int64_t factor) {
  at::native::check_pixel_unshuffle_shapes(self, factor);
  int64_t channels = 0;
  TORCH_CHECK_VALUE(factor <= INT32_MAX && !c10::mul_overflows(self.size(-3), factor * factor, &channels),
                    "pixel_unshuffle: too many channels for downscale_factor=", factor);
  at::DimVector sizes(self.sizes());
  const auto c = static_cast<int64_t>(sizes.size()) - 3;
  const auto last = sizes.end();
  last[-3] = channels, last[-2] /= factor, last[-1] /= factor;
  at::Tensor result = at::empty(sizes, self.options(), self.suggest_memory_format());
  const at::Tensor blocks = self.unflatten(c + 2, {last[-1], factor}).unflatten(c + 1, {last[-2], factor});
  result.unflatten(c, {self.size(-3), factor, factor}).copy_(blocks.movedim({c + 2, c + 4}, {c + 1, c + 2}));
  return result;
}

}  // namespace
}  // namespace torch_backend

#include "aten/copy/reorder.inc"  // registrations: codegen/operators
