// broadcast.h: the second fast path of elementwise operators, without TensorIterator. It serves operands of one dtype
// and device whose shapes broadcast, or whose elements are in another order than C's.
#pragma once

#include "aten/prepare/structured.h"

namespace torch_backend {

// Runs operator `op` on operands that need no cast; `dtypes` are those that torch computes in when all operands have
// them. The result is `*given`, or a new tensor. Returns false, without any effect, if this path does not support the
// call or there is no kernel.
bool run_broadcast(uint32_t op, uint64_t dtypes, bool bool_result, const at::Tensor *given, at::Tensor &made,
                   c10::ArrayRef<KernelArgument> arguments);

}  // namespace torch_backend
