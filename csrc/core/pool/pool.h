// pool.h: private memory pools under torch's ids: those of graphs, and those that a program creates
// (torch.<name>.MemPool).
#pragma once

#include <c10/core/Allocator.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "hal/hal.h"

namespace torch_backend {

struct ReleasePool {
  void operator()(hal_memory_pool_t *pool) const { hal_memory_pool_release(pool); }
};
using Pool = std::unique_ptr<hal_memory_pool_t, ReleasePool>;

// Returns a device's pool under an id, with one reference for the caller. The first use of the id creates it, with
// `flags` (HAL_MEMORY_POOL_*) and `allocator` (nullptr: the plugin); an id of zeros is replaced by a new one. The pool
// exists until leave_pool was called as often.
Pool take_pool(c10::MempoolId_t &id, int32_t device, uint32_t flags = 0,
               const hal_memory_allocator_t *allocator = nullptr);
void leave_pool(const c10::MempoolId_t &id);

// Returns torch's id of the HAL's pool with this number; zeros for 0, the streams' own pools, and for a pool that torch
// does not have.
c10::MempoolId_t pool_id(uint64_t number);

// Allocates from a pool of the device that was created with use_on_oom; nullptr if none has enough free memory.
hal_block_t *allocate_from_last_resort(int32_t device, size_t size);

// A pool that a program creates. It belongs to the device that uses it first.
class MemoryPool {
 public:
  // `allocator` must stay valid; nullptr: the plugin allocates.
  MemoryPool(c10::MempoolId_t id, bool use_on_oom, bool no_split, const hal_memory_allocator_t *allocator)
      : id_(std::move(id)),
        use_on_oom_(use_on_oom),
        flags_(no_split ? HAL_MEMORY_POOL_NO_SPLIT : 0),
        allocator_(allocator) {}
  ~MemoryPool();
  MemoryPool(const MemoryPool &) = delete;
  MemoryPool &operator=(const MemoryPool &) = delete;

  // Makes the device's current stream allocate from it until end(), which takes the result of begin().
  uintptr_t begin(int32_t device);
  void end(uintptr_t stream);

  // Returns the number of its users: this object, graphs, and streams that allocate from it.
  size_t use_count() const;

 private:
  c10::MempoolId_t id_;
  bool use_on_oom_;
  uint32_t flags_;
  const hal_memory_allocator_t *allocator_;
  hal_memory_pool_t *pool_ = nullptr;
  std::atomic<size_t> begun_{0};
};

}  // namespace torch_backend
