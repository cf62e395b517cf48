// sparse_parts.h: the component tensors of sparse tensors, which can be mapped one by one.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/FunctionRef.h>

namespace torch_backend {

using MapPart = c10::function_ref<at::Tensor(const at::Tensor &)>;

// Returns whether the layout is COO, CSR, CSC, BSR or BSC.
inline bool is_sparse_layout(const at::Tensor &tensor) {
  const c10::Layout layout = tensor.layout();
  if (C10_LIKELY(layout == c10::kStrided)) return false;
  return layout == c10::kSparse || layout == c10::kSparseCsr || layout == c10::kSparseCsc ||
         layout == c10::kSparseBsr || layout == c10::kSparseBsc;
}

// Returns a sparse tensor of the same kind on `device`, with mapped parts.
at::Tensor rebuild_sparse(const at::Tensor &tensor, c10::Device device, MapPart map);

// Makes an existing sparse tensor equal to another of the same kind, with mapped parts.
void assign_sparse(const at::Tensor &to, const at::Tensor &from, MapPart map);

}  // namespace torch_backend
