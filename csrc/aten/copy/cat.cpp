// cat.cpp: concatenation: each operand is copied, and converted where its dtype is another, into its part of the result.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "aten/copy/copy.h"
#include "aten/prepare/structured_body.h"

// Behind the headers that declare the lists of tensors they use.
#include <ATen/ops/cat_meta.h>
#include <ATen/ops/cat_ops.h>
#include <torch/library.h>

namespace torch_backend {
namespace {

// Tensors of one dimension without elements fit anywhere: an old habit of torch.
bool is_skipped(const at::Tensor &tensor) { return tensor.dim() == 1 && tensor.size(0) == 0; }

bool cat(const Outputs &outputs, const at::ITensorListRef &tensors, int64_t dim) {
  const at::Tensor &result = outputs[0];
  if (result.numel() == 0) return true;
  const int64_t axis = dim < 0 ? dim + result.dim() : dim;
  int64_t begin = 0;
  for (const at::Tensor &tensor : tensors) {
    if (is_skipped(tensor)) continue;
    if (tensor.numel() != 0) copy_into_part(tensor, result, axis, begin);
    begin += tensor.size(axis);
  }
  return true;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  using Meta = at::meta::structured_cat;
  m.impl("cat", TORCH_FN((Functional<at::_ops::cat, Meta, &cat>::call)));
  m.impl("cat.out", TORCH_FN((Out<at::_ops::cat_out, Meta, &cat>::call)));
}

}  // namespace torch_backend
