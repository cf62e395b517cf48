// allocator.cpp: c10::DeviceAllocator, implemented by the HAL's caching allocator. The path of an allocation is as
// short as possible: one HAL call, one read of its address, one DataPtr. A disabled profiler takes one thread-local
// read.
#include "core/allocator/allocator.h"

#include <c10/core/DeviceGuard.h>

#include <memory>
#include <utility>

#include "core/autograd/backward_thread.h"
#include "core/device.h"
#include "core/pool/pool.h"
#include "core/status.h"
#include "core/stream/stream.h"

namespace torch_backend {
namespace {

using Stats = c10::CachingDeviceAllocator::DeviceStats;

static_assert(static_cast<int>(c10::CachingAllocator::StatType::AGGREGATE) == HAL_POOL_ALL &&
                  static_cast<int>(c10::CachingAllocator::StatType::SMALL_POOL) == HAL_POOL_SMALL &&
                  static_cast<int>(c10::CachingAllocator::StatType::LARGE_POOL) == HAL_POOL_LARGE &&
                  static_cast<int>(c10::CachingAllocator::StatType::NUM_TYPES) == HAL_POOL_COUNT,
              "the HAL's pools are torch's");

hal_memory_stats_t read_stats(int32_t device) {
  hal_memory_stats_t stats{};
  stats.struct_size = sizeof(stats);
  check(hal_memory_stats(device, &stats));
  return stats;
}

// Reports `delta` bytes at `address` to torch's profiler. Outside of the fast path; may run in a destructor, so it
// never throws.
C10_NOINLINE void report_usage(void *address, int64_t delta, int32_t device) noexcept {
  try {
    const hal_memory_stats_t stats = read_stats(device);
    c10::reportMemoryUsageToProfiler(address, delta, stats.allocated_bytes[HAL_POOL_ALL].current,
                                     stats.reserved_bytes[HAL_POOL_ALL].current,
                                     c10::Device(kDevice, static_cast<c10::DeviceIndex>(device)));
  } catch (const std::exception &error) {
    hal_log(HAL_LOG_WARNING, "cannot report %lld bytes to the profiler: %s", static_cast<long long>(delta),
            error.what());
  }
}

[[noreturn]] C10_NOINLINE void fail_allocation(hal_status_t status, size_t size, int32_t device) {
  if (status != HAL_RESOURCE_EXHAUSTED) throw_status(status);
  if (c10::memoryProfilingEnabled()) {
    const std::string message = hal_error_message();
    const hal_memory_stats_t stats = read_stats(device);
    c10::reportOutOfMemoryToProfiler(static_cast<int64_t>(size), stats.allocated_bytes[HAL_POOL_ALL].current,
                                     stats.reserved_bytes[HAL_POOL_ALL].current,
                                     c10::Device(kDevice, static_cast<c10::DeviceIndex>(device)));
    hal_error_set(status, "%s", message.c_str());  // the thread's message may have changed meanwhile
  }
  throw_status(status);
}

// Called when the allocator is out of memory: a pool created with use_on_oom may have free memory.
C10_NOINLINE hal_block_t *allocate_otherwise(hal_status_t status, size_t size, int32_t device) {
  if (status == HAL_RESOURCE_EXHAUSTED) {
    const std::string message = hal_error_message();
    if (hal_block_t *block = allocate_from_last_resort(device, size)) return block;
    hal_error_set(status, "%s", message.c_str());
  }
  fail_allocation(status, size, device);
}

// The deleter of every DataPtr of this allocator, which also identifies them by its address.
void release_block(void *context) {
  auto *block = static_cast<hal_block_t *>(context);
  if (C10_UNLIKELY(c10::memoryProfilingEnabled()) && block != nullptr)
    report_usage(hal_memory_block_address(block), -static_cast<int64_t>(hal_memory_block_size(block)),
                 hal_memory_block_device(block));
  hal_memory_release(block);
}

void copy_stat(c10::CachingAllocator::Stat &to, const hal_stat_t &from) {
  to.current = from.current;
  to.peak = from.peak;
  to.allocated = from.allocated;
  to.freed = from.freed;
}

void copy_stats(c10::CachingAllocator::StatArray &to, const hal_stat_t (&from)[HAL_POOL_COUNT]) {
  for (int pool = 0; pool < HAL_POOL_COUNT; ++pool) copy_stat(to[pool], from[pool]);
}

Stats to_torch(const hal_memory_stats_t &from) {
  Stats to;
  copy_stats(to.allocation, from.allocation);
  copy_stats(to.segment, from.segment);
  copy_stats(to.active, from.active);
  copy_stats(to.inactive_split, from.inactive_split);
  copy_stats(to.allocated_bytes, from.allocated_bytes);
  copy_stats(to.reserved_bytes, from.reserved_bytes);
  copy_stats(to.active_bytes, from.active_bytes);
  copy_stats(to.inactive_split_bytes, from.inactive_split_bytes);
  copy_stats(to.requested_bytes, from.requested_bytes);
  copy_stat(to.oversize_allocations, from.oversize_allocations);
  copy_stat(to.oversize_segments, from.oversize_segments);
  to.num_alloc_retries = from.num_alloc_retries;
  to.num_ooms = from.num_ooms;
  to.num_sync_all_streams = from.num_sync_all_streams;
  to.num_device_alloc = from.num_device_alloc;
  to.num_device_free = from.num_device_free;
  to.max_split_size = from.max_split_size;
  return to;
}

// Returns the device that owns an address, HAL_HOST if there is none.
int32_t device_of(const void *address) {
  int32_t device = HAL_HOST;
  return hal_memory_find(address, &device) == HAL_OK ? device : HAL_HOST;
}

struct DeviceAllocator final : c10::DeviceAllocator {
  c10::DataPtr allocate(size_t size) override {
    return torch_backend::allocate(size, static_cast<c10::DeviceIndex>(hal_device_current()));
  }

