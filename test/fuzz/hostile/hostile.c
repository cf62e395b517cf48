/* hostile.c: a plugin whose structs and results have the fuzzer's bytes (tables.c). Its memory is real. */
#define _POSIX_C_SOURCE 200809L
#include "bytes.h"

hal_status_t hal_plugin_info(hal_plugin_info_t *out_info) {
  static char name[48], text[48];
  find_bytes();
  const uint8_t kind = take_byte();
  snprintf(name, sizeof name, "hostile");
  if (kind & 1) take(name, sizeof name - 1);
  if (kind & 2) take(text, sizeof text - 1);
  out_info->name = kind % 16 == 15 ? NULL : name;
  out_info->vendor = kind & 4 ? NULL : text;
  out_info->version = kind & 8 ? NULL : text;
  if (kind & 16) take(&out_info->flags, sizeof out_info->flags);
  return take_status();
}

hal_status_t hal_plugin_device_count(int32_t *out_count) {
  *out_count = 2;
  if (take_byte() > 200) take(out_count, sizeof *out_count);
  return take_status();
}

hal_status_t hal_plugin_device_info(int32_t device, hal_device_info_t *out_info) {
  (void)device;
  const size_t first = sizeof out_info->struct_size, size = out_info->struct_size;
  const uint8_t kind = take_byte();
  if (kind & 1) take(out_info->name, sizeof out_info->name); /* without an end */
  if (kind & 2) take(out_info->dialects, sizeof out_info->dialects);
  if (kind & 4) take((char *)out_info + first, size - first);
  if (kind & 8) take(&out_info->flags, sizeof out_info->flags);
  if (kind & 16) take(&out_info->total_memory, sizeof out_info->total_memory);
  if (kind & 32) take(&out_info->base_alignment, sizeof out_info->base_alignment);
  if (kind % 64 == 63) take(&out_info->struct_size, sizeof out_info->struct_size);
  return take_status();
}

hal_status_t hal_plugin_memory_alloc(int32_t device, size_t size, uint32_t flags, void **out_ptr) {
  (void)device;
  const hal_status_t status = flags ? HAL_UNIMPLEMENTED : take_status();
  if (status != HAL_OK) return status;
  void *ptr = NULL;
  if (size > (size_t)64 << 20 || posix_memalign(&ptr, 4096, size + 1)) return HAL_RESOURCE_EXHAUSTED;
  *out_ptr = ptr;
  if (take_byte() == 255) { /* none, and no error */
    free(ptr);
    *out_ptr = NULL;
  }
  return HAL_OK;
}

hal_status_t hal_plugin_memory_free(int32_t device, void *ptr) {
  (void)device;
  free(ptr);
  return take_status();
}

hal_status_t hal_plugin_memory_copy(hal_plugin_stream_t *stream, void *dst, int32_t dst_device, const void *src,
                                    int32_t src_device, size_t size) {
  (void)stream, (void)dst_device, (void)src_device;
  const hal_status_t status = take_status();
  if (status == HAL_OK && size) memcpy(dst, src, size);
  return status;
}

hal_status_t hal_plugin_memory_info(int32_t device, size_t *out_free, size_t *out_total) {
  (void)device;
  take(out_free, sizeof *out_free);
  take(out_total, sizeof *out_total);
  return take_status();
}

hal_status_t hal_plugin_memory_pointer_info(const void *ptr, hal_pointer_info_t *out_info) {
  (void)ptr;
  take((char *)out_info + sizeof out_info->struct_size, out_info->struct_size - sizeof out_info->struct_size);
  return take_status();
}
