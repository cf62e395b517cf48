/* private.c: private memory pools, for work that is recorded and run again: no other work may use its addresses.
 *
 * While a stream allocates from a private pool, the pool replaces the stream's own one in the allocator's table, so
 * that a cache hit needs no check; a released block returns to its pool by its pool pointer. Free segments of a private
 * pool are not shared: trimming skips them. When the pool ends, its segments join the streams' own pools. */
#include "memory/allocator.h"
#include "memory/custom/custom.h"
#include "memory/expand/expand.h"
#include "memory/held.h"
#include "memory/pool.h"

/* The pools of one stream in a private pool. */
typedef struct share_s {
  struct share_s *next;
  hal_stream_t *stream;
  hal_mem_pool_t *pools[2];
  int active; /* they are in the table */
} share_t;

struct hal_memory_pool_s {
  hal_allocator_t *allocator;
  uint64_t id;
  uint32_t flags; /* HAL_MEMORY_POOL_* */
  hal_memory_allocator_t custom;
  atomic_uint references;
  share_t *shares; /* guarded by the allocator's lock */
};

static atomic_uint_fast64_t last_id;

hal_status_t hal_memory_pool_create(int32_t index, hal_memory_pool_t **out_pool) {
  return hal_memory_pool_create_with(index, 0, out_pool);
}

hal_status_t hal_memory_pool_create_with(int32_t index, uint32_t flags, hal_memory_pool_t **out_pool) {
  return hal_memory_pool_create_from(index, flags, NULL, out_pool);
}

hal_status_t hal_memory_pool_create_from(int32_t index, uint32_t flags, const hal_memory_allocator_t *allocator,
                                         hal_memory_pool_t **out_pool) {
  hal_device_t *device;
  if (flags & ~HAL_MEMORY_POOL_NO_SPLIT)
    return hal_error_set(HAL_UNIMPLEMENTED, "hal_memory_pool_create_with: unknown flags 0x%x; known is 0x%x",
                         flags & ~HAL_MEMORY_POOL_NO_SPLIT, HAL_MEMORY_POOL_NO_SPLIT);
  if (allocator) HAL_RETURN_IF_ERROR(hal_mem_custom_check("hal_memory_pool_create_from", allocator));
  HAL_RETURN_IF_ERROR(hal_device_get(index, &device));
  hal_memory_pool_t *pool = hal_calloc(1, sizeof(*pool));
  if (!pool)
    return hal_error_set(HAL_RESOURCE_EXHAUSTED, "device %s: the host has no memory for a memory pool", device->label);
  pool->allocator = hal_allocator_of(device);
  pool->flags = flags;
  if (allocator) pool->custom = *allocator;
  pool->id = atomic_fetch_add(&last_id, 1) + 1;
  atomic_init(&pool->references, 1);
  hal_device_add_object(device);
  *out_pool = pool;
  return HAL_OK;
}

uint64_t hal_memory_pool_id(const hal_memory_pool_t *pool) { return pool->id; }

void hal_memory_pool_retain(hal_memory_pool_t *pool) { atomic_fetch_add(&pool->references, 1); }

/* ---- routing ---- */

/* Returns the share of a stream, NULL if the stream has never used the pool. */
static share_t *share_of(const hal_memory_pool_t *pool, const hal_stream_t *stream) {
  share_t *share = pool->shares;
  while (share && share->stream != stream) share = share->next;
  return share;
}

/* Creates the share of a stream. Errors: HAL_RESOURCE_EXHAUSTED. */
static hal_status_t share_create(hal_memory_pool_t *pool, hal_stream_t *stream, share_t **out_share) {
  share_t *share = hal_calloc(1, sizeof(*share));
  hal_status_t status = HAL_OK;
  if (!share) return hal_error_set(HAL_RESOURCE_EXHAUSTED, "the host has no memory for the records of a memory pool");
  for (uint32_t kind = 0; kind < 2 && !status; kind++) {
    status = hal_mem_pool_create(pool->allocator, stream, kind, &share->pools[kind]);
    if (status) break;
    share->pools[kind]->owner = pool;
    share->pools[kind]->custom = pool->custom;
    if (pool->flags & HAL_MEMORY_POOL_NO_SPLIT) share->pools[kind]->carving = HAL_MEM_CARVE_WHOLE;
  }
  if (status) {
    hal_free(share->pools[0]);
    hal_free(share);
    return status;
  }
  share->stream = stream;
  share->next = pool->shares;
  pool->shares = share;
  *out_share = share;
  return HAL_OK;
}

static hal_status_t begin(hal_memory_pool_t *pool, hal_stream_t *stream) {
  hal_allocator_t *allocator = pool->allocator;
  hal_mem_pool_t **const table = allocator->pools[stream->id];
  share_t *share = share_of(pool, stream);
  if (table[HAL_MEM_SMALL] && table[HAL_MEM_SMALL]->owner)
    return hal_error_set(
        HAL_FAILED_PRECONDITION, "stream %lld of device %s allocates from memory pool %llu already; end that first",
        (long long)stream->id, allocator->device->label, (unsigned long long)table[HAL_MEM_SMALL]->owner->id);
  if (!share) HAL_RETURN_IF_ERROR(share_create(pool, stream, &share));
  for (uint32_t kind = 0; kind < 2; kind++) {
    share->pools[kind]->displaced = table[kind];
    table[kind] = share->pools[kind];
  }
  share->active = 1;
  return HAL_OK;
}

