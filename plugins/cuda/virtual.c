/* virtual.c: virtual memory, and memory that is shared between processes: virtual memory as a file descriptor, other
 * memory as a handle. */
#include <hal/plugin_flags.h>

#include "cuda_plugin.h"

struct hal_plugin_physical_s {
  CUmemGenericAllocationHandle handle;
  size_t size;
  int32_t device;
};

static hal_status_t check(int32_t ordinal, size_t size) {
  const hal_status_t status = cuda_check_alive(ordinal);
  if (status) return status;
  const cuda_device_t *const device = &cuda.devices[ordinal];
  if (!device->granularity) return HAL_UNIMPLEMENTED;
  if (size && size % device->granularity == 0) return HAL_OK;
  return cuda_error(HAL_INVALID_ARGUMENT, 0,
                    "cuda: virtual memory of %zu bytes on '%s'; request a multiple of %zu (virtual_granularity)", size,
                    device->name, device->granularity);
}

/* The checks at the beginning of every function here. */
static hal_status_t begin(int32_t device, size_t size, cuda_scope_t *scope) {
  const hal_status_t status = check(device, size);
  return status ? status : cuda_enter(device, scope);
}

static hal_status_t finish(int32_t device, const cuda_scope_t *scope, CUresult code, const char *what, size_t size) {
  cuda_leave(scope);
  cuda_device_noticed(device, code);
  return code ? cuda_driver_error(code, "cuda: %s of %zu bytes on device %d failed", what, size, (int)device) : HAL_OK;
}

static CUmemAllocationProp properties_of(const cuda_device_t *device, uint32_t handle_kinds) {
  return (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                               .requestedHandleTypes = handle_kinds & HAL_HANDLE_FILE
                                                           ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
                                                           : CU_MEM_HANDLE_TYPE_NONE,
                               .location = {CU_MEM_LOCATION_TYPE_DEVICE, device->handle}};
}

size_t cuda_virtual_granularity(const cuda_device_t *device) {
  const CUmemAllocationProp properties = properties_of(device, HAL_HANDLE_NONE);
  int has = 0;
  size_t bytes = 0;
  if (drv.cuDeviceGetAttribute(&has, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device->handle) || !has)
    return 0;
  return drv.cuMemGetAllocationGranularity(&bytes, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM) ? 0 : bytes;
}

/* ---- addresses -------------------------------------------------------------------------------------------------- */

hal_status_t hal_plugin_virtual_reserve(int32_t device, size_t size, void **out_ptr) {
  cuda_scope_t scope;
  CUdeviceptr address = 0;
  hal_status_t status = begin(device, size, &scope);
  if (status) return status;
  status = finish(device, &scope, drv.cuMemAddressReserve(&address, size, 0, 0, 0), "virtual_reserve", size);
  if (!status) *out_ptr = (void *)(uintptr_t)address;
  return status;
}

hal_status_t hal_plugin_virtual_unreserve(int32_t device, void *ptr, size_t size) {
  cuda_scope_t scope;
  const hal_status_t status = begin(device, size, &scope);
  if (status) return status;
  return finish(device, &scope, drv.cuMemAddressFree((CUdeviceptr)(uintptr_t)ptr, size), "virtual_unreserve", size);
}

/* ---- memory ----------------------------------------------------------------------------------------------------- */

/* Stores a handle of the driver, or releases it if there is no host memory. The context is current. */
static hal_status_t keep(int32_t device, size_t size, CUmemGenericAllocationHandle handle,
                         hal_plugin_physical_t **out_memory) {
  hal_plugin_physical_t *const memory = hal_host->mem_alloc(sizeof *memory, alignof(hal_plugin_physical_t));
  if (!memory) {
    drv.cuMemRelease(handle);
    return cuda_error(HAL_RESOURCE_EXHAUSTED, 0, "cuda: no host memory for a handle; free some memory");
  }
  *memory = (hal_plugin_physical_t){handle, size, device};
  *out_memory = memory;
  return HAL_OK;
}

