/* grow.c: maps memory in expandable segments for requests (expand.h).
 *
 * A large request uses addresses without memory, together with free blocks next to them, so that the pool grows by no
 * more than it needs. */
#include "memory/expand/expand.h"
#include "memory/history.h"
#include "memory/pool.h"

/* ---- the large pool ---- */

/* Consecutive free blocks and blocks without memory. */
typedef struct window_s {
  hal_mem_range_t *range;
  hal_block_t *first, *last;
  size_t size; /* of all blocks */
  size_t cost; /* bytes to be mapped */
} window_t;

static size_t round_up(const hal_allocator_t *allocator, size_t size) {
  const size_t rest = size % allocator->unit;
  return rest ? size + (allocator->unit - rest) : size;
}

static int is_usable(const hal_block_t *block) {
  return block->state == HAL_MEM_FREE || block->state == HAL_MEM_UNMAPPED;
}

/* Finds the blocks from `first` on that are sufficient for a request. Returns 0 if there are not enough. */
static int measure(const hal_allocator_t *allocator, hal_block_t *first, size_t size, window_t *out_window) {
  out_window->first = first;
  out_window->size = out_window->cost = 0;
  for (hal_block_t *block = first; block && is_usable(block) && out_window->size < size; block = block->next) {
    if (block->state == HAL_MEM_UNMAPPED) {
      const size_t wanted = round_up(allocator, size - out_window->size);
      out_window->cost += wanted < block->size ? wanted : block->size;
    }
    out_window->size += block->size;
    out_window->last = block;
  }
  return out_window->size >= size;
}

/* Finds the window of a pool that needs the least new memory; of several, the one with the lowest address in its
 * range. */
static int find_window(hal_mem_pool_t *pool, size_t size, window_t *out_window) {
  hal_allocator_t *const allocator = pool->allocator;
  int found = 0;
  for (hal_mem_range_t *range = allocator->ranges; range; range = range->next) {
    if (range->pool != pool) continue;
    for (hal_block_t *block = range->first; block; block = block->next) {
      window_t window = {.range = range};
      if (block->state != HAL_MEM_UNMAPPED) continue;
      hal_block_t *const before = block->prev;
      if (!measure(allocator, before && before->state == HAL_MEM_FREE ? before : block, size, &window)) continue;
      if (found && window.cost >= out_window->cost) continue;
      *out_window = window;
      found = 1;
    }
  }
  return found;
}

/* Cuts addresses that are not needed from the end of a window. Without a record for them they remain in it. */
static void shorten(hal_allocator_t *allocator, window_t *window, size_t size) {
  hal_block_t *const last = window->last;
  const size_t wanted = round_up(allocator, size - (window->size - last->size));
  if (last->state != HAL_MEM_UNMAPPED || wanted >= last->size) return;
  hal_block_t *const rest = hal_mem_slab_take(&allocator->blocks);
  if (!rest) return;
  *rest = (hal_block_t){.address = (char *)last->address + wanted,
                        .size = last->size - wanted,
                        .pool = last->pool,
                        .stream = last->stream,
                        .state = HAL_MEM_UNMAPPED,
                        .prev = last,
                        .next = last->next};
  rest->next->prev = rest; /* the last block of a range is not in a window */
  last->next = rest;
  last->size = wanted;
  window->size -= rest->size;
}

/* Removes a free block of a range from its pool; it counts as a piece of a segment. */
static void take_free(hal_mem_pool_t *pool, hal_block_t *block) {
  hal_mem_stats_t *const stats = &pool->allocator->stats;
  hal_mem_pool_take(pool, HAL_MEM_LARGE, block);
  hal_mem_stat_decrease(stats, HAL_MEM_LARGE, HAL_MEM_INACTIVE_SPLIT, 1);
  hal_mem_stat_decrease(stats, HAL_MEM_LARGE, HAL_MEM_INACTIVE_SPLIT_BYTES, (int64_t)block->size);
}

/* Removes the window's blocks from the pool, so that no other thread changes them. */
static void occupy(hal_mem_pool_t *pool, const window_t *window) {
  for (hal_block_t *block = window->first;; block = block->next) {
    const int is_free = block->state == HAL_MEM_FREE;
    if (is_free) take_free(pool, block);
    block->stamp = (uint64_t)is_free; /* for leave_window */
    block->state = HAL_MEM_MOVING;
    if (block == window->last) return;
  }
}

