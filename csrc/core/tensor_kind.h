// tensor_kind.h: the name of a tensor's kind, and what to use instead of it, in error messages.
#pragma once

#include <ATen/core/Tensor.h>

#include <sstream>
#include <string>

namespace torch_backend {

// The cure in error messages about quantized tensors.
constexpr const char *kInsteadOfQuantized =
    "Quantize on the CPU and call dequantize() before the copy to the device, or use fake quantization or torchao.";

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
