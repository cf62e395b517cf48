// host_allocator.h: the HAL's cache of page-locked host memory as a c10 allocator.
#pragma once

#include <ATen/core/CachingHostAllocator.h>

#include "hal/host_memory.h"

namespace torch_backend {

// Returns the allocator of pinned CPU tensors, registered for kDevice; it locks memory for the current device. Never
// destroyed.
at::HostAllocator *host_allocator();

// Returns whether the host memory at `address`, which may be inside an allocation, is page-locked. Initializes nothing.
bool is_pinned(const void *address);

// Prevents pinned memory from being reused until the work queued on `stream` before it is freed is done. Returns false
// if the memory does not belong to host_allocator().
bool record_host_memory(const void *address, hal_stream_t *stream);

}  // namespace torch_backend