hal_status_t hal_plugin_virtual_create(int32_t device, size_t size, uint32_t handle_kinds,
                                       hal_plugin_physical_t **out_memory) {
  cuda_scope_t scope;
  CUmemGenericAllocationHandle handle = 0;
  hal_status_t status = check(device, size);
  if (status) return status;
  if (handle_kinds & ~(uint32_t)HAL_HANDLE_FILE || (handle_kinds && !cuda.devices[device].shares_files))
    return cuda_error(HAL_UNIMPLEMENTED, 0, "cuda: unsupported kinds of shared memory 0x%x; '%s' has %s",
                      (unsigned)handle_kinds, cuda.devices[device].name,
                      cuda.devices[device].shares_files ? "file descriptors only" : "none");
  const CUmemAllocationProp properties = properties_of(&cuda.devices[device], handle_kinds);
  status = cuda_enter(device, &scope);
  if (status) return status;
  const CUresult code = drv.cuMemCreate(&handle, size, &properties, 0);
  if (!code) status = keep(device, size, handle, out_memory);
  return status ? (cuda_leave(&scope), status) : finish(device, &scope, code, "virtual_create", size);
}

hal_status_t hal_plugin_virtual_release(int32_t device, hal_plugin_physical_t *memory) {
  cuda_scope_t scope;
  const hal_status_t status = cuda_enter(device, &scope);
  if (status) return status;
  drv.cuMemRelease(memory->handle); /* fails only if the context has ended, and the memory with it */
  cuda_leave(&scope);
  hal_host->mem_free(memory);
  return HAL_OK;
}

static CUresult give_access(int32_t device, CUdeviceptr address, size_t size, uint32_t access) {
  const CUmemAccessDesc desc = {{CU_MEM_LOCATION_TYPE_DEVICE, cuda.devices[device].handle}, (CUmemAccess_flags)access};
  return drv.cuMemSetAccess(address, size, &desc, 1);
}

_Static_assert((int)HAL_ACCESS_NONE == CU_MEM_ACCESS_FLAGS_PROT_NONE &&
                   (int)HAL_ACCESS_READ == CU_MEM_ACCESS_FLAGS_PROT_READ &&
                   (int)HAL_ACCESS_READ_WRITE == CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
               "the driver's numbers are the host's");

hal_status_t hal_plugin_virtual_map(int32_t device, void *ptr, size_t size, hal_plugin_physical_t *memory) {
  cuda_scope_t scope;
  const CUdeviceptr address = (CUdeviceptr)(uintptr_t)ptr;
  if (size != memory->size || device != memory->device)
    return cuda_error(HAL_INVALID_ARGUMENT, 0,
                      "cuda: virtual_map of %zu bytes on device %d; the memory has %zu bytes of device %d and can only "
                      "be mapped as a whole",
                      size, (int)device, memory->size, (int)memory->device);
  const hal_status_t status = begin(device, size, &scope);
  if (status) return status;
  CUresult code = drv.cuMemMap(address, size, 0, memory->handle, 0);
  if (!code) {
    code = give_access(device, address, size, HAL_ACCESS_READ_WRITE);
    if (code) drv.cuMemUnmap(address, size);
  }
  return finish(device, &scope, code, "virtual_map", size);
}

hal_status_t hal_plugin_virtual_unmap(int32_t device, void *ptr, size_t size) {
  cuda_scope_t scope;
  const hal_status_t status = begin(device, size, &scope);
  if (status) return status;
  return finish(device, &scope, drv.cuMemUnmap((CUdeviceptr)(uintptr_t)ptr, size), "virtual_unmap", size);
}

hal_status_t hal_plugin_virtual_access(int32_t device, void *ptr, size_t size, int32_t peer, uint32_t access) {
  cuda_scope_t scope;
  hal_status_t status = cuda_check_device(peer);
  if (!status) status = begin(device, size, &scope);
  if (status) return status;
  return finish(device, &scope, give_access(peer, (CUdeviceptr)(uintptr_t)ptr, size, access), "virtual_access", size);
}

/* ---- other processes -------------------------------------------------------------------------------------------- */

