// transforms.h: whether torch transforms a call: functorch (vmap, grad, jvp), forward-mode AD and autograd. Operators
// without rules for these run as operators that have them.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace torch_backend {

// Returns whether vmap, grad, jvp or another transform of functorch is active. torch's installed headers do not show
// which one it is, or whether it is nested.
inline bool is_in_functorch() {
  return c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::FuncTorchDynamicLayerBackMode);
}

// Returns whether a tensor has a tangent of forward-mode AD.
inline bool has_tangent(const at::Tensor &tensor) { return tensor._fw_grad(/*level=*/0).defined(); }

// Returns whether a tensor is an operand of a graph of autograd.
inline bool wants_gradient(const at::Tensor &tensor) { return tensor.requires_grad(); }

}  // namespace torch_backend
