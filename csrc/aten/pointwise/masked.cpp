// masked.cpp: elements chosen by a mask: masked_fill, masked_select, masked_scatter and nonzero. Results whose size depends
// on the mask wait for the device, as on CUDA.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/masked_fill_ops.h>
#include <ATen/ops/nonzero_ops.h>
#include <torch/library.h>

#include <algorithm>

#include "aten/fallback/fallback_call.h"
#include "aten/index/index_call.h"
#include "hal_op_ids.h"

namespace torch_backend {
namespace {

// ---- masked_fill ----

// out = mask ? element : self, of one dtype and broadcast to out. false = no kernel.
bool run_where(const at::Tensor &mask, const at::Tensor &element, const at::Tensor &self, const at::Tensor &out) {
  if (out.itemsize() == 16) return false;
  Strided flags(mask.expand(out.sizes())), filling(element.expand(out.sizes())), elements(self), result(out);
  const hal_value_t args[] = {value(flags.descriptor()), value(filling.moved().descriptor()),
                              value(elements.moved().descriptor())};
  const hal_tensor_t *const results[] = {&result.moved().descriptor()};
  return run_op(out.device().index(), HAL_OP_ID_WHERE_SELF, args, results);
}

at::Tensor &fill_by_mask(at::Tensor &self, const at::Tensor &mask, const at::Tensor &element) {
  TORCH_CHECK(mask.dtype() == at::kBool, "masked_fill_ only supports boolean masks, but got mask with dtype ",
              mask.dtype());
  if (mask.device() != self.device()) throw_two_devices(self.device(), mask.device());
  at::assert_no_partial_overlap(self, mask);
  const auto flags = at::expand_inplace(self, mask, "masked_fill_");
  if (self.numel() == 0) return self;
  if (at::has_internal_overlap(self) != at::MemOverlap::Yes && run_where(*flags, element, self, self)) return self;
  return call_fallback<at::_ops::masked_fill__Tensor>(self, mask, element);
}

at::Tensor element_of(const at::Scalar &number, const at::Tensor &like) {
  at::Tensor element = make_empty({}, like.scalar_type(), like.device().index());
  element.fill_(number);
  return element;
}

at::Tensor &masked_fill_scalar(at::Tensor &self, const at::Tensor &mask, const at::Scalar &number) {
  return fill_by_mask(self, mask, element_of(number, self));
}

at::Tensor &masked_fill_tensor(at::Tensor &self, const at::Tensor &mask, const at::Tensor &number) {
  TORCH_CHECK(number.dim() == 0, "masked_fill_ only supports a 0-dimensional value tensor, but got tensor with ",
              number.dim(), " dimension(s).");
  if (number.device() != self.device()) return masked_fill_scalar(self, mask, number.item());
  TORCH_CHECK(self.is_complex() || !number.is_complex(), "value cannot be converted to type ", self.scalar_type(),
              " without overflow");
  const bool own = number.is_alias_of(self);
  return fill_by_mask(self, mask, own ? number.to(self.scalar_type()).clone() : number.to(self.scalar_type()));
}

// ---- nonzero ----

constexpr int64_t kChunk = 4096;  // elements that an item counts: some microseconds

at::Tensor &nonzero_out(const at::Tensor &self, at::Tensor &result) {
  TORCH_CHECK(result.scalar_type() == at::kLong,
              "nonzero: Expected out tensor to have scalar type Long but got scalar type", result.scalar_type());
  at::assert_no_internal_overlap(result);
  at::assert_no_overlap(result, self);
  if (result.device() != self.device()) throw_two_devices(self.device(), result.device());
  const c10::DeviceIndex device = self.device().index();
  const int64_t n = self.numel();
  int64_t total = 0;
  at::Tensor flags, counts;
  if (n != 0) {
    flags = (self.scalar_type() == at::kBool ? self : self.ne(0)).contiguous();
    const int64_t chunks = (n + kChunk - 1) / kChunk, chunk = (n + chunks - 1) / chunks;
    counts = make_empty({(n + chunk - 1) / chunk + 1}, at::kLong, device);
    const hal_tensor_t source = describe(flags), sums = describe(counts);
    const hal_value_t args[] = {value(source)};
    const hal_tensor_t *const results[] = {&sums};
    if (self.dim() > 6 || !run_op(device, HAL_OP_ID__NONZERO_COUNT, args, results))
      return call_fallback<at::_ops::nonzero_out>(self, result);
    total = counts.select(0, -1).item<int64_t>();
  }
  // As on the CPU a resized result lies column by column, which is how indexing reads it.
  if (at::native::resize_output(result, {total, self.dim()}))
    result.as_strided_({total, self.dim()}, {1, std::max<int64_t>(total, 1)});
  if (result.numel() == 0) return result;
  const hal_tensor_t source = describe(flags), sums = describe(counts), out = describe(result);
  const hal_value_t args[] = {value(source), value(sums)};
  const hal_tensor_t *const results[] = {&out};
  if (run_op(device, HAL_OP_ID_NONZERO, args, results)) return result;
  return call_fallback<at::_ops::nonzero_out>(self, result);
}

at::Tensor nonzero(const at::Tensor &self) {
  at::Tensor result = make_empty({0}, at::kLong, self.device().index());
  nonzero_out(self, result);
  return result;
}

// ---- masked_select, masked_scatter ----

at::Tensor select_by_mask(const at::Tensor &self, const at::Tensor &mask) {
  TORCH_CHECK(mask.scalar_type() == at::kBool, "masked_select: expected BoolTensor for mask");
  if (mask.device() != self.device()) throw_two_devices(self.device(), mask.device());
  const auto [flags, elements] = at::expand_outplace(mask, self);
  if (flags->dim() == 0) return elements->reshape({1}).index({flags->reshape({1})});
  return elements->index({*flags});
}

at::Tensor &masked_select_out(const at::Tensor &self, const at::Tensor &mask, at::Tensor &result) {
  TORCH_CHECK(self.scalar_type() == result.scalar_type(),
              "masked_select(): self and result must have the same scalar type");
  at::assert_no_internal_overlap(result);
  at::assert_no_overlap(result, self);
  at::assert_no_overlap(result, mask);
  const at::Tensor selected = select_by_mask(self, mask);
  at::native::resize_output(result, selected.sizes());
  return result.copy_(selected);
}

at::Tensor &masked_scatter_(at::Tensor &self, const at::Tensor &mask, const at::Tensor &source) {
  at::assert_no_internal_overlap(self);
  TORCH_CHECK(self.scalar_type() == source.scalar_type(),
              "masked_scatter_: expected self and source to have same dtypes but got ", self.scalar_type(), " and ",
              source.scalar_type());
  for (const at::Tensor *tensor : {&mask, &source})
    if (tensor->device() != self.device()) throw_two_devices(self.device(), tensor->device());
  TORCH_CHECK(mask.dtype() == at::kBool, "masked_scatter_ only supports boolean masks, but got mask with dtype ",
              mask.dtype());
  const auto flags = at::expand_inplace(self, mask, "masked_scatter_");
  const at::Tensor rows = self.dim() ? self : self.unsqueeze(0);
  const at::Tensor places = (self.dim() ? *flags : flags->unsqueeze(0)).nonzero();
  const int64_t count = places.size(0);
  TORCH_CHECK(source.numel() >= count,
              "masked_scatter: expected self and source to have same number of elements: ", "the mask has ", count,
              " true elements, source has ", source.numel());
  if (count == 0) return self;
  c10::List<std::optional<at::Tensor>> indices;
  for (int64_t d = 0; d < places.size(1); d++) indices.push_back(places.select(1, d));
  at::Tensor target = rows;
  target.index_put_(indices, source.reshape(-1).narrow(0, 0, count));
  return self;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("masked_fill_.Scalar", TORCH_FN(masked_fill_scalar));
  m.impl("masked_fill_.Tensor", TORCH_FN(masked_fill_tensor));
  m.impl("nonzero", TORCH_FN(nonzero));
  m.impl("nonzero.out", TORCH_FN(nonzero_out));
  m.impl("masked_select", TORCH_FN(select_by_mask));
  m.impl("masked_select.out", TORCH_FN(masked_select_out));
  m.impl("masked_scatter_", TORCH_FN(masked_scatter_));
}

}  // namespace torch_backend
