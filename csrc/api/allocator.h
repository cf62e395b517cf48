// allocator.h: the caching allocator: raw memory, statistics under torch's names, limits.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>

#include <cstddef>
#include <utility>

#include "stream.h"

namespace torch_backend {

// Returns the allocator of the device's tensors, which exists until the process ends. Since 0.1.
c10::DeviceAllocator *get_allocator();

// Allocates `size` bytes on the current device for work of its current stream; nullptr for size 0. Free the memory with
// raw_delete. Throws c10::OutOfMemoryError with the sizes and advice. Since 0.1.
void *raw_alloc(size_t size);

// The same for work of a given stream, on its device. Since 0.1.
void *raw_alloc_with_stream(size_t size, const Stream &stream);

// Frees memory of raw_alloc; work queued on its stream may still use it. nullptr is allowed. Throws c10::Error for an
// address that raw_alloc did not return. Since 0.1.
void raw_delete(void *ptr);

// Marks a tensor's memory as used by the work that is now queued on `stream`: the allocator reuses it only after that
// work. Does nothing for memory of another allocator. Since 0.1.
void record_stream(const c10::DataPtr &ptr, const Stream &stream);

// Returns unused cached memory to the device (-1: all devices). Since 0.1.
void empty_cache(c10::DeviceIndex device = -1);

// Returns the statistics of a device (-1: the current one), as torch.cuda.memory_stats. Since 0.1.
c10::CachingDeviceAllocator::DeviceStats device_stats(c10::DeviceIndex device = -1);

// Sets every peak of the statistics to its current value. Since 0.1.
void reset_peak_stats(c10::DeviceIndex device = -1);

// Sets every total of the statistics to zero. Since 0.1.
void reset_accumulated_stats(c10::DeviceIndex device = -1);

// Returns the number of bytes that tensors use on a device (-1: the current one). Since 0.1.
size_t memory_allocated(c10::DeviceIndex device = -1);

// Returns the number of bytes that the allocator has reserved on a device (-1: the current one), used or cached. Since
// 0.1.
size_t memory_reserved(c10::DeviceIndex device = -1);

// Returns the free and total bytes of a device (-1: the current one). If its plugin does not report them, the total is
// the memory that this process has allocated. Since 0.1.
std::pair<size_t, size_t> mem_get_info(c10::DeviceIndex device = -1);

// Limits the allocator to a fraction, above 0 and at most 1, of the device's memory. Throws c10::ValueError for another
// fraction, and c10::Error if the device's memory is unknown. Since 0.1.
void set_memory_fraction(double fraction, c10::DeviceIndex device = -1);

}  // namespace torch_backend
