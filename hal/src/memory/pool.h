/* pool.h: the free blocks of one stream and kind of sizes, found by best fit. Private to hal/src.
 *
 * 64 x 64 bins (lists) with a bitmap of two levels. Small pool: one bin per multiple of 512 bytes up to the 2 MiB of a
 * segment, so the first occupied bin is the best fit. Large pool: 64 bins per power of two from 1 MiB, each list sorted
 * by size, so the best fit is in the request's own bin, or first in the next occupied one. Blocks of equal size are
 * reused last in, first out, because the last one is most likely still in the caches. */
#ifndef HAL_SRC_MEMORY_POOL_H_
#define HAL_SRC_MEMORY_POOL_H_

#include "memory/internal.h"

#define HAL_MEM_BINS 4096
#define HAL_MEM_LARGE_SHIFT 20 /* requests of the large pool are larger than 1 MiB */

/* Returns the bin of a size. `kind` is the pool's, here and below; a constant in the fast paths. */
static inline uint32_t hal_mem_pool_bin(uint32_t kind, size_t size) {
  if (kind == HAL_MEM_SMALL) return (uint32_t)(size / HAL_MEM_GRANULE) - 1;
  /* The rest of a block of an expandable segment may be smaller: it is in the first bin. */
  if (size < (size_t)1 << HAL_MEM_LARGE_SHIFT) size = (size_t)1 << HAL_MEM_LARGE_SHIFT;
  const uint32_t power = 63 - (uint32_t)__builtin_clzll(size);
  return (power - HAL_MEM_LARGE_SHIFT) * 64 + ((uint32_t)(size >> (power - 6)) & 63);
}

static inline void hal_mem_pool_insert(hal_mem_pool_t *pool, uint32_t kind, hal_block_t *block) {
  const uint32_t bin = hal_mem_pool_bin(kind, block->size);
  hal_block_t *before = NULL, *after = pool->bins[bin];
  if (kind != HAL_MEM_SMALL) {
    while (after && after->size < block->size) before = after, after = after->u.bin.next;
  }
  block->state = HAL_MEM_FREE;
  block->u.bin.prev = before;
  block->u.bin.next = after;
  if (after) after->u.bin.prev = block;
  if (before) {
    before->u.bin.next = block;
    return;
  }
  pool->bins[bin] = block;
  pool->bits[bin / 64] |= UINT64_C(1) << (bin % 64);
  pool->rows |= UINT64_C(1) << (bin / 64);
}

static inline void hal_mem_pool_remove(hal_mem_pool_t *pool, uint32_t kind, hal_block_t *block) {
  hal_block_t *before = block->u.bin.prev, *after = block->u.bin.next;
  if (after) after->u.bin.prev = before;
  if (before) {
    before->u.bin.next = after;
    return;
  }
  const uint32_t bin = hal_mem_pool_bin(kind, block->size);
  pool->bins[bin] = after;
  if (after) return;
  if (!(pool->bits[bin / 64] &= ~(UINT64_C(1) << (bin % 64)))) pool->rows &= ~(UINT64_C(1) << (bin / 64));
}

/* Returns the first block of the first occupied bin from `bin` on, NULL if there is none. */
static inline hal_block_t *hal_mem_pool_first(const hal_mem_pool_t *pool, uint32_t bin) {
  uint32_t row = bin / 64;
  uint64_t bits = pool->bits[row] & (~UINT64_C(0) << (bin % 64));
  if (!bits) {
    const uint64_t rows = row < 63 ? pool->rows & (~UINT64_C(0) << (row + 1)) : 0;
    if (!rows) return NULL;
    row = (uint32_t)__builtin_ctzll(rows);
    bits = pool->bits[row];
  }
  return pool->bins[row * 64 + (uint32_t)__builtin_ctzll(bits)];
}

/* Returns the smallest free block of at least `size` bytes, NULL if there is none; it stays in its bin. */
static inline hal_block_t *hal_mem_pool_find(const hal_mem_pool_t *pool, uint32_t kind, size_t size) {
  const uint32_t bin = hal_mem_pool_bin(kind, size);
  if (kind == HAL_MEM_SMALL) return hal_mem_pool_first(pool, bin);
  hal_block_t *block = pool->bins[bin];
  while (block && block->size < size) block = block->u.bin.next;
  if (block) return block;
  return bin + 1 < HAL_MEM_BINS ? hal_mem_pool_first(pool, bin + 1) : NULL;
}

