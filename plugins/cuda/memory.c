/* memory.c: device memory, also ordered by streams, and page-locked host memory. */
#include <hal/plugin_setting.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_plugin.h"

enum { ALIGNMENT = 256 };

/* ---- properties of an address ----------------------------------------------------------------------------------- */

typedef struct range_s {
  void *base;
  size_t size;
  int32_t device; /* HAL_HOST: page-locked host memory */
} range_t;

/* Returns whether the driver has allocated it. A context is current. */
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

/* Makes an existing context current, because a query must not initialize a device. Returns 0 if there is no context;
 * then there is no memory to find. */
static int begin_query(cuda_scope_t *scope) {
  CUcontext own = NULL;
  for (int32_t i = 0; i < cuda.device_count; i++)
    if (atomic_load(&cuda.devices[i].context) && !cuda_enter(i, scope)) return 1;
  *scope = (cuda_scope_t){.before = NULL};
  return !drv.cuCtxGetCurrent(&own) && own;
}

hal_status_t hal_plugin_memory_pointer_info(const void *ptr, hal_pointer_info_t *out_info) {
  range_t range;
  cuda_scope_t scope;
  hal_pointer_info_t info = {.struct_size = out_info->struct_size};
  if (atomic_load(&cuda.forked)) return HAL_NOT_FOUND; /* a thread of the parent may hold the driver's locks forever */
  const int begun = begin_query(&scope), known = begun && look_up(ptr, &range);
  if (begun) cuda_leave(&scope);
  if (!known) return cuda_error(HAL_NOT_FOUND, 0, "cuda: %p is not in an allocation of this driver", ptr);
  info.base = range.base;
  info.size = range.size;
  info.device = range.device;
  info.kind = range.device == HAL_HOST ? HAL_POINTER_PINNED : HAL_POINTER_DEVICE;
  memcpy(out_info, &info, info.struct_size < sizeof info ? info.struct_size : sizeof info);
  return HAL_OK;
}

/* ---- memory of a device ----------------------------------------------------------------------------------------- */

hal_status_t hal_plugin_memory_alloc(int32_t ordinal, size_t size, uint32_t flags, void **out_ptr) {
  cuda_scope_t scope;
  CUdeviceptr address = 0;
  hal_status_t status = cuda_check_alive(ordinal);
  if (!status) status = hal_flags_check("cuda: memory_alloc", flags, 0);
  if (status) return status;
  if (!size) return cuda_error(HAL_INVALID_ARGUMENT, 0, "cuda: memory_alloc of 0 bytes; request at least one");
  status = cuda_enter(ordinal, &scope);
  if (status) return status;
  const cuda_device_t *const device = &cuda.devices[ordinal];
  CUresult code = drv.cuMemAlloc(&address, size);
  if (!code && !address) code = CUDA_ERROR_OUT_OF_MEMORY;
  if (!code && address % ALIGNMENT) drv.cuMemFree(address);
  cuda_leave(&scope);
  cuda_device_noticed(ordinal, code);
  if (code)
    return cuda_driver_error(code, "cuda: no %zu bytes of memory on '%s', which has %zu in total; free some tensors",
                             size, device->name, device->memory_bytes);
  if (address % ALIGNMENT)
    return cuda_error(
        HAL_INTERNAL, 0,
        "cuda: the driver of '%s' returned memory at 0x%llx, which is not a multiple of %d; install another driver",
        device->name, address, ALIGNMENT);
  *out_ptr = (void *)(uintptr_t)address;
  return HAL_OK;
}

/* Frees the allocation that begins at `ptr` and belongs to `owner`, a device or HAL_HOST. The memory of a context that
 * has ended is freed already. */
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
  if (atomic_load(&cuda.devices[device].lost)) return HAL_OK; /* its streams report the failure */
  if (!known)
    return cuda_error(HAL_INVALID_ARGUMENT, 0,
                      "cuda: %s(%d, %p): this is not the start of such an allocation; free each once", op, (int)device,
                      ptr);
  return code ? cuda_driver_error(code, "cuda: %s of %p failed", op, ptr) : HAL_OK;
}

hal_status_t hal_plugin_memory_free(int32_t ordinal, void *ptr) {
  return ptr ? release(ordinal, ordinal, ptr, "memory_free") : HAL_OK;
}

/* ---- memory in the order of streams ----------------------------------------------------------------------------- */

