/* life.c: creates and destroys an allocator and its pools, and empties its cache. */
#include "hal/plugin_records.h"
#include "memory/custom/custom.h"
#include "memory/expand/expand.h"
#include "memory/history.h"
#include "memory/ipc.h"
#include "memory/pool.h"
#include "memory/settings/settings.h"

/* Sets the limit of per_process_memory_fraction. */
static void set_fraction(hal_allocator_t *allocator) {
  hal_device_t *const device = allocator->device;
  const double fraction = allocator->config.memory_fraction;
  size_t free_bytes = 0, total = 0;
  if (fraction <= 0.0 || fraction >= 1.0) return;
  if (hal_call_memory_info(device->plugin, device->ordinal, &free_bytes, &total))
    total = (size_t)device->info.total_memory;
  allocator->limit = (size_t)(fraction * (double)total);
  if (total && !allocator->limit) allocator->limit = 1; /* 0 is no limit */
  if (!total)
    hal_log(HAL_LOG_WARNING,
            "PYTORCH_ALLOC_CONF: per_process_memory_fraction is ignored: the memory of device %s is unknown",
            device->label);
}

hal_status_t hal_allocator_create(hal_device_t *device, hal_allocator_t **out_allocator) {
  hal_allocator_t *allocator = hal_calloc(1, sizeof(*allocator));
  if (!allocator) {
    return hal_error_set(HAL_RESOURCE_EXHAUSTED, "device %s: the host has no memory for its allocator", device->label);
  }
  allocator->device = device;
  allocator->pooled = (device->info.flags & HAL_DEVICE_POOLED) != 0;
  allocator->blocks.item_size = sizeof(hal_block_t);
  allocator->uses.item_size = sizeof(hal_mem_use_t);
  hal_mem_settings_add(allocator);
  hal_mem_expand_setup(allocator);
  set_fraction(allocator);
  hal_mem_custom_setup(allocator);
  for (uint32_t source = 0; source < HAL_MEM_SOURCES; source++) {
    for (uint32_t kind = 0; kind < 2; kind++) {
      allocator->foreign[source][kind] = (hal_mem_pool_t){.allocator = allocator, .source = source, .kind = kind};
    }
  }
  *out_allocator = allocator;
  return HAL_OK;
}

/* Frees the memory of a block or segment that is still in the map at the end. */
static void free_remaining(hal_allocator_t *allocator, hal_block_t *block) {
  hal_device_t *device = allocator->device;
  hal_status_t status = HAL_OK;
  if (hal_mem_range_of(allocator, block)) return; /* hal_mem_expand_close */
  for (const hal_mem_custom_t *custom = allocator->customs; custom; custom = custom->next)
    if (custom->address == block->address) return; /* hal_mem_custom_close */
  if (block->pool->source == HAL_MEM_CACHED) {
    status = hal_call_memory_free(device->plugin, device->ordinal, block->address);
  } else if (block->pool->source == HAL_MEM_POOLED) {
    status = hal_call_memory_free_async(device->plugin, device->ordinal, block->stream->direct.handle, block->address);
  }
  if (status)
    hal_log(HAL_LOG_ERROR, "device %s: the plugin could not free memory: %s", device->label, hal_error_message());
}

/* Reports the blocks in a subtree of the address map, whose depth is small (map.c), that were not released. */
static void report_lost(const hal_allocator_t *allocator, const hal_block_t *block, const hal_lost_blocks_t *to) {
  if (!block) return;
  report_lost(allocator, block->left, to);
  if (block->pool->source == HAL_MEM_POOLED && block->state == HAL_MEM_SPECIAL)
    to->lost(allocator->device->ordinal, block->address);
  report_lost(allocator, block->right, to);
}

static const hal_lost_blocks_t *listener_of(const hal_device_t *device) {
  const hal_extension_t *first = NULL;
  if (hal_call_extensions(device->plugin, &first)) return NULL;
  return (const hal_lost_blocks_t *)(const void *)hal_extension_find(first, HAL_LOST_BLOCKS,
                                                                     HAL_STRUCT_SIZE(hal_lost_blocks_t, lost));
}

void hal_allocator_drain(hal_allocator_t *allocator) {
  hal_block_t *ready = NULL;
  hal_lock(&allocator->lock);
  hal_mem_pending_drain(allocator, &ready);
  hal_unlock(&allocator->lock);
  hal_mem_ready_run(ready);
}

