/* release.c: releases blocks. */
#include "memory/held.h"
#include "memory/history.h"
#include "memory/pool.h"

static inline void account_release(hal_allocator_t *allocator, uint32_t kind, const hal_block_t *block) {
  hal_mem_stat_decrease(&allocator->stats, kind, HAL_MEM_ALLOCATION, 1);
  hal_mem_stat_decrease(&allocator->stats, kind, HAL_MEM_ALLOCATED_BYTES, (int64_t)block->size);
  if (hal_mem_is_oversize(allocator, kind, block->size)) {
    hal_mem_stat_decrease(&allocator->stats, kind, HAL_MEM_OVERSIZE_ALLOCATIONS, 1);
  }
}

/* Captures the stack of a recorded release. The caller holds the lock, which is released meanwhile. */
static void enter_history(hal_allocator_t *allocator, hal_mem_scope_t *out_scope) {
  hal_unlock(&allocator->lock);
  hal_mem_history_enter(allocator, HAL_MEMORY_STACKS_ALL, out_scope);
  hal_lock(&allocator->lock);
}

/* Counts and records the release of a block. Returns whether it was recorded, so that the caller leaves `scope`. */
static int begin_release(hal_allocator_t *allocator, hal_block_t *block, hal_mem_scope_t *out_scope) {
  const int is_recorded = hal_mem_is_recorded(allocator);
  if (is_recorded) enter_history(allocator, out_scope);
  account_release(allocator, block->pool->kind, block);
  hal_mem_history_requested(allocator, block);
  return is_recorded;
}

/* Releases a plain block that deferred work may use; called with the lock held, which it releases. */
static void __attribute__((noinline)) release_held(hal_allocator_t *allocator, hal_block_t *block) {
  hal_block_t *ready = NULL;
  hal_mem_scope_t scope;
  const int is_recorded = begin_release(allocator, block, &scope);
  hal_mem_history_freed(allocator, block);
  hal_mem_held_put(block->pool, block, hal_mem_config_round(&allocator->config, block->requested));
  if (HAL_UNLIKELY(atomic_load_explicit(&allocator->pending, memory_order_relaxed)))
    hal_mem_pending_poll(allocator, &ready);
  hal_unlock(&allocator->lock);
  if (is_recorded) hal_mem_history_leave(allocator, &scope);
  hal_mem_ready_run(ready);
}

/* Whether the memory of a released block, which deferred work may use, is freed by the next flush. The block of another
 * stream's work waits for that stream instead. */
static int leaves_later(const hal_block_t *block) {
  return block->state == HAL_MEM_SPECIAL && block->pool->source == HAL_MEM_POOLED && !block->uses;
}

/* Releases such a block. Called with the lock held, which it releases. */
static void __attribute__((noinline)) release_later(hal_allocator_t *allocator, hal_block_t *block) {
  hal_mem_scope_t scope;
  const int is_recorded = begin_release(allocator, block, &scope);
  hal_mem_held_leave(allocator, block);
  hal_unlock(&allocator->lock);
  if (is_recorded) hal_mem_history_leave(allocator, &scope);
}

/* Releases a block that is not a plain cached one. Called with the lock held, which it releases. */
static void __attribute__((noinline)) release_slow(hal_allocator_t *allocator, hal_block_t *block) {
  hal_block_t *ready = NULL;
  hal_mem_scope_t scope;
  const uint32_t source = block->pool->source;
  if (block->state != HAL_MEM_SPECIAL && block->state != HAL_MEM_PLAIN) {
    hal_unlock(&allocator->lock);
    hal_log(HAL_LOG_ERROR,
            "hal_memory_release: block %p of device %s was released before; the second release is ignored",
            (void *)block, allocator->device->label);
    return;
  }
  const int is_recorded = source != HAL_MEM_EMPTY && begin_release(allocator, block, &scope);
  hal_mem_block_end(allocator, block, source == HAL_MEM_ADOPTED, &ready);
  hal_mem_pending_poll(allocator, &ready);
  hal_unlock(&allocator->lock);
  if (is_recorded) hal_mem_history_leave(allocator, &scope);
  hal_mem_ready_run(ready);
}

/* Releases a block of a device that is not alive (base/life.h). After hal_registry_close no work uses memory of other
 * owners; in a forked child such memory belongs to the parent. */
static void __attribute__((noinline)) release_quietly(hal_block_t *block) {
  if (block->state != HAL_MEM_SPECIAL && block->state != HAL_MEM_PLAIN) return; /* released before */
  block->state = HAL_MEM_LEAVING;
  const int adopted = block->pool->source == HAL_MEM_ADOPTED && !hal_device_in_bad_fork();
  if (!adopted || !block->u.free.fn) return;
  hal_callback_check();
  block->u.free.fn(block->u.free.data);
}

void hal_memory_release(hal_block_t *block) {
  if (!block) return;
  hal_allocator_t *allocator = hal_mem_block_allocator(block);
  if (HAL_UNLIKELY(!hal_device_is_alive(allocator->device))) {
    release_quietly(block);
    return;
  }
  hal_queue_t *const queue = hal_stream_queue(block->stream);
  /* The memory of a plugin that pools ends after the bytes that were requested; other blocks may follow. */
  const size_t size = block->state == HAL_MEM_SPECIAL ? block->requested : block->size;
  const int is_used = queue->calls->released(queue, block->address, size);
  hal_lock(&allocator->lock);
  if (is_used && block->state == HAL_MEM_PLAIN) {
    release_held(allocator, block);
    return;
  }
  if (HAL_UNLIKELY(is_used && leaves_later(block))) {
    release_later(allocator, block);
    return;
  }
  if (HAL_UNLIKELY(block->state != HAL_MEM_PLAIN || atomic_load_explicit(&allocator->pending, memory_order_relaxed))) {
    release_slow(allocator, block);
    return;
  }
  hal_mem_pool_t *pool = block->pool;
  if (HAL_LIKELY(pool->kind == HAL_MEM_SMALL)) {
    account_release(allocator, HAL_MEM_SMALL, block);
    hal_mem_pool_return(allocator, pool, HAL_MEM_SMALL, block);
  } else {
    account_release(allocator, HAL_MEM_LARGE, block);
    hal_mem_pool_return(allocator, pool, HAL_MEM_LARGE, block);
  }
  hal_unlock(&allocator->lock);
}
