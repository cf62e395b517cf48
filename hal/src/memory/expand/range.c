/* range.c: the addresses and the memory of expandable segments (expand.h). */
#include <string.h>

#include "device/failure.h"
#include "memory/expand/expand.h"
#include "memory/history.h"
#include "memory/pool.h"
#include "plugin/slots.h"

#define UNKNOWN_TOTAL ((size_t)64 << 30) /* bytes to reserve if the size of the device is unknown */

/* ---- the setting ---- */

static atomic_uint warned; /* plugins that were reported, as bits */

static void warn_once(const hal_device_t *device, const char *cause) {
  const uint32_t bit = UINT32_C(1) << (device->plugin->index & 31);
  if (atomic_fetch_or(&warned, bit) & bit) return;
  hal_log(HAL_LOG_WARNING,
          "PYTORCH_ALLOC_CONF: expandable_segments:True is ignored for device %s: %s; its segments do not grow",
          device->label, cause);
}

void hal_mem_expand_setup(hal_allocator_t *allocator) {
  const hal_device_t *const device = allocator->device;
  const size_t granularity = (size_t)device->info.virtual_granularity;
  if (!allocator->config.expandable_segments) return;
  if (allocator->pooled)
    warn_once(device, "its plugin pools memory itself");
  else if (!granularity || !hal_slot_is_provided(&device->plugin->api, HAL_SLOT_virtual_reserve))
    warn_once(device, "its plugin has no virtual memory (virtual_reserve, virtual_granularity)");
  else if (!__builtin_add_overflow(HAL_MEM_PIECE_UNIT, granularity - 1, &allocator->unit))
    allocator->unit -= allocator->unit % granularity, allocator->expands = 1;
}

void hal_mem_expand_refuse(hal_allocator_t *allocator) {
  allocator->expands = 0;
  hal_unlock(&allocator->lock); /* a log sink belongs to the application */
  warn_once(allocator->device, hal_error_message());
  hal_lock(&allocator->lock);
}

/* ---- pieces ---- */

hal_mem_range_t *hal_mem_range_of(const hal_allocator_t *allocator, const hal_block_t *block) {
  hal_mem_range_t *range = allocator->ranges;
  while (range && (uintptr_t)block->address - (uintptr_t)range->address >= range->size) range = range->next;
  return range;
}

