/* memory.c: device memory, which is memory of this process: programs read and write it in place. */
#include <string.h>

#include "pjrt.h"

hal_status_t hal_plugin_memory_alloc(int32_t device, size_t size, uint32_t flags, void **out_ptr) {
  hal_status_t status = pjrt_check_device(device);
  if (!status) status = hal_flags_check("pjrt: memory_alloc", flags, 0);
  if (status) return status;
  void *const ptr = hal_host->mem_alloc(size, PJRT_ALIGNMENT);
  if (!ptr) return pjrt_error(HAL_RESOURCE_EXHAUSTED, "pjrt: out of memory for %zu bytes; free some tensors", size);
  *out_ptr = ptr;
  return HAL_OK;
}

/* The host calls this only when no queued work uses the memory, so it does not wait. */
hal_status_t hal_plugin_memory_free(int32_t device, void *ptr) {
  (void)device;
  hal_host->mem_free(ptr);
  return HAL_OK;
}
