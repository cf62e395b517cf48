// compat.h: every line of csrc/ that depends on torch's version. The window of versions is in pyproject.toml.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/native/DispatchStub.h>
#include <torch/headeronly/version.h>

#define TORCH_BACKEND_TORCH_VERSION (TORCH_VERSION_MAJOR * 100 + TORCH_VERSION_MINOR)

// Kineto's profilers for out-of-tree backends: only if torch was built with Kineto.
#if __has_include(<torch/csrc/profiler/standalone/privateuse1_profiler.h>) && __has_include(<kineto/IActivityProfiler.h>)
#define TORCH_BACKEND_ACTIVITY_PROFILER 1
#endif

// `override` of a virtual function that torch has from 2.14 on.
#if TORCH_BACKEND_TORCH_VERSION >= 214
#define TORCH_BACKEND_OVERRIDE_SINCE_214 override
#else
#define TORCH_BACKEND_OVERRIDE_SINCE_214
#endif

// The same from 2.15 on.
#if TORCH_BACKEND_TORCH_VERSION >= 215
#define TORCH_BACKEND_OVERRIDE_SINCE_215 override
#else
#define TORCH_BACKEND_OVERRIDE_SINCE_215
#endif

// The functions of at::HostAllocator since 2.14 for history and snapshots, by those of core/allocator/host_history.h.
#if TORCH_BACKEND_TORCH_VERSION >= 214
#define TORCH_BACKEND_HOST_HISTORY                                                                   \
  void record_history(bool enabled, c10::CachingDeviceAllocator::CreateContextFn create, size_t max, \
                      c10::CachingDeviceAllocator::RecordContext when, bool clear) override {        \
    record_host_history(enabled, create, max, when, clear);                                          \
  }                                                                                                  \
  bool is_history_enabled() const override { return host_history_is_recorded(); }                    \
  std::vector<c10::CachingDeviceAllocator::HostSegmentInfo> get_segments() override {                \
    std::vector<c10::CachingDeviceAllocator::HostSegmentInfo> infos;                                 \
    for (const HostSegment &from : host_segments())                                                  \
      infos.push_back({from.address, from.size, from.allocated, from.active, c10::MempoolId_t{0, 0}, \
                       from.context_when_allocated});                                                \
    return infos;                                                                                    \
  }                                                                                                  \
  std::vector<c10::CachingDeviceAllocator::TraceEntry> get_traces() override { return host_trace(); }
#else
#define TORCH_BACKEND_HOST_HISTORY
#endif

// Operators that CUDA's autocast computes in float32, but AT_FORALL_FP32 does not name.
#if TORCH_BACKEND_TORCH_VERSION >= 214
#define TORCH_BACKEND_FORALL_FURTHER_FP32(_) _(linalg_matrix_sqrth)
#else
#define TORCH_BACKEND_FORALL_FURTHER_FP32(_)
#endif

// Kernels of ATen that no installed header declares.
namespace at::native {
using flatten_indices_fn = Tensor (*)(const Tensor &indices, IntArrayRef sizes);
DECLARE_DISPATCH(flatten_indices_fn, flatten_indices_stub)
}  // namespace at::native
