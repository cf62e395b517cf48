/* plugin.c: a plugin of ABI 0.3, kept with the headers and the SDK of that version to show that later hosts load it.
 * Memory is the host's, work is finished on return. Never edited. */
#define _POSIX_C_SOURCE 200809L
#include <hal/plugin.h>
#include <hal/plugin_flags.h>
#include <stdlib.h>
#include <string.h>

struct hal_plugin_stream_s {
  int32_t priority;
};

/* "test.abi": what the test asks beyond the table. */
typedef struct abi_extension_s {
  hal_extension_t extension;
  size_t (*host_size)(void);      /* hal_host->struct_size */
  int32_t (*last_priority)(void); /* of stream_create */
  size_t (*last_desc_size)(void); /* of the host's descriptor then */
} abi_extension_t;

static int32_t last_priority;
static size_t last_desc_size;

hal_status_t hal_plugin_info(hal_plugin_info_t *out_info) {
  out_info->name = "minor_3";
  out_info->vendor = "tests";
  out_info->version = "0.3";
  return HAL_OK;
}

hal_status_t hal_plugin_device_count(int32_t *out_count) {
  *out_count = 1;
  return HAL_OK;
}

hal_status_t hal_plugin_device_info(int32_t device, hal_device_info_t *out_info) {
  (void)device;
  if (HAL_HAS_FIELD(out_info, name)) memcpy(out_info->name, "minor 3", sizeof "minor 3");
  HAL_SET_FIELD(out_info, flags, HAL_DEVICE_HOST_VISIBLE);
  HAL_SET_FIELD(out_info, total_memory, 1 << 20);
  HAL_SET_FIELD(out_info, base_alignment, 256);
  return HAL_OK;
}

hal_status_t hal_plugin_memory_alloc(int32_t device, size_t size, uint32_t flags, void **out_ptr) {
  (void)device;
  const hal_status_t status = hal_flags_check("minor_3: memory_alloc", flags, 0);
  void *ptr = NULL;
  if (status) return status;
  if (posix_memalign(&ptr, 256, size)) return hal_host->error_set(HAL_RESOURCE_EXHAUSTED, 0, "minor_3: out of memory");
  *out_ptr = ptr;
  return HAL_OK;
}

hal_status_t hal_plugin_memory_free(int32_t device, void *ptr) {
  (void)device;
  free(ptr);
  return HAL_OK;
}

hal_status_t hal_plugin_memory_copy(hal_plugin_stream_t *stream, void *dst, int32_t dst_device, const void *src,
                                    int32_t src_device, size_t size) {
  (void)stream, (void)dst_device, (void)src_device;
  if (size) memmove(dst, src, size);
  return HAL_OK;
}

hal_status_t hal_plugin_device_synchronize(int32_t device) {
  (void)device;
  return HAL_OK;
}

hal_status_t hal_plugin_stream_create(int32_t device, const hal_stream_desc_t *desc, hal_plugin_stream_t **out_stream) {
  (void)device;
  const hal_status_t status = hal_stream_desc_check("minor_3: stream_create", desc, 0);
  hal_plugin_stream_t *const stream = status ? NULL : hal_host->mem_alloc(sizeof *stream, 16);
  if (status) return status;
  if (!stream) return hal_host->error_set(HAL_RESOURCE_EXHAUSTED, 0, "minor_3: no memory for a stream");
  stream->priority = last_priority = desc->priority;
  last_desc_size = desc->struct_size;
  *out_stream = stream;
  return HAL_OK;
}

hal_status_t hal_plugin_stream_destroy(hal_plugin_stream_t *stream) {
  hal_host->mem_free(stream);
  return HAL_OK;
}

hal_status_t hal_plugin_stream_synchronize(hal_plugin_stream_t *stream) {
  (void)stream;
  return HAL_OK;
}

static size_t host_size(void) { return hal_host->struct_size; }
static int32_t priority(void) { return last_priority; }
static size_t desc_size(void) { return last_desc_size; }

hal_status_t hal_plugin_extensions(const hal_extension_t **out_first) {
  static const abi_extension_t own = {
      {HAL_STRUCT_SIZE(abi_extension_t, last_desc_size), "test.abi", NULL}, host_size, priority, desc_size};
  *out_first = &own.extension;
  return HAL_OK;
}
