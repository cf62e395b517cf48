/* held.h: released blocks that deferred work may still use. Private to hal/src.
 *
 * Deferred work is grouped by the memory that it accesses, so the groups of a repeated step must not depend on where
 * the free lists place its tensors. While commands are deferred, a released block is not joined with its neighbors. It
 * is held, and only a request of the same rounded size gets it, the last released one first. Two allocations of one
 * command list therefore overlap completely or not at all, depending only on the order of allocations and releases.
 * hal_memory_end_hold joins the blocks when the list is taken.
 *
 * If the plugin pools memory, a released block that deferred work may use is freed when that work is queued.
 *
 * All functions are called with the allocator's lock held. */
#ifndef HAL_SRC_MEMORY_HELD_H_
#define HAL_SRC_MEMORY_HELD_H_

#include "memory/internal.h"

/* Holds a block that is not in use. `size`: rounded, as the block was requested. */
void hal_mem_held_put(hal_mem_pool_t *pool, hal_block_t *block, size_t size);

/* Returns a held block for a request of `size` bytes, which is no longer held; NULL = there is none. */
hal_block_t *hal_mem_held_take_slow(hal_mem_pool_t *pool, size_t size);

static inline hal_block_t *hal_mem_held_take(hal_mem_pool_t *pool, size_t size) {
  return HAL_LIKELY(!pool->held_count) ? NULL : hal_mem_held_take_slow(pool, size);
}

/* Holds a block of a plugin that pools memory: its memory is freed when the deferred work is queued. */
void hal_mem_held_leave(hal_allocator_t *allocator, hal_block_t *block);

/* Queues a stream's deferred work if it holds such blocks. The lock is released meanwhile. */
void hal_mem_held_flush(hal_allocator_t *allocator, hal_stream_t *stream);

/* Returns the held blocks of a pool to its free blocks. Returns whether there were any. */
int hal_mem_held_end(hal_mem_pool_t *pool);

#endif /* HAL_SRC_MEMORY_HELD_H_ */
