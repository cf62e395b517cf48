// host_history.h: the history of pinned host memory. at::HostAllocator has functions for it since torch 2.14.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>

#include <memory>
#include <vector>

namespace torch_backend {

// A stack that the HAL records is the address of a new HistoryStack.
using HistoryStack = std::shared_ptr<c10::GatheredContext>;

// Releases a stack; a function for hal_memory_history_desc_t.
void release_history_stack(void *stack, void *);

// As at::HostAllocator::record_history, on all devices, whose stacks `create` returns. Ending the recording removes the
// events. Throws if a device cannot be initialized.
void record_host_history(bool enabled, c10::CachingDeviceAllocator::CreateContextFn create, size_t max_entries,
                         c10::CachingDeviceAllocator::RecordContext when, bool clear);

// Returns whether the pinned memory of a device is recorded. Initializes nothing.
bool host_history_is_recorded();

// A block of pinned memory; with the members of torch's HostSegmentInfo.
struct HostSegment {
  size_t address, size;
  bool allocated, active;
  HistoryStack context_when_allocated;
};

// Returns the blocks of all devices: in use, waiting for streams, and cached. Any thread.
std::vector<HostSegment> host_segments();

// Returns the events of all devices in the order of their times. Any thread.
std::vector<c10::CachingDeviceAllocator::TraceEntry> host_trace();

}  // namespace torch_backend
