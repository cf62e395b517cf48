// fallback_route.h: the fallback for operators whose CPU kernel has another name.
#pragma once

#include <ATen/core/stack.h>
#include <c10/core/DispatchKey.h>

namespace c10 {
class OperatorHandle;
}

namespace torch_backend {

// Runs the kernel of `target` for a CPU key on aliases of the operands, which are those of `target`; counts a use of
// `op`.
void run_on_cpu(const c10::OperatorHandle &op, const c10::OperatorHandle &target, c10::DispatchKey key,
                torch::jit::Stack *stack);

}  // namespace torch_backend
