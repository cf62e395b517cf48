// host_allocator.cpp: at::HostAllocator, implemented by the HAL's cache of page-locked host memory. An allocation's
// context is its address.
#include "core/allocator/host_allocator.h"

#include <algorithm>
#include <cstring>

#include "core/allocator/host_history.h"
#include "core/compat.h"
#include "core/device.h"
#include "core/status.h"
#include "core/stream/stream.h"

namespace torch_backend {
namespace {

// May run in a destructor, so it never throws.
void release_host(void *address) {
  const hal_status_t status = hal_host_free(address);
  if (status != HAL_OK) warn_status(status, "freeing pinned memory");
}

void add(c10::CachingAllocator::Stat &to, const hal_stat_t &from) {
  to.current += from.current;
  to.peak += from.peak;
  to.allocated += from.allocated;
  to.freed += from.freed;
}

void add(c10::CachingAllocator::DurationStat &to, const hal_duration_t &from) {
  if (from.count == 0) return;
  to.min = to.count == 0 ? from.min : std::min(to.min, from.min);
  to.max = std::max(to.max, from.max);
  to.total += from.total;
  to.count += from.count;
}

struct HostAllocator final : at::HostAllocator {
  c10::DataPtr allocate(size_t size) override {
    void *address = nullptr;
    check(hal_host_allocate(hal_device_current(), size, &address));
    return {address, address, &release_host, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release_host; }
  void copy_data(void *dst, const void *src, size_t size) const override { std::memcpy(dst, src, size); }

  // A view of the memory created elsewhere (NumPy, DLPack) has another context, so the address is used.
  bool record_event(void *address, void *, c10::Stream stream) override {
    return record_host_memory(address, to_hal(stream));
  }
  void empty_cache() override { check(hal_host_empty_cache(-1)); }

  // torch's statistics of pinned memory have no devices, so those of the devices in use are added up.
  at::HostStats get_stats() override {
    at::HostStats result;
    result.bucket_allocation.clear();  // counts powers of two, which the HAL's size classes are not
    for_each_used_device([&](int32_t device) {
      hal_host_stats_t stats{};
      stats.struct_size = sizeof stats;
      check(hal_host_stats(device, &stats));
      add(result.active_requests, stats.active_requests);
      add(result.active_bytes, stats.active_bytes);
      add(result.allocations, stats.allocations);
      add(result.allocated_bytes, stats.allocated_bytes);
      add(result.host_alloc_time, stats.host_alloc_time);
      add(result.host_free_time, stats.host_free_time);
      result.num_host_alloc += stats.num_host_alloc;
      result.num_host_free += stats.num_host_free;
    });
    return result;
  }
  void reset_accumulated_stats() override {
    for_each_used_device([](int32_t device) { check(hal_host_reset_accumulated_stats(device)); });
  }
  void reset_peak_stats() override {
    for_each_used_device([](int32_t device) { check(hal_host_reset_peak_stats(device)); });
  }
  TORCH_BACKEND_HOST_HISTORY
};

}  // namespace

at::HostAllocator *host_allocator() {
  static auto *instance = new HostAllocator;  // never destroyed: storages may outlive every destructor of the process
  return instance;
}

bool is_pinned(const void *address) {
  int32_t device = 0;
  return address != nullptr && hal_host_find(address, &device) == HAL_OK;
}

bool record_host_memory(const void *address, hal_stream_t *stream) {
  const hal_status_t status = hal_host_record_stream(address, stream);
  if (status != HAL_NOT_FOUND) check(status);
  return status == HAL_OK;
}

namespace {
const bool host_allocator_registered = [] {
  at::setHostAllocator(kDevice, host_allocator());
  return true;
}();
}  // namespace

}  // namespace torch_backend