void hal_allocator_close(hal_allocator_t *allocator) {
  hal_allocator_drain(allocator);
  hal_mem_history_stop(allocator);
  hal_lock_and_defer(&allocator->lock); /* the plugin may log */
  hal_mem_host_close(allocator);
  hal_mem_segment_trim_all(allocator);
  const int64_t lost = hal_mem_stat_current(&allocator->stats, HAL_MEM_ALLOCATION);
  if (lost) {
    hal_log(HAL_LOG_WARNING, "device %s: closed with %lld blocks, %lld bytes, that were not released",
            allocator->device->label, (long long)lost,
            (long long)hal_mem_stat_current(&allocator->stats, HAL_MEM_ALLOCATED_BYTES));
    for (int id = 0; id < HAL_STREAMS_OF_DEVICE; id++) { /* queued work may use them */
      const hal_mem_pool_t *pool = allocator->pools[id][HAL_MEM_SMALL];
      if (!pool) pool = allocator->pools[id][HAL_MEM_LARGE];
      if (pool) hal_mem_stream_wait(allocator, pool->stream);
    }
  }
  const hal_lost_blocks_t *const listener = lost && allocator->pooled ? listener_of(allocator->device) : NULL;
  if (listener) report_lost(allocator, allocator->map, listener);
  while (allocator->map) {
    hal_block_t *block = allocator->map;
    hal_mem_map_remove(&allocator->map, block);
    free_remaining(allocator, block);
  }
  hal_mem_expand_close(allocator);
  hal_mem_events_destroy(allocator);
  hal_unlock_and_run(&allocator->lock);
  hal_mem_custom_close(allocator);
}

static void free_pools(hal_mem_pool_t *pool) {
  while (pool) {
    hal_mem_pool_t *const next = pool->displaced;
    hal_free(pool);
    pool = next;
  }
}

void hal_allocator_destroy(hal_allocator_t *allocator) {
  if (!allocator) return;
  hal_mem_settings_remove(allocator);
  hal_allocator_close(allocator);
  for (int id = 0; id < HAL_STREAMS_OF_DEVICE; id++) {
    for (int kind = 0; kind < 2; kind++) hal_free(allocator->pools[id][kind]);
  }
  free_pools(allocator->retired);
  free_pools(allocator->orphans);
  hal_mem_pending_destroy(allocator);
  hal_mem_observers_destroy(allocator);
  hal_mem_history_destroy(allocator);
  hal_mem_slab_destroy(&allocator->blocks);
  hal_mem_slab_destroy(&allocator->uses);
  hal_free(allocator);
}

hal_status_t hal_mem_pool_create(hal_allocator_t *allocator, hal_stream_t *stream, uint32_t kind,
                                 hal_mem_pool_t **out_pool) {
  hal_mem_pool_t *pool = hal_calloc(1, sizeof(*pool) + HAL_MEM_BINS * sizeof(hal_block_t *));
  if (!pool) {
    return hal_error_set(HAL_RESOURCE_EXHAUSTED, "device %s: the host has no memory for the pool of stream %lld",
                         allocator->device->label, (long long)stream->id);
  }
  pool->allocator = allocator;
  pool->stream = stream;
  pool->source = HAL_MEM_CACHED;
  pool->kind = kind;
  pool->bins = (hal_block_t **)(pool + 1);
  *out_pool = pool;
  return HAL_OK;
}

static void empty_cache(hal_device_t *device) {
  hal_allocator_t *allocator = hal_allocator_of(device);
  hal_mem_scope_t scope;
  const int is_recorded = hal_mem_is_recorded(allocator);
  if (is_recorded) hal_mem_history_enter(allocator, HAL_MEMORY_STACKS_ALL, &scope);
  hal_allocator_drain(allocator);
  hal_lock(&allocator->lock);
  hal_mem_segment_trim_all(allocator);
  hal_unlock(&allocator->lock);
  if (is_recorded) hal_mem_history_leave(allocator, &scope);
}

void hal_allocator_trim(hal_allocator_t *allocator) {
  empty_cache(allocator->device);
  hal_lock(&allocator->lock);
  hal_mem_host_trim(allocator, 0);
  hal_unlock(&allocator->lock);
  hal_ipc_forget_events(allocator->device->index);
}

uint64_t hal_allocator_blocks(hal_allocator_t *allocator) {
  hal_lock(&allocator->lock);
  const int64_t blocks =
      hal_mem_stat_current(&allocator->stats, HAL_MEM_ALLOCATION) + allocator->host.stats.active_requests.current +
      allocator->empty_count +
      (atomic_load_explicit(&allocator->pending, memory_order_relaxed) & ~(HAL_MEM_RECORDED | HAL_MEM_HOST_RECORDED));
  hal_unlock(&allocator->lock);
  return (uint64_t)blocks;
}

hal_status_t hal_memory_empty_cache(int32_t index) {
  hal_device_t *device;
  if (index != -1) {
    HAL_RETURN_IF_ERROR(hal_device_get(index, &device));
    empty_cache(device);
    return HAL_OK;
  }
  for (int32_t i = 0; i < hal_registry.device_count; i++) { /* a device that was not used has none */
    device = &hal_devices[i];
    if (hal_device_is_alive(device)) empty_cache(device);
  }
  return HAL_OK;
}
