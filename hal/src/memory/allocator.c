/* allocator.c: the stream-ordered caching allocator: allocate, release, and the steps of a cache miss. */
#include <stdio.h>
#include <string.h>

#include "memory/custom/custom.h"
#include "memory/expand/expand.h"
#include "memory/held.h"
#include "memory/history.h"
#include "memory/ipc.h"
#include "memory/pool.h"

/* One request during a cache miss. */
typedef struct request_s {
  hal_allocator_t *allocator;
  hal_mem_pool_t *pool; /* while pinned, pool_of(request) is the pool that has its memory now */
  size_t size;          /* rounded */
  size_t segment;
  hal_block_t *ready; /* free_fn to run when the lock is released */
  int alone;          /* no cached memory is released for it */
  int is_shareable;   /* a whole segment that may be shared with other processes */
} request_t;

/* ---- cache hit ---- */

/* Returns whether the rest of a block is large enough to become a separate block. */
static inline int should_split(const hal_allocator_t *allocator, uint32_t kind, size_t size, size_t rest) {
  if (kind == HAL_MEM_SMALL) return rest >= HAL_MEM_GRANULE;
  return size < allocator->config.max_split_size && rest > HAL_MEM_SMALL_LIMIT;
}

/* Returns whether a free block may serve a request: large free segments are reserved for large requests. */
static inline int may_serve(const hal_allocator_t *allocator, uint32_t kind, const hal_block_t *block, size_t size) {
  const hal_mem_config_t *config = &allocator->config;
  if (kind == HAL_MEM_SMALL || HAL_LIKELY(config->max_split_size == SIZE_MAX)) return 1;
  if (block->size < config->max_split_size || block->size <= config->large_segment_size) return 1;
  return size >= config->max_split_size && block->size - size < config->max_non_split_rounding;
}

/* Finds the smallest free block that fits a request, NULL if there is none; it stays in its bin. */
static inline hal_block_t *find(const hal_allocator_t *allocator, const hal_mem_pool_t *pool, uint32_t kind,
                                size_t size) {
  hal_block_t *recent = pool->recent, *block = NULL;
  if (recent && recent->size == size) return recent;
  if (pool->rows) block = hal_mem_pool_find(pool, kind, size);
  if (recent && recent->size > size && (!block || recent->size < block->size)) block = recent;
  if (kind != HAL_MEM_SMALL && block && HAL_UNLIKELY(pool->carving & HAL_MEM_CARVE_LOW))
    return hal_mem_prefer_inner(pool, block);
  return block && may_serve(allocator, kind, block, size) ? block : NULL;
}

/* Cuts `size` bytes from the end of a free block, or takes all of it. Returns the block for the request. A block that
 * is in no pool yet (a new segment) has a state other than FREE. */
static inline hal_block_t *carve(hal_allocator_t *allocator, hal_mem_pool_t *pool, uint32_t kind, hal_block_t *block,
                                 size_t size) {
  hal_mem_stats_t *stats = &allocator->stats;
  const size_t rest = block->size - size;
  const int is_free = block->state == HAL_MEM_FREE, was_split = is_free && !hal_mem_block_is_segment(block);
  hal_block_t *part = NULL, *next = block->next;
  if (kind != HAL_MEM_SMALL && HAL_UNLIKELY(pool->carving))
    return hal_mem_carve_low(allocator, pool, kind, block, size);
  if (should_split(allocator, kind, size, rest) && HAL_LIKELY(!pool->carving))
    part = hal_mem_slab_take(&allocator->blocks);
  if (!part) { /* if there is no memory for a record, the whole block is used */
    if (is_free) hal_mem_pool_take(pool, kind, block);
    if (was_split) {
      hal_mem_stat_decrease(stats, kind, HAL_MEM_INACTIVE_SPLIT_BYTES, (int64_t)block->size);
      hal_mem_stat_decrease(stats, kind, HAL_MEM_INACTIVE_SPLIT, 1);
    }
    return block;
  }
  if (block != pool->recent) {
    if (is_free) hal_mem_pool_remove(pool, kind, block);
    hal_mem_pool_file_recent(pool);
    pool->recent = block;
    block->state = HAL_MEM_FREE;
  }
  block->size = rest;
  block->next = part;
  part->address = (char *)block->address + rest;
  part->size = size;
  part->pool = pool;
  part->stream = pool->stream;
  part->prev = block;
  part->next = next;
  part->uses = NULL;
  part->extent = 0;
  if (next) next->prev = part;
  if (was_split) {
    hal_mem_stat_decrease(stats, kind, HAL_MEM_INACTIVE_SPLIT_BYTES, (int64_t)size);
  } else {
    hal_mem_stat_increase(stats, kind, HAL_MEM_INACTIVE_SPLIT_BYTES, (int64_t)rest);
    hal_mem_stat_increase(stats, kind, HAL_MEM_INACTIVE_SPLIT, 1);
  }
  return part;
}

