// fallback.h: the way an operator goes when neither the plugin nor a portable kernel has it, and the ledger that counts
// it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace torch_backend {

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

// Uses by the calling thread since its start, and the operator of the last one ("" = none): who answered the call just made.
struct ThreadFallbacks {
  uint64_t count;
  std::string last;
};
ThreadFallbacks thread_fallbacks();

}  // namespace torch_backend
