// host_allocator.h: c10's view of the HAL's cache of page-locked host memory.
#pragma once

#include <ATen/core/CachingHostAllocator.h>

#include "hal/host_memory.h"

namespace torch_backend {

// The allocator of pinned CPU tensors, registered for kDevice; locks memory for the current device. Lives for ever.
at::HostAllocator *host_allocator();

// The host memory at `address`, which may lie inside an allocation, is page-locked. Initialises nothing.
bool is_pinned(const void *address);

// Keeps pinned memory from being used again until the work queued on `stream` before it is freed is done. false = the
// memory is not host_allocator()'s.
bool record_host_memory(const void *address, hal_stream_t *stream);

}  // namespace torch_backend
