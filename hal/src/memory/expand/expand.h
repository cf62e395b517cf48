/* expand.h: expandable segments: ranges of reserved addresses to which memory is mapped as a pool grows
 * (PYTORCH_ALLOC_CONF=expandable_segments:True). Private to hal/src/memory.
 *
 * A range belongs to one pool. Its memory consists of pieces, each the result of one virtual_create that is mapped as a
 * whole. A range of the large pool is one chain of blocks. Blocks without memory have the state HAL_MEM_UNMAPPED, and
 * those whose memory is being mapped or unmapped HAL_MEM_MOVING, which no other thread changes. The last block of the
 * chain is never mapped, so that no other block is a whole segment. A range of the small pool consists of chunks of 2
 * MiB, each a segment of its own, because the bins of that pool have no larger blocks (pool.h).
 *
 * If memory cannot be unmapped, its piece remains in the range. It counts as reserved, and the next growth uses it.
 *
 * All functions are called with the allocator's lock held. Those that call the plugin release it meanwhile. */
#ifndef HAL_SRC_MEMORY_EXPAND_H_
#define HAL_SRC_MEMORY_EXPAND_H_

#include "memory/internal.h"

#define HAL_MEM_PIECE_UNIT HAL_MEM_SEGMENT_ROUND  /* pieces are multiples of it and of the device's granularity */
#define HAL_MEM_PIECE_LIMIT HAL_MEM_LARGE_SEGMENT /* a larger growth maps several pieces, which are released singly */

typedef struct hal_mem_piece_s {
  size_t offset, size;
  hal_plugin_physical_t *memory; /* NULL while it is being mapped */
} hal_mem_piece_t;

struct hal_mem_range_s {
  hal_mem_range_t *next;
  hal_mem_pool_t *pool;
  char *address;
  size_t size;             /* reserved bytes that may be mapped */
  hal_block_t *first;      /* of the chain of a large range; else NULL */
  hal_mem_piece_t *pieces; /* by offset */
  size_t count, capacity;
};

/* Returns whether new segments of a pool are expandable. */
static inline int hal_mem_expands(const hal_mem_pool_t *pool) {
  const hal_allocator_t *const allocator = pool->allocator;
  return allocator->expands && !(pool->carving & HAL_MEM_CARVE_WHOLE) && !pool->custom.allocate &&
         (pool->kind == HAL_MEM_LARGE || allocator->unit == HAL_MEM_SMALL_SEGMENT);
}

/* Returns the range that contains a block, NULL if there is none. */
hal_mem_range_t *hal_mem_range_of(const hal_allocator_t *allocator, const hal_block_t *block);

/* ---- range.c ---- */
/* Sets whether segments are expandable, by the settings and the device; logs a warning, once per plugin, if they cannot
 * be. */
void hal_mem_expand_setup(hal_allocator_t *allocator);
/* Makes new segments of the device ordinary ones, after a failure of the plugin: the thread has its message. The caller
 * holds the lock, which is released meanwhile. */
void hal_mem_expand_refuse(hal_allocator_t *allocator);
/* Returns the first piece that ends after `offset`; `range->count` if there is none. */
size_t hal_mem_range_find(const hal_mem_range_t *range, size_t offset);
/* Maps the bytes of a range that have no memory, or none of them. Errors: HAL_RESOURCE_EXHAUSTED; the plugin's. */
hal_status_t hal_mem_range_map(hal_allocator_t *allocator, hal_mem_range_t *range, size_t offset, size_t size);
/* Unmaps the pieces of a part of a range; a failure is recorded for the stream. Returns the number of bytes that were
 * freed. */
size_t hal_mem_range_unmap(hal_allocator_t *allocator, hal_mem_range_t *range, size_t offset, size_t size);
/* Reserves a range of a pool for at least `size` bytes. HAL_UNIMPLEMENTED = the device has no expandable segments from
 * now on. Errors: HAL_RESOURCE_EXHAUSTED. */
hal_status_t hal_mem_range_create(hal_mem_pool_t *pool, size_t size, hal_mem_range_t **out_range);
/* Releases the ranges of a pool that have no memory. */
void hal_mem_range_sweep(hal_allocator_t *allocator, const hal_mem_pool_t *pool);
/* Frees all ranges with their memory, at the end; does not release the lock. */
void hal_mem_expand_close(hal_allocator_t *allocator);

/* ---- grow.c ---- */
/* Grows a pool for a request of `size` bytes, and returns a block for it that is in no pool, as hal_mem_segment_create.
 * HAL_UNIMPLEMENTED = the device has no expandable segments. */
hal_status_t hal_mem_expand_grow(hal_mem_pool_t *pool, size_t size, hal_block_t **out_block);

/* ---- shrink.c ---- */
/* Makes a block without memory, and joins it with its neighbors without memory. The lowest record remains. */
void hal_mem_block_unmapped(hal_allocator_t *allocator, hal_block_t *block);
/* Returns the bytes of a free block of a large range that can be unmapped. */
size_t hal_mem_expand_releasable(const hal_allocator_t *allocator, const hal_block_t *block);
/* Unmaps free memory of a pool's large ranges until `size` bytes are freed or none is left. Returns their number. */
size_t hal_mem_expand_trim(hal_mem_pool_t *pool, size_t size);
/* Unmaps the memory of one free block. Returns the number of bytes that were freed. */
size_t hal_mem_expand_release(hal_allocator_t *allocator, hal_block_t *block);
/* Moves the ranges of a private pool that has ended to another pool. */
void hal_mem_expand_move(hal_allocator_t *allocator, const hal_mem_pool_t *from, hal_mem_pool_t *to);
/* Removes expandable segments from the statistics of free pieces of segments: unlike those, they can be unmapped. */
void hal_mem_expand_exclude(const hal_allocator_t *allocator, hal_memory_stats_t *stats);

/* ---- carve.c ---- */
/* Returns the smallest free block, from `block` on, after which no memory can be mapped; else `block`. So the end of an
 * expandable segment remains free for requests that it can grow to. */
hal_block_t *hal_mem_prefer_inner(const hal_mem_pool_t *pool, hal_block_t *block);
/* Cuts `size` bytes from the beginning of a free block, or takes all of it. Returns the block for the request. A block
 * that is in no pool yet has a state other than FREE. */
hal_block_t *hal_mem_carve_low(hal_allocator_t *allocator, hal_mem_pool_t *pool, uint32_t kind, hal_block_t *block,
                               size_t size);

#endif /* HAL_SRC_MEMORY_EXPAND_H_ */
