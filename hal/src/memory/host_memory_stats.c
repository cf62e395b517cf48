/* host_memory_stats.c: reads and resets the statistics of page-locked host memory. */
#include <string.h>

#include "device/device.h"
#include "memory/internal.h"

/* As hal_memory_stats: a query must not initialize a driver. */
hal_status_t hal_host_stats(int32_t index, hal_host_stats_t *out_stats) {
  hal_device_t *device;
  hal_host_stats_t stats = {0};
  if (!out_stats || out_stats->struct_size < sizeof(size_t)) {
    return hal_error_set(HAL_INVALID_ARGUMENT,
                         "hal_host_stats: set out_stats->struct_size to sizeof(hal_host_stats_t)");
  }
  HAL_RETURN_IF_ERROR(hal_device_used(index, &device));
  if (device) {
    hal_lock(&hal_allocator_of(device)->lock);
    stats = hal_allocator_of(device)->host.stats;
    hal_unlock(&hal_allocator_of(device)->lock);
  }
  stats.struct_size = out_stats->struct_size < sizeof(stats) ? out_stats->struct_size : sizeof(stats);
  memcpy(out_stats, &stats, stats.struct_size);
  return HAL_OK;
}

static void reset_peak(hal_host_stats_t *stats) {
  hal_stat_t *const all[] = {&stats->allocations, &stats->allocated_bytes, &stats->active_requests,
                             &stats->active_bytes};
  for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) all[i]->peak = all[i]->current;
}

static void reset_accumulated(hal_host_stats_t *stats) {
  hal_stat_t *const all[] = {&stats->allocations, &stats->allocated_bytes, &stats->active_requests,
                             &stats->active_bytes};
  for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) all[i]->allocated = all[i]->freed = 0;
  stats->host_alloc_time = stats->host_free_time = (hal_duration_t){0};
  stats->num_host_alloc = stats->num_host_free = 0;
}

static hal_status_t reset(int32_t index, void (*apply)(hal_host_stats_t *stats)) {
  hal_device_t *device;
  HAL_RETURN_IF_ERROR(hal_device_used(index, &device));
  if (!device) return HAL_OK;
  hal_lock(&hal_allocator_of(device)->lock);
  apply(&hal_allocator_of(device)->host.stats);
  hal_unlock(&hal_allocator_of(device)->lock);
  return HAL_OK;
}

hal_status_t hal_host_reset_peak_stats(int32_t device) { return reset(device, reset_peak); }

hal_status_t hal_host_reset_accumulated_stats(int32_t device) { return reset(device, reset_accumulated); }
