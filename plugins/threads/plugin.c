/* plugin.c: information about the plugin and its devices. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <time.h>

#include "threads.h"

int64_t threads_now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

hal_status_t threads_check_device(int32_t device) {
  if (device >= 0 && device < THREADS_DEVICES) return HAL_OK;
  return hal_host->error_set(HAL_OUT_OF_RANGE, 0, "threads: invalid device: expected 0 or 1");
}

hal_status_t hal_plugin_info(hal_plugin_info_t *out_info) {
  HAL_SET_FIELD(out_info, name, "threads");
  HAL_SET_FIELD(out_info, vendor, "torch_backend");
  HAL_SET_FIELD(out_info, version, "0.1");
  HAL_SET_FIELD(out_info, flags, HAL_PLUGIN_ON_REQUEST);
  return HAL_OK;
}

/* Initializes nothing, because `import torch` and forks come after this. A driver would count files in /dev or /sys. */
hal_status_t hal_plugin_device_count(int32_t *out_count) {
  *out_count = THREADS_DEVICES;
  return HAL_OK;
}

/* HAL_DEVICE_ASYNC: streams run asynchronously. HAL_DEVICE_HOST_VISIBLE is omitted on purpose: every access of the host
 * to the memory faults. */
hal_status_t hal_plugin_device_info(int32_t device, hal_device_info_t *out_info) {
  const hal_status_t status = threads_check_device(device);
  if (status) return status;
  if (HAL_HAS_FIELD(out_info, name))
    snprintf(out_info->name, sizeof out_info->name, "a thread per stream, device %d", (int)device);
  HAL_SET_FIELD(out_info, flags, HAL_DEVICE_ASYNC | HAL_DEVICE_FP64);
  HAL_SET_FIELD(out_info, total_memory, UINT64_C(4) << 30);
  HAL_SET_FIELD(out_info, compute_units, 1);
  HAL_SET_FIELD(out_info, base_alignment, 4096);
  if (HAL_HAS_FIELD(out_info, driver_version))
    snprintf(out_info->driver_version, sizeof out_info->driver_version, "0.1");
  return HAL_OK;
}

hal_status_t hal_plugin_device_synchronize(int32_t device) {
  const hal_status_t status = threads_check_device(device);
  return status ? status : threads_drain(device);
}
