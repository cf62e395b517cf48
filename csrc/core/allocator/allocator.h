// allocator.h: c10's view of the HAL's caching allocator.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/StorageImpl.h>

#include "core/device.h"
#include "hal/hal.h"

namespace torch_backend {

// The allocator registered for kDevice; allocates on the current device and stream. Lives for ever.
c10::DeviceAllocator *allocator();

// Allocates on a given device; size 0 gives a NULL address with the device set.
c10::DataPtr allocate(size_t size, c10::DeviceIndex device);

// The HAL block behind a DataPtr of ours, nullptr when it is not one (external memory).
hal_block_t *block_of(const c10::DataPtr &ptr);

// The DataPtr that owns a HAL block.
c10::DataPtr own(hal_block_t *block);

// Wraps host memory owned by `data` (a CPU DataPtr) as device memory without a copy: the HAL counts it and frees it
// behind the work queued on the current stream. false = the device has no room for it; `data` keeps its memory.
bool adopt(c10::DataPtr &data, size_t size, c10::DeviceIndex device, c10::DataPtr *out_block);

}  // namespace torch_backend
