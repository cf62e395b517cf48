// allocator.h: the caching allocator: raw memory, statistics under torch's names, limits.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>

#include <cstddef>
#include <utility>

#include "stream.h"

namespace torch_backend {

// The allocator behind the tensors of our devices; it lives as long as the process. Since 0.1.
c10::DeviceAllocator *get_allocator();

// Allocates `size` bytes on the current device for work of its current stream; nullptr for size 0. Freed by raw_delete.
// Throws c10::OutOfMemoryError, which tells sizes and what would have helped. Since 0.1.
void *raw_alloc(size_t size);

// The same for work of a given stream, on its device. Since 0.1.
void *raw_alloc_with_stream(size_t size, const Stream &stream);

// Frees what raw_alloc gave; work queued on its stream may still use it. nullptr is allowed. Throws c10::Error for an
// address that raw_alloc did not give. Since 0.1.
void raw_delete(void *ptr);

// Tells that work now queued on `stream` uses the memory of a tensor, which then is reused only after that work. Memory that
// is not the allocator's own is left alone. Since 0.1.
void record_stream(const c10::DataPtr &ptr, const Stream &stream);

// Gives cached memory that nobody uses back to the device (-1: all devices). Since 0.1.
void empty_cache(c10::DeviceIndex device = -1);

// The statistics of a device (-1: the current one), as torch.cuda.memory_stats. Since 0.1.
c10::CachingDeviceAllocator::DeviceStats device_stats(c10::DeviceIndex device = -1);

// Sets every peak of the statistics to its current value. Since 0.1.
void reset_peak_stats(c10::DeviceIndex device = -1);

// Sets every total of the statistics to zero. Since 0.1.
void reset_accumulated_stats(c10::DeviceIndex device = -1);

// Bytes that tensors hold on a device (-1: the current one). Since 0.1.
size_t memory_allocated(c10::DeviceIndex device = -1);

// Bytes that the allocator holds on a device (-1: the current one), used or cached. Since 0.1.
size_t memory_reserved(c10::DeviceIndex device = -1);

// Free and total bytes of a device (-1: the current one); where its plugin does not tell, what this process has taken from it
// is the total. Since 0.1.
std::pair<size_t, size_t> mem_get_info(c10::DeviceIndex device = -1);

// Limits what the allocator may take to a fraction, above 0 and at most 1, of the device's memory. Throws c10::ValueError
// for another fraction, and c10::Error where the device's memory is not known. Since 0.1.
void set_memory_fraction(double fraction, c10::DeviceIndex device = -1);

}  // namespace torch_backend