/* Returns the stream's own pools to the table. */
static void restore(hal_allocator_t *allocator, share_t *share) {
  for (uint32_t kind = 0; kind < 2; kind++) {
    allocator->pools[share->stream->id][kind] = share->pools[kind]->displaced;
    share->pools[kind]->displaced = NULL;
  }
  share->active = 0;
}

static hal_status_t end(hal_memory_pool_t *pool, hal_stream_t *stream) {
  share_t *share = share_of(pool, stream);
  if (!share || !share->active)
    return hal_error_set(HAL_FAILED_PRECONDITION, "stream %lld of device %s does not allocate from memory pool %llu",
                         (long long)stream->id, pool->allocator->device->label, (unsigned long long)pool->id);
  restore(pool->allocator, share);
  return HAL_OK;
}

/* Calls one of the two functions under the lock. */
static hal_status_t route(const char *function, hal_memory_pool_t *pool, hal_stream_t *stream,
                          hal_status_t (*change)(hal_memory_pool_t *, hal_stream_t *)) {
  hal_allocator_t *allocator = pool->allocator;
  HAL_RETURN_IF_ERROR(hal_device_check_alive(allocator->device));
  stream = hal_stream_or_current(allocator->device, stream);
  if (stream->device != allocator->device)
    return hal_error_set(HAL_INVALID_ARGUMENT, "%s: the stream belongs to device %s, the pool to device %s", function,
                         stream->device->label, allocator->device->label);
  hal_lock(&allocator->lock);
  const hal_status_t status = change(pool, stream);
  hal_unlock(&allocator->lock);
  return status;
}

hal_status_t hal_memory_pool_begin(hal_memory_pool_t *pool, hal_stream_t *stream) {
  return route("hal_memory_pool_begin", pool, stream, begin);
}

hal_status_t hal_memory_pool_end(hal_memory_pool_t *pool, hal_stream_t *stream) {
  return route("hal_memory_pool_end", pool, stream, end);
}

hal_status_t hal_memory_pool_allocate(hal_memory_pool_t *pool, hal_stream_t *stream, size_t size,
                                      hal_block_t **out_block) {
  hal_allocator_t *allocator = pool->allocator;
  hal_status_t status = HAL_OK;
  HAL_RETURN_IF_ERROR(hal_device_check_alive(allocator->device));
  hal_lock(&allocator->lock);
  share_t *share = share_of(pool, stream);
  if (!share) status = share_create(pool, stream, &share);
  hal_unlock(&allocator->lock);
  return status ? status : hal_mem_allocate(allocator, share->pools, stream, size, 1, out_block);
}

/* ---- the end ---- */

void hal_mem_pool_unpin(hal_mem_pool_t *pool) {
  if (--pool->pins == 0 && pool->heir) hal_free(pool);
}

/* Moves the blocks of one segment to another pool of the same stream and kind. */
static void move_segment(hal_block_t *first, hal_mem_pool_t *to) {
  for (hal_block_t *block = first; block; block = block->next) {
    hal_mem_pool_t *const from = block->pool;
    if (block->state == HAL_MEM_FREE) {
      hal_mem_pool_take(from, from->kind, block);
      hal_mem_pool_insert(to, to->kind, block);
    }
    block->pool = to;
  }
}

/* Moves all segments of a pool in a subtree of the address map, whose depth is small (map.c). */
static void move_segments(hal_block_t *node, const hal_mem_pool_t *from, hal_mem_pool_t *to) {
  if (!node) return;
  move_segments(node->left, from, to);
  move_segments(node->right, from, to);
  if (node->pool == from) move_segment(node, to);
}

/* Moves a stream's memory of a private pool to the stream's own pools; if the stream has none, the private one becomes
 * its own. */
static void surrender(hal_allocator_t *allocator, share_t *share) {
  if (share->active) restore(allocator, share);
  for (uint32_t kind = 0; kind < 2; kind++) {
    hal_mem_pool_t *const from = share->pools[kind], **own = &allocator->pools[share->stream->id][kind];
    hal_mem_held_end(from);
    if (from->custom.allocate) {
      hal_mem_custom_orphan(allocator, from);
      continue;
    }
    from->owner = NULL;
    from->carving &= (uint16_t)~HAL_MEM_CARVE_WHOLE;
    while (*own && (*own)->owner) own = &(*own)->displaced;
    if (*own) {
      move_segments(allocator->map, from, *own);
      hal_mem_expand_move(allocator, from, *own);
      if (from->pins)
        from->heir = *own; /* freed by the last hal_mem_pool_unpin */
      else
        hal_free(from);
    } else {
      *own = from;
    }
  }
}

/* Called instead if no allocation is possible any more: blocks that are still held point to their pool, so it
 * remains. */
static void retire(hal_allocator_t *allocator, share_t *share) {
  for (uint32_t kind = 0; kind < 2; kind++) { /* held blocks stay held, since no further allocation is possible */
    share->pools[kind]->displaced = allocator->retired;
    allocator->retired = share->pools[kind];
  }
}

void hal_memory_pool_release(hal_memory_pool_t *pool) {
  if (!pool || atomic_fetch_sub(&pool->references, 1) > 1) return;
  hal_allocator_t *allocator = pool->allocator;
  const int alive = hal_device_is_alive(allocator->device);
  if (alive) hal_lock(&allocator->lock);
  while (pool->shares) {
    share_t *share = pool->shares;
    pool->shares = share->next;
    (alive ? surrender : retire)(allocator, share);
    hal_free(share);
  }
  if (alive) hal_unlock(&allocator->lock);
  hal_device_remove_object(allocator->device);
  hal_free(pool);
}