/* Counts an allocated block. */
static inline void account(hal_allocator_t *allocator, uint32_t kind, size_t size, size_t requested) {
  hal_mem_stats_t *stats = &allocator->stats;
  hal_mem_stat_increase(stats, kind, HAL_MEM_ALLOCATION, 1);
  hal_mem_stat_increase(stats, kind, HAL_MEM_ALLOCATED_BYTES, (int64_t)size);
  hal_mem_stat_increase(stats, kind, HAL_MEM_REQUESTED_BYTES, (int64_t)requested);
  if (hal_mem_is_oversize(allocator, kind, size)) hal_mem_stat_increase(stats, kind, HAL_MEM_OVERSIZE_ALLOCATIONS, 1);
}

/* Records the peaks of active, which differ from the peaks of allocated while something is pending, and the event of an
 * allocated block. */
static void note_active(hal_allocator_t *allocator, hal_block_t *block) {
  if (HAL_LIKELY(!atomic_load_explicit(&allocator->pending, memory_order_relaxed))) return;
  hal_mem_stats_note_active(&allocator->stats);
  hal_mem_history_allocated(allocator, block);
}

/* ---- cache miss ---- */

/* Returns the pool of a request, which may change while the lock is released. */
static hal_mem_pool_t *pool_of(const request_t *request) { return hal_mem_pool_current(request->pool); }

/* Maps memory for a request, or allocates a segment of `segment` bytes. */
static hal_status_t make(const request_t *request, size_t segment, hal_block_t **out_block) {
  if (!request->is_shareable && hal_mem_expands(pool_of(request))) {
    const hal_status_t status = hal_mem_expand_grow(pool_of(request), request->size, out_block);
    if (status != HAL_UNIMPLEMENTED) return status;
    segment = hal_mem_config_segment(&request->allocator->config, request->size);
  }
  HAL_RETURN_IF_ERROR(hal_mem_segment_create(pool_of(request), segment, out_block));
  hal_mem_history_segment(request->allocator, *out_block);
  return HAL_OK;
}

/* Takes a block from the bins or from new memory; a segment has `segment` bytes. */
static hal_status_t attempt(request_t *request, size_t segment, hal_block_t **out_block) {
  hal_allocator_t *allocator = request->allocator;
  const uint32_t kind = request->pool->kind;
  hal_block_t *block = NULL;
  if (!request->is_shareable)
    block = find(allocator, pool_of(request), kind, request->size); /* other threads may have released some meanwhile */
  if (!block) HAL_RETURN_IF_ERROR(make(request, segment, &block));
  *out_block = request->is_shareable ? block : carve(allocator, pool_of(request), kind, block, request->size);
  return HAL_OK;
}

/* As attempt; before it fails, it frees held blocks and tries again. */
static hal_status_t attempt_held(request_t *request, size_t segment, hal_block_t **out_block) {
  const hal_status_t status = attempt(request, segment, out_block);
  if (status != HAL_RESOURCE_EXHAUSTED || !hal_mem_held_end(pool_of(request))) return status;
  return attempt(request, segment, out_block);
}

/* Runs the callbacks that became ready, without the lock. */
static void run_ready(request_t *request) {
  hal_block_t *ready = request->ready;
  if (!ready) return;
  request->ready = NULL;
  hal_unlock(&request->allocator->lock);
  hal_mem_ready_run(ready);
  hal_lock(&request->allocator->lock);
}

/* The steps of a cache miss: a new segment; free segments of this pool in exchange for it; everything in the cache; a
 * segment no larger than needed. The caller holds the lock. */
