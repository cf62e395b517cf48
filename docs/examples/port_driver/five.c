/* five.c: step 1, the five functions. */
#include <string.h>

#include "acme.h"

hal_status_t hal_plugin_info(hal_plugin_info_t *out_info) {
  HAL_SET_FIELD(out_info, name, "acme");
  HAL_SET_FIELD(out_info, vendor, "Acme Corporation");
  HAL_SET_FIELD(out_info, version, "0.1");
  HAL_SET_FIELD(out_info, flags, HAL_PLUGIN_ON_REQUEST); /* until probe detects hardware */
  return HAL_OK;
}

hal_status_t hal_plugin_device_count(int32_t *out_count) {
  *out_count = 1;
  return HAL_OK;
}

hal_status_t hal_plugin_memory_alloc(int32_t device, size_t size, uint32_t flags, void **out_ptr) {
  (void)device;
  const hal_status_t status = hal_flags_check("acme: memory_alloc", flags, 0);
  if (status) return status;
  void *const memory = driver_allocate(size);
  if (!memory) return hal_host->error_set(HAL_RESOURCE_EXHAUSTED, 0, "acme: out of memory; free some tensors");
  *out_ptr = memory;
  return HAL_OK;
}

hal_status_t hal_plugin_memory_free(int32_t device, void *ptr) {
  (void)device;
  driver_free(ptr);
  return HAL_OK;
}

typedef struct copy_s {
  void *to;
  const void *from;
  size_t size;
} copy_t;

static void run_copy(const void *arguments) {
  const copy_t *const copy = arguments;
  memcpy(copy->to, copy->from, copy->size);
}

/* Until step 2 the stream is always NULL. */
hal_status_t hal_plugin_memory_copy(hal_plugin_stream_t *stream, void *dst, int32_t dst_device, const void *src,
                                    int32_t src_device, size_t size) {
  (void)dst_device, (void)src_device;
  const copy_t copy = {dst, src, size};
  return size ? acme_submit(stream, run_copy, &copy, sizeof copy) : HAL_OK;
}
