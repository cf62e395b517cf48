// host_history.cpp: see host_history.h.
#include "core/allocator/host_history.h"

#include <algorithm>
#include <array>
#include <iterator>

#include "core/device.h"
#include "core/status.h"
#include "hal/host_memory.h"

namespace torch_backend {
namespace {

using c10::CachingDeviceAllocator::CreateContextFn;
using c10::CachingDeviceAllocator::RecordContext;
using c10::CachingDeviceAllocator::TraceEntry;

static_assert(static_cast<uint32_t>(RecordContext::NEVER) == HAL_MEMORY_STACKS_NONE &&
                  static_cast<uint32_t>(RecordContext::STATE) == HAL_MEMORY_STACKS_LIVE &&
                  static_cast<uint32_t>(RecordContext::ALLOC) == HAL_MEMORY_STACKS_ALLOC &&
                  static_cast<uint32_t>(RecordContext::ALL) == HAL_MEMORY_STACKS_ALL,
              "the HAL's levels of stacks are torch's");

// `create` is a CreateContextFn.
void *capture_with(void *create) {
  try {
    HistoryStack stack = reinterpret_cast<CreateContextFn>(create)();
    return stack ? new HistoryStack(std::move(stack)) : nullptr;
  } catch (const std::exception &error) {
    hal_log(HAL_LOG_WARNING, "cannot record the stack of an allocation of pinned memory: %s", error.what());
    return nullptr;
  }
}

HistoryStack stack_of(const void *stack) {
  return stack != nullptr ? *static_cast<const HistoryStack *>(stack) : nullptr;
}

using History = std::unique_ptr<hal_memory_history_t, decltype(&hal_memory_history_release)>;

History read_history(int32_t device) {
  hal_memory_history_t *copy = nullptr;
  check(hal_host_history_read(device, &copy));
  return {copy, hal_memory_history_release};
}

TraceEntry to_torch(const hal_memory_event_t &event) {
  static constexpr std::array<TraceEntry::Action, 7> actions = {TraceEntry::ALLOC,
                                                                TraceEntry::FREE_REQUESTED,
                                                                TraceEntry::FREE_COMPLETED,
                                                                TraceEntry::SEGMENT_ALLOC,
                                                                TraceEntry::SEGMENT_FREE,
                                                                TraceEntry::SNAPSHOT,
                                                                TraceEntry::OOM};
  TraceEntry entry(actions.at(event.action), /*device=*/-1, reinterpret_cast<size_t>(event.address), event.size,
                   /*stream=*/nullptr, c10::MempoolId_t{0, 0}, /*time=*/0, stack_of(event.stack));
  entry.time_.t_ = event.time_ns / 1000;
  return entry;
}

std::vector<TraceEntry> trace_of(const hal_memory_history_t *history) {
  std::vector<TraceEntry> trace;
  for (size_t i = 0; i < hal_memory_history_events(history); ++i) {
    hal_memory_event_t event{};
    check(hal_memory_history_event(history, i, &event, sizeof(event)));
    trace.push_back(to_torch(event));
  }
  return trace;
}

}  // namespace

void release_history_stack(void *stack, void *) { delete static_cast<HistoryStack *>(stack); }

void record_host_history(bool enabled, CreateContextFn create, size_t max_entries, RecordContext when, bool clear) {
  hal_memory_history_desc_t desc{};
  desc.struct_size = sizeof(desc);
  desc.stacks = create != nullptr ? static_cast<uint32_t>(when) : HAL_MEMORY_STACKS_NONE;
  desc.max_events = max_entries;
  desc.flags = clear ? HAL_MEMORY_HISTORY_CLEAR : 0;
  desc.capture = capture_with;
  desc.release = release_history_stack;
  desc.user_data = reinterpret_cast<void *>(create);
  for (int32_t device = 0; device < hal_device_count(); ++device)
    check(enabled ? hal_host_history_start(device, &desc) : hal_host_history_stop(device));
}

bool host_history_is_recorded() {
  for (int32_t device = 0; device < hal_device_count(); ++device)
    if (hal_host_history_is_recorded(device)) return true;
  return false;
}

std::vector<HostSegment> host_segments() {
  std::vector<HostSegment> segments;
  for_each_used_device([&segments](int32_t device) {
    const History history = read_history(device);
    for (size_t i = 0; i < hal_memory_history_blocks(history.get()); ++i) {
      hal_memory_block_info_t block{};
      check(hal_memory_history_block(history.get(), i, &block, sizeof(block)));
      segments.push_back({reinterpret_cast<size_t>(block.address), block.size,
                          block.state == HAL_MEMORY_BLOCK_ALLOCATED, block.state != HAL_MEMORY_BLOCK_FREE,
                          stack_of(block.stack)});
    }
  });
  return segments;
}

std::vector<TraceEntry> host_trace() {
  std::vector<TraceEntry> all;
  for_each_used_device([&all](int32_t device) {
    const std::vector<TraceEntry> own = trace_of(read_history(device).get());
    std::vector<TraceEntry> merged;
    std::merge(all.begin(), all.end(), own.begin(), own.end(), std::back_inserter(merged),
               [](const TraceEntry &a, const TraceEntry &b) { return a.time_.t_ < b.time_.t_; });
    all = std::move(merged);
  });
  return all;
}

}  // namespace torch_backend