static hal_status_t allocate_miss(request_t *request, hal_block_t **out_block) {
  hal_allocator_t *allocator = request->allocator;
  const size_t least = (request->size + HAL_MEM_SEGMENT_ROUND - 1) & ~(HAL_MEM_SEGMENT_ROUND - 1);
  if (request->alone) {
    const hal_status_t first = attempt_held(request, request->segment, out_block);
    return first == HAL_RESOURCE_EXHAUSTED && least < request->segment ? attempt(request, least, out_block) : first;
  }
  if (allocator->config.garbage_collection_threshold > 0) hal_mem_segment_collect(allocator, request->segment);
  hal_status_t status = attempt_held(request, request->segment, out_block);
  if (status != HAL_RESOURCE_EXHAUSTED) return status;
  allocator->stats.num_alloc_retries++;
  if (hal_mem_segment_trim(pool_of(request), request->segment)) status = attempt(request, request->segment, out_block);
  if (status != HAL_RESOURCE_EXHAUSTED) return status;
  allocator->stats.num_sync_all_streams++;
  hal_mem_pending_drain(allocator, &request->ready);
  run_ready(request);
  hal_mem_segment_trim_all(allocator);
  status = attempt(request, request->segment, out_block);
  if (status == HAL_RESOURCE_EXHAUSTED && least < request->segment) status = attempt(request, least, out_block);
  return status;
}

/* ---- blocks that are not parts of segments ---- */

/* Creates the record of a block of another source; the caller holds the lock. */
static hal_block_t *foreign_block(hal_allocator_t *allocator, uint32_t source, hal_stream_t *stream, void *address,
                                  size_t size) {
  hal_block_t *block = hal_mem_slab_take(&allocator->blocks);
  if (!block) return NULL;
  hal_mem_pool_t *pool = &allocator->foreign[source][size <= HAL_MEM_SMALL_LIMIT ? HAL_MEM_SMALL : HAL_MEM_LARGE];
  *block = (hal_block_t){
      .address = address, .size = size, .requested = size, .pool = pool, .stream = stream, .state = HAL_MEM_SPECIAL};
  return block;
}

/* Counts a block of another source as a segment. */
static void account_foreign(hal_allocator_t *allocator, hal_block_t *block) {
  const uint32_t kind = block->pool->kind;
  hal_mem_map_insert(&allocator->map, block, block->size);
  hal_mem_stat_increase(&allocator->stats, kind, HAL_MEM_SEGMENT, 1);
  hal_mem_stat_increase(&allocator->stats, kind, HAL_MEM_RESERVED_BYTES, (int64_t)block->size);
  account(allocator, kind, block->size, block->requested);
  hal_mem_history_segment(allocator, block);
  note_active(allocator, block);
}

static hal_status_t allocate_empty(hal_allocator_t *allocator, hal_stream_t *stream, hal_block_t **out_block) {
  hal_lock(&allocator->lock);
  hal_block_t *block = foreign_block(allocator, HAL_MEM_EMPTY, stream, NULL, 0);
  if (block) allocator->empty_count++;
  hal_unlock(&allocator->lock);
  if (!block) return hal_error_set(HAL_RESOURCE_EXHAUSTED, "the host has no memory for the allocator's records");
  *out_block = block;
  return HAL_OK;
}

/* One attempt to get memory of a plugin that pools memory itself. The caller holds the lock, which is released while
 * the plugin is called. */
static hal_status_t attempt_pooled(hal_allocator_t *allocator, hal_stream_t *stream, size_t size, size_t requested,
                                   void **out_address) {
  hal_device_t *device = allocator->device;
  if (hal_mem_over_capacity(allocator, size)) return hal_error_set(HAL_RESOURCE_EXHAUSTED, "%s", "");
  allocator->in_flight += size;
  hal_unlock(&allocator->lock);
  hal_status_t status =
      hal_call_memory_alloc_async(device->plugin, device->ordinal, stream->direct.handle, requested, 0, out_address);
  status = hal_error_plugin_made(device->plugin, HAL_SLOT_memory_alloc_async, status, *out_address);
  hal_lock(&allocator->lock);
  allocator->in_flight -= size;
  return status;
}

static hal_status_t allocate_pooled(request_t *request, hal_stream_t *stream, size_t requested,
                                    hal_block_t **out_block) {
  hal_allocator_t *allocator = request->allocator;
  void *address = NULL;
  hal_block_t *block = foreign_block(allocator, HAL_MEM_POOLED, stream, NULL, request->size);
  if (!block) return hal_error_set(HAL_RESOURCE_EXHAUSTED, "the host has no memory for the allocator's records");
  hal_status_t status = attempt_pooled(allocator, stream, request->size, requested, &address);
  if (status == HAL_RESOURCE_EXHAUSTED) {
    allocator->stats.num_alloc_retries++;
    hal_mem_pending_drain(allocator, &request->ready);
    run_ready(request);
    hal_mem_held_flush(allocator, stream);
    status = attempt_pooled(allocator, stream, request->size, requested, &address);
  }
  if (status) {
    hal_mem_block_forget(allocator, block);
    return status;
  }
  block->address = address;
  block->requested = requested;
  allocator->stats.num_device_alloc++;
  account_foreign(allocator, block);
  *out_block = block;
  return HAL_OK;
}

