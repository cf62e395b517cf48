/* plugin.c: a plugin of ABI 0.5, which is kept with the headers and the SDK of that version once it is complete.
 * Memory is the host's, work is finished on return. It has own functions for the slots of devices, memory and names that
 * 0.4 appended, and reports the limits of launches that 0.5 appended; semaphores are those of the SDK. */
#define _POSIX_C_SOURCE 200809L
#include <hal/plugin.h>
#include <hal/plugin_flags.h>
#include <stdlib.h>
#include <string.h>

struct hal_plugin_stream_s {
  int32_t priority;
};

/* "test.abi": what the test queries beyond the table. */
typedef struct abi_extension_s {
  hal_extension_t extension;
  size_t (*host_size)(void);      /* hal_host->struct_size */
  int32_t (*last_priority)(void); /* of stream_create */
  size_t (*last_desc_size)(void); /* of the host's descriptor then */
  int32_t (*resets)(void);        /* since 0.4, as what follows */
  int32_t (*hints)(void);
  const char *(*last_name)(void); /* of object_name_set */
} abi_extension_t;

static int32_t last_priority;
static size_t last_desc_size;
static int32_t resets, hints;
static char last_name[64];

hal_status_t hal_plugin_info(hal_plugin_info_t *out_info) {
  out_info->name = "minor_5";
  out_info->vendor = "tests";
  out_info->version = "0.5";
  return HAL_OK;
}

hal_status_t hal_plugin_device_count(int32_t *out_count) {
  *out_count = 1;
  return HAL_OK;
}

hal_status_t hal_plugin_device_info(int32_t device, hal_device_info_t *out_info) {
  (void)device;
  if (HAL_HAS_FIELD(out_info, name)) memcpy(out_info->name, "minor 5", sizeof "minor 5");
  HAL_SET_FIELD(out_info, flags, HAL_DEVICE_HOST_VISIBLE);
  HAL_SET_FIELD(out_info, total_memory, 1 << 20);
  HAL_SET_FIELD(out_info, base_alignment, 256);
  HAL_SET_FIELD(out_info, max_grid[0], 65535); /* since 0.5, as what follows */
  HAL_SET_FIELD(out_info, binding_alignment, 64);
  HAL_SET_FIELD(out_info, max_binding, 1 << 20);
  return HAL_OK;
}

hal_status_t hal_plugin_memory_alloc(int32_t device, size_t size, uint32_t flags, void **out_ptr) {
  (void)device;
  const hal_status_t status = hal_flags_check("minor_5: memory_alloc", flags, 0);
  void *ptr = NULL;
  if (status) return status;
  if (posix_memalign(&ptr, 256, size)) return hal_host->error_set(HAL_RESOURCE_EXHAUSTED, 0, "minor_5: out of memory");
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
  const hal_status_t status = hal_stream_desc_check("minor_5: stream_create", desc, 0);
  hal_plugin_stream_t *const stream = status ? NULL : hal_host->mem_alloc(sizeof *stream, 16);
  if (status) return status;
  if (!stream) return hal_host->error_set(HAL_RESOURCE_EXHAUSTED, 0, "minor_5: no memory for a stream");
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

/* ---- appended in 0.4 ---- */

hal_status_t hal_plugin_device_reset(int32_t device, uint32_t flags) {
  (void)device;
  const hal_status_t status = hal_flags_check("minor_5: device_reset", flags, 0);
  if (!status) resets++;
  return status;
}

hal_status_t hal_plugin_memory_prefetch(hal_plugin_stream_t *stream, int32_t device, const void *ptr, size_t size,
                                        int32_t dst_device, uint32_t flags) {
  (void)stream, (void)device, (void)ptr, (void)dst_device;
  const hal_status_t status = hal_flags_check("minor_5: memory_prefetch", flags, 0);
  if (!status && size) hints++;
  return status;
}

hal_status_t hal_plugin_memory_advise(int32_t device, const void *ptr, size_t size, uint32_t advice, int32_t peer) {
  (void)device, (void)ptr, (void)peer;
  const hal_status_t status = hal_advice_check("minor_5: memory_advise", advice);
  if (!status && size) hints++;
  return status;
}

hal_status_t hal_plugin_object_name_set(int32_t device, uint32_t kind, const void *object, const char *name) {
  (void)device, (void)object;
  const hal_status_t status = hal_object_check("minor_5: object_name_set", kind);
  const size_t length = strlen(name) < sizeof last_name - 1 ? strlen(name) : sizeof last_name - 1;
  if (status) return status;
  memcpy(last_name, name, length);
  last_name[length] = 0;
  return HAL_OK;
}

/* ---- for the test ---- */

static int32_t reset_count(void) { return resets; }
static int32_t hint_count(void) { return hints; }
static const char *name(void) { return last_name; }
static size_t host_size(void) { return hal_host->struct_size; }
static int32_t priority(void) { return last_priority; }
static size_t desc_size(void) { return last_desc_size; }

hal_status_t hal_plugin_extensions(const hal_extension_t **out_first) {
  static const abi_extension_t own = {{HAL_STRUCT_SIZE(abi_extension_t, last_name), "test.abi", NULL},
                                      host_size,
                                      priority,
                                      desc_size,
                                      reset_count,
                                      hint_count,
                                      name};
  *out_first = &own.extension;
  return HAL_OK;
}
