/* plugin.c: the smallest whole plugin, five functions over malloc. Replace the five bodies by calls of your driver; README.md
 * says how to go on. */
#define _POSIX_C_SOURCE 200809L /* posix_memalign */
#include <hal/plugin.h>
#include <hal/plugin_flags.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 256 }; /* what memory_alloc promises */

/* Who you are. `name` becomes the device's name in torch: torch.randn(3, device="template"). */
hal_status_t hal_plugin_info(hal_plugin_info_t *out_info) {
  out_info->name = "template";
  out_info->vendor = "the makers of template";
  out_info->version = "0.1";
  out_info->flags = HAL_PLUGIN_ON_REQUEST; /* drop this once there is hardware behind it */
  return HAL_OK;
}

/* How many devices there are. Must not initialise the driver. */
hal_status_t hal_plugin_device_count(int32_t *out_count) {
  *out_count = 1;
  return HAL_OK;
}

hal_status_t hal_plugin_memory_alloc(int32_t device, size_t size, uint32_t flags, void **out_ptr) {
  (void)device;
  const hal_status_t status = hal_flags_check("memory_alloc", flags, 0);
  if (status) return status;
  void *ptr = NULL;
  if (posix_memalign(&ptr, ALIGNMENT, size))
    return hal_host->error_set(HAL_RESOURCE_EXHAUSTED, 0, "out of memory; free some tensors");
  *out_ptr = ptr;
  return HAL_OK;
}

hal_status_t hal_plugin_memory_free(int32_t device, void *ptr) {
  (void)device;
  free(ptr);
  return HAL_OK;
}

/* Without stream_create of your own, `stream` is always NULL: be finished on return. Either side may be HAL_HOST. */
hal_status_t hal_plugin_memory_copy(hal_plugin_stream_t *stream, void *dst, int32_t dst_device, const void *src,
                                    int32_t src_device, size_t size) {
  (void)stream, (void)dst_device, (void)src_device;
  if (size) memcpy(dst, src, size); /* "size 0 is HAL_OK whatever the pointers" */
  return HAL_OK;
}
