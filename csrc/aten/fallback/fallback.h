// fallback.h: the way an operator goes when neither the plugin nor a portable kernel has it, and the ledger that counts
// it.
#pragma once

#include <ATen/core/stack.h>

#include <cstdint>
#include <string>
#include <vector>

namespace c10 {
class OperatorHandle;
}

namespace torch_backend {

// Boxed fallback of the PrivateUse1 key: runs the CPU kernel on CPU tensors that alias device memory, or on staged copies. Throws
// c10::NotImplementedError, naming the operator, in strict mode and where no CPU kernel can answer.
void fallback(const c10::OperatorHandle &op, torch::jit::Stack *stack);

// Strict mode: every fallback raises. Process-wide; returns the mode before.
bool set_fallback_strict(bool strict);
bool fallback_strict();

struct FallbackEntry {
  std::string op;  // "aten::name.overload"
  uint64_t count;
};
// Uses of the fallback by operator since the start or the last reset.
std::vector<FallbackEntry> fallback_report();
void fallback_reset();

}  // namespace torch_backend
