/* device.c: the properties of a device, read once from the driver and reported to the host. */
#include <hal/plugin_setting.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "module.h"

/* Checks numbers that later launches and allocations divide by or depend on. */
static hal_status_t check_limits(const cuda_device_t *device) {
  const char *what = NULL;
  long long value = 0;
  if (device->most_threads <= 0)
    what = "threads of a block", value = device->most_threads;
  else if (!device->memory_bytes || device->memory_bytes > INT64_MAX)
    what = "bytes of memory", value = (long long)device->memory_bytes;
  else if (device->units <= 0)
    what = "multiprocessors", value = device->units;
  else if (device->warp <= 0)
    what = "threads of a warp", value = device->warp;
  if (!what) return HAL_OK;
  return cuda_error(
      HAL_UNAVAILABLE, 0,
      "cuda: the driver of '%s' reports %lld %s, which is invalid; install another driver, or choose another "
      "device with CUDA_VISIBLE_DEVICES",
      device->name, value, what);
}

static CUresult read_numbers(cuda_device_t *device) {
  const struct {
    CUdevice_attribute what;
    int *to;
  } rows[] = {{CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, &device->most_threads},
              {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, &device->most_block[0]},
              {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, &device->most_block[1]},
              {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, &device->most_block[2]},
              {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, &device->most_grid[0]},
              {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, &device->most_grid[1]},
              {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, &device->most_grid[2]},
              {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, &device->shared_bytes},
              {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, &device->most_shared_bytes},
              {CU_DEVICE_ATTRIBUTE_WARP_SIZE, &device->warp},
              {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &device->units},
              {CU_DEVICE_ATTRIBUTE_MAX_PITCH, &device->most_pitch},
              {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, &device->cache_bytes},
              {CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, &device->copy_engines},
              {CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, &device->moves_managed},
              {CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, &device->moves_host},
              {CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, &device->pci[0]},
              {CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, &device->pci[1]},
              {CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, &device->pci[2]}};
  int major = 0, minor = 0;
  CUresult code = drv.cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device->handle);
  if (!code) code = drv.cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device->handle);
  device->capability = 10 * major + minor;
  for (size_t i = 0; i < sizeof rows / sizeof *rows && !code; i++)
    code = drv.cuDeviceGetAttribute(rows[i].to, rows[i].what, device->handle);
  if (device->most_shared_bytes < device->shared_bytes) device->most_shared_bytes = device->shared_bytes;
  return code;
}

/* Returns whether the user requested memory of the driver's pools, and there are pools. */
static int is_pooled(const cuda_device_t *device) {
  char message[256];
  const char *const setting = hal_setting("HAL_CUDA_POOLED");
  if (!setting || !*setting || strcmp(setting, "0") == 0) return 0;
  if (device->has_pools) return 1;
  snprintf(message, sizeof message,
           "cuda: HAL_CUDA_POOLED=%.16s: '%s' has no memory pools; the host's allocator is used", setting,
           device->name);
  hal_host->log(HAL_LOG_WARNING, message);
  return 0;
}

hal_status_t cuda_device_read(cuda_device_t *device, int32_t ordinal) {
  CUuuid uuid = {{0}};
  CUresult code = drv.cuDeviceGet(&device->handle, ordinal);
  snprintf(device->name, sizeof device->name, "device %d", (int)ordinal);
  if (!code) code = drv.cuDeviceGetName(device->name, sizeof device->name, device->handle);
  device->name[sizeof device->name - 1] = '\0';
  for (char *at = device->name; *at; at++) /* it is part of messages and file names */
    if ((unsigned char)*at < ' ' || *at == 0x7f) *at = '?';
  if (!code) code = drv.cuDeviceGetUuid(&uuid, device->handle);
  memcpy(device->uuid, uuid.bytes, sizeof device->uuid);
  if (!code) code = drv.cuDeviceTotalMem(&device->memory_bytes, device->handle);
  if (!code) code = read_numbers(device);
  if (!code)
    code = drv.cuDeviceGetAttribute(&device->shares_files,
                                    CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, device->handle);
  if (code) return cuda_driver_error(code, "cuda: the device '%s' does not report its limits", device->name);
  device->granularity = cuda_virtual_granularity(device);
  if (drv.cuDeviceGetAttribute(&device->has_pools, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, device->handle))
    device->has_pools = 0;
  device->pooled = is_pooled(device);
  if (drv.cuDeviceGetAttribute(&device->numa_node, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, device->handle))
    device->numa_node = -1; /* a driver before CUDA 12.2 */
  return check_limits(device);
}

