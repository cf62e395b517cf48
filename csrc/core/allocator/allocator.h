// allocator.h: the HAL's caching allocator as a c10 allocator.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/StorageImpl.h>

#include "core/device.h"
#include "hal/hal.h"

namespace torch_backend {

// Returns the allocator registered for kDevice, which allocates on the current device and stream. Never destroyed.
c10::DeviceAllocator *allocator();

// Allocates on a given device; size 0 returns a NULL address with the device set.
c10::DataPtr allocate(size_t size, c10::DeviceIndex device);

// Returns the HAL block of a DataPtr, nullptr if it has none (external memory).
hal_block_t *block_of(const c10::DataPtr &ptr);

// Returns a DataPtr that owns a HAL block.
c10::DataPtr own(hal_block_t *block);

// Wraps host memory owned by `data` (a CPU DataPtr) as device memory without a copy. The HAL counts it and frees it
// after the work queued on the current stream. Returns false if the device is out of memory; then `data` still owns its
// memory.
bool adopt(c10::DataPtr &data, size_t size, c10::DeviceIndex device, c10::DataPtr *out_block);

}  // namespace torch_backend