/* ---- public ---- */

static hal_status_t wrong_stream(int32_t device, const hal_stream_t *stream) {
  return hal_error_set(HAL_INVALID_ARGUMENT,
                       "the stream of device %s cannot be used for device %s; use a stream of the same device",
                       stream->device->label, hal_device_label(device));
}

/* Takes a held block for a request, or a free one; otherwise allocates a segment. */
static hal_status_t take_or_make(request_t *request, uint32_t kind, hal_block_t **out_block) {
  hal_allocator_t *const allocator = request->allocator;
  *out_block = request->is_shareable ? NULL : hal_mem_held_take(request->pool, request->size);
  if (*out_block) return HAL_OK;
  hal_mem_pool_pin(request->pool);
  const int is_hit = !request->is_shareable && find(allocator, request->pool, kind, request->size);
  const hal_status_t status =
      is_hit ? attempt(request, request->segment, out_block) : allocate_miss(request, out_block);
  hal_mem_pool_unpin(request->pool);
  return status;
}

/* Finds or creates the block of a request in one of two pools by size, which are created if they are NULL. The caller
 * holds the lock. */
static hal_status_t find_or_make(request_t *request, hal_mem_pool_t **pools, hal_stream_t *stream, size_t size,
                                 hal_block_t **out_block) {
  hal_allocator_t *allocator = request->allocator;
  const uint32_t kind = request->size <= HAL_MEM_SMALL_LIMIT ? HAL_MEM_SMALL : HAL_MEM_LARGE;
  request->pool = pools[kind];
  if (allocator->pooled && !(request->pool && request->pool->owner))
    return allocate_pooled(request, stream, size, out_block);
  if (!request->pool) {
    HAL_RETURN_IF_ERROR(hal_mem_pool_create(allocator, stream, kind, &request->pool));
    pools[kind] = request->pool;
  }
  if (kind == HAL_MEM_LARGE && hal_mem_expands(request->pool) && !request->is_shareable)
    request->segment = request->size; /* bytes of the growth */
  HAL_RETURN_IF_ERROR(take_or_make(request, kind, out_block));
  (*out_block)->state = HAL_MEM_PLAIN;
  (*out_block)->requested = size;
  account(allocator, kind, (*out_block)->size, size);
  note_active(allocator, *out_block);
  return HAL_OK;
}

enum { ALONE = 1, SHAREABLE = 2 }; /* flags of a request */

/* hal_mem_allocate without the stack of the call. */
static hal_status_t allocate_any(hal_allocator_t *allocator, hal_mem_pool_t **pools, hal_stream_t *stream, size_t size,
                                 int flags, hal_block_t **out_block) {
  request_t request = {.allocator = allocator, .alone = flags & ALONE, .is_shareable = flags & SHAREABLE};
  if (!size) return allocate_empty(allocator, stream, out_block);
  hal_block_t *block = NULL;
  if (atomic_load_explicit(&hal_ipc_sent, memory_order_relaxed)) hal_mem_ipc_collect();
  hal_lock(&allocator->lock);
  request.size = hal_mem_config_round(&allocator->config, size);
  request.segment = request.size ? hal_mem_config_segment(&allocator->config, request.size) : 0;
  const int is_valid = request.segment && request.segment <= INT64_MAX;
  const int is_private = pools[HAL_MEM_SMALL] && pools[HAL_MEM_SMALL]->owner; /* NULL, or the stream's current ones */
  if (!is_valid || (allocator->custom.allocate && !is_private)) {
    hal_unlock(&allocator->lock);
    return is_valid ? hal_mem_custom_allocate(allocator, stream, size, out_block)
                    : hal_mem_error_exhausted(allocator, "allocate", size, "");
  }
  if (atomic_load_explicit(&allocator->pending, memory_order_relaxed)) hal_mem_pending_poll(allocator, &request.ready);
  const hal_status_t status = find_or_make(&request, pools, stream, size, &block);
  if (status == HAL_RESOURCE_EXHAUSTED) allocator->stats.num_ooms++;
  hal_unlock(&allocator->lock);
  hal_mem_ready_run(request.ready);
  if (status == HAL_RESOURCE_EXHAUSTED) {
    char cause[256];
    snprintf(cause, sizeof(cause), "%s", hal_error_message());
    return hal_mem_error_exhausted(allocator, "allocate", size, cause);
  }
  if (status) return hal_error_prefix(status, "device %s: allocating %zu bytes: ", allocator->device->label, size);
  *out_block = block;
  return HAL_OK;
}