  // A raw pointer is a block's address, not its handle, so c10's raw_allocate cannot use it and reports an error.
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }

  // c10 calls it for Allocator::clone and expects the bytes to be available to later work of the current stream.
  void copy_data(void *dst, const void *src, size_t size) const override {
    if (size != 0) check(hal_memory_copy(nullptr, dst, device_of(dst), src, device_of(src), size));
  }

  bool initialized() override {
    bool any = false;
    for_each_used_device([&any](int32_t) { any = true; });
    return any;
  }

  // The segments of a private pool keep their addresses until the pool ends, so they are never freed earlier.
  void emptyCache(c10::MempoolId_t pool) override {
    TORCH_CHECK_NOT_IMPLEMENTED(pool.first == 0 && pool.second == 0, "empty_cache of the private memory pool (",
                                pool.first, ", ", pool.second, ") of '", kDevice,
                                "': a pool keeps its memory until its last user, a MemPool or a graph, is deleted");
    check(hal_memory_empty_cache(-1));
  }

  void recordStream(const c10::DataPtr &ptr, c10::Stream stream) override {
    if (ptr.get() == nullptr) return;
    hal_block_t *block = block_of(ptr);
    // For memory received by DLPack only the address is known. Memory of another allocator is skipped, as on CUDA.
    if (block == nullptr && hal_memory_find_block(ptr.get(), &block) != HAL_OK) return;
    check(hal_memory_record_stream(block, to_hal(stream)));
  }

  Stats getDeviceStats(c10::DeviceIndex device) override { return to_torch(read_stats(device)); }
  void resetAccumulatedStats(c10::DeviceIndex device) override { check(hal_memory_reset_accumulated_stats(device)); }
  void resetPeakStats(c10::DeviceIndex device) override { check(hal_memory_reset_peak_stats(device)); }

  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override {
    size_t free = 0, total = 0;
    check(hal_memory_info(device, &free, &total));
    return {free, total};
  }
};

}  // namespace

c10::DeviceAllocator *allocator() {
  static auto *instance = new DeviceAllocator;  // never destroyed: storages may outlive every destructor of the process
  return instance;
}

c10::DataPtr allocate(size_t size, c10::DeviceIndex device) {
  use_backward_thread();
  const c10::Device where(kDevice, device);
  hal_block_t *block = nullptr;
  const hal_status_t status = hal_memory_allocate(device, nullptr, size, &block);
  if (C10_UNLIKELY(status != HAL_OK)) block = allocate_otherwise(status, size, device);
  void *address = hal_memory_block_address(block);
  if (C10_UNLIKELY(c10::memoryProfilingEnabled()) && size != 0)
    report_usage(address, static_cast<int64_t>(size), device);
  return {address, block, &release_block, where};
}

hal_block_t *block_of(const c10::DataPtr &ptr) {
  return ptr.get_deleter() == &release_block ? static_cast<hal_block_t *>(ptr.get_context()) : nullptr;
}

c10::DataPtr own(hal_block_t *block) {
  void *address = hal_memory_block_address(block);
  const int32_t device = hal_memory_block_device(block);
  if (C10_UNLIKELY(c10::memoryProfilingEnabled()))
    report_usage(address, static_cast<int64_t>(hal_memory_block_size(block)), device);
  return {address, block, &release_block, c10::Device(kDevice, static_cast<c10::DeviceIndex>(device))};
}

bool adopt(c10::DataPtr &data, size_t size, c10::DeviceIndex device, c10::DataPtr *out_block) {
  void *address = data.get();
  auto owner = std::make_unique<c10::DataPtr>(std::move(data));
  const auto free = [](void *user_data) { delete static_cast<c10::DataPtr *>(user_data); };
  hal_block_t *block = nullptr;
  const hal_status_t status = hal_memory_adopt(device, nullptr, address, size, free, owner.get(), &block);
  if (C10_UNLIKELY(status != HAL_OK)) {
    data = std::move(*owner);
    if (status == HAL_RESOURCE_EXHAUSTED) return false;
    throw_status(status);
  }
  owner.release();
  if (C10_UNLIKELY(c10::memoryProfilingEnabled())) report_usage(address, static_cast<int64_t>(size), device);
  *out_block = {address, block, &release_block, c10::Device(kDevice, device)};
  return true;
}

namespace {
// Priority 0, as an in-tree device: no other backend may have registered (torch_backend checks this before it loads
// this library).
const bool allocator_registered = [] {
  c10::SetAllocator(kDevice, allocator());
  return true;
}();
}  // namespace

}  // namespace torch_backend
