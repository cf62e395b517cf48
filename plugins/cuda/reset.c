/* reset.c: device_reset: destroys a device's primary context. The next use of the device retains a new one. */
#include "cuda_plugin.h"

/* Releases the plugin's objects in the context, which is current; the caller holds the device's lock. */
static void release_own(cuda_device_t *device, int32_t ordinal) {
  const int lost = atomic_load(&device->lost) != 0;
  if (!lost) drv.cuCtxSynchronize();
  cuda_libraries_forget(ordinal, lost);
  cuda_stream_unmake(device->own);
  device->own = NULL;
  cuda_clock_release(device);
  if (device->pool) drv.cuMemPoolDestroy(device->pool);
  device->pool = NULL;
}

/* Destroys the context. Other users of the primary context in the process lose their objects, as by cudaDeviceReset. */
static CUresult end_context(cuda_device_t *device, int32_t ordinal, CUcontext context) {
  CUcontext before = NULL;
  drv.cuCtxGetCurrent(&before);
  drv.cuCtxSetCurrent(context);
  release_own(device, ordinal);
  drv.cuCtxSetCurrent(before == context ? NULL : before);
  atomic_store(&device->context, NULL);
  const CUresult code = drv.cuDevicePrimaryCtxReset(device->handle);
  const CUresult released = drv.cuDevicePrimaryCtxRelease(device->handle);
  return code ? code : released;
}

hal_status_t hal_plugin_device_reset(int32_t ordinal, uint32_t flags) {
  hal_status_t status = cuda_check_device(ordinal);
  if (!status) status = hal_flags_check("cuda: device_reset", flags, 0);
  if (status) return status;
  cuda_device_t *const device = &cuda.devices[ordinal];
  CUresult code = CUDA_SUCCESS;
  pthread_mutex_lock(&device->lock);
  CUcontext const context = atomic_load(&device->context);
  const int streams = device->streams != NULL;
  if (context && !streams) code = end_context(device, ordinal, context);
  if (!streams) atomic_store(&device->lost, (int)code); /* a later use reports the failure, too */
  pthread_mutex_unlock(&device->lock);
  if (streams)
    return cuda_error(HAL_FAILED_PRECONDITION, 0,
                      "cuda: device_reset of device %d (%s), which has streams; destroy them before", (int)ordinal,
                      device->name);
  if (code)
    return cuda_error(HAL_UNAVAILABLE, (int64_t)code,
                      "cuda: device %d (%s) cannot be reset: the driver returned %s (%d); restart the process",
                      (int)ordinal, device->name, cuda_error_name(code), (int)code);
  return HAL_OK;
}
