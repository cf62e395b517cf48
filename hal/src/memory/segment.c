/* segment.c: allocates and frees segments, the memory of one call of the plugin.
 *
 * A plugin's memory_free requires memory that no queued work uses, but work queued on the block's own stream may still
 * use a free block. Therefore the allocator waits for the stream first. */
#include "memory/custom/custom.h"
#include "memory/expand/expand.h"
#include "memory/held.h"
#include "memory/history.h"
#include "memory/pool.h"

size_t hal_mem_capacity(const hal_allocator_t *allocator) {
  if (allocator->limit) return allocator->limit;
  const uint64_t total = allocator->device->info.total_memory;
  return total && total < SIZE_MAX ? (size_t)total : SIZE_MAX;
}

int hal_mem_over_capacity(const hal_allocator_t *allocator, size_t size) {
  const size_t capacity = hal_mem_capacity(allocator);
  const size_t taken = (size_t)hal_mem_reserved(allocator) + allocator->in_flight;
  return size > capacity || taken > capacity - size;
}

static hal_status_t call_plugin(const hal_device_t *device, size_t size, void **out_address) {
  const hal_status_t status = hal_call_memory_alloc(device->plugin, device->ordinal, size, 0, out_address);
  return hal_error_plugin_made(device->plugin, HAL_SLOT_memory_alloc, status, *out_address);
}

/* Allocates memory of the plugin, or of the pool's allocator, without the lock. */
static hal_status_t obtain(hal_allocator_t *allocator, const hal_mem_pool_t *pool, size_t size, void **out_address) {
  const hal_memory_allocator_t custom = pool->custom;
  hal_stream_t *const stream = pool->stream;
  void *address = NULL;
  allocator->in_flight += size;
  hal_unlock(&allocator->lock);
  const hal_status_t status = custom.allocate ? hal_mem_custom_obtain(allocator, &custom, stream, size, &address)
                                              : call_plugin(allocator->device, size, &address);
  hal_lock(&allocator->lock);
  allocator->in_flight -= size;
  if (!status) *out_address = address;
  return status;
}

/* Records that the pool's allocator has allocated a segment. */
static hal_status_t note_custom(hal_mem_pool_t *pool, void *address, size_t size) {
  hal_allocator_t *const allocator = pool->allocator;
  const hal_memory_allocator_t calls = pool->custom;
  hal_mem_custom_t *const custom = hal_calloc(1, sizeof *custom);
  if (!custom || hal_mem_custom_overlaps(allocator, address, size)) {
    hal_free(custom);
    hal_unlock(&allocator->lock);
    const hal_status_t status = hal_mem_custom_reject(&calls, pool->stream, address, size);
    hal_lock(&allocator->lock);
    return custom ? status
                  : hal_error_set(HAL_RESOURCE_EXHAUSTED, "the host has no memory for the allocator's records");
  }
  *custom = (hal_mem_custom_t){.calls = calls, .address = address, .size = size, .stream = pool->stream};
  hal_mem_custom_add(allocator, custom);
  return HAL_OK;
}

hal_status_t hal_mem_segment_create(hal_mem_pool_t *pool, size_t size, hal_block_t **out_block) {
  hal_allocator_t *allocator = pool->allocator;
  void *address = NULL;
  if (hal_mem_over_capacity(allocator, size)) return hal_error_set(HAL_RESOURCE_EXHAUSTED, "%s", "");
  hal_block_t *block = hal_mem_slab_take(&allocator->blocks);
  if (!block) return hal_error_set(HAL_RESOURCE_EXHAUSTED, "the host has no memory for the allocator's records");
  hal_status_t status = obtain(allocator, pool, size, &address);
  if (!status && pool->custom.allocate) status = note_custom(pool, address, size);
  if (status) {
    hal_mem_block_forget(allocator, block);
    return status;
  }
  pool = hal_mem_pool_current(pool); /* a private pool may have ended meanwhile */
  *block =
      (hal_block_t){.address = address, .size = size, .pool = pool, .stream = pool->stream, .state = HAL_MEM_LEAVING};
  hal_mem_map_insert(&allocator->map, block, size);
  hal_mem_stat_increase(&allocator->stats, pool->kind, HAL_MEM_SEGMENT, 1);
  hal_mem_stat_increase(&allocator->stats, pool->kind, HAL_MEM_RESERVED_BYTES, (int64_t)size);
  if (size >= allocator->config.max_split_size)
    hal_mem_stat_increase(&allocator->stats, pool->kind, HAL_MEM_OVERSIZE_SEGMENTS, 1);
  allocator->stats.num_device_alloc++;
  *out_block = block;
  return HAL_OK;
}

int hal_allocator_segment(hal_allocator_t *allocator, const void *address, void **out_start, size_t *out_size) {
  hal_lock(&allocator->lock);
  const hal_block_t *const first = hal_mem_map_find(allocator->map, (uintptr_t)address);
  /* A library cannot register a segment whose memory changes. */
  const int found = first && first->pool->source == HAL_MEM_CACHED && !hal_mem_range_of(allocator, first);
  if (found) *out_start = first->address, *out_size = first->extent;
  hal_unlock(&allocator->lock);
  return found;
}

static void (*_Atomic on_leaving)(void *address);

void hal_allocator_set_leaving(void (*leaving)(void *address)) { atomic_store(&on_leaving, leaving); }

/* Removes a free segment from its pool, so that no other code finds it, and adds it to a list linked by `next`. */
static void detach(hal_block_t *block, hal_block_t **list) {
  hal_mem_pool_take(block->pool, block->pool->kind, block);
  block->state = HAL_MEM_LEAVING;
  block->next = *list;
  *list = block;
}