hal_status_t hal_plugin_virtual_export(int32_t device, hal_plugin_physical_t *memory, uint32_t kind,
                                       hal_memory_handle_t *out_handle) {
  cuda_scope_t scope;
  int file = -1;
  if (kind != HAL_HANDLE_FILE)
    return cuda_error(HAL_UNIMPLEMENTED, 0, "cuda: unsupported kind %u of a handle", (unsigned)kind);
  hal_status_t status = begin(device, memory->size, &scope);
  if (status) return status;
  const CUresult code =
      drv.cuMemExportToShareableHandle(&file, memory->handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
  status = finish(device, &scope, code, "virtual_export", memory->size);
  if (!status) *out_handle = (hal_memory_handle_t){.kind = HAL_HANDLE_FILE, .file = file};
  return status;
}

hal_status_t hal_plugin_virtual_import(int32_t device, const hal_memory_handle_t *handle, size_t size,
                                       hal_plugin_physical_t **out_memory) {
  cuda_scope_t scope;
  CUmemGenericAllocationHandle made = 0;
  if (handle->kind != HAL_HANDLE_FILE)
    return cuda_error(HAL_UNIMPLEMENTED, 0, "cuda: unsupported kind %u of a handle", (unsigned)handle->kind);
  hal_status_t status = begin(device, size, &scope);
  if (status) return status;
  const CUresult code = drv.cuMemImportFromShareableHandle(&made, (void *)(uintptr_t)(unsigned)handle->file,
                                                           CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  if (!code) status = keep(device, size, made, out_memory);
  return status ? (cuda_leave(&scope), status) : finish(device, &scope, code, "virtual_import", size);
}

hal_status_t hal_plugin_ipc_export(int32_t device, void *ptr, uint32_t flags, void *out_handle, size_t room,
                                   size_t *out_size) {
  cuda_scope_t scope;
  CUipcMemHandle handle;
  hal_status_t status = cuda_check_alive(device);
  if (!status) status = hal_flags_check("cuda: ipc_export", flags, 0);
  if (!status) status = cuda_enter(device, &scope);
  if (status) return status;
  const CUresult code = drv.cuIpcGetMemHandle(&handle, (CUdeviceptr)(uintptr_t)ptr);
  cuda_leave(&scope);
  cuda_device_noticed(device, code);
  if (code)
    return cuda_driver_error(code, "cuda: memory at %p of device %d cannot be shared with other processes", ptr,
                             (int)device);
  hal_handle_write(&handle, sizeof handle, out_handle, room, out_size);
  return HAL_OK;
}

hal_status_t hal_plugin_ipc_open(int32_t device, const void *handle, size_t handle_size, uint32_t flags,
                                 void **out_ptr) {
  cuda_scope_t scope;
  CUipcMemHandle own;
  CUdeviceptr address = 0;
  hal_status_t status = cuda_check_alive(device);
  if (!status) status = hal_flags_check("cuda: ipc_open", flags, 0);
  if (!status) status = hal_handle_read("cuda: ipc_open", handle, handle_size, &own, sizeof own);
  if (!status) status = cuda_enter(device, &scope);
  if (status) return status;
  const CUresult code = drv.cuIpcOpenMemHandle(&address, own, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
  cuda_leave(&scope);
  cuda_device_noticed(device, code);
  if (code)
    return cuda_driver_error(
        code,
        "cuda: memory of another process cannot be opened on device %d; check that the process is alive "
        "and is not this process",
        (int)device);
  *out_ptr = (void *)(uintptr_t)address;
  return HAL_OK;
}

hal_status_t hal_plugin_ipc_close(int32_t device, void *ptr) {
  cuda_scope_t scope;
  const hal_status_t status = cuda_enter(device, &scope);
  if (status) return status;
  const CUresult code = drv.cuIpcCloseMemHandle((CUdeviceptr)(uintptr_t)ptr);
  cuda_leave(&scope);
  cuda_device_noticed(device, code);
  return code ? cuda_driver_error(code, "cuda: %p is not open memory of another process", ptr) : HAL_OK;
}
