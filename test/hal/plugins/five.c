/* five.c: a plugin of exactly the five mandatory functions, on malloc, with two devices. It checks its arguments:
 * the host must pass the plugin's own ordinals, and device memory with its own device. */
#define _POSIX_C_SOURCE 200809L
#include <hal/plugin.h>
#include <stdlib.h>
#include <string.h>

#ifndef FIVE_NAME
#define FIVE_NAME "five"
#endif
#ifndef FIVE_ON_COPY
#define FIVE_ON_COPY() (void)0
#endif

enum { DEVICES = 2, ALIGNMENT = 256 };

static int known(int32_t device) { return device >= 0 && device < DEVICES; }

hal_status_t hal_plugin_info(hal_plugin_info_t *out_info) {
  out_info->name = FIVE_NAME;
  out_info->vendor = "tests";
  out_info->version = "1";
  return HAL_OK;
}

hal_status_t hal_plugin_device_count(int32_t *out_count) {
  *out_count = DEVICES;
  return HAL_OK;
}

hal_status_t hal_plugin_memory_alloc(int32_t device, size_t size, uint32_t flags, void **out_ptr) {
  if (flags) return HAL_UNIMPLEMENTED; /* none is known */
  if (!known(device) || size == 0)
    return hal_host->error_set(HAL_INVALID_ARGUMENT, 0, "five: bad arguments of memory_alloc");
  void *ptr = NULL;
  if (posix_memalign(&ptr, ALIGNMENT, size))
    return hal_host->error_set(HAL_RESOURCE_EXHAUSTED, 42, "five: out of memory; free some tensors");
  *out_ptr = ptr;
  return HAL_OK;
}

hal_status_t hal_plugin_memory_free(int32_t device, void *ptr) {
  if (!known(device)) return hal_host->error_set(HAL_INVALID_ARGUMENT, 0, "five: bad device in memory_free");
  free(ptr);
  return HAL_OK;
}

hal_status_t hal_plugin_memory_copy(hal_plugin_stream_t *stream, void *dst, int32_t dst_device, const void *src,
                                    int32_t src_device, size_t size) {
  FIVE_ON_COPY();
  if (stream) return hal_host->error_set(HAL_INVALID_ARGUMENT, 0, "five: a stream came from nowhere");
  if ((dst_device != HAL_HOST && !known(dst_device)) || (src_device != HAL_HOST && !known(src_device)))
    return hal_host->error_set(HAL_INVALID_ARGUMENT, 0, "five: bad device in memory_copy");
  if (size) memcpy(dst, src, size);
  return HAL_OK;
}
