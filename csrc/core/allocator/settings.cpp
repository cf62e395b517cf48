// settings.cpp: settings of torch._C._accelerator_setAllocatorSettings reach the HAL's allocators. torch calls a hook
// with the text once it has read the settings that it knows.
#include <c10/core/AllocatorConfig.h>

#include <functional>
#include <string>
#include <utility>

#include "core/status.h"
#include "hal/memory.h"

namespace torch_backend {
namespace {

using c10::CachingAllocator::AcceleratorAllocatorConfig;

// There is one hook. That of an allocator in torch, such as CUDA's, is called first.
const bool settings_hooked = [] {
  std::function<void(const std::string &)> &hook = AcceleratorAllocatorConfig::getConfigParserHook();
  hook = [before = std::move(hook)](const std::string &settings) {
    if (before) before(settings);
    check(hal_memory_configure(settings.c_str()));
  };
  // Keys that torch refuses otherwise, once there is a hook. The HAL refuses those of other allocators by name.
  for (const char *key :
       {"per_process_memory_fraction", "backend", "release_lock_on_cudamalloc", "pinned_use_cuda_host_register",
        "pinned_num_register_threads", "pinned_reserve_segment_size_mb", "graph_capture_record_stream_reuse"})
    AcceleratorAllocatorConfig::getMutableKeys().insert(key);
  return true;
}();

}  // namespace
}  // namespace torch_backend