/* Returns the free block after `block` in order of size (`block` NULL: the smallest), NULL at the end. */
static inline hal_block_t *hal_mem_pool_next(const hal_mem_pool_t *pool, const hal_block_t *block) {
  if (!block) return hal_mem_pool_first(pool, 0);
  if (block->u.bin.next) return block->u.bin.next;
  const uint32_t bin = hal_mem_pool_bin(pool->kind, block->size) + 1;
  return bin < HAL_MEM_BINS ? hal_mem_pool_first(pool, bin) : NULL;
}

/* Returns whether a free block is a whole segment. */
static inline int hal_mem_block_is_segment(const hal_block_t *block) { return !block->prev && !block->next; }

/* Moves the recent block into its bin; called before all free blocks are searched. */
static inline void hal_mem_pool_file_recent(hal_mem_pool_t *pool) {
  hal_block_t *block = pool->recent;
  pool->recent = NULL;
  if (block) hal_mem_pool_insert(pool, pool->kind, block);
}

/* Removes a free block from the pool, whether it is the recent one or in a bin. */
static inline void hal_mem_pool_take(hal_mem_pool_t *pool, uint32_t kind, hal_block_t *block) {
  if (block == pool->recent) {
    pool->recent = NULL;
  } else {
    hal_mem_pool_remove(pool, kind, block);
  }
}

/* Returns an unused block to its pool, merged with its free neighbors. The lower block's record remains, so the first
 * record of a segment exists as long as the segment. */
static inline void hal_mem_pool_join(hal_allocator_t *allocator, hal_mem_pool_t *pool, uint32_t kind,
                                     hal_block_t *block) {
  hal_mem_stats_t *stats = &allocator->stats;
  int64_t count = 0, bytes = 0; /* growth of inactive_split: freed pieces of segments that are not whole */
  hal_block_t *next = block->next, *prev = block->prev;
  if (next && next->state == HAL_MEM_FREE) {
    hal_mem_pool_take(pool, kind, next);
    count--, bytes -= (int64_t)next->size;
    block->size += next->size;
    block->next = next->next;
    if (next->next) next->next->prev = block;
    hal_mem_block_forget(allocator, next);
  }
  if (prev && prev->state == HAL_MEM_FREE) {
    hal_mem_pool_take(pool, kind, prev);
    count--, bytes -= (int64_t)prev->size;
    prev->size += block->size;
    prev->next = block->next;
    if (block->next) block->next->prev = prev;
    hal_mem_block_forget(allocator, block);
    block = prev;
  }
  if (!hal_mem_block_is_segment(block)) count++, bytes += (int64_t)block->size;
  if (count) hal_mem_stat_change(stats, kind, HAL_MEM_INACTIVE_SPLIT, count);
  if (bytes) hal_mem_stat_change(stats, kind, HAL_MEM_INACTIVE_SPLIT_BYTES, bytes);
  block->state = HAL_MEM_FREE;
  block->stamp = (uint64_t)stats->counter[kind][HAL_MEM_ALLOCATION].allocated; /* an age for garbage collection */
  hal_mem_pool_file_recent(pool);
  pool->recent = block;
}

/* Returns a block that was allocated to its pool. */
static inline void hal_mem_pool_return(hal_allocator_t *allocator, hal_mem_pool_t *pool, uint32_t kind,
                                       hal_block_t *block) {
  hal_mem_stat_decrease(&allocator->stats, kind, HAL_MEM_REQUESTED_BYTES, (int64_t)block->requested);
  hal_mem_pool_join(allocator, pool, kind, block);
}

/* Returns whether a block is too large to be split; max_split_size is at least 20 MiB. */
static inline int hal_mem_is_oversize(const hal_allocator_t *allocator, uint32_t kind, size_t size) {
  return kind == HAL_MEM_LARGE && size >= allocator->config.max_split_size;
}

#endif /* HAL_SRC_MEMORY_POOL_H_ */
