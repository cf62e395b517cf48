/* variant.c: the five mandatory functions and one property, selected by a macro. */
#define _POSIX_C_SOURCE 200809L
#include <hal/plugin.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef VARIANT_DEVICES
#define VARIANT_DEVICES 1
#endif
#ifndef VARIANT_FLAGS
#define VARIANT_FLAGS 0
#endif

/* The action of a function before it returns, such as abort(). */
#ifndef VARIANT_INFO_DOES
#define VARIANT_INFO_DOES (void)0
#endif
#ifndef VARIANT_COUNT_DOES
#define VARIANT_COUNT_DOES (void)0
#endif

hal_status_t hal_plugin_info(hal_plugin_info_t *out_info) {
  VARIANT_INFO_DOES;
  out_info->name = VARIANT_NAME;
  out_info->vendor = "tests";
  out_info->version = "1";
  out_info->flags = VARIANT_FLAGS;
  return HAL_OK;
}

hal_status_t hal_plugin_device_count(int32_t *out_count) {
  VARIANT_COUNT_DOES;
  *out_count = VARIANT_DEVICES;
  return HAL_OK;
}

hal_status_t hal_plugin_memory_alloc(int32_t device, size_t size, uint32_t flags, void **out_ptr) {
  (void)device, (void)flags;
  *out_ptr = malloc(size);
  return *out_ptr ? HAL_OK : HAL_RESOURCE_EXHAUSTED;
}

hal_status_t hal_plugin_memory_free(int32_t device, void *ptr) {
  (void)device;
  free(ptr);
  return HAL_OK;
}

hal_status_t hal_plugin_memory_copy(hal_plugin_stream_t *stream, void *dst, int32_t dst_device, const void *src,
                                    int32_t src_device, size_t size) {
  (void)stream, (void)dst_device, (void)src_device;
  memcpy(dst, src, size);
  return HAL_OK;
}

#ifdef VARIANT_CONSTRUCTOR /* runs when the file is loaded, before any function is called */
__attribute__((constructor)) static void construct(void) { VARIANT_CONSTRUCTOR; }
#endif

#ifdef VARIANT_PROBE
hal_status_t hal_plugin_probe(uint32_t flags) {
  (void)flags;
  return hal_host->error_set(VARIANT_PROBE, 0, "no card is plugged in; plug one in");
}
#endif

#ifdef VARIANT_PROBE_DOES
hal_status_t hal_plugin_probe(uint32_t flags) {
  (void)flags;
  VARIANT_PROBE_DOES;
  return HAL_OK;
}
#endif

#ifdef VARIANT_INIT_DOES
hal_status_t hal_plugin_init(const char *options) {
  (void)options;
  VARIANT_INIT_DOES;
  return HAL_OK;
}
#endif

#ifdef VARIANT_DEVICE_INFO_DOES
hal_status_t hal_plugin_device_info(int32_t device, hal_device_info_t *out_info) {
  (void)device, (void)out_info;
  VARIANT_DEVICE_INFO_DOES;
  return HAL_OK;
}
#endif

#ifdef VARIANT_INIT
hal_status_t hal_plugin_init(const char *options) {
  (void)options;
  return hal_host->error_set(VARIANT_INIT, 999, "the driver is not running; start it");
}
#endif

#ifdef VARIANT_HALF_STREAM /* create without destroy and synchronize */
hal_status_t hal_plugin_stream_create(int32_t device, const hal_stream_desc_t *desc, hal_plugin_stream_t **out_stream) {
  (void)device, (void)desc;
  *out_stream = NULL;
  return HAL_OK;
}
#endif

#ifdef VARIANT_HALF_EVENT /* only record, which would be combined with the default's events */
hal_status_t hal_plugin_event_record(hal_plugin_event_t *event, hal_plugin_stream_t *stream) {
  (void)event, (void)stream;
  return HAL_OK;
}
#endif

#ifdef VARIANT_HALF_WAIT /* a wait without its own streams and events */
hal_status_t hal_plugin_stream_wait_event(hal_plugin_stream_t *stream, hal_plugin_event_t *event) {
  (void)stream, (void)event;
  return HAL_OK;
}
#endif

#ifdef VARIANT_HALF_COMPANION /* all stream functions, but the device cannot be synchronized */
hal_status_t hal_plugin_stream_create(int32_t device, const hal_stream_desc_t *desc, hal_plugin_stream_t **out_stream) {
  (void)device, (void)desc;
  *out_stream = NULL;
  return HAL_OK;
}
hal_status_t hal_plugin_stream_destroy(hal_plugin_stream_t *stream) {
  (void)stream;
  return HAL_OK;
}
hal_status_t hal_plugin_stream_synchronize(hal_plugin_stream_t *stream) {
  (void)stream;
  return HAL_OK;
}
#endif

#ifdef VARIANT_COMPANION /* allowed without the group */
hal_status_t hal_plugin_device_synchronize(int32_t device) {
  (void)device;
  return HAL_OK;
}
#endif

#ifdef VARIANT_HALF_MODULE
hal_status_t hal_plugin_module_load(int32_t device, const hal_module_desc_t *desc, hal_plugin_module_t **out_module) {
  (void)device, (void)desc, (void)out_module;
  return HAL_UNIMPLEMENTED;
}
#endif

#ifdef VARIANT_HALF_SHARE
hal_status_t hal_plugin_virtual_export(int32_t device, hal_plugin_physical_t *memory, uint32_t kind,
                                       hal_memory_handle_t *out_handle) {
  (void)device, (void)memory, (void)kind, (void)out_handle;
  return HAL_UNIMPLEMENTED;
}
hal_status_t hal_plugin_virtual_import(int32_t device, const hal_memory_handle_t *handle, size_t size,
                                       hal_plugin_physical_t **out_memory) {
  (void)device, (void)handle, (void)size, (void)out_memory;
  return HAL_UNIMPLEMENTED;
}
#endif
