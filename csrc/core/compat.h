// compat.h: every line of csrc/ that depends on torch's version. The window of versions is in pyproject.toml.
#pragma once

#include <c10/util/intrusive_ptr.h>
#include <torch/headeronly/version.h>

#include <memory>
#include <type_traits>

#define TORCH_BACKEND_TORCH_VERSION (TORCH_VERSION_MAJOR * 100 + TORCH_VERSION_MINOR)

// Kineto's profilers for devices of other makers: in 2.13, and only where torch was built with Kineto.
#if __has_include(<torch/csrc/profiler/standalone/privateuse1_profiler.h>) && __has_include(<kineto/IActivityProfiler.h>)
#define TORCH_BACKEND_ACTIVITY_PROFILER 1
#endif

namespace torch_backend {

// Makes an autograd node for a handle type: Edge::function is an intrusive_ptr in 2.13 and was a shared_ptr before.
template <class Handle, class Node>
Handle make_node() {
  if constexpr (std::is_convertible_v<std::shared_ptr<Node>, Handle>)
    return std::make_shared<Node>();
  else
    return c10::make_intrusive<Node>();
}

}  // namespace torch_backend
