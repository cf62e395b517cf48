// compat.h: types of c10d that older versions of torch lack. The macros for virtual functions are in core/compat.h.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <cstdint>
#include <functional>
#include <optional>

#include "core/compat.h"

namespace torch_backend {

#ifdef C10D_BACKEND_HAS_HOOKS
using AbortHook = c10d::AbortHook;
#else
using AbortHook = std::function<void()>;
#endif

#if TORCH_BACKEND_TORCH_VERSION >= 215
using CompletionHookArgs = c10d::CompletionHookArgs;
#else
struct CompletionHookArgs {
  uint64_t completionKey = 0;
  std::optional<float> duration_ms;
};
#endif
using CompletionHook = std::function<void(const CompletionHookArgs &)>;

}  // namespace torch_backend
