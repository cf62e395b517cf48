/* device.c: the properties of a device, read once from the driver and reported to the host. */
#include <hal/plugin_setting.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "module.h"

/* Selects the variant of the portable kernels: HAL_NPU_FORM, else that of the device's type. */
static hal_status_t read_form(npu_device_t *device) {
  const char *const wanted = hal_setting("HAL_NPU_FORM");
  device->few_wide = device->facts.type == ZE_DEVICE_TYPE_CPU;
  if (!wanted || !*wanted) return HAL_OK;
  device->few_wide = strcmp(wanted, "cpu") == 0;
  if (device->few_wide || strcmp(wanted, "simt") == 0) return HAL_OK;
  return npu_error(HAL_INVALID_ARGUMENT, 0, "npu: HAL_NPU_FORM is '%.100s'; set it to cpu or simt, or unset it",
                   wanted);
}

/* Selects the first group of queues that computes and copies, as a stream requires. Queues of groups that only copy are
 * copy engines. */
static ze_result_t read_queues(npu_device_t *device) {
  enum { MOST = 16 };
  ze_command_queue_group_properties_t groups[MOST];
  const uint32_t needed = ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE | ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COPY;
  uint32_t count = MOST;
  memset(groups, 0, sizeof groups);
  for (int i = 0; i < MOST; i++) groups[i].stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_GROUP_PROPERTIES;
  const ze_result_t code = ze.zeDeviceGetCommandQueueGroupProperties(device->handle, &count, groups);
  if (code) return code;
  for (uint32_t i = 0; i < count && i < MOST; i++)
    if ((groups[i].flags & needed) == ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COPY)
      device->copy_engines += groups[i].numQueues;
  for (uint32_t i = 0; i < count && i < MOST; i++)
    if ((groups[i].flags & needed) == needed && groups[i].numQueues) {
      device->queue_group = i;
      device->queue_count = groups[i].numQueues;
      device->pattern_bytes =
          (uint32_t)(groups[i].maxMemoryFillPatternSize < 16 ? groups[i].maxMemoryFillPatternSize : 16);
      return ZE_RESULT_SUCCESS;
    }
  return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
}

static ze_result_t read_memory(npu_device_t *device) {
  enum { MOST = 16 };
  ze_device_memory_properties_t parts[MOST];
  uint32_t count = MOST;
  memset(parts, 0, sizeof parts);
  for (int i = 0; i < MOST; i++) parts[i].stype = ZE_STRUCTURE_TYPE_DEVICE_MEMORY_PROPERTIES;
  const ze_result_t code = ze.zeDeviceGetMemoryProperties(device->handle, &count, parts);
  for (uint32_t i = 0; !code && i < count && i < MOST; i++) device->memory_bytes += parts[i].totalSize;
  return code;
}

/* Reads optional properties: the size of the largest cache, which is the last one before the memory, and the position
 * on the bus. */
static void read_optional(npu_device_t *device) {
  enum { MOST = 8 };
  ze_device_cache_properties_t caches[MOST];
  ze_pci_ext_properties_t place = {.stype = ZE_STRUCTURE_TYPE_PCI_EXT_PROPERTIES};
  uint32_t count = MOST;
  memset(caches, 0, sizeof caches);
  for (int i = 0; i < MOST; i++) caches[i].stype = ZE_STRUCTURE_TYPE_DEVICE_CACHE_PROPERTIES;
  if (!ze.zeDeviceGetCacheProperties || ze.zeDeviceGetCacheProperties(device->handle, &count, caches)) count = 0;
  for (uint32_t i = 0; i < count && i < MOST; i++)
    if (caches[i].cacheSize > device->cache_bytes) device->cache_bytes = caches[i].cacheSize;
  if (ze.zeDevicePciGetPropertiesExt && !ze.zeDevicePciGetPropertiesExt(device->handle, &place))
    device->pci = place.address;
}

/* Checks numbers that later launches and allocations divide by or depend on. */
static hal_status_t check_limits(const npu_device_t *device) {
  const char *what = NULL;
  unsigned long long value = 0;
  if (!device->compute.maxTotalGroupSize || device->compute.maxTotalGroupSize > INT32_MAX)
    what = "threads of a group", value = device->compute.maxTotalGroupSize;
  else if (!device->memory_bytes || device->memory_bytes > INT64_MAX)
    what = "bytes of memory", value = device->memory_bytes;
  else if (!device->facts.maxMemAllocSize)
    what = "bytes of an allocation", value = device->facts.maxMemAllocSize;
  else if (!device->facts.timerResolution)
    what = "ticks of its clock in a second", value = device->facts.timerResolution;
  if (!what) return HAL_OK;
  return npu_error(
      HAL_UNAVAILABLE, 0,
      "npu: the driver of '%s' reports %llu %s, which is invalid; install another driver, or choose another "
      "device with HAL_NPU_DEVICE",
      device->facts.name, value, what);
}

