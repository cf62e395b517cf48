// resize.h: changing the shape of a device tensor in place.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace torch_backend {

// Sets sizes and strides (none = contiguous) and grows the storage if it is too small; elements are preserved.
void resize_in_place(c10::TensorImpl *tensor, c10::IntArrayRef sizes, std::optional<c10::IntArrayRef> strides);

}  // namespace torch_backend
