/* carve.c: takes blocks from free ones of expandable segments (expand.h), and of pools whose segments are not split. */
#include "memory/expand/expand.h"
#include "memory/pool.h"

hal_block_t *hal_mem_prefer_inner(const hal_mem_pool_t *pool, hal_block_t *block) {
  hal_block_t *inner = block;
  while (inner && inner->next && inner->next->state == HAL_MEM_UNMAPPED)
    inner = inner == pool->recent ? NULL : hal_mem_pool_next(pool, inner);
  return inner ? inner : block;
}

hal_block_t *hal_mem_carve_low(hal_allocator_t *allocator, hal_mem_pool_t *pool, uint32_t kind, hal_block_t *block,
                               size_t size) {
  hal_mem_stats_t *stats = &allocator->stats;
  const size_t rest = block->size - size;
  const int is_free = block->state == HAL_MEM_FREE, was_split = is_free && !hal_mem_block_is_segment(block);
  hal_block_t *part = NULL;
  if (rest >= HAL_MEM_GRANULE && !(pool->carving & HAL_MEM_CARVE_WHOLE)) part = hal_mem_slab_take(&allocator->blocks);
  if (is_free) hal_mem_pool_take(pool, kind, block);
  if (was_split) {
    hal_mem_stat_decrease(stats, kind, HAL_MEM_INACTIVE_SPLIT_BYTES, (int64_t)block->size);
    hal_mem_stat_decrease(stats, kind, HAL_MEM_INACTIVE_SPLIT, 1);
  }
  if (!part) return block;
  *part = (hal_block_t){.address = (char *)block->address + size,
                        .size = rest,
                        .pool = pool,
                        .stream = pool->stream,
                        .stamp = block->stamp,
                        .state = HAL_MEM_FREE,
                        .prev = block,
                        .next = block->next};
  if (part->next) part->next->prev = part;
  block->next = part;
  block->size = size;
  hal_mem_pool_file_recent(pool);
  pool->recent = part;
  hal_mem_stat_increase(stats, kind, HAL_MEM_INACTIVE_SPLIT_BYTES, (int64_t)rest);
  hal_mem_stat_increase(stats, kind, HAL_MEM_INACTIVE_SPLIT, 1);
  return part->prev;
}
