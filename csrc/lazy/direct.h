// direct.h: operators on few tensors and numbers with one result call the device's kernel directly from the wrappers,
// without a stack of boxed values.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <string>

#include "core/device.h"

namespace torch_backend {

// Returns whether a call with tensors of these keys, at least one of which is lazy, goes directly to the device's
// kernel. The dispatcher's outer keys have been handled for the wrappers already.
inline bool goes_to_kernel(c10::DispatchKeySet keys) {
  constexpr c10::DispatchKeySet select(c10::DispatchKey::BackendSelect);  // of operators without a tensor
  const c10::impl::LocalDispatchKeySet local = c10::impl::tls_local_dispatch_key_set();
  const c10::DispatchKeySet left = ((keys | local.included_) - local.excluded_) - select;
  return left.remove_backend(c10::BackendComponent::CPUBit) == kKeySet;
}

// Runs any operator.
using BoxedWay = void (*)(const c10::OperatorHandle &op, torch::jit::Stack *stack);

// Registers the direct path for an operator, by its name without the namespace, if its schema is of that kind;
// otherwise returns false. Special cases (views in another order, mixed devices, narrowed dtypes, autocast, modes) use
// the boxed path.
bool register_direct(torch::Library &library, const std::string &name, const c10::OperatorHandle &op, BoxedWay boxed);

}  // namespace torch_backend
