// reorder.cpp: flip, as a copy of dimensions that are read in reverse order; pixel_unshuffle.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/WrapDimUtilsMulti.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/pixel_unshuffle_native.h>

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
  const bool has_run = run_op(self.device().index(), HAL_OP_ID_COPY, args, {&to.told(dtype).descriptor()});
  return has_run ? std::optional(result) : std::nullopt;
}

// ATen's function for devices other than the CPU loses the memory format, but FakeTensor describes it as that of self.
at::Tensor pixel_unshuffle(const at::Tensor &self, int64_t factor) {
  return at::native::math_pixel_unshuffle(self, factor).contiguous(self.suggest_memory_format());
}

}  // namespace
}  // namespace torch_backend

#include "aten/copy/reorder.inc"  // registrations: codegen/operators
