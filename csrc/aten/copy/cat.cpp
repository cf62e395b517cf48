// cat.cpp: concatenation: each operand is copied into its part of the result, and converted if its dtype differs.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/IListRef.h>

#include "aten/copy/copy.h"
#include "aten/prepare/structured.h"

namespace torch_backend {
namespace {

// torch accepts one-dimensional tensors without elements in any position, for backward compatibility.
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
}  // namespace torch_backend

#include "aten/copy/cat.inc"  // registrations: codegen/operators
