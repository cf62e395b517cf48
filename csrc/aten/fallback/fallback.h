// fallback.h: runs an operator on the CPU if neither the plugin nor a portable kernel implements it, and counts its
// fallbacks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace torch_backend {

// Strict mode: every fallback raises. Process-wide; returns the previous mode.
bool set_fallback_strict(bool strict);
bool fallback_strict();

struct FallbackEntry {
  std::string op;  // "aten::name.overload"
  uint64_t count;
};
// Returns the uses of the fallback by operator since the start or the last reset.
std::vector<FallbackEntry> fallback_report();
void fallback_reset();

// The number of fallbacks of the calling thread since its start, and the operator of the last one ("" = none).
struct ThreadFallbacks {
  uint64_t count;
  std::string last;
};
ThreadFallbacks thread_fallbacks();

}  // namespace torch_backend
