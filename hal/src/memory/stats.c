/* stats.c: reads and resets the statistics. */
#include "device/device.h"
#include "memory/expand/expand.h"

#include <string.h>

static hal_stat_t read_counter(const hal_mem_counter_t *counter) {
  return (hal_stat_t){.current = counter->current,
                      .peak = counter->peak,
                      .allocated = counter->allocated,
                      .freed = counter->allocated - (counter->current - counter->base)};
}

static void read_quantity(const hal_mem_stats_t *stats, int quantity, hal_stat_t out[HAL_POOL_COUNT]) {
  out[HAL_POOL_SMALL] = read_counter(&stats->counter[HAL_MEM_SMALL][quantity]);
  out[HAL_POOL_LARGE] = read_counter(&stats->counter[HAL_MEM_LARGE][quantity]);
  out[HAL_POOL_ALL] = (hal_stat_t){.current = out[1].current + out[2].current,
                                   .peak = stats->peak[quantity],
                                   .allocated = out[1].allocated + out[2].allocated,
                                   .freed = out[1].freed + out[2].freed};
}

static int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }

/* active = allocated + pending. Every active block was allocated once, so the two have the same `allocated` total. */
static void read_active(const hal_stat_t allocated[HAL_POOL_COUNT], const hal_stat_t waiting[HAL_POOL_COUNT],
                        const int64_t peak[HAL_POOL_COUNT], hal_stat_t out[HAL_POOL_COUNT]) {
  for (int pool = 0; pool < HAL_POOL_COUNT; pool++) {
    out[pool] = (hal_stat_t){.current = allocated[pool].current + waiting[pool].current,
                             .peak = max64(allocated[pool].peak, peak[pool]),
                             .allocated = allocated[pool].allocated,
                             /* pending blocks count as freed there, but are still active */
                             .freed = allocated[pool].freed + waiting[pool].freed};
  }
}

void hal_mem_stats_read(const hal_mem_stats_t *stats, hal_memory_stats_t *out_stats) {
  hal_stat_t other[HAL_POOL_COUNT];
  read_quantity(stats, HAL_MEM_ALLOCATION, out_stats->allocation);
  read_quantity(stats, HAL_MEM_SEGMENT, out_stats->segment);
  read_quantity(stats, HAL_MEM_INACTIVE_SPLIT, out_stats->inactive_split);
  read_quantity(stats, HAL_MEM_ALLOCATED_BYTES, out_stats->allocated_bytes);
  read_quantity(stats, HAL_MEM_RESERVED_BYTES, out_stats->reserved_bytes);
  read_quantity(stats, HAL_MEM_INACTIVE_SPLIT_BYTES, out_stats->inactive_split_bytes);
  read_quantity(stats, HAL_MEM_REQUESTED_BYTES, out_stats->requested_bytes);
  read_quantity(stats, HAL_MEM_PENDING_BLOCKS, other);
  read_active(out_stats->allocation, other, stats->active_peak, out_stats->active);
  read_quantity(stats, HAL_MEM_PENDING_BYTES, other);
  read_active(out_stats->allocated_bytes, other, stats->active_bytes_peak, out_stats->active_bytes);
  read_quantity(stats, HAL_MEM_OVERSIZE_ALLOCATIONS, other);
  out_stats->oversize_allocations = other[HAL_POOL_ALL];
  read_quantity(stats, HAL_MEM_OVERSIZE_SEGMENTS, other);
  out_stats->oversize_segments = other[HAL_POOL_ALL];
  out_stats->num_alloc_retries = stats->num_alloc_retries;
  out_stats->num_ooms = stats->num_ooms;
  out_stats->num_sync_all_streams = stats->num_sync_all_streams;
  out_stats->num_device_alloc = stats->num_device_alloc;
  out_stats->num_device_free = stats->num_device_free;
}

