// masked.cpp: elements selected by a mask: masked_fill, masked_select, masked_scatter and nonzero. Results whose size
// depends on the mask wait for the device, as on CUDA.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/ops/nonzero.h>

#include <algorithm>

#include "aten/prepare/structured.h"
#include "hal_op_ids.h"

namespace torch_backend {
namespace {

// ---- masked_fill ----

// Writes a device element, or a number of the host, where the mask is true.
bool fill_by_mask(const at::Tensor &self, const at::Tensor &mask, const at::Tensor &element) {
  TORCH_CHECK(mask.dtype() == at::kBool, "masked_fill_ only supports boolean masks, but got mask with dtype ",
              mask.dtype());
  if (mask.device() != self.device()) throw_two_devices(self.device(), mask.device());
  at::assert_no_partial_overlap(self, mask);
  const auto flags = at::expand_inplace(self, mask, "masked_fill_");
  if (self.numel() == 0) return true;
  if (at::has_internal_overlap(self) == at::MemOverlap::Yes) return false;
  Call call(HAL_OP_ID_WHERE_SELF, self);
  call.in(*flags, at::kBool).expand(self.sizes()).in(element).expand(self.sizes()).in(self);
  return call.elementwise().out(self).run();
}

bool masked_fill_number(at::Tensor &self, const at::Tensor &mask, const at::Scalar &number) {
  return fill_by_mask(self, mask, element_of(number, self));
}

bool masked_fill(at::Tensor &self, const at::Tensor &mask, const at::Tensor &number) {
  TORCH_CHECK(number.dim() == 0, "masked_fill_ only supports a 0-dimensional value tensor, but got tensor with ",
              number.dim(), " dimension(s).");
  if (number.device() != self.device()) return masked_fill_number(self, mask, number.item());
  TORCH_CHECK(self.is_complex() || !number.is_complex(), "value cannot be converted to type ", self.scalar_type(),
              " without overflow");
  return fill_by_mask(self, mask, number);
}

// ---- nonzero ----

constexpr int64_t kChunk = 4096;  // elements per item; counting them takes some microseconds

// As on the CPU, a new or resized result is in column-major order, in which indexing reads it.
at::DimVector nonzero_strides(int64_t total) { return {1, std::max<int64_t>(total, 1)}; }

at::Tensor empty_nonzero(const at::Tensor &self) {
  const int64_t total = self.numel() ? self.count_nonzero().item<int64_t>() : 0, sizes[] = {total, self.dim()};
  return make_empty_strided(sizes, nonzero_strides(total), at::kLong, self.device().index());
}

void check_places(const Outputs &outputs, const at::Tensor &self, const char *name) {
  if (const at::Tensor *out = outputs.given(0)) {
    TORCH_CHECK(out->scalar_type() == at::kLong, name,
                ": Expected out tensor to have scalar type Long but got scalar type", out->scalar_type());
    at::assert_no_overlap(*out, self);
  }
}

bool nonzero(Outputs &outputs, const at::Tensor &self) {
  check_places(outputs, self, "nonzero");
  if (self.dim() > 6) return false;
  const int64_t n = self.numel();
  int64_t total = 0;
  at::Tensor flags, counts;
  if (n != 0) {
    flags = prepared(self, at::kBool, Layout::kContiguous, self.device().index());
    const int64_t chunks = (n + kChunk - 1) / kChunk, chunk = (n + chunks - 1) / chunks;
    counts = make_empty({(n + chunk - 1) / chunk + 1}, at::kLong, self.device().index());
    if (!Call(HAL_OP_ID__NONZERO_COUNT, self).in(flags).indices(counts).run()) return false;
    total = counts.select(0, -1).item<int64_t>();
  }
  const int64_t sizes[] = {total, self.dim()};
  outputs.set(0, sizes, nonzero_strides(total), self.options().dtype(at::kLong));
  if (outputs[0].numel() == 0) return true;
  Call call(HAL_OP_ID_NONZERO_PLACES, self);
  return call.in(flags).index(counts).layout(Layout::kStrided).indices(outputs[0]).run();
}

at::Tensor empty_nonzero_static(const at::Tensor &self, int64_t size, int64_t) {
  return make_empty({std::max<int64_t>(size, 0), self.dim()}, at::kLong, self.device().index());
}

// ATen's function reads the elements by the host.
bool nonzero_static(Outputs &outputs, const at::Tensor &self, int64_t size, int64_t fill_value) {
  TORCH_CHECK(size >= 0, "nonzero_static: 'size' must be an non-negative integer");
  check_places(outputs, self, "nonzero_static");
  const at::Tensor found = at::nonzero(self);
  outputs.put(0, at::constant_pad_nd(found, {0, 0, 0, size - found.size(0)}, fill_value));
  return true;
}

// ---- masked_select, masked_scatter ----

void check_selecting(const at::Tensor &mask) {
  TORCH_CHECK(mask.scalar_type() == at::kBool, "masked_select: expected BoolTensor for mask");
}

at::Tensor empty_selection(const at::Tensor &self, const at::Tensor &mask) {
  check_selecting(mask);
  const int64_t total = mask.expand(at::infer_size(mask.sizes(), self.sizes())).sum().item<int64_t>();
  return make_empty({total}, self.scalar_type(), self.device().index());
}

bool masked_select(Outputs &outputs, const at::Tensor &self, const at::Tensor &mask) {
  check_selecting(mask);
  if (const at::Tensor *out = outputs.given(0)) {
    TORCH_CHECK(self.scalar_type() == out->scalar_type(),
                "masked_select(): self and result must have the same scalar type");
    at::assert_no_internal_overlap(*out);
    at::assert_no_overlap(*out, self);
    at::assert_no_overlap(*out, mask);
  }
  const auto [flags, elements] = at::expand_outplace(mask, self);
  const bool alone = flags->dim() == 0;
  outputs.put(0, (alone ? elements->reshape({1}) : *elements).index({alone ? flags->reshape({1}) : *flags}));
  return true;
}

at::Tensor &masked_scatter_(at::Tensor &self, const at::Tensor &mask, const at::Tensor &source) {
  at::assert_no_internal_overlap(self);
  TORCH_CHECK(self.scalar_type() == source.scalar_type(),
              "masked_scatter_: expected self and source to have same dtypes but got ", self.scalar_type(), " and ",
              source.scalar_type());
  TORCH_CHECK(mask.dtype() == at::kBool, "masked_scatter_ only supports boolean masks, but got mask with dtype ",
              mask.dtype());
  const auto flags = at::expand_inplace(self, mask, "masked_scatter_");
  const at::Tensor rows = self.dim() ? self : self.unsqueeze(0);
  const at::Tensor selected = (self.dim() ? *flags : flags->unsqueeze(0)).nonzero();
  const int64_t count = selected.size(0);
  TORCH_CHECK(source.numel() >= count,
              "masked_scatter: expected self and source to have same number of elements: ", "the mask has ", count,
              " true elements, source has ", source.numel());
  if (count == 0) return self;
  c10::List<std::optional<at::Tensor>> indices;
  for (int64_t d = 0; d < selected.size(1); d++) indices.push_back(selected.select(1, d));
  at::Tensor target = rows;
  target.index_put_(indices, source.reshape(-1).narrow(0, 0, count));
  return self;
}

}  // namespace
}  // namespace torch_backend

#include "aten/pointwise/masked.inc"  // registrations: codegen/operators
