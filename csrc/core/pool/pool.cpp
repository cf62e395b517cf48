// pool.cpp: see pool.h. A pool exists as long as a graph or a Python object uses it, as in CUDA.
#include "core/pool/pool.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <vector>

#include "core/status.h"
#include "core/stream/stream.h"

namespace torch_backend {
namespace {

using Id = c10::MempoolId_t;

// Pools by torch's ids: those of graphs are (0, number), those that a program requested without a graph (number, 0).
class Pools {
 public:
  Pool take(Id &id, int32_t device, uint32_t flags, const hal_memory_allocator_t *allocator) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = id == Id{0, 0} ? pools_.end() : pools_.find(id);
    if (found == pools_.end()) return make(id, device, flags, allocator);
    found->second.users++;
    hal_memory_pool_retain(found->second.pool);
    return Pool(found->second.pool);
  }

  void leave(const Id &id) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = pools_.find(id);
    if (found == pools_.end() || --found->second.users != 0) return;
    hal_memory_pool_release(found->second.pool);
    pools_.erase(found);
  }

  size_t users(const Id &id) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = pools_.find(id);
    return found == pools_.end() ? 0 : found->second.users;
  }

  Id id_of(uint64_t number) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const auto &[id, entry] : pools_)
      if (hal_memory_pool_id(entry.pool) == number) return id;
    return {0, 0};
  }

  void add_last_resort(hal_memory_pool_t *pool, int32_t device) {
    const std::lock_guard<std::mutex> lock(mutex_);
    last_resorts_.emplace_back(device, pool);
  }

  void remove_last_resort(const hal_memory_pool_t *pool) {
    const std::lock_guard<std::mutex> lock(mutex_);
    last_resorts_.erase(std::remove_if(last_resorts_.begin(), last_resorts_.end(),
                                       [pool](const auto &entry) { return entry.second == pool; }),
                        last_resorts_.end());
  }

  // Returns the pools of a device that were created with use_on_oom, each with a reference for the caller.
  std::vector<Pool> last_resorts(int32_t device) {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::vector<Pool> result;
    for (const auto &[of, pool] : last_resorts_) {
      if (of != device) continue;
      hal_memory_pool_retain(pool);
      result.emplace_back(pool);
    }
    return result;
  }

 private:
  struct Entry {
    hal_memory_pool_t *pool;
    size_t users;
  };

  Pool make(Id &id, int32_t device, uint32_t flags, const hal_memory_allocator_t *allocator) {
    hal_memory_pool_t *pool = nullptr;
    check(hal_memory_pool_create_from(device, flags, allocator, &pool));
    if (id == Id{0, 0}) id = {0, hal_memory_pool_id(pool)};
    pools_[id] = Entry{pool, 1};
    hal_memory_pool_retain(pool);
    return Pool(pool);
  }

  std::mutex mutex_;
  std::map<Id, Entry> pools_;
  std::vector<std::pair<int32_t, hal_memory_pool_t *>> last_resorts_;
};

Pools &pools() {
  static auto *pools = new Pools;  // never destroyed, like all registries here
  return *pools;
}

}  // namespace

Pool take_pool(Id &id, int32_t device, uint32_t flags, const hal_memory_allocator_t *allocator) {
  return pools().take(id, device, flags, allocator);
}
void leave_pool(const Id &id) { pools().leave(id); }
Id pool_id(uint64_t number) { return number == 0 ? Id{0, 0} : pools().id_of(number); }

hal_block_t *allocate_from_last_resort(int32_t device, size_t size) {
  hal_stream_t *const stream = current_stream(static_cast<c10::DeviceIndex>(device));
  for (const Pool &pool : pools().last_resorts(device)) {
    if (hal_memory_pool_begin(pool.get(), stream) != HAL_OK) continue;  // the stream allocates from a pool already
    hal_block_t *block = nullptr;
    const hal_status_t status = hal_memory_allocate(device, stream, size, &block);
    const hal_status_t ended = hal_memory_pool_end(pool.get(), stream);
    if (ended != HAL_OK) warn_status(ended, "leaving a memory pool");
    if (status == HAL_OK) return block;
  }
  return nullptr;
}

MemoryPool::~MemoryPool() {
  if (!pool_) return;
  if (use_on_oom_) pools().remove_last_resort(pool_);
  hal_memory_pool_release(pool_);
  pools().leave(id_);
}

uintptr_t MemoryPool::begin(int32_t device) {
  hal_stream_t *const stream = current_stream(static_cast<c10::DeviceIndex>(device));
  if (!pool_) {
    pool_ = pools().take(id_, device, flags_, allocator_).release();
    if (use_on_oom_) pools().add_last_resort(pool_, device);
  }
  check(hal_memory_pool_begin(pool_, stream));
  begun_++;
  return reinterpret_cast<uintptr_t>(stream);
}

void MemoryPool::end(uintptr_t stream) {
  check(hal_memory_pool_end(pool_, reinterpret_cast<hal_stream_t *>(stream)));
  begun_--;
}

size_t MemoryPool::use_count() const { return pools().users(id_) + (pool_ ? 0 : 1) + begun_; }

}  // namespace torch_backend