/* Raises peaks[all, small, large] to the current sums of two quantities. */
static void raise_peaks(const hal_mem_stats_t *stats, int a, int b, int64_t peaks[HAL_POOL_COUNT]) {
  int64_t sums[2];
  for (int kind = 0; kind < 2; kind++) {
    sums[kind] = stats->counter[kind][a].current + stats->counter[kind][b].current;
  }
  peaks[HAL_POOL_ALL] = max64(peaks[HAL_POOL_ALL], sums[0] + sums[1]);
  peaks[HAL_POOL_SMALL] = max64(peaks[HAL_POOL_SMALL], sums[HAL_MEM_SMALL]);
  peaks[HAL_POOL_LARGE] = max64(peaks[HAL_POOL_LARGE], sums[HAL_MEM_LARGE]);
}

void hal_mem_stats_note_active(hal_mem_stats_t *stats) {
  raise_peaks(stats, HAL_MEM_ALLOCATION, HAL_MEM_PENDING_BLOCKS, stats->active_peak);
  raise_peaks(stats, HAL_MEM_ALLOCATED_BYTES, HAL_MEM_PENDING_BYTES, stats->active_bytes_peak);
}

void hal_mem_stats_reset_peak(hal_mem_stats_t *stats) {
  for (int quantity = 0; quantity < HAL_MEM_QUANTITIES; quantity++) {
    for (int kind = 0; kind < 2; kind++) {
      stats->counter[kind][quantity].peak = stats->counter[kind][quantity].current;
    }
    stats->peak[quantity] = hal_mem_stat_current(stats, quantity);
  }
  memset(stats->active_peak, 0, sizeof(stats->active_peak));
  memset(stats->active_bytes_peak, 0, sizeof(stats->active_bytes_peak));
  hal_mem_stats_note_active(stats);
}

void hal_mem_stats_reset_accumulated(hal_mem_stats_t *stats) {
  for (int quantity = 0; quantity < HAL_MEM_QUANTITIES; quantity++) {
    for (int kind = 0; kind < 2; kind++) {
      stats->counter[kind][quantity].allocated = 0;
      stats->counter[kind][quantity].base = stats->counter[kind][quantity].current;
    }
  }
  stats->num_alloc_retries = stats->num_ooms = stats->num_sync_all_streams = 0;
  stats->num_device_alloc = stats->num_device_free = 0;
}

static void read_used(hal_allocator_t *allocator, hal_memory_stats_t *out_stats) {
  hal_lock(&allocator->lock);
  hal_mem_stats_read(&allocator->stats, out_stats);
  hal_mem_expand_exclude(allocator, out_stats);
  const size_t split = allocator->config.max_split_size;
  hal_unlock(&allocator->lock);
  out_stats->max_split_size = split == SIZE_MAX ? -1 : (int64_t)split;
}

/* An unused device has no statistics, and a query must not initialize a driver. */
hal_status_t hal_memory_stats(int32_t index, hal_memory_stats_t *out_stats) {
  hal_device_t *device;
  hal_memory_stats_t stats = {0};
  if (!out_stats || out_stats->struct_size < sizeof(size_t)) {
    return hal_error_set(HAL_INVALID_ARGUMENT,
                         "hal_memory_stats: set out_stats->struct_size to sizeof(hal_memory_stats_t)");
  }
  HAL_RETURN_IF_ERROR(hal_device_used(index, &device));
  if (device) read_used(hal_allocator_of(device), &stats);
  stats.struct_size = out_stats->struct_size < sizeof(stats) ? out_stats->struct_size : sizeof(stats);
  memcpy(out_stats, &stats, stats.struct_size);
  return HAL_OK;
}

static hal_status_t reset(int32_t index, void (*apply)(hal_mem_stats_t *stats)) {
  hal_device_t *device;
  HAL_RETURN_IF_ERROR(hal_device_used(index, &device));
  if (!device) return HAL_OK;
  hal_lock(&hal_allocator_of(device)->lock);
  apply(&hal_allocator_of(device)->stats);
  hal_unlock(&hal_allocator_of(device)->lock);
  return HAL_OK;
}

hal_status_t hal_memory_reset_peak_stats(int32_t device) { return reset(device, hal_mem_stats_reset_peak); }

hal_status_t hal_memory_reset_accumulated_stats(int32_t device) {
  return reset(device, hal_mem_stats_reset_accumulated);
}
