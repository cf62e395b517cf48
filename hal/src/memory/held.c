/* held.c: see held.h. Blocks of one size are a stack, linked by `prev`; the tops of the stacks are in a table by size,
 * linked by `next`. */
#include "memory/held.h"

#include "memory/pool.h"

static hal_block_t **find(hal_mem_pool_t *pool, size_t size) {
  const uint64_t hash = (size / HAL_MEM_GRANULE) * UINT64_C(0x9E3779B97F4A7C15); /* Fibonacci hashing */
  hal_block_t **link = &pool->held[hash >> (64 - HAL_MEM_HELD_BITS)];
  while (*link && (*link)->stamp != size) link = &(*link)->u.bin.next;
  return link;
}

/* Counts a held block among the free pieces of segments, or removes it from the count, unless the pool's segments are
 * whole. */
static void count_piece(const hal_mem_pool_t *pool, const hal_block_t *block, int sign) {
  hal_mem_stats_t *const stats = &pool->allocator->stats;
  if (hal_mem_block_is_segment(block)) return;
  hal_mem_stat_change(stats, pool->kind, HAL_MEM_INACTIVE_SPLIT, sign);
  hal_mem_stat_change(stats, pool->kind, HAL_MEM_INACTIVE_SPLIT_BYTES, sign * (int64_t)block->size);
}

void hal_mem_held_put(hal_mem_pool_t *pool, hal_block_t *block, size_t size) {
  hal_block_t **const link = find(pool, size);
  hal_mem_stat_decrease(&pool->allocator->stats, pool->kind, HAL_MEM_REQUESTED_BYTES, (int64_t)block->requested);
  count_piece(pool, block, 1);
  block->state = HAL_MEM_HELD;
  block->stamp = size;
  block->u.bin.prev = *link;
  block->u.bin.next = *link ? (*link)->u.bin.next : NULL;
  *link = block;
  if (pool->held_count++ || pool->holds) return;
  pool->holds = 1;
  pool->next_holding = pool->allocator->holding;
  pool->allocator->holding = pool;
}

/* Removes the top of a stack. */
static hal_block_t *pop(hal_mem_pool_t *pool, hal_block_t **link) {
  hal_block_t *const block = *link, *const below = block->u.bin.prev;
  if (below) below->u.bin.next = block->u.bin.next;
  *link = below ? below : block->u.bin.next;
  pool->held_count--;
  count_piece(pool, block, -1);
  return block;
}

hal_block_t *hal_mem_held_take_slow(hal_mem_pool_t *pool, size_t size) {
  hal_block_t **const link = find(pool, size);
  return *link ? pop(pool, link) : NULL;
}

int hal_mem_held_end(hal_mem_pool_t *pool) {
  hal_mem_pool_t **link = &pool->allocator->holding;
  if (!pool->holds) return 0;
  const int any = pool->held_count != 0;
  for (uint32_t i = 0; i < 1u << HAL_MEM_HELD_BITS; i++)
    while (pool->held[i]) hal_mem_pool_join(pool->allocator, pool, pool->kind, pop(pool, &pool->held[i]));
  while (*link != pool) link = &(*link)->next_holding;
  *link = pool->next_holding;
  pool->holds = 0;
  return any;
}

/* ---- memory of a plugin that pools ------------------------------------------------------------------------------- */

void hal_mem_held_leave(hal_allocator_t *allocator, hal_block_t *block) {
  block->state = HAL_MEM_HELD;
  block->next = allocator->leaving;
  allocator->leaving = block;
}

void hal_mem_held_flush(hal_allocator_t *allocator, hal_stream_t *stream) {
  if (!allocator->leaving) return;
  hal_unlock(&allocator->lock);
  hal_stream_flush(stream, "memory is about to be freed");
  hal_lock(&allocator->lock);
}

hal_block_t *hal_memory_take_leaving(hal_stream_t *stream) {
  hal_allocator_t *const allocator = hal_allocator_of(stream->device);
  hal_block_t *taken = NULL;
  if (!allocator || !allocator->pooled) return NULL;
  hal_lock(&allocator->lock);
  for (hal_block_t **link = &allocator->leaving; *link;) {
    hal_block_t *const block = *link;
    if (block->stream != stream) {
      link = &block->next;
      continue;
    }
    *link = block->next;
    block->next = taken;
    taken = block;
  }
  hal_unlock(&allocator->lock);
  return taken;
}

void hal_memory_free_leaving(hal_stream_t *stream, hal_block_t *blocks) {
  hal_allocator_t *const allocator = hal_allocator_of(stream->device);
  if (!blocks) return;
  hal_lock(&allocator->lock);
  for (hal_block_t *next; blocks; blocks = next) {
    next = blocks->next;
    hal_mem_block_free_queued(allocator, blocks);
  }
  hal_unlock(&allocator->lock);
}

void hal_memory_end_hold(hal_stream_t *stream) {
  hal_allocator_t *const allocator = hal_allocator_of(stream->device);
  if (!allocator) return;
  hal_lock(&allocator->lock);
  for (hal_mem_pool_t *pool = allocator->holding, *next; pool; pool = next) {
    next = pool->next_holding;
    if (pool->stream == stream) hal_mem_held_end(pool);
  }
  hal_unlock(&allocator->lock);
}
