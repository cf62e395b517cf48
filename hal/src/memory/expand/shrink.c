/* shrink.c: unmaps free memory of expandable segments (expand.h). */
#include "memory/expand/expand.h"
#include "memory/history.h"
#include "memory/pool.h"

/* The pieces that are entirely in a free block, as a part of its range. */
typedef struct run_s {
  hal_mem_range_t *range;
  size_t begin, end; /* offsets; equal if there are none */
} run_t;

static run_t run_of(const hal_allocator_t *allocator, const hal_block_t *block) {
  run_t run = {.range = hal_mem_range_of(allocator, block)};
  if (!run.range || !run.range->first) return run;
  const hal_mem_range_t *const range = run.range;
  const size_t offset = (size_t)((char *)block->address - range->address), end = offset + block->size;
  size_t i = hal_mem_range_find(range, offset);
  if (i < range->count && range->pieces[i].offset < offset) i++;
  run.begin = run.end = i < range->count ? range->pieces[i].offset : end;
  for (; i < range->count && range->pieces[i].offset + range->pieces[i].size <= end; i++)
    run.end = range->pieces[i].offset + range->pieces[i].size;
  return run;
}

size_t hal_mem_expand_releasable(const hal_allocator_t *allocator, const hal_block_t *block) {
  const run_t run = run_of(allocator, block);
  return run.end - run.begin;
}

/* Cuts a block that is in no pool at `size` bytes; returns the second part. */
static hal_block_t *cut(hal_block_t *block, size_t size, hal_block_t *rest) {
  *rest = (hal_block_t){.address = (char *)block->address + size,
                        .size = block->size - size,
                        .pool = block->pool,
                        .stream = block->stream,
                        .state = block->state,
                        .prev = block,
                        .next = block->next};
  if (rest->next) rest->next->prev = rest;
  block->next = rest;
  block->size = size;
  return rest;
}

/* Removes the run of a free block from its pool. Returns the block that has exactly the run; NULL if the host has no
 * memory for the records. */
static hal_block_t *detach(hal_allocator_t *allocator, hal_block_t *block, const run_t *run) {
  hal_mem_pool_t *const pool = block->pool;
  hal_mem_stats_t *const stats = &allocator->stats;
  const size_t offset = (size_t)((char *)block->address - run->range->address);
  const size_t before = run->begin - offset, after = offset + block->size - run->end;
  hal_block_t *const first = before ? hal_mem_slab_take(&allocator->blocks) : NULL;
  hal_block_t *const second = after && (first || !before) ? hal_mem_slab_take(&allocator->blocks) : NULL;
  if ((before && !first) || (after && !second)) {
    if (first) hal_mem_block_forget(allocator, first);
    return NULL;
  }
  hal_mem_pool_take(pool, HAL_MEM_LARGE, block);
  hal_mem_stat_decrease(stats, HAL_MEM_LARGE, HAL_MEM_INACTIVE_SPLIT, 1);
  hal_mem_stat_decrease(stats, HAL_MEM_LARGE, HAL_MEM_INACTIVE_SPLIT_BYTES, (int64_t)block->size);
  block->state = HAL_MEM_MOVING;
  hal_block_t *const middle = before ? cut(block, before, first) : block;
  if (before) hal_mem_pool_join(allocator, pool, HAL_MEM_LARGE, block);
  if (after) hal_mem_pool_join(allocator, pool, HAL_MEM_LARGE, cut(middle, run->end - run->begin, second));
  return middle;
}

void hal_mem_block_unmapped(hal_allocator_t *allocator, hal_block_t *block) {
  hal_block_t *const next = block->next, *const prev = block->prev;
  block->state = HAL_MEM_UNMAPPED;
  if (next && next->state == HAL_MEM_UNMAPPED) {
    block->size += next->size;
    block->next = next->next;
    block->next->prev = block; /* the last block of a range has another state */
    hal_mem_block_forget(allocator, next);
  }
  if (prev && prev->state == HAL_MEM_UNMAPPED) {
    prev->size += block->size;
    prev->next = block->next;
    prev->next->prev = prev;
    hal_mem_block_forget(allocator, block);
  }
}

