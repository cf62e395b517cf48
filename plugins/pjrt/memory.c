/* memory.c: device memory, which is memory of this process. Programs read and write it in place, or it is the mirror of
 * the platform's memory (opaque.c). */
#include "pjrt.h"

hal_status_t hal_plugin_memory_alloc(int32_t device, size_t size, uint32_t flags, void **out_ptr) {
  hal_status_t status = pjrt_check_device(device);
  if (!status) status = hal_flags_check("pjrt: memory_alloc", flags, 0);
  if (status) return status;
  void *const ptr = pjrt.opaque ? pjrt_opaque_alloc(size) : hal_host->mem_alloc(size, PJRT_ALIGNMENT);
  if (!ptr) return pjrt_error(HAL_RESOURCE_EXHAUSTED, "pjrt: out of memory for %zu bytes; free some tensors", size);
  *out_ptr = ptr;
  return HAL_OK;
}

/* The address is valid at once. */
hal_status_t hal_plugin_memory_alloc_async(int32_t device, hal_plugin_stream_t *stream, size_t size, uint32_t flags,
                                           void **out_ptr) {
  (void)stream;
  return hal_plugin_memory_alloc(device, size, flags, out_ptr);
}

/* The host calls this only when no queued work uses the memory, so it does not wait. */
hal_status_t hal_plugin_memory_free(int32_t device, void *ptr) {
  (void)device;
  if (pjrt.opaque)
    pjrt_opaque_free(ptr);
  else
    hal_host->mem_free(ptr);
  return HAL_OK;
}

hal_status_t hal_plugin_memory_free_async(int32_t device, hal_plugin_stream_t *stream, void *ptr) {
  const hal_status_t status = pjrt_check_device(device);
  if (status || !ptr) return status;
  return stream ? pjrt_submit_free(stream, ptr, pjrt_opaque_size(ptr)) : hal_plugin_memory_free(device, ptr);
}

/* ---- memory of the host ------------------------------------------------------------------------------------------ */

/* Copies run in the threads of streams, from and to any memory of the host. So all of it is as good as page-locked. */
hal_status_t hal_plugin_host_alloc(int32_t device, size_t size, uint32_t flags, void **out_ptr) {
  hal_status_t status = pjrt_check_device(device);
  if (!status) status = hal_flags_check("pjrt: host_alloc", flags, 0);
  if (status) return status;
  void *const ptr = hal_host->mem_alloc(size, PJRT_ALIGNMENT);
  if (!ptr) return pjrt_error(HAL_RESOURCE_EXHAUSTED, "pjrt: no host memory for %zu bytes", size);
  *out_ptr = ptr;
  return HAL_OK;
}

hal_status_t hal_plugin_host_free(int32_t device, void *ptr) {
  (void)device;
  hal_host->mem_free(ptr);
  return HAL_OK;
}
