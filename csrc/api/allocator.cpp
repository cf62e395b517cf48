// allocator.cpp: memory of the C++ API, allocated by the HAL's caching allocator.
#include "api/allocator.h"

#include <c10/util/Exception.h>

#include <mutex>
#include <unordered_map>

#include "core/allocator/allocator.h"
#include "core/device.h"
#include "core/stream/stream.h"

namespace torch_backend {
namespace {

// raw_delete receives only an address, so the blocks of these addresses are stored here.
class RawBlocks {
 public:
  void *add(hal_block_t *block) {
    void *address = hal_memory_block_address(block);
    if (address == nullptr) {
      hal_memory_release(block);
      return nullptr;
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    blocks_.emplace(address, block);
    return address;
  }
  hal_block_t *take(void *address) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = blocks_.find(address);
    TORCH_CHECK(found != blocks_.end(), "raw_delete: ", address, " is not memory of raw_alloc, or was freed before");
    hal_block_t *block = found->second;
    blocks_.erase(found);
    return block;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<void *, hal_block_t *> blocks_;
};

RawBlocks &raw_blocks() {
  static RawBlocks *blocks = new RawBlocks;  // never destroyed: memory may be freed while the process ends
  return *blocks;
}

hal_memory_stats_t stats_of(c10::DeviceIndex device) {
  hal_memory_stats_t stats{};
  stats.struct_size = sizeof stats;
  check(hal_memory_stats(index_or_current(device), &stats));
  return stats;
}

}  // namespace

c10::DeviceAllocator *get_allocator() { return allocator(); }

void *raw_alloc(size_t size) { return raw_alloc_with_stream(size, get_current_stream()); }

void *raw_alloc_with_stream(size_t size, const Stream &stream) {
  hal_block_t *block = nullptr;
  check(hal_memory_allocate(stream.device_index(), to_hal(stream.unwrap()), size, &block));
  return raw_blocks().add(block);
}

void raw_delete(void *ptr) {
  if (ptr != nullptr) hal_memory_release(raw_blocks().take(ptr));
}

void record_stream(const c10::DataPtr &ptr, const Stream &stream) { allocator()->recordStream(ptr, stream.unwrap()); }

void empty_cache(c10::DeviceIndex device) { check(hal_memory_empty_cache(device)); }

c10::CachingDeviceAllocator::DeviceStats device_stats(c10::DeviceIndex device) {
  return allocator()->getDeviceStats(index_or_current(device));
}

void reset_peak_stats(c10::DeviceIndex device) { check(hal_memory_reset_peak_stats(index_or_current(device))); }

void reset_accumulated_stats(c10::DeviceIndex device) {
  check(hal_memory_reset_accumulated_stats(index_or_current(device)));
}

size_t memory_allocated(c10::DeviceIndex device) {
  return static_cast<size_t>(stats_of(device).allocated_bytes[HAL_POOL_ALL].current);
}

size_t memory_reserved(c10::DeviceIndex device) {
  return static_cast<size_t>(stats_of(device).reserved_bytes[HAL_POOL_ALL].current);
}

std::pair<size_t, size_t> mem_get_info(c10::DeviceIndex device) {
  size_t free = 0, total = 0;
  check(hal_memory_info(index_or_current(device), &free, &total));
  return {free, total};
}

void set_memory_fraction(double fraction, c10::DeviceIndex device) {
  TORCH_CHECK_VALUE(fraction > 0.0 && fraction <= 1.0, "Invalid fraction value: ", fraction, ". Allowed range: (0, 1]");
  const c10::DeviceIndex index = index_or_current(device);
  size_t total = 0;
  check(hal_memory_capacity(index, &total));
  const auto limit = static_cast<size_t>(fraction * static_cast<double>(total));
  check(hal_memory_set_limit(index, fraction == 1.0 ? 0 : std::max<size_t>(limit, 1)));  // 0 is no limit
}

}  // namespace torch_backend