static hal_status_t allocate_recorded(hal_allocator_t *allocator, hal_mem_pool_t **pools, hal_stream_t *stream,
                                      size_t size, int flags, hal_block_t **out_block) {
  if (HAL_LIKELY(!hal_mem_is_recorded(allocator)))
    return allocate_any(allocator, pools, stream, size, flags, out_block);
  hal_mem_scope_t scope;
  hal_mem_history_enter(allocator, HAL_MEMORY_STACKS_LIVE, &scope);
  const hal_status_t status = allocate_any(allocator, pools, stream, size, flags, out_block);
  hal_mem_history_leave(allocator, &scope);
  return status;
}

hal_status_t hal_mem_allocate(hal_allocator_t *allocator, hal_mem_pool_t **pools, hal_stream_t *stream, size_t size,
                              int alone, hal_block_t **out_block) {
  return allocate_recorded(allocator, pools, stream, size, alone ? ALONE : 0, out_block);
}

/* hal_memory_allocate without the cache hit. */
static hal_status_t __attribute__((noinline))
allocate_slow(hal_allocator_t *allocator, hal_stream_t *stream, size_t size, hal_block_t **out_block) {
  return hal_mem_allocate(allocator, allocator->pools[stream->id], stream, size, 0, out_block);
}

hal_status_t hal_memory_allocate_shareable(int32_t index, hal_stream_t *stream, size_t size, hal_block_t **out_block) {
  hal_device_t *device;
  HAL_RETURN_IF_ERROR(hal_device_get(index, &device));
  stream = hal_stream_or_current(device, stream);
  if (stream->device != device) return wrong_stream(index, stream);
  hal_allocator_t *const allocator = hal_allocator_of(device);
  const int flags = allocator->expands ? SHAREABLE : 0;
  return allocate_recorded(allocator, allocator->pools[stream->id], stream, size, flags, out_block);
}

hal_status_t hal_memory_allocate(int32_t index, hal_stream_t *stream, size_t size, hal_block_t **out_block) {
  hal_device_t *device;
  HAL_RETURN_IF_ERROR(hal_device_get(index, &device));
  stream = hal_stream_or_current(device, stream);
  if (HAL_UNLIKELY(stream->device != device)) return wrong_stream(index, stream);
  hal_allocator_t *allocator = hal_allocator_of(device);
  /* The cache hit of a small request, the most frequent case: rounding cannot overflow, and nothing is pending. */
  const uint32_t roundup = __atomic_load_n(&allocator->config.roundup_on, __ATOMIC_RELAXED);
  if (HAL_UNLIKELY(size - 1 >= HAL_MEM_SMALL_LIMIT || roundup)) {
    return allocate_slow(allocator, stream, size, out_block);
  }
  const size_t rounded = (size + HAL_MEM_GRANULE - 1) & ~(HAL_MEM_GRANULE - 1);
  hal_lock(&allocator->lock);
  hal_mem_pool_t *pool = allocator->pools[stream->id][HAL_MEM_SMALL];
  hal_block_t *block = NULL;
  if (HAL_LIKELY(pool && !atomic_load_explicit(&allocator->pending, memory_order_relaxed))) {
    block = hal_mem_held_take(pool, rounded);
    if (!block && (block = find(allocator, pool, HAL_MEM_SMALL, rounded)))
      block = carve(allocator, pool, HAL_MEM_SMALL, block, rounded);
  }
  if (HAL_UNLIKELY(!block)) {
    hal_unlock(&allocator->lock);
    return allocate_slow(allocator, stream, size, out_block);
  }
  block->state = HAL_MEM_PLAIN;
  block->requested = size;
  account(allocator, HAL_MEM_SMALL, block->size, size);
  hal_unlock(&allocator->lock);
  *out_block = block;
  return HAL_OK;
}

void *hal_memory_block_address(const hal_block_t *block) { return block->address; }
size_t hal_memory_block_size(const hal_block_t *block) { return block->requested; }
int32_t hal_memory_block_device(const hal_block_t *block) { return block->stream->device->index; }