size_t hal_mem_range_find(const hal_mem_range_t *range, size_t offset) {
  size_t low = 0, high = range->count;
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    if (range->pieces[middle].offset + range->pieces[middle].size <= offset)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/* Returns the next part of [*at, end) without memory, at most one piece long; 0 if there is none. */
static size_t next_gap(const hal_mem_range_t *range, size_t *at, size_t end, size_t limit) {
  for (size_t i = hal_mem_range_find(range, *at); *at < end; i++) {
    size_t stop = i < range->count && range->pieces[i].offset < end ? range->pieces[i].offset : end;
    if (stop > *at) return stop - *at < limit ? stop - *at : limit;
    *at = range->pieces[i].offset + range->pieces[i].size;
  }
  return 0;
}

static int make_room(hal_mem_range_t *range, size_t count) {
  if (range->count + count <= range->capacity) return 1;
  const size_t capacity = range->count + count < 32 ? 32 : 2 * (range->count + count);
  hal_mem_piece_t *const grown = hal_calloc(capacity, sizeof *grown);
  if (!grown) return 0;
  if (range->count) memcpy(grown, range->pieces, range->count * sizeof *grown);
  hal_free(range->pieces);
  range->pieces = grown;
  range->capacity = capacity;
  return 1;
}

static void insert(hal_mem_range_t *range, const hal_mem_piece_t *piece) {
  const size_t at = hal_mem_range_find(range, piece->offset);
  memmove(range->pieces + at + 1, range->pieces + at, (range->count - at) * sizeof *range->pieces);
  range->pieces[at] = *piece;
  range->count++;
}

static void erase(hal_mem_range_t *range, size_t offset) {
  const size_t at = hal_mem_range_find(range, offset);
  memmove(range->pieces + at, range->pieces + at + 1, (--range->count - at) * sizeof *range->pieces);
}

/* ---- calls of the plugin, without the lock ---- */

static hal_status_t create_all(const hal_device_t *device, hal_mem_piece_t *pieces, size_t count) {
  for (size_t i = 0; i < count; i++) {
    hal_status_t status =
        hal_call_virtual_create(device->plugin, device->ordinal, pieces[i].size, HAL_HANDLE_NONE, &pieces[i].memory);
    status = hal_error_plugin_made(device->plugin, HAL_SLOT_virtual_create, status, pieces[i].memory);
    if (!status) continue;
    pieces[i].memory = NULL;
    return status;
  }
  return HAL_OK;
}

/* Maps pieces in order; `*out_mapped` is the number of those that are mapped. */
static hal_status_t map_all(const hal_device_t *device, char *address, const hal_mem_piece_t *pieces, size_t count,
                            size_t *out_mapped) {
  for (*out_mapped = 0; *out_mapped < count; ++*out_mapped) {
    const hal_mem_piece_t *const piece = &pieces[*out_mapped];
    const hal_status_t status =
        hal_call_virtual_map(device->plugin, device->ordinal, address + piece->offset, piece->size, piece->memory);
    if (status) return hal_error_plugin(device->plugin, HAL_SLOT_virtual_map, status);
  }
  return HAL_OK;
}

/* Reverses create_all and map_all after a failure, whose message remains. Memory that cannot be unmapped keeps its
 * handle; the others are set to NULL. */
static void undo(const hal_device_t *device, char *address, hal_mem_piece_t *pieces, size_t count, size_t mapped) {
  hal_error_saved_t saved;
  hal_error_save(&saved);
  for (size_t i = 0; i < count; i++) {
    hal_status_t status = HAL_OK;
    if (!pieces[i].memory) continue;
    if (i < mapped)
      status = hal_call_virtual_unmap(device->plugin, device->ordinal, address + pieces[i].offset, pieces[i].size);
    hal_error_report(device->plugin, HAL_SLOT_virtual_unmap, status);
    if (status) continue;
    HAL_CALL_QUIETLY(device->plugin, virtual_release, device->ordinal, pieces[i].memory);
    pieces[i].memory = NULL;
  }
  hal_error_restore(&saved);
}

/* ---- mapping ---- */

/* Fills an array with the pieces that a part of a range needs. Returns their number; with `pieces` NULL only counts. */
static size_t plan(const hal_mem_range_t *range, size_t offset, size_t size, size_t limit, hal_mem_piece_t *pieces) {
  size_t count = 0, length;
  for (size_t at = offset; (length = next_gap(range, &at, offset + size, limit)); at += length) {
    if (pieces) pieces[count] = (hal_mem_piece_t){.offset = at, .size = length};
    count++;
  }
  return count;
}

/* Adds pieces to the range, so that no other thread maps the same addresses. */
static void claim(hal_mem_range_t *range, const hal_mem_piece_t *pieces, size_t count) {
  for (size_t i = 0; i < count; i++) insert(range, &pieces[i]);
}

/* Stores the handles of claimed pieces; those without one are removed. Counts the memory. */
static void store_handles(hal_allocator_t *allocator, hal_mem_range_t *range, const hal_mem_piece_t *pieces,
                          size_t count) {
  for (size_t i = 0; i < count; i++) {
    if (!pieces[i].memory) {
      erase(range, pieces[i].offset);
      continue;
    }
    range->pieces[hal_mem_range_find(range, pieces[i].offset)].memory = pieces[i].memory;
    hal_mem_stat_increase(&allocator->stats, range->pool->kind, HAL_MEM_RESERVED_BYTES, (int64_t)pieces[i].size);
    allocator->stats.num_device_alloc++;
    hal_mem_history_mapped(allocator, range->pool, HAL_MEMORY_EVENT_SEGMENT_MAP, range->address + pieces[i].offset,
                           pieces[i].size);
  }
}

hal_status_t hal_mem_range_map(hal_allocator_t *allocator, hal_mem_range_t *range, size_t offset, size_t size) {
  hal_device_t *const device = allocator->device;
  const size_t limit = HAL_MEM_PIECE_LIMIT - HAL_MEM_PIECE_LIMIT % allocator->unit;
  const size_t longest = limit ? limit : allocator->unit, count = plan(range, offset, size, longest, NULL);
  size_t total = 0, mapped = 0;
  if (!count) return HAL_OK;
  hal_mem_piece_t *const pieces = hal_calloc(count, sizeof *pieces);
  if (!pieces || !make_room(range, count)) {
    hal_free(pieces);
    return hal_error_set(HAL_RESOURCE_EXHAUSTED, "the host has no memory for the allocator's records");
  }
  plan(range, offset, size, longest, pieces);
  for (size_t i = 0; i < count; i++) total += pieces[i].size;
  if (hal_mem_over_capacity(allocator, total)) {
    hal_free(pieces);
    return hal_error_set(HAL_RESOURCE_EXHAUSTED, "%s", "");
  }
  claim(range, pieces, count);
  allocator->in_flight += total;
  hal_unlock(&allocator->lock);
  hal_status_t status = create_all(device, pieces, count);
  if (!status) status = map_all(device, range->address, pieces, count, &mapped);
  if (status) undo(device, range->address, pieces, count, mapped);
  hal_lock(&allocator->lock);
  allocator->in_flight -= total;
  store_handles(allocator, range, pieces, count);
  hal_free(pieces);
  return status;
}

/* Unmaps and releases one piece, whose failure is recorded for the stream. Returns whether it was unmapped. The lock is
 * released meanwhile. */
static int unmap(hal_allocator_t *allocator, const hal_mem_range_t *range, const hal_mem_piece_t *piece) {
  hal_device_t *const device = allocator->device;
  hal_stream_t *const stream = range->pool->stream;
  hal_unlock(&allocator->lock);
  hal_status_t status =
      hal_call_virtual_unmap(device->plugin, device->ordinal, range->address + piece->offset, piece->size);
  const int is_unmapped = !status;
  if (status) hal_failure_record_plugin(stream, HAL_SLOT_virtual_unmap, status);
  if (is_unmapped) status = hal_call_virtual_release(device->plugin, device->ordinal, piece->memory);
  if (is_unmapped && status) hal_failure_record_plugin(stream, HAL_SLOT_virtual_release, status);
  hal_lock(&allocator->lock);
  return is_unmapped;
}

size_t hal_mem_range_unmap(hal_allocator_t *allocator, hal_mem_range_t *range, size_t offset, size_t size) {
  const size_t end = offset + size;
  size_t freed = 0, at;
  while ((at = hal_mem_range_find(range, offset)) < range->count && range->pieces[at].offset < end) {
    const hal_mem_piece_t piece = range->pieces[at];
    offset = piece.offset + piece.size;
    range->pieces[at].memory = NULL; /* no other thread uses it meanwhile */
    if (!unmap(allocator, range, &piece)) {
      range->pieces[hal_mem_range_find(range, piece.offset)].memory = piece.memory;
      continue;
    }
    erase(range, piece.offset);
    hal_mem_stat_decrease(&allocator->stats, range->pool->kind, HAL_MEM_RESERVED_BYTES, (int64_t)piece.size);
    allocator->stats.num_device_free++;
    freed += piece.size;
    hal_mem_history_mapped(allocator, range->pool, HAL_MEMORY_EVENT_SEGMENT_UNMAP, range->address + piece.offset,
                           piece.size);
  }
  return freed;
}

/* ---- ranges ---- */

/* Returns the bytes to reserve: the addresses of all memory, and some more, because the free parts may be too small. */
static size_t range_size(const hal_allocator_t *allocator, size_t size) {
  const size_t unit = allocator->unit;
  size_t total = (size_t)allocator->device->info.total_memory;
  if (!total) total = UNKNOWN_TOTAL;
  if (total < size) total = size;
  return __builtin_add_overflow(total, total / 8 + unit, &total) ? 0 : total - total % unit;
}

/* Returns whether a request is larger than the memory of the device, as far as that is known. */
static int exceeds_device(const hal_allocator_t *allocator, size_t size) {
  const uint64_t total = allocator->device->info.total_memory;
  return total && size > total;
}

/* Creates the two blocks of a large range: its addresses, and the last block, which is never mapped. */
static hal_status_t add_blocks(hal_allocator_t *allocator, hal_mem_range_t *range) {
  hal_block_t *const first = hal_mem_slab_take(&allocator->blocks);
  hal_block_t *const last = first ? hal_mem_slab_take(&allocator->blocks) : NULL;
  if (!last) {
    if (first) hal_mem_block_forget(allocator, first);
    return hal_error_set(HAL_RESOURCE_EXHAUSTED, "the host has no memory for the allocator's records");
  }
  const hal_block_t block = {.address = range->address,
                             .size = range->size,
                             .pool = range->pool,
                             .stream = range->pool->stream,
                             .state = HAL_MEM_UNMAPPED};
  *first = *last = block;
  first->next = last;
  last->prev = first;
  last->address = range->address + range->size;
  last->size = 0;
  last->state = HAL_MEM_MOVING;
  range->first = first;
  hal_mem_map_insert(&allocator->map, first, range->size);
  return HAL_OK;
}

static void unreserve(hal_allocator_t *allocator, char *address, size_t size) {
  HAL_CALL_AFTER(allocator->device->plugin, virtual_unreserve, allocator->device->ordinal, address, size);
}

/* Reserves addresses without the lock. */
static hal_status_t reserve(hal_allocator_t *allocator, size_t size, char **out_address) {
  hal_device_t *const device = allocator->device;
  void *address = NULL;
  hal_unlock(&allocator->lock);
  hal_status_t status = hal_call_virtual_reserve(device->plugin, device->ordinal, size, &address);
  status = hal_error_plugin_made(device->plugin, HAL_SLOT_virtual_reserve, status, address);
  hal_lock(&allocator->lock);
  *out_address = address;
  return status;
}

hal_status_t hal_mem_range_create(hal_mem_pool_t *pool, size_t size, hal_mem_range_t **out_range) {
  hal_allocator_t *const allocator = pool->allocator;
  const size_t bytes = range_size(allocator, size);
  char *address = NULL;
  if (!bytes) return hal_error_set(HAL_RESOURCE_EXHAUSTED, "%s", "");
  hal_mem_range_t *const range = hal_calloc(1, sizeof *range);
  if (!range) return hal_error_set(HAL_RESOURCE_EXHAUSTED, "the host has no memory for the allocator's records");
  hal_status_t status = reserve(allocator, bytes, &address);
  if (status) {
    hal_free(range);
    if (exceeds_device(allocator, size)) return HAL_RESOURCE_EXHAUSTED; /* the device may still have ranges */
    hal_mem_expand_refuse(allocator);
    return HAL_UNIMPLEMENTED;
  }
  pool = hal_mem_pool_current(pool); /* a private pool may have ended meanwhile */
  *range = (hal_mem_range_t){.next = allocator->ranges, .pool = pool, .address = address, .size = bytes};
  if (pool->kind == HAL_MEM_LARGE) status = add_blocks(allocator, range);
  if (status) {
    hal_unlock(&allocator->lock);
    unreserve(allocator, address, bytes);
    hal_lock(&allocator->lock);
    hal_free(range);
    return status;
  }
  if (pool->kind == HAL_MEM_LARGE) pool->carving |= HAL_MEM_CARVE_LOW;
  allocator->ranges = range;
  hal_mem_stat_increase(&allocator->stats, pool->kind, HAL_MEM_SEGMENT, 1);
  *out_range = range;
  return HAL_OK;
}

/* Removes the records of a range, whose addresses the caller unreserves. */
static void forget(hal_allocator_t *allocator, hal_mem_range_t *range) {
  if (range->first) {
    hal_mem_map_remove(&allocator->map, range->first);
    hal_mem_block_forget(allocator, range->first->next);
    hal_mem_block_forget(allocator, range->first);
  }
  hal_mem_stat_decrease(&allocator->stats, range->pool->kind, HAL_MEM_SEGMENT, 1);
  hal_free(range->pieces);
  hal_free(range);
}

/* Returns whether a range has no memory, and no other thread uses it. */
static int is_empty(const hal_mem_range_t *range) {
  const hal_block_t *const first = range->first;
  return !range->count && (!first || (first->state == HAL_MEM_UNMAPPED && first->size == range->size));
}

void hal_mem_range_sweep(hal_allocator_t *allocator, const hal_mem_pool_t *pool) {
  hal_mem_range_t **link = &allocator->ranges;
  while (*link) {
    hal_mem_range_t *const range = *link;
    if (range->pool != pool || !is_empty(range)) {
      link = &range->next;
      continue;
    }
    char *const address = range->address;
    const size_t size = range->size;
    *link = range->next;
    forget(allocator, range);
    hal_unlock(&allocator->lock);
    unreserve(allocator, address, size);
    hal_lock(&allocator->lock);
    link = &allocator->ranges; /* the list may have changed */
  }
}

void hal_mem_expand_close(hal_allocator_t *allocator) {
  hal_device_t *const device = allocator->device;
  while (allocator->ranges) {
    hal_mem_range_t *const range = allocator->ranges;
    for (size_t i = 0; i < range->count; i++) {
      const hal_mem_piece_t *const piece = &range->pieces[i];
      HAL_CALL_QUIETLY(device->plugin, virtual_unmap, device->ordinal, range->address + piece->offset, piece->size);
      HAL_CALL_QUIETLY(device->plugin, virtual_release, device->ordinal, piece->memory);
    }
    unreserve(allocator, range->address, range->size);
    allocator->ranges = range->next;
    hal_free(range->pieces);
    hal_free(range);
  }
}
