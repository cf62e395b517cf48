/* grid.c: limits of launches along one axis. */
#include "op/grid.h"

#include "hal/status.h"

hal_status_t hal_op_grid_check(const hal_device_t *device, const char *name, uint32_t blocks, uint32_t block) {
  const hal_device_info_t *const info = &device->info;
  const uint64_t threads = (uint64_t)blocks * block;
  if (info->max_threads && threads > info->max_threads)
    return hal_error_set(HAL_UNIMPLEMENTED,
                         "%s: %llu threads, but kernels of device %s number at most %llu (max_threads in device_info)",
                         name, (unsigned long long)threads, device->label, (unsigned long long)info->max_threads);
  if (!info->max_grid[0] || blocks <= info->max_grid[0] || info->flags & HAL_DEVICE_FIRST_BLOCK) return HAL_OK;
  return hal_error_set(HAL_UNIMPLEMENTED,
                       "%s: %u blocks, but device %s launches at most %u at once (max_grid in device_info), and cannot "
                       "divide a launch (HAL_DEVICE_FIRST_BLOCK)",
                       name, blocks, device->label, info->max_grid[0]);
}