/* Unmaps a list of detached blocks of one stream, linked by `u.bin.next`. Returns the number of bytes. */
static size_t unmap_list(hal_allocator_t *allocator, hal_block_t *list) {
  size_t freed = 0;
  if (!list) return 0;
  hal_mem_stream_wait(allocator, list->stream);
  while (list) {
    hal_block_t *const block = list;
    hal_mem_range_t *const range = hal_mem_range_of(allocator, block);
    list = block->u.bin.next;
    freed += hal_mem_range_unmap(allocator, range, (size_t)((char *)block->address - range->address), block->size);
    hal_mem_block_unmapped(allocator, block);
  }
  return freed;
}

/* Detaches free memory of a range until `size` bytes are found. */
static size_t detach_some(hal_allocator_t *allocator, const hal_mem_range_t *range, size_t size, hal_block_t **list) {
  size_t found = 0;
  for (hal_block_t *block = range->first; block && found < size; block = block->next) {
    const run_t run = block->state == HAL_MEM_FREE ? run_of(allocator, block) : (run_t){.begin = 0};
    hal_block_t *const middle = run.end > run.begin ? detach(allocator, block, &run) : NULL;
    if (!middle) continue;
    found += middle->size;
    middle->u.bin.next = *list;
    *list = block = middle;
  }
  return found;
}

size_t hal_mem_expand_trim(hal_mem_pool_t *pool, size_t size) {
  hal_allocator_t *const allocator = pool->allocator;
  hal_block_t *list = NULL;
  size_t found = 0;
  for (const hal_mem_range_t *range = allocator->ranges; range && found < size; range = range->next)
    if (range->pool == pool && range->first) found += detach_some(allocator, range, size - found, &list);
  return unmap_list(allocator, list);
}

size_t hal_mem_expand_release(hal_allocator_t *allocator, hal_block_t *block) {
  const run_t run = run_of(allocator, block);
  hal_block_t *const middle = run.end > run.begin ? detach(allocator, block, &run) : NULL;
  if (!middle) return 0;
  middle->u.bin.next = NULL;
  return unmap_list(allocator, middle);
}

void hal_mem_expand_move(hal_allocator_t *allocator, const hal_mem_pool_t *from, hal_mem_pool_t *to) {
  for (hal_mem_range_t *range = allocator->ranges; range; range = range->next) {
    if (range->pool != from) continue;
    range->pool = to;
    if (range->first) to->carving |= HAL_MEM_CARVE_LOW;
  }
}

/* ---- statistics ---- */

/* Counts the free pieces of a subtree of the address map, whose depth is small (map.c), that are not of expandable
 * segments. */
static void count_pieces(const hal_allocator_t *allocator, const hal_block_t *node, int64_t counts[2][2]) {
  if (!node) return;
  count_pieces(allocator, node->left, counts);
  count_pieces(allocator, node->right, counts);
  if (node->state == HAL_MEM_LEAVING || hal_mem_range_of(allocator, node)) return;
  for (const hal_block_t *block = node; block; block = block->next) {
    const int is_free = block->state == HAL_MEM_FREE || block->state == HAL_MEM_HELD;
    if (!is_free || hal_mem_block_is_segment(block)) continue;
    counts[block->pool->kind][0]++;
    counts[block->pool->kind][1] += (int64_t)block->size;
  }
}

static void set_stat(hal_stat_t *stat, const int64_t counts[2][2], int which) {
  const int64_t small = counts[HAL_MEM_SMALL][which], large = counts[HAL_MEM_LARGE][which];
  stat[HAL_POOL_SMALL] = (hal_stat_t){.current = small, .peak = small, .allocated = small};
  stat[HAL_POOL_LARGE] = (hal_stat_t){.current = large, .peak = large, .allocated = large};
  stat[HAL_POOL_ALL] = (hal_stat_t){.current = small + large, .peak = small + large, .allocated = small + large};
}

void hal_mem_expand_exclude(const hal_allocator_t *allocator, hal_memory_stats_t *stats) {
  int64_t counts[2][2] = {{0, 0}, {0, 0}};
  if (!allocator->expands && !allocator->ranges) return;
  count_pieces(allocator, allocator->map, counts);
  set_stat(stats->inactive_split, counts, 0);
  set_stat(stats->inactive_split_bytes, counts, 1);
}
