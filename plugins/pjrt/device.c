/* device.c: information about devices. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "pjrt.h"

int64_t pjrt_now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void write_name(int32_t device, char *name, size_t size) {
  const pjrt_table_t *const table = pjrt_table_of(device);
  pjrt_failure_t failure;
  pjrt_Device_GetDescription_t description = {.device = pjrt.devices[device]};
  pjrt_DeviceDescription_Kind_t kind = {.device_kind = ""};
  if (PJRT_HAS(table, Device_GetDescription) && PJRT_HAS(table, DeviceDescription_Kind) &&
      !pjrt_failed(table, PJRT_CALL(table, Device_GetDescription, description), &failure)) {
    kind.device_description = description.device_description;
    if (pjrt_failed(table, PJRT_CALL(table, DeviceDescription_Kind, kind), &failure)) kind.device_kind_size = 0;
  }
  snprintf(name, size, "PJRT %.20s device %d%s%.*s", pjrt_platform_of(device)->name, (int)device,
           kind.device_kind_size ? ": " : "", (int)(kind.device_kind_size < 20 ? kind.device_kind_size : 20),
           kind.device_kind);
}

static uint64_t memory_bytes(void) {
  const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  return pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : 0;
}

/* If programs compute in memory of this process, the host can access it. Otherwise each block of the host's allocator
 * is memory of its own, so that a kernel's use of it moves no other memory, and work is deferred, so that the platform
 * computes it and not the host. */
hal_status_t hal_plugin_device_info(int32_t device, hal_device_info_t *out_info) {
  const hal_status_t status = pjrt_check_device(device);
  if (status) return status;
  const long cores = sysconf(_SC_NPROCESSORS_ONLN);
  hal_device_info_t info = {
      .struct_size = out_info->struct_size,
      .dialects = "native,host",
      .flags = (pjrt.opaque ? HAL_DEVICE_POOLED | HAL_DEVICE_DEFERRED : HAL_DEVICE_HOST_VISIBLE) | HAL_DEVICE_ASYNC |
               HAL_DEVICE_FP64 | HAL_DEVICE_CPU,
      .total_memory = memory_bytes(),
      .compute_units = cores > 0 ? (uint32_t)cores : 1,
      .subgroup_size = 1,
      .max_block_threads = PJRT_MAX_BLOCK_THREADS,
      .base_alignment = pjrt.opaque ? PJRT_OPAQUE_ALIGNMENT : PJRT_ALIGNMENT,
  };
  write_name(device, info.name, sizeof info.name);
  snprintf((char *)info.uuid, sizeof info.uuid, "hal-pjrt-%d", (int)device);
  snprintf(info.driver_version, sizeof info.driver_version, "PJRT C API %d.%d", pjrt_table_of(device)->major_version,
           pjrt_table_of(device)->minor_version);
  memcpy(out_info, &info, info.struct_size < sizeof info ? info.struct_size : sizeof info);
  return HAL_OK;
}

hal_status_t hal_plugin_device_synchronize(int32_t device) {
  const hal_status_t status = pjrt_check_device(device);
  return status ? status : pjrt_drain(device);
}

/* All devices use the memory of this process. */
hal_status_t hal_plugin_device_peer_query(int32_t device, int32_t peer, int32_t *out_accessible) {
  hal_status_t status = pjrt_check_device(device);
  if (!status) status = pjrt_check_device(peer);
  if (!status) *out_accessible = 1;
  return status;
}

hal_status_t hal_plugin_device_peer_enable(int32_t device, int32_t peer) {
  const hal_status_t status = pjrt_check_device(device);
  return status ? status : pjrt_check_device(peer);
}