/* Frees a segment of an expandable one (expand.h). */
static void free_chunk(hal_allocator_t *allocator, hal_mem_range_t *range, hal_block_t *block) {
  hal_mem_range_unmap(allocator, range, (size_t)((char *)block->address - range->address), block->size);
  hal_mem_block_forget(allocator, block);
}

/* Frees a list of detached segments of one stream. */
static void free_segments(hal_allocator_t *allocator, hal_block_t *list) {
  if (!list) return;
  hal_mem_stream_wait(allocator, list->stream);
  while (list) {
    hal_block_t *block = list;
    list = block->next;
    hal_mem_map_remove(&allocator->map, block); /* first: after the free, a new segment may have this address */
    hal_mem_range_t *const range = hal_mem_range_of(allocator, block);
    if (range) {
      free_chunk(allocator, range, block);
      continue;
    }
    hal_mem_custom_t *const custom = hal_mem_custom_take(allocator, block->address);
    const int is_oversize = block->size >= allocator->config.max_split_size; /* the setting may change meanwhile */
    hal_unlock(&allocator->lock);
    void (*const leaving)(void *) = atomic_load(&on_leaving);
    if (leaving) leaving(block->address);
    if (custom)
      hal_mem_custom_release(custom);
    else
      hal_mem_free(block->stream, block->address);
    hal_lock(&allocator->lock);
    const uint32_t kind = block->pool->kind;
    hal_mem_stat_decrease(&allocator->stats, kind, HAL_MEM_SEGMENT, 1);
    hal_mem_stat_decrease(&allocator->stats, kind, HAL_MEM_RESERVED_BYTES, (int64_t)block->size);
    if (is_oversize) hal_mem_stat_decrease(&allocator->stats, kind, HAL_MEM_OVERSIZE_SEGMENTS, 1);
    allocator->stats.num_device_free++;
    hal_mem_history_segment_freed(allocator, block);
    hal_mem_block_forget(allocator, block);
  }
}

/* Returns the smallest free segment of at least `size` bytes, else the largest one; NULL if no segment is free. */
static hal_block_t *choose(hal_mem_pool_t *pool, size_t size) {
  hal_block_t *best = NULL;
  hal_mem_pool_file_recent(pool);
  for (hal_block_t *block = hal_mem_pool_next(pool, NULL); block; block = hal_mem_pool_next(pool, block)) {
    if (hal_mem_block_is_segment(block)) {
      best = block; /* in order of size: the last one is the largest */
      if (block->size >= size) break;
    }
  }
  return best;
}

size_t hal_mem_segment_trim(hal_mem_pool_t *pool, size_t size) {
  size_t given = 0;
  hal_block_t *list = NULL, *block;
  if (pool->owner) return 0;
  hal_mem_held_end(pool);
  while (given < size && (block = choose(pool, size - given))) {
    given += block->size;
    detach(block, &list);
  }
  free_segments(pool->allocator, list);
  if (!pool->allocator->ranges) return given;
  if (given < size) given += hal_mem_expand_trim(pool, size - given);
  hal_mem_range_sweep(pool->allocator, pool);
  return given;
}

size_t hal_mem_segment_trim_all(hal_allocator_t *allocator) {
  size_t given = 0;
  for (int id = 0; id < HAL_STREAMS_OF_DEVICE; id++) {
    for (int kind = 0; kind < 2; kind++) {
      hal_mem_pool_t *pool = hal_mem_own_pool(allocator, id, kind);
      if (pool) given += hal_mem_segment_trim(pool, SIZE_MAX);
    }
  }
  if (allocator->orphans) given += hal_mem_custom_trim(allocator);
  return given;
}

/* Returns whether memory of a free block can be freed. */
static int is_freeable(const hal_allocator_t *allocator, const hal_block_t *block) {
  return hal_mem_block_is_segment(block) || (allocator->ranges && hal_mem_expand_releasable(allocator, block));
}

/* Returns the free segment of the large pools that was released first, or the free block of an expandable one; NULL if
 * there is none. */
static hal_block_t *oldest(hal_allocator_t *allocator) {
  hal_block_t *best = NULL;
  for (int id = 0; id < HAL_STREAMS_OF_DEVICE; id++) {
    hal_mem_pool_t *pool = hal_mem_own_pool(allocator, id, HAL_MEM_LARGE);
    if (!pool) continue;
    hal_mem_held_end(pool);
    hal_mem_pool_file_recent(pool);
    for (hal_block_t *block = hal_mem_pool_next(pool, NULL); block; block = hal_mem_pool_next(pool, block)) {
      if ((!best || block->stamp < best->stamp) && is_freeable(allocator, block)) best = block;
    }
  }
  return best;
}

void hal_mem_segment_collect(hal_allocator_t *allocator, size_t size) {
  const size_t capacity = hal_mem_capacity(allocator);
  if (capacity == SIZE_MAX) return; /* the threshold is a share of an unknown size */
  const double bound = allocator->config.garbage_collection_threshold * (double)capacity;
  while ((double)hal_mem_reserved(allocator) + (double)size > bound) {
    hal_block_t *block = oldest(allocator);
    if (!block) return;
    hal_block_t *list = NULL;
    if (!hal_mem_block_is_segment(block)) {
      if (!hal_mem_expand_release(allocator, block)) return;
      continue;
    }
    detach(block, &list);
    free_segments(allocator, list);
  }
}
