// fallback_route.h: the fallback for operators whose CPU kernel has another name.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/DispatchKey.h>

namespace torch_backend {

// Runs the kernel of `target` for a CPU key on aliases of the operands, which are those of `target`; counts a use of
// `op`.
void run_on_cpu(const c10::OperatorHandle &op, const c10::OperatorHandle &target, c10::DispatchKey key,
                torch::jit::Stack *stack);

// Returns the result of the CPU's kernel `target` for an operator that has another name here, both without overloads.
template <class... Args>
torch::jit::Stack results_on_cpu(const char *op, const char *target, const Args &...args) {
  torch::jit::Stack stack;
  torch::jit::push(stack, args...);
  c10::Dispatcher &dispatcher = c10::Dispatcher::singleton();
  run_on_cpu(dispatcher.findSchemaOrThrow(op, ""), dispatcher.findSchemaOrThrow(target, ""), c10::DispatchKey::CPU,
             &stack);
  return stack;
}

}  // namespace torch_backend