/* Other devices access the memory of a pool only if this is enabled. */
static CUresult let_peers(const cuda_device_t *device, CUmemoryPool pool) {
  CUmemAccessDesc peers[CUDA_MAX_DEVICES];
  size_t count = 0;
  for (int32_t i = 0; i < cuda.device_count; i++) {
    int can = 0;
    if (&cuda.devices[i] == device || drv.cuDeviceCanAccessPeer(&can, cuda.devices[i].handle, device->handle) || !can)
      continue;
    peers[count++] =
        (CUmemAccessDesc){{CU_MEM_LOCATION_TYPE_DEVICE, cuda.devices[i].handle}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  }
  return count ? drv.cuMemPoolSetAccess(pool, peers, count) : CUDA_SUCCESS;
}

/* Returns the bytes that the pool retains for later allocations when a stream is synchronized: HAL_CUDA_POOL_KEEP, else
 * all. */
static cuuint64_t bytes_to_keep(void) {
  const char *const setting = hal_setting("HAL_CUDA_POOL_KEEP");
  char *end = NULL;
  const unsigned long long bytes = setting && *setting ? strtoull(setting, &end, 10) : 0;
  return end && !*end ? bytes : UINT64_MAX;
}

/* Returns the plugin's own pool, because other code may have changed the driver's default one. The context is current.
 * */
static CUresult pool_of(cuda_device_t *device, CUmemoryPool *out_pool) {
  CUresult code = CUDA_SUCCESS;
  pthread_mutex_lock(&device->lock);
  if (!device->pool) {
    const CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                       .handleTypes = CU_MEM_HANDLE_TYPE_NONE,
                                       .location = {CU_MEM_LOCATION_TYPE_DEVICE, device->handle}};
    cuuint64_t keep = bytes_to_keep();
    code = drv.cuMemPoolCreate(&device->pool, &properties);
    if (!code) code = drv.cuMemPoolSetAttribute(device->pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep);
    if (!code) code = let_peers(device, device->pool);
    if (code) device->pool = NULL;
  }
  *out_pool = device->pool;
  pthread_mutex_unlock(&device->lock);
  return code;
}

/* Memory that other streams have freed is available only after they have reached that point. Waits for them if the
 * device has no other memory. */
static CUresult take_from_pool(cuda_device_t *device, CUstream stream, size_t size, CUdeviceptr *out_address) {
  CUmemoryPool pool = NULL;
  CUresult code = pool_of(device, &pool);
  if (!code) code = drv.cuMemAllocFromPoolAsync(out_address, size, pool, stream);
  if (code != CUDA_ERROR_OUT_OF_MEMORY || !pool) return code;
  code = drv.cuCtxSynchronize();
  if (!code) code = drv.cuMemPoolTrimTo(pool, 0);
  return code ? code : drv.cuMemAllocFromPoolAsync(out_address, size, pool, stream);
}

/* Both are asynchronous if the device has pools, whether or not the host uses the pools; otherwise they are
 * memory_alloc and memory_free. Neither is a command that failures or profiles name. Errors: those of cuda_enter;
 * HAL_FAILED_PRECONDITION on a captured stream. */
static hal_status_t begin_async(int32_t ordinal, hal_plugin_stream_t *stream, const char *op, cuda_scope_t *scope,
                                CUstream *out_handle) {
  if (stream && cuda_stream_is_captured(stream))
    return cuda_error(HAL_FAILED_PRECONDITION, 0,
                      "cuda: %s on a stream that is captured: a graph's memory must stay its own, and comes from "
                      "memory_alloc",
                      op);
  const hal_status_t status = cuda_enter(ordinal, scope);
  if (!status) *out_handle = (stream ? stream : cuda.devices[ordinal].own)->handle;
  return status;
}

hal_status_t hal_plugin_memory_alloc_async(int32_t ordinal, hal_plugin_stream_t *stream, size_t size, uint32_t flags,
                                           void **out_ptr) {
  cuda_scope_t scope;
  CUstream handle = NULL;
  CUdeviceptr address = 0;
  hal_status_t status = cuda_check_alive(ordinal);
  if (!status) status = hal_flags_check("cuda: memory_alloc_async", flags, 0);
  if (status) return status;
  cuda_device_t *const device = &cuda.devices[ordinal];
  if (!device->has_pools) return hal_plugin_memory_alloc(ordinal, size, flags, out_ptr);
  if (!size) return cuda_error(HAL_INVALID_ARGUMENT, 0, "cuda: memory_alloc_async of 0 bytes; request at least one");
  status = begin_async(ordinal, stream, "memory_alloc_async", &scope, &handle);
  if (status) return status;
  CUresult code = take_from_pool(device, handle, size, &address);
  if (!code && !stream) code = drv.cuStreamSynchronize(handle);
  cuda_leave(&scope);
  if (!code && !address) code = CUDA_ERROR_OUT_OF_MEMORY;
  cuda_device_noticed(ordinal, code);
  if (code)
    return cuda_driver_error(
        code, "cuda: no %zu bytes of memory in the pool of '%s', which has %zu in total; free some tensors", size,
        device->name, device->memory_bytes);
  *out_ptr = (void *)(uintptr_t)address;
  return HAL_OK;
}

