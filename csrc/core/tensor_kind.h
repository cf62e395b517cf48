// tensor_kind.h: the name of a tensor's kind in error messages.
#pragma once

#include <ATen/core/Tensor.h>

#include <sstream>
#include <string>

namespace torch_backend {

// Returns "quantized" or "nested" for such tensors, whose layout is also Strided; else the layout: "Strided", "Sparse",
// "Jagged".
inline std::string tensor_kind(const at::Tensor &tensor) {
  if (tensor.is_quantized()) return "quantized";
  if (tensor.is_nested()) return "nested";
  std::ostringstream layout;
  layout << tensor.layout();
  return layout.str();
}

}  // namespace torch_backend
