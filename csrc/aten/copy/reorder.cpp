// reorder.cpp: flip, roll and channel_shuffle, as copies: a flipped dimension is one that is read backwards, a rolled one is two pieces.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/WrapDimUtils.h>
#include <ATen/WrapDimUtilsMulti.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>

#include "aten/copy/copy.h"
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

// Moves element i of a dimension to i + shift, modulo the dimension's size.
at::Tensor roll_one(const at::Tensor &self, int64_t shift, int64_t dim) {
  const int64_t axis = at::maybe_wrap_dim(dim, self.dim());
  at::Tensor result = make_empty(self.sizes(), self.scalar_type(), self.device().index());
  if (self.numel() == 0) return result;
  const int64_t size = self.size(axis), rest = shift % size, head = rest < 0 ? rest + size : rest;
  copy_raw(self.narrow(axis, 0, size - head), result.narrow(axis, head, size - head));
  if (head != 0) copy_raw(self.narrow(axis, size - head, head), result.narrow(axis, 0, head));
  return result;
}

at::Tensor roll(const at::Tensor &self, c10::IntArrayRef shifts, c10::IntArrayRef dims) {
  TORCH_CHECK(!shifts.empty(), "`shifts` required");
  if (dims.empty() && shifts.size() == 1) {
    return roll_one(self.contiguous().view(self.numel()), shifts[0], 0).view(self.sizes());
  }
  TORCH_CHECK(shifts.size() == dims.size(), "shifts and dimensions must align. shifts: ", shifts.size(),
              ", dims:", dims.size());
  at::Tensor rolled = self;
  for (size_t i = 0; i < dims.size(); i++) rolled = roll_one(rolled, shifts[i], dims[i]);
  return rolled;
}

// Channel (group, i) becomes channel (i, group).
at::Tensor channel_shuffle(const at::Tensor &self, int64_t groups) {
  TORCH_CHECK(self.dim() > 2, "channel_shuffle expects input with > 2 dims, but got input with sizes ", self.sizes());
  TORCH_CHECK(groups > 0, "Number of groups to divide channels in must be positive.", " Value of groups:", groups);
  TORCH_CHECK(self.size(1) % groups == 0, "Number of channels must be divisible by groups. Got ", self.size(1),
              " channels and ", groups, " groups.");
  at::Tensor result = at::empty_like(self);
  if (self.numel() == 0) return result;
  const at::Tensor channels = self.unflatten(1, {groups, -1}).transpose(1, 2);
  copy_raw(channels, result.unflatten(1, {-1, groups}));
  return result;
}

}  // namespace
}  // namespace torch_backend

#include "aten/copy/reorder.inc"  // registrations: `bodies` of codegen/ops.yaml