hal_status_t npu_device_read(npu_device_t *device, ze_device_handle_t handle) {
  device->handle = handle;
  device->memory_bytes = device->cache_bytes = 0;
  device->copy_engines = 0;
  device->pci = (ze_pci_address_ext_t){0};
  /* With this type of the structure, the clock's resolution is in ticks per second. */
  device->facts = (ze_device_properties_t){.stype = ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES_1_2};
  device->compute = (ze_device_compute_properties_t){.stype = ZE_STRUCTURE_TYPE_DEVICE_COMPUTE_PROPERTIES};
  device->modules = (ze_device_module_properties_t){.stype = ZE_STRUCTURE_TYPE_DEVICE_MODULE_PROPERTIES};
  ze_result_t code = ze.zeDeviceGetProperties(handle, &device->facts);
  device->facts.name[sizeof device->facts.name - 1] = '\0';
  for (char *at = device->facts.name; *at; at++) /* it is part of messages and file names */
    if ((unsigned char)*at < ' ' || *at == 0x7f) *at = '?';
  if (!code) code = ze.zeDeviceGetComputeProperties(handle, &device->compute);
  if (!code) code = ze.zeDeviceGetModuleProperties(handle, &device->modules);
  if (!code) code = read_memory(device);
  if (!code) code = read_queues(device);
  if (code) return npu_driver_error(code, "npu: the device '%s' does not report its limits", device->facts.name);
  const uint32_t sizes = device->compute.numSubGroupSizes; /* the middle one is the one that compilers usually choose */
  device->subgroup = sizes && sizes <= ZE_SUBGROUPSIZE_COUNT ? device->compute.subGroupSizes[sizes / 2] : 1;
  device->granularity = npu_virtual_granularity(device);
  read_optional(device);
  const hal_status_t status = check_limits(device);
  return status ? status : read_form(device);
}

int64_t npu_device_time(const npu_device_t *device, uint64_t ticks, uint32_t bits) {
  const uint64_t valid = bits && bits < 64 ? ticks & ((UINT64_C(1) << bits) - 1) : ticks,
                 rate = device->facts.timerResolution;
  return (int64_t)(valid / rate * 1000000000u + (uint64_t)((double)(valid % rate) * 1e9 / (double)rate));
}

static uint32_t units_of(const ze_device_properties_t *facts) {
  const uint64_t units = (uint64_t)facts->numSlices * facts->numSubslicesPerSlice * facts->numEUsPerSubslice;
  return units && units < INT32_MAX ? (uint32_t)units : 1;
}

hal_status_t hal_plugin_device_info(int32_t ordinal, hal_device_info_t *out_info) {
  const hal_status_t status = npu_check_device(ordinal);
  if (status) return status;
  const npu_device_t *device = &npu.devices[ordinal];
  hal_device_info_t info = {
      .struct_size = out_info->struct_size,
      .flags = HAL_DEVICE_ASYNC | (device->modules.flags & ZE_DEVICE_MODULE_FLAG_FP64 ? HAL_DEVICE_FP64 : 0) |
               (device->few_wide ? HAL_DEVICE_CPU : 0) | (npu.shared ? HAL_DEVICE_HOST_VISIBLE : 0),
      .total_memory = device->memory_bytes,
      .compute_units = units_of(&device->facts),
      .subgroup_size = device->subgroup,
      .max_block_threads = device->compute.maxTotalGroupSize,
      .max_shared_bytes = device->compute.maxSharedLocalMemory,
      .base_alignment = 256,
      .virtual_granularity = device->granularity,
      .pci_domain = device->pci.domain,
      .pci_bus = device->pci.bus,
      .pci_device = device->pci.device,
      .l2_bytes = device->cache_bytes,
      .copy_engines = device->copy_engines,
      .pci_function = device->pci.function};
  if (device->facts.flags & ZE_DEVICE_PROPERTY_FLAG_SUBDEVICE) {
    info.partition_index = device->facts.subdeviceId;
    info.known |= HAL_DEVICE_KNOWS_PARTITION;
  }
  /* Level Zero does not define the parts of the number; those of Intel's drivers have 8, 8 and 16 bits. */
  snprintf(info.driver_version, sizeof info.driver_version, "%u.%u.%u", (unsigned)(npu.driver_version >> 24),
           (unsigned)(npu.driver_version >> 16 & 0xff), (unsigned)(npu.driver_version & 0xffff));
  const int brief = HAL_HAS_FIELD(out_info, known) && out_info->known & HAL_DEVICE_INFO_BRIEF;
  if (HAL_HAS_FIELD(out_info, firmware_version) && !brief) npu_read_firmware(ordinal, &info);
  snprintf(info.name, sizeof info.name, "%.63s", device->facts.name);
  memcpy(info.uuid, device->facts.uuid.id, sizeof info.uuid);
  snprintf(info.dialects, sizeof info.dialects, "%sspirv,binary", hal_clang_path() ? "opencl-c," : "");
  memcpy(out_info, &info, info.struct_size < sizeof info ? info.struct_size : sizeof info);
  return HAL_OK;
}

hal_status_t hal_plugin_device_peer_query(int32_t device, int32_t peer, int32_t *out_accessible) {
  hal_status_t status = npu_check_device(device);
  if (!status) status = npu_check_device(peer);
  if (status) return status;
  ze_bool_t can = device == peer;
  const ze_result_t code =
      can ? ZE_RESULT_SUCCESS : ze.zeDeviceCanAccessPeer(npu.devices[device].handle, npu.devices[peer].handle, &can);
  if (code) return npu_driver_error(code, "npu: cannot query device %d about its peer %d", (int)device, (int)peer);
  *out_accessible = can != 0;
  return HAL_OK;
}

/* All devices that can access memory of their common context may do so. */
hal_status_t hal_plugin_device_peer_enable(int32_t device, int32_t peer) {
  int32_t can = 0;
  const hal_status_t status = hal_plugin_device_peer_query(device, peer, &can);
  if (status || can) return status;
  return npu_error(HAL_UNIMPLEMENTED, 0, "npu: device %d cannot access the memory of device %d", (int)device,
                   (int)peer);
}