hal_status_t hal_plugin_device_info(int32_t ordinal, hal_device_info_t *out_info) {
  const hal_status_t status = cuda_check_device(ordinal);
  if (status) return status;
  const cuda_device_t *const device = &cuda.devices[ordinal];
  hal_device_info_t info = {
      .struct_size = out_info->struct_size,
      .flags = HAL_DEVICE_ASYNC | HAL_DEVICE_FP64 | HAL_DEVICE_RAW_POINTERS | (device->pooled ? HAL_DEVICE_POOLED : 0),
      .total_memory = device->memory_bytes,
      .compute_units = (uint32_t)device->units,
      .subgroup_size = (uint32_t)device->warp,
      .max_block_threads = (uint32_t)device->most_threads,
      .max_shared_bytes = (uint32_t)device->shared_bytes,
      .pci_domain = (uint32_t)device->pci[0],
      .pci_bus = (uint32_t)device->pci[1],
      .pci_device = (uint32_t)device->pci[2],
      .base_alignment = 256,
      .virtual_granularity = device->granularity,
      .l2_bytes = device->cache_bytes > 0 ? (uint64_t)device->cache_bytes : 0,
      .copy_engines = device->copy_engines > 0 ? (uint32_t)device->copy_engines : 0,
      .numa_node = device->numa_node >= 0 ? device->numa_node : 0,
      .known = device->numa_node >= 0 ? HAL_DEVICE_KNOWS_NUMA_NODE : 0};
  const int brief = HAL_HAS_FIELD(out_info, known) && out_info->known & HAL_DEVICE_INFO_BRIEF;
  if (HAL_HAS_FIELD(out_info, driver_version) && !brief) cuda_read_versions(ordinal, &info);
  snprintf(info.architecture, sizeof info.architecture, "sm_%d", device->capability);
  memcpy(info.name, device->name, sizeof info.name);
  memcpy(info.uuid, device->uuid, sizeof info.uuid);
  snprintf(info.dialects, sizeof info.dialects, "%sptx,cubin,binary", cuda_compiler_open() ? "" : "cuda-c,");
  memcpy(out_info, &info, info.struct_size < sizeof info ? info.struct_size : sizeof info);
  return HAL_OK;
}

hal_status_t hal_plugin_device_peer_query(int32_t device, int32_t peer, int32_t *out_accessible) {
  hal_status_t status = cuda_check_device(device);
  if (!status) status = cuda_check_device(peer);
  if (status) return status;
  int can = device == peer;
  const CUresult code =
      can ? CUDA_SUCCESS : drv.cuDeviceCanAccessPeer(&can, cuda.devices[device].handle, cuda.devices[peer].handle);
  if (code) return cuda_driver_error(code, "cuda: cannot query device %d about its peer %d", (int)device, (int)peer);
  *out_accessible = can != 0;
  return HAL_OK;
}

hal_status_t hal_plugin_device_peer_enable(int32_t device, int32_t peer) {
  int32_t can = 0;
  cuda_scope_t scope, of_peer;
  hal_status_t status = hal_plugin_device_peer_query(device, peer, &can);
  if (status || device == peer) return status;
  if (!can)
    return cuda_error(HAL_UNIMPLEMENTED, 0, "cuda: device %d cannot access the memory of device %d", (int)device,
                      (int)peer);
  status = cuda_enter(peer, &of_peer); /* creates its context */
  if (status) return status;
  cuda_leave(&of_peer);
  status = cuda_enter(device, &scope);
  if (status) return status;
  const CUresult code = drv.cuCtxEnablePeerAccess(cuda.devices[peer].context, 0);
  cuda_leave(&scope);
  cuda_device_noticed(device, code);
  if (!code || code == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) return HAL_OK;
  return cuda_driver_error(code, "cuda: device %d cannot be given access to the memory of device %d", (int)device,
                           (int)peer);
}
