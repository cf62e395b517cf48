// isin.cpp: which elements are among others. Few elements or few others are compared with each other; many are sorted
// and searched. ATen's implementations for numbers call this, or comparisons.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/ops/result_type.h>
#include <ATen/ops/searchsorted.h>

#include "aten/prepare/structured.h"

namespace torch_backend {
namespace {

constexpr int64_t kFew = 8;  // comparing with this many is faster than sorting and searching

at::Tensor among_few(const at::Tensor &elements, const at::Tensor &few) {
  at::Tensor found = elements.eq(few.select(0, 0));
  for (int64_t i = 1; i < few.size(0); i++) found.logical_or_(elements.eq(few.select(0, i)));
  return found;
}

at::Tensor among_many(const at::Tensor &elements, const at::Tensor &many) {
  const at::Tensor sorted = std::get<0>(many.sort());
  const at::Tensor positions = at::searchsorted(sorted, elements).clamp_max_(many.size(0) - 1);
  return sorted.index_select(0, positions.reshape(-1)).view(elements.sizes()).eq(elements);
}

bool isin(const Outputs &outputs, const at::Tensor &elements, const at::Tensor &test_elements, bool, bool invert) {
  if (elements.is_complex() || test_elements.is_complex()) return false;
  if (elements.numel() == 0) return true;
  if (test_elements.numel() == 0) return outputs[0].fill_(invert).defined();
  const c10::ScalarType dtype = at::result_type(elements, test_elements);
  const at::Tensor self = elements.to(dtype).contiguous(), others = test_elements.to(dtype).reshape(-1);
  const at::Tensor found = self.numel() == 1        ? others.eq(self).any().view(self.sizes())
                           : others.size(0) <= kFew ? among_few(self, others)
                                                    : among_many(self, others);
  outputs[0].copy_(invert ? found.logical_not() : found);
  return true;
}

}  // namespace
}  // namespace torch_backend

#include "aten/sort/isin.inc"  // registrations: codegen/operators