hal_status_t hal_memory_record_stream(hal_block_t *block, hal_stream_t *stream) {
  hal_allocator_t *allocator = hal_mem_block_allocator(block);
  HAL_RETURN_IF_ERROR(hal_device_check_alive(allocator->device));
  stream = hal_stream_or_current(allocator->device, stream);
  if (stream == block->stream) return HAL_OK;
  hal_lock(&allocator->lock);
  const int is_empty = block->pool->source == HAL_MEM_EMPTY;
  const hal_status_t status = is_empty ? HAL_OK : hal_mem_block_use(allocator, block, stream);
  hal_unlock(&allocator->lock);
  return status;
}

/* Frees cached memory for adopted memory, as after a cache miss. The caller holds the lock. */
static int make_room(request_t *request) {
  hal_allocator_t *allocator = request->allocator;
  if (HAL_LIKELY(!hal_mem_over_capacity(allocator, request->size))) return 1;
  allocator->stats.num_alloc_retries++;
  allocator->stats.num_sync_all_streams++;
  hal_mem_pending_drain(allocator, &request->ready);
  run_ready(request);
  hal_mem_segment_trim_all(allocator);
  return !hal_mem_over_capacity(allocator, request->size);
}

static hal_status_t adopt(hal_allocator_t *allocator, hal_stream_t *stream, void *address, size_t size,
                          hal_host_fn_t free_fn, void *user_data, hal_block_t **out_block) {
  if (size && !address) return hal_error_set(HAL_INVALID_ARGUMENT, "hal_memory_adopt: %zu bytes at address NULL", size);
  uintptr_t end;
  if (size > INT64_MAX || __builtin_add_overflow((uintptr_t)address, size, &end)) {
    return hal_mem_error_exhausted(allocator, "adopt", size, "");
  }
  request_t request = {.allocator = allocator, .size = size};
  hal_block_t *block = NULL;
  hal_lock(&allocator->lock);
  hal_mem_pending_poll(allocator, &request.ready);
  const int fits = make_room(&request);
  if (fits) block = foreign_block(allocator, HAL_MEM_ADOPTED, stream, address, size);
  if (block) {
    block->u.free.fn = free_fn;
    block->u.free.data = user_data;
    account_foreign(allocator, block);
  } else if (!fits) {
    allocator->stats.num_ooms++;
  }
  hal_unlock(&allocator->lock);
  hal_mem_ready_run(request.ready);
  if (!fits) return hal_mem_error_exhausted(allocator, "adopt", size, "");
  if (!block) return hal_error_set(HAL_RESOURCE_EXHAUSTED, "the host has no memory for the allocator's records");
  *out_block = block;
  return HAL_OK;
}

hal_status_t hal_memory_adopt(int32_t index, hal_stream_t *stream, void *address, size_t size, hal_host_fn_t free_fn,
                              void *user_data, hal_block_t **out_block) {
  hal_device_t *device;
  HAL_RETURN_IF_ERROR(hal_device_get(index, &device));
  stream = hal_stream_or_current(device, stream);
  if (stream->device != device) return wrong_stream(index, stream);
  hal_allocator_t *const allocator = hal_allocator_of(device);
  hal_mem_scope_t scope;
  const int is_recorded = hal_mem_is_recorded(allocator);
  if (is_recorded) hal_mem_history_enter(allocator, HAL_MEMORY_STACKS_LIVE, &scope);
  const hal_status_t status = adopt(allocator, stream, address, size, free_fn, user_data, out_block);
  if (is_recorded) hal_mem_history_leave(allocator, &scope);
  return status;
}

hal_status_t hal_memory_defer(int32_t index, hal_stream_t *stream, hal_host_fn_t free_fn, void *user_data) {
  hal_device_t *device;
  hal_block_t *ready = NULL;
  HAL_RETURN_IF_ERROR(hal_device_get(index, &device));
  stream = hal_stream_or_current(device, stream);
  if (stream->device != device) return wrong_stream(index, stream);
  hal_allocator_t *allocator = hal_allocator_of(device);
  hal_lock(&allocator->lock);
  hal_block_t *block = foreign_block(allocator, HAL_MEM_ACTION, stream, NULL, 0);
  if (block) {
    block->u.free.fn = free_fn;
    block->u.free.data = user_data;
    hal_mem_block_end(allocator, block, 1, &ready);
  } else {
    hal_mem_stream_wait(allocator, stream); /* there is no record to defer it with, so it waits and frees now */
  }
  hal_mem_pending_poll(allocator, &ready);
  hal_unlock(&allocator->lock);
  hal_mem_ready_run(ready);
  if (!block) free_fn(user_data);
  return HAL_OK;
}