/* Reverses `occupy` after a failure. */
static void leave_window(hal_allocator_t *allocator, const window_t *window) {
  hal_block_t *block = window->first, *const end = window->last->next;
  while (block != end) {
    hal_block_t *const next = block->next;
    if (block->stamp)
      hal_mem_pool_join(allocator, block->pool, HAL_MEM_LARGE, block);
    else
      hal_mem_block_unmapped(allocator, block);
    block = next;
  }
}

/* Joins the blocks of a window that has memory. */
static hal_block_t *join_window(hal_allocator_t *allocator, const window_t *window) {
  hal_block_t *const first = window->first, *const end = window->last->next;
  while (first->next != end) {
    hal_block_t *const next = first->next;
    first->size += next->size;
    first->next = next->next;
    hal_mem_block_forget(allocator, next);
  }
  end->prev = first;
  return first;
}

static hal_status_t grow_large(hal_mem_pool_t *pool, size_t size, hal_block_t **out_block) {
  hal_allocator_t *const allocator = pool->allocator;
  window_t window = {.range = NULL};
  hal_mem_range_t *created;
  if (!find_window(pool, size, &window)) {
    HAL_RETURN_IF_ERROR(hal_mem_range_create(pool, round_up(allocator, size), &created));
    pool = hal_mem_pool_current(pool);
    if (!find_window(pool, size, &window)) return hal_error_set(HAL_RESOURCE_EXHAUSTED, "%s", "");
  }
  shorten(allocator, &window, size);
  occupy(pool, &window);
  const size_t offset = (size_t)((char *)window.first->address - window.range->address);
  const hal_status_t status = hal_mem_range_map(allocator, window.range, offset, window.size);
  if (status) {
    leave_window(allocator, &window);
    return status;
  }
  *out_block = join_window(allocator, &window);
  return HAL_OK;
}

/* ---- the small pool ---- */

/* Returns the first place for a chunk, or a piece of one that could not be unmapped; SIZE_MAX if there is none. */
static size_t find_chunk(const hal_mem_range_t *range, const hal_allocator_t *allocator) {
  size_t offset = 0;
  for (size_t i = 0; i < range->count; i++) {
    const hal_mem_piece_t *const piece = &range->pieces[i];
    if (piece->offset != offset) break;
    if (piece->memory && !hal_mem_map_find(allocator->map, (uintptr_t)range->address + offset)) break;
    offset += HAL_MEM_SMALL_SEGMENT;
  }
  return offset + HAL_MEM_SMALL_SEGMENT <= range->size ? offset : SIZE_MAX;
}

static hal_status_t grow_small(hal_mem_pool_t *pool, hal_block_t **out_block) {
  hal_allocator_t *const allocator = pool->allocator;
  hal_mem_range_t *range = allocator->ranges;
  while (range && (range->pool != pool || find_chunk(range, allocator) == SIZE_MAX)) range = range->next;
  if (!range) HAL_RETURN_IF_ERROR(hal_mem_range_create(pool, HAL_MEM_SMALL_SEGMENT, &range));
  hal_block_t *const block = hal_mem_slab_take(&allocator->blocks);
  if (!block) return hal_error_set(HAL_RESOURCE_EXHAUSTED, "the host has no memory for the allocator's records");
  const size_t offset = find_chunk(range, allocator);
  *block = (hal_block_t){.address = range->address + offset,
                         .size = HAL_MEM_SMALL_SEGMENT,
                         .pool = range->pool,
                         .stream = range->pool->stream,
                         .state = HAL_MEM_LEAVING};
  hal_mem_map_insert(&allocator->map, block, HAL_MEM_SMALL_SEGMENT);
  const hal_status_t status = hal_mem_range_map(allocator, range, offset, HAL_MEM_SMALL_SEGMENT);
  block->pool = range->pool; /* a private pool may have ended meanwhile */
  if (status) {
    hal_mem_map_remove(&allocator->map, block);
    hal_mem_block_forget(allocator, block);
    return status;
  }
  *out_block = block;
  return HAL_OK;
}

hal_status_t hal_mem_expand_grow(hal_mem_pool_t *pool, size_t size, hal_block_t **out_block) {
  hal_allocator_t *const allocator = pool->allocator;
  const hal_status_t status =
      pool->kind == HAL_MEM_SMALL ? grow_small(pool, out_block) : grow_large(pool, size, out_block);
  if (status == HAL_UNIMPLEMENTED && allocator->expands) hal_mem_expand_refuse(allocator);
  if (status) hal_mem_range_sweep(allocator, hal_mem_pool_current(pool));
  return status;
}
