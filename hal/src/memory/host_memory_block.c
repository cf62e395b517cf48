/* host_memory_block.c: size classes, and blocks of page-locked host memory that the plugin allocates and frees. */
#define _POSIX_C_SOURCE 200809L
#include "memory/host_memory_block.h"

#include "base/clock.h"
#include "memory/history.h"

/* ---- size classes ---- */

uint32_t hal_mem_host_class(size_t size, size_t *out_rounded) {
  if (size <= HAL_MEM_HOST_LEAST) {
    *out_rounded = HAL_MEM_HOST_LEAST;
    return 0;
  }
  const uint32_t log = 63 - (uint32_t)__builtin_clzll(size - 1); /* 2^log < size <= 2^(log + 1) */
  const size_t floor = (size_t)1 << log;
  if (size <= HAL_MEM_HOST_POWERS) {
    *out_rounded = 2 * floor;
    return log - 11; /* 8 KiB is class 1 */
  }
  const size_t step = floor / HAL_MEM_HOST_STEPS, steps = (size - floor + step - 1) / step;
  *out_rounded = floor + steps * step;
  return 8 + HAL_MEM_HOST_STEPS * (log - 20) + (uint32_t)steps; /* 1 MiB is class 8 */
}

/* ---- statistics ---- */

static void increase(hal_stat_t *stat, size_t amount) {
  stat->current += (int64_t)amount;
  stat->allocated += (int64_t)amount;
  if (stat->current > stat->peak) stat->peak = stat->current;
}

static void decrease(hal_stat_t *stat, size_t amount) {
  stat->current -= (int64_t)amount;
  stat->freed += (int64_t)amount;
}

/* Microseconds. */
static int64_t now_us(void) { return hal_clock_ns() / 1000; }

static void note_time(hal_duration_t *duration, int64_t started) {
  const int64_t time = now_us() - started;
  duration->total += time;
  if (time > duration->max) duration->max = time;
  if (!duration->count || time < duration->min) duration->min = time;
  duration->count++;
}

/* ---- blocks in use ---- */

static void use(hal_allocator_t *allocator, hal_block_t *block, size_t requested) {
  block->requested = requested;
  block->uses = NULL;
  block->state = HAL_MEM_SPECIAL;
  increase(&allocator->host.stats.active_requests, 1);
  increase(&allocator->host.stats.active_bytes, block->size);
}

hal_block_t *hal_mem_host_reuse(hal_allocator_t *allocator, uint32_t class, size_t requested) {
  hal_block_t *block = allocator->host.bins[class];
  if (!block) return NULL;
  allocator->host.bins[class] = block->u.bin.next;
  use(allocator, block, requested);
  return block;
}

void hal_mem_host_return(hal_allocator_t *allocator, hal_block_t *block) {
  hal_mem_host_t *host = &allocator->host;
  size_t rounded;
  uint32_t class = hal_mem_host_class(block->size, &rounded);
  if (block->size > allocator->config.pinned_max_cached_size) class = HAL_MEM_HOST_UNCACHED;
  decrease(&host->stats.active_requests, 1);
  decrease(&host->stats.active_bytes, block->size);
  block->state = HAL_MEM_FREE;
  block->u.bin.next = host->bins[class];
  host->bins[class] = block;
}

/* ---- allocating and freeing by the plugin ---- */

hal_status_t hal_mem_host_create(hal_allocator_t *allocator, size_t size, size_t requested, hal_block_t **out_block) {
  const hal_device_t *device = allocator->device;
  hal_mem_host_t *host = &allocator->host;
  void *address = NULL;
  hal_block_t *block = hal_mem_slab_take(&allocator->blocks);
  if (!block) return hal_error_set(HAL_RESOURCE_EXHAUSTED, "the host has no memory for the allocator's records");
  hal_unlock(&allocator->lock); /* locking pages takes long */
  const int64_t started = now_us();
  hal_status_t status = hal_call_host_alloc(device->plugin, device->ordinal, size, 0, &address);
  status = hal_error_plugin_made(device->plugin, HAL_SLOT_host_alloc, status, address);
  hal_lock(&allocator->lock);
  if (status) {
    hal_mem_block_forget(allocator, block);
    return status;
  }
  *block = (hal_block_t){.address = address, .size = size, .pool = &allocator->foreign[HAL_MEM_HOST][0]};
  hal_mem_map_insert(&host->map, block, size);
  note_time(&host->stats.host_alloc_time, started);
  host->stats.num_host_alloc++;
  increase(&host->stats.allocations, 1);
  increase(&host->stats.allocated_bytes, size);
  use(allocator, block, requested);
  hal_mem_history_segment(allocator, block);
  hal_mem_history_allocated(allocator, block);
  *out_block = block;
  return HAL_OK;
}

/* Frees one free block, which is in no bin. The caller holds the lock, which is released while the plugin is called. */
static void destroy(hal_allocator_t *allocator, hal_block_t *block) {
  const hal_device_t *device = allocator->device;
  hal_mem_host_t *host = &allocator->host;
  hal_mem_map_remove(&host->map, block);
  hal_mem_history_segment_freed(allocator, block); /* before another thread can allocate the same address */
  hal_unlock(&allocator->lock);
  const int64_t started = now_us();
  const hal_status_t status = hal_call_host_free(device->plugin, device->ordinal, block->address);
  if (status) {
    hal_error_plugin(device->plugin, HAL_SLOT_host_free, status);
    hal_log(HAL_LOG_ERROR, "device %s: %zu bytes of host memory are lost: %s", device->label, block->size,
            hal_error_message());
  }
  hal_lock(&allocator->lock);
  note_time(&host->stats.host_free_time, started);
  host->stats.num_host_free++;
  decrease(&host->stats.allocations, 1);
  decrease(&host->stats.allocated_bytes, block->size);
  hal_mem_block_forget(allocator, block);
}

void hal_mem_host_trim(hal_allocator_t *allocator, uint32_t first) {
  hal_block_t **bins = allocator->host.bins;
  for (uint32_t class = first; class <= HAL_MEM_HOST_UNCACHED; class ++) {
    while (bins[class]) {
      hal_block_t *block = bins[class];
      bins[class] = block->u.bin.next;
      destroy(allocator, block);
    }
  }
}

void hal_mem_host_close(hal_allocator_t *allocator) {
  const hal_host_stats_t *stats = &allocator->host.stats;
  hal_mem_host_trim(allocator, 0);
  if (!stats->allocations.current) return;
  hal_log(HAL_LOG_WARNING,
          "device %s: closed with %lld blocks, %lld bytes, of host memory that were not freed; they remain",
          allocator->device->label, (long long)stats->allocations.current, (long long)stats->allocated_bytes.current);
}
