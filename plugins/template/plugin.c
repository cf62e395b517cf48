/* plugin.c: a minimal complete plugin, five functions based on malloc. Replace the bodies by calls of your driver;
 * README.md describes the next steps. */
#define _POSIX_C_SOURCE 200809L /* posix_memalign */
#include <hal/plugin.h>
#include <hal/plugin_flags.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 256 }; /* required of memory_alloc */

/* Identifies the plugin. `name` becomes the device type in torch: torch.randn(3, device="template"). */
hal_status_t hal_plugin_info(hal_plugin_info_t *out_info) {
  out_info->name = "template";
  out_info->vendor = "the makers of template";
  out_info->version = "0.1";
  out_info->flags = HAL_PLUGIN_ON_REQUEST; /* remove this once the plugin uses hardware */
  return HAL_OK;
}

/* Returns the number of devices. Must not initialize the driver. */
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

/* If the plugin does not implement stream_create, `stream` is always NULL: finish before returning. Either side may be
 * HAL_HOST. */
hal_status_t hal_plugin_memory_copy(hal_plugin_stream_t *stream, void *dst, int32_t dst_device, const void *src,
                                    int32_t src_device, size_t size) {
  (void)stream, (void)dst_device, (void)src_device;
  if (size) memcpy(dst, src, size); /* size 0 is HAL_OK, whatever the pointers */
  return HAL_OK;
}
