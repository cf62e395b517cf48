/* memory.c: device memory: the device's own, or shared memory, which the host may access (HAL_NPU_MEMORY=shared). */
#include <string.h>

#include "npu.h"

enum { ALIGNMENT = 256 };

static ze_result_t make(const npu_device_t *device, size_t size, void **out) {
  const ze_device_mem_alloc_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC};
  const ze_host_mem_alloc_desc_t host = {.stype = ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC};
  if (npu.shared) return ze.zeMemAllocShared(npu.context, &desc, &host, size, ALIGNMENT, device->handle, out);
  return ze.zeMemAllocDevice(npu.context, &desc, size, ALIGNMENT, device->handle, out);
}

hal_status_t hal_plugin_memory_alloc(int32_t ordinal, size_t size, uint32_t flags, void **out_ptr) {
  hal_status_t status = npu_check_alive(ordinal);
  if (!status) status = hal_flags_check("npu: memory_alloc", flags, 0);
  if (status) return status;
  const npu_device_t *device = &npu.devices[ordinal];
  if (!size) return npu_error(HAL_INVALID_ARGUMENT, 0, "npu: memory_alloc of 0 bytes; request at least one");
  if (size > device->facts.maxMemAllocSize)
    return npu_error(HAL_RESOURCE_EXHAUSTED, 0,
                     "npu: tried to allocate %zu bytes on '%s', whose driver allocates at most %llu bytes at once "
                     "(maxMemAllocSize); use smaller tensors",
                     size, device->facts.name, (unsigned long long)device->facts.maxMemAllocSize);
  void *ptr = NULL;
  ze_result_t code = make(device, size, &ptr);
  if (!code && !ptr) code = ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY;
  npu_device_noticed(ordinal, code);
  if (code)
    return npu_driver_error(
        code, "npu: the driver has no %zu bytes of %s memory for '%s', which has %llu in total; free some tensors",
        size, npu.shared ? "shared" : "device", device->facts.name, (unsigned long long)device->memory_bytes);
  if ((uintptr_t)ptr % ALIGNMENT) {
    ze.zeMemFree(npu.context, ptr);
    return npu_error(
        HAL_INTERNAL, 0,
        "npu: the driver of '%s' returned memory at %p, which is not a multiple of %d; install another driver",
        device->facts.name, ptr, ALIGNMENT);
  }
  *out_ptr = ptr;
  return HAL_OK;
}

/* Queries the driver about an address. Returns whether it belongs to this context. */
static int look_up(const void *ptr, void **out_base, size_t *out_size, int32_t *out_device,
                   ze_memory_type_t *out_type) {
  ze_memory_allocation_properties_t facts = {.stype = ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES};
  ze_device_handle_t owner = NULL;
  if (!ptr || ze.zeMemGetAllocProperties(npu.context, ptr, &facts, &owner)) return 0;
  if (facts.type == ZE_MEMORY_TYPE_UNKNOWN || ze.zeMemGetAddressRange(npu.context, ptr, out_base, out_size)) return 0;
  *out_device = HAL_HOST;
  *out_type = facts.type;
  for (int32_t i = 0; i < npu.device_count; i++)
    if (npu.devices[i].handle == owner && facts.type != ZE_MEMORY_TYPE_HOST) *out_device = i;
  return 1;
}

/* Frees the allocation of `device` that begins at `ptr`. */
static hal_status_t release(int32_t device, void *ptr, const char *op) {
  void *base = NULL;
  size_t size = 0;
  int32_t owner = 0;
  ze_memory_type_t type;
  if (!look_up(ptr, &base, &size, &owner, &type) || base != ptr || owner != device)
    return npu_error(HAL_INVALID_ARGUMENT, 0,
                     "npu: %s(%d, %p): this is not the start of an allocation of this device; free each once", op,
                     (int)device, ptr);
  const ze_result_t code = ze.zeMemFree(npu.context, ptr);
  return code ? npu_driver_error(code, "npu: %s of %p failed", op, ptr) : HAL_OK;
}

hal_status_t hal_plugin_memory_free(int32_t ordinal, void *ptr) {
  if (!ptr) return HAL_OK;
  const hal_status_t status = npu_check_device(ordinal);
  return status ? status : release(ordinal, ptr, "memory_free");
}

hal_status_t hal_plugin_memory_pointer_info(const void *ptr, hal_pointer_info_t *out_info) {
  ze_memory_type_t type = ZE_MEMORY_TYPE_UNKNOWN;
  hal_pointer_info_t info = {.struct_size = out_info->struct_size};
  if (atomic_load(&npu.forked)) return HAL_NOT_FOUND; /* a thread of the parent may hold the driver's locks forever */
  if (!npu.context || !look_up(ptr, &info.base, &info.size, &info.device, &type))
    return npu_error(HAL_NOT_FOUND, 0, "npu: %p is not in an allocation of this plugin", ptr);
  info.kind = type == ZE_MEMORY_TYPE_HOST ? HAL_POINTER_PINNED : HAL_POINTER_DEVICE;
  memcpy(out_info, &info, info.struct_size < sizeof info ? info.struct_size : sizeof info);
  return HAL_OK;
}

/* ---- page-locked host memory ------------------------------------------------------------------------------------ */

hal_status_t hal_plugin_host_alloc(int32_t ordinal, size_t size, uint32_t flags, void **out_ptr) {
  const ze_host_mem_alloc_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC};
  hal_status_t status = npu_check_alive(ordinal);
  if (!status) status = hal_flags_check("npu: host_alloc", flags, 0);
  if (status) return status;
  if (!size) return npu_error(HAL_INVALID_ARGUMENT, 0, "npu: host_alloc of 0 bytes; request at least one");
  void *ptr = NULL;
  ze_result_t code = ze.zeMemAllocHost(npu.context, &desc, size, ALIGNMENT, &ptr);
  if (!code && !ptr) code = ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
  if (code)
    return npu_driver_error(code, "npu: the driver has no %zu bytes of page-locked memory; free some memory", size);
  *out_ptr = ptr;
  return HAL_OK;
}

hal_status_t hal_plugin_host_free(int32_t ordinal, void *ptr) {
  if (!ptr) return HAL_OK;
  const hal_status_t status = npu_check_device(ordinal);
  return status ? status : release(HAL_HOST, ptr, "host_free");
}

/* All devices of the context access its host memory at the host's address (zeMemAllocHost). */
hal_status_t hal_plugin_host_device_pointer(int32_t ordinal, void *ptr, void **out_ptr) {
  void *base = NULL;
  size_t size = 0;
  int32_t owner = 0;
  ze_memory_type_t type = ZE_MEMORY_TYPE_UNKNOWN;
  const hal_status_t status = npu_check_device(ordinal);
  if (status) return status;
  if (!look_up(ptr, &base, &size, &owner, &type) || type != ZE_MEMORY_TYPE_HOST)
    return npu_error(HAL_INVALID_ARGUMENT, 0, "npu: %p is not in page-locked memory; allocate it with host_alloc", ptr);
  *out_ptr = ptr;
  return HAL_OK;
}