hal_status_t hal_plugin_memory_free_async(int32_t ordinal, hal_plugin_stream_t *stream, void *ptr) {
  cuda_scope_t scope;
  CUstream handle = NULL;
  hal_status_t status = cuda_check_device(ordinal);
  if (status || !ptr || atomic_load(&cuda.devices[ordinal].lost)) return status; /* memory is freed with the context */
  if (!cuda.devices[ordinal].has_pools) {
    if (stream) hal_plugin_stream_synchronize(stream);
    return hal_plugin_memory_free(ordinal, ptr);
  }
  status = begin_async(ordinal, stream, "memory_free_async", &scope, &handle);
  if (status) return status;
  const CUresult code = drv.cuMemFreeAsync((CUdeviceptr)(uintptr_t)ptr, handle);
  cuda_leave(&scope);
  cuda_device_noticed(ordinal, code);
  if (!code || cuda_error_is_fatal(code)) return HAL_OK; /* its streams report the failure */
  return cuda_driver_error(code, "cuda: memory_free_async(%d, %p): pass the start of such an allocation, once",
                           (int)ordinal, ptr);
}

hal_status_t hal_plugin_memory_info(int32_t ordinal, size_t *out_free, size_t *out_total) {
  cuda_scope_t scope;
  hal_status_t status = cuda_check_alive(ordinal);
  if (!status) status = cuda_enter(ordinal, &scope);
  if (status) return status;
  const CUresult code = drv.cuMemGetInfo(out_free, out_total);
  cuda_leave(&scope);
  cuda_device_noticed(ordinal, code);
  return code ? cuda_driver_error(code, "cuda: device %d does not report its free memory", (int)ordinal) : HAL_OK;
}

/* ---- page-locked host memory ------------------------------------------------------------------------------------ */

hal_status_t hal_plugin_host_alloc(int32_t ordinal, size_t size, uint32_t flags, void **out_ptr) {
  cuda_scope_t scope;
  void *ptr = NULL;
  hal_status_t status = cuda_check_alive(ordinal);
  if (!status) status = hal_flags_check("cuda: host_alloc", flags, 0);
  if (status) return status;
  if (!size) return cuda_error(HAL_INVALID_ARGUMENT, 0, "cuda: host_alloc of 0 bytes; request at least one");
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

hal_status_t hal_plugin_host_register(int32_t ordinal, void *ptr, size_t size, uint32_t flags) {
  cuda_scope_t scope;
  hal_status_t status = cuda_check_alive(ordinal);
  if (!status) status = hal_flags_check("cuda: host_register", flags, 0);
  if (!status) status = cuda_enter(ordinal, &scope);
  if (status) return status;
  const CUresult code = drv.cuMemHostRegister(ptr, size, CU_MEMHOSTREGISTER_PORTABLE);
  cuda_leave(&scope);
  cuda_device_noticed(ordinal, code);
  return code ? cuda_driver_error(code, "cuda: %zu bytes at %p cannot be page-locked", size, ptr) : HAL_OK;
}

hal_status_t hal_plugin_host_device_pointer(int32_t ordinal, void *ptr, void **out_ptr) {
  cuda_scope_t scope;
  CUdeviceptr address = 0;
  hal_status_t status = cuda_check_alive(ordinal);
  if (!status) status = cuda_enter(ordinal, &scope);
  if (status) return status;
  const CUresult code = drv.cuMemHostGetDevicePointer(&address, ptr, 0);
  cuda_leave(&scope);
  cuda_device_noticed(ordinal, code);
  if (code == CUDA_ERROR_INVALID_VALUE)
    return cuda_error(HAL_INVALID_ARGUMENT, (int64_t)code,
                      "cuda: %p is not in page-locked memory; allocate it with host_alloc, or register it", ptr);
  if (code) return cuda_driver_error(code, "cuda: device %d cannot access host memory at %p", (int)ordinal, ptr);
  *out_ptr = (void *)(uintptr_t)address;
  return HAL_OK;
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
