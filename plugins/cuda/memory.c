/* memory.c: memory of devices, and page-locked host memory. */
#include <string.h>

#include "cuda_plugin.h"

enum { ALIGNMENT = 256 };

/* ---- what the driver knows of an address ---------------------------------------------------------------------------------------- */

typedef struct range_s {
  void *base;
  size_t size;
  int32_t device; /* HAL_HOST: page-locked host memory */
} range_t;

/* Returns whether the driver has it. A context is current. */
static int look_up(const void *ptr, range_t *out) {
  CUpointer_attribute what[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE};
  unsigned int type = 0;
  int ordinal = -1;
  CUdeviceptr base = 0;
  size_t size = 0;
  void *values[] = {&type, &ordinal, &base, &size};
  if (!ptr || drv.cuPointerGetAttributes(4, what, values, (CUdeviceptr)(uintptr_t)ptr) || !type || !base) return 0;
  *out = (range_t){(void *)(uintptr_t)base, size, type == CU_MEMORYTYPE_HOST ? HAL_HOST : ordinal};
  return 1;
}

hal_status_t hal_plugin_memory_pointer_info(const void *ptr, hal_pointer_info_t *out_info) {
  range_t range;
  cuda_scope_t scope;
  hal_pointer_info_t info = {.struct_size = out_info->struct_size};
  if (atomic_load(&cuda.forked)) return HAL_NOT_FOUND; /* a thread of the parent may hold the driver's locks for ever */
  if (!cuda.device_count || cuda_enter(0, &scope)) return HAL_NOT_FOUND;
  const int known = look_up(ptr, &range);
  cuda_leave(&scope);
  if (!known) return cuda_error(HAL_NOT_FOUND, 0, "cuda: %p lies in no allocation of this driver", ptr);
  info.base = range.base;
  info.size = range.size;
  info.device = range.device;
  info.kind = range.device == HAL_HOST ? HAL_POINTER_PINNED : HAL_POINTER_DEVICE;
  memcpy(out_info, &info, info.struct_size < sizeof info ? info.struct_size : sizeof info);
  return HAL_OK;
}

/* ---- memory of a device --------------------------------------------------------------------------------------------------------- */

hal_status_t hal_plugin_memory_alloc(int32_t ordinal, size_t size, uint32_t flags, void **out_ptr) {
  cuda_scope_t scope;
  CUdeviceptr address = 0;
  hal_status_t status = cuda_check_alive(ordinal);
  if (status) return status;
  if (!size || flags)
    return cuda_error(HAL_INVALID_ARGUMENT, 0,
                      "cuda: memory_alloc(%d, %zu, flags 0x%x); the size must not be 0 and the flags must",
                      (int)ordinal, size, (unsigned)flags);
  status = cuda_enter(ordinal, &scope);
  if (status) return status;
  const cuda_device_t *const device = &cuda.devices[ordinal];
  CUresult code = drv.cuMemAlloc(&address, size);
  if (!code && !address) code = CUDA_ERROR_OUT_OF_MEMORY;
  if (!code && address % ALIGNMENT) drv.cuMemFree(address);
  cuda_leave(&scope);
  cuda_device_noticed(ordinal, code);
  if (code)
    return cuda_driver_error(code, "cuda: no %zu bytes of memory on '%s', which has %zu in all; free some tensors",
                             size, device->name, device->memory_bytes);
  if (address % ALIGNMENT)
    return cuda_error(HAL_INTERNAL, 0,
                      "cuda: the driver of '%s' gave memory at 0x%llx, no multiple of %d; install another driver",
                      device->name, address, ALIGNMENT);
  *out_ptr = (void *)(uintptr_t)address;
  return HAL_OK;
}

