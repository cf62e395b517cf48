// direct.h: operators of few tensors and numbers that make one tensor go from the wrappers to the device's kernel without a stack of boxed values.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <string>

#include "core/device.h"

namespace torch_backend {

// Whether nothing but the device's own kernel would get a call with tensors of these keys, one of which is ours: of what torch lays around
// kernels, the wrappers have had theirs.
inline bool goes_to_kernel(c10::DispatchKeySet keys) {
  constexpr c10::DispatchKeySet select(c10::DispatchKey::BackendSelect);  // of operators without a tensor
  const c10::impl::LocalDispatchKeySet local = c10::impl::tls_local_dispatch_key_set();
  const c10::DispatchKeySet left = ((keys | local.included_) - local.excluded_) - select;
  return left.remove_backend(c10::BackendComponent::CPUBit) == kKeySet;
}

// Answers an operator in any case.
using BoxedWay = void (*)(const c10::OperatorHandle &op, torch::jit::Stack *stack);

// Registers such a way for an operator, by its name without the namespace, where its schema is of that kind; false = it is not. What is out of
// the ordinary (views in another order, mixed devices, narrowed dtypes, autocast, modes) goes the boxed way.
bool register_direct(torch::Library &library, const std::string &name, const c10::OperatorHandle &op, BoxedWay boxed);

}  // namespace torch_backend