/* Frees what begins at `ptr` and belongs to `owner`, a device or HAL_HOST. With a context that has ended its memory has gone, too. */
static hal_status_t release(int32_t device, int32_t owner, void *ptr, const char *op) {
  cuda_scope_t scope;
  range_t range;
  hal_status_t status = cuda_check_device(device);
  if (status || atomic_load(&cuda.devices[device].lost)) return status;
  status = cuda_enter(device, &scope);
  if (status) return status;
  CUresult code = CUDA_SUCCESS;
  const int known = look_up(ptr, &range) && range.base == ptr && range.device == owner;
  if (known) code = owner == HAL_HOST ? drv.cuMemFreeHost(ptr) : drv.cuMemFree((CUdeviceptr)(uintptr_t)ptr);
  cuda_leave(&scope);
  cuda_device_noticed(device, code);
  if (atomic_load(&cuda.devices[device].lost)) return HAL_OK; /* its streams tell */
  if (!known)
    return cuda_error(HAL_INVALID_ARGUMENT, 0,
                      "cuda: %s(%d, %p): this is not the start of such an allocation; free each once", op, (int)device,
                      ptr);
  return code ? cuda_driver_error(code, "cuda: %s of %p failed", op, ptr) : HAL_OK;
}

hal_status_t hal_plugin_memory_free(int32_t ordinal, void *ptr) {
  return ptr ? release(ordinal, ordinal, ptr, "memory_free") : HAL_OK;
}

hal_status_t hal_plugin_memory_info(int32_t ordinal, size_t *out_free, size_t *out_total) {
  cuda_scope_t scope;
  hal_status_t status = cuda_check_alive(ordinal);
  if (!status) status = cuda_enter(ordinal, &scope);
  if (status) return status;
  const CUresult code = drv.cuMemGetInfo(out_free, out_total);
  cuda_leave(&scope);
  cuda_device_noticed(ordinal, code);
  return code ? cuda_driver_error(code, "cuda: device %d does not tell its free memory", (int)ordinal) : HAL_OK;
}

/* ---- page-locked host memory -------------------------------------------------------------------------------------------------- */

hal_status_t hal_plugin_host_alloc(int32_t ordinal, size_t size, void **out_ptr) {
  cuda_scope_t scope;
  void *ptr = NULL;
  hal_status_t status = cuda_check_alive(ordinal);
  if (status) return status;
  if (!size) return cuda_error(HAL_INVALID_ARGUMENT, 0, "cuda: host_alloc of 0 bytes; ask for at least one");
  status = cuda_enter(ordinal, &scope);
  if (status) return status;
  CUresult code = drv.cuMemHostAlloc(&ptr, size, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
  cuda_leave(&scope);
  if (!code && !ptr) code = CUDA_ERROR_OUT_OF_MEMORY;
  cuda_device_noticed(ordinal, code);
  if (code)
    return cuda_driver_error(code, "cuda: the driver has no %zu bytes of page-locked memory; free some memory", size);
  *out_ptr = ptr;
  return HAL_OK;
}

hal_status_t hal_plugin_host_free(int32_t ordinal, void *ptr) {
  return ptr ? release(ordinal, HAL_HOST, ptr, "host_free") : HAL_OK;
}

hal_status_t hal_plugin_host_register(int32_t ordinal, void *ptr, size_t size) {
  cuda_scope_t scope;
  hal_status_t status = cuda_check_alive(ordinal);
  if (!status) status = cuda_enter(ordinal, &scope);
  if (status) return status;
  const CUresult code = drv.cuMemHostRegister(ptr, size, CU_MEMHOSTREGISTER_PORTABLE);
  cuda_leave(&scope);
  cuda_device_noticed(ordinal, code);
  return code ? cuda_driver_error(code, "cuda: %zu bytes at %p cannot be page-locked", size, ptr) : HAL_OK;
}

hal_status_t hal_plugin_host_unregister(int32_t ordinal, void *ptr) {
  cuda_scope_t scope;
  hal_status_t status = cuda_enter(ordinal, &scope);
  if (status) return status;
  const CUresult code = drv.cuMemHostUnregister(ptr);
  cuda_leave(&scope);
  cuda_device_noticed(ordinal, code);
  return code ? cuda_driver_error(code, "cuda: %p is not page-locked by host_register", ptr) : HAL_OK;
}
