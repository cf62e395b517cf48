/* makes_nothing.c: five.c with streams, events and modules. The op that MAKES_NOTHING names returns HAL_OK
 * and leaves its result as it was. All other objects are addresses that are never read. */
#define _POSIX_C_SOURCE 200809L
#define FIVE_NAME "makes_nothing"
#include "five.c"

/* Whether an op is the named one; otherwise the object is made. */
static int is_empty(const char *op) {
  const char *const named = getenv("MAKES_NOTHING");
  return named && strcmp(named, op) == 0;
}

static char object;
#define MAKE(op, out) return is_empty(#op) ? HAL_OK : (*(void **)(out) = &object, HAL_OK)

hal_status_t hal_plugin_device_info(int32_t device, hal_device_info_t *out_info) {
  if (!known(device)) return HAL_INVALID_ARGUMENT;
  strcpy(out_info->dialects, "nothing");
  HAL_SET_FIELD(out_info, flags, HAL_DEVICE_HOST_VISIBLE | HAL_DEVICE_ASYNC);
  HAL_SET_FIELD(out_info, base_alignment, ALIGNMENT);
  return HAL_OK;
}

hal_status_t hal_plugin_device_synchronize(int32_t device) { return known(device) ? HAL_OK : HAL_INVALID_ARGUMENT; }

hal_status_t hal_plugin_stream_create(int32_t device, const hal_stream_desc_t *desc, hal_plugin_stream_t **out_stream) {
  (void)device, (void)desc;
  MAKE(stream_create, out_stream);
}
hal_status_t hal_plugin_stream_destroy(hal_plugin_stream_t *stream) { return (void)stream, HAL_OK; }
hal_status_t hal_plugin_stream_synchronize(hal_plugin_stream_t *stream) { return (void)stream, HAL_OK; }
hal_status_t hal_plugin_stream_query(hal_plugin_stream_t *stream) { return (void)stream, HAL_OK; }
hal_status_t hal_plugin_stream_wait_event(hal_plugin_stream_t *stream, hal_plugin_event_t *event) {
  return (void)stream, (void)event, HAL_OK;
}

/* An event that is NULL ends the process, as in most drivers. */
static hal_status_t use(const hal_plugin_event_t *event) {
  if (!event) abort();
  return HAL_OK;
}
hal_status_t hal_plugin_event_create(int32_t device, uint32_t flags, hal_plugin_event_t **out_event) {
  (void)device, (void)flags;
  MAKE(event_create, out_event);
}
hal_status_t hal_plugin_event_destroy(hal_plugin_event_t *event) { return use(event); }
hal_status_t hal_plugin_event_record(hal_plugin_event_t *event, hal_plugin_stream_t *stream) {
  return (void)stream, use(event);
}
hal_status_t hal_plugin_event_query(hal_plugin_event_t *event) { return use(event); }
hal_status_t hal_plugin_event_synchronize(hal_plugin_event_t *event) { return use(event); }
hal_status_t hal_plugin_event_elapsed(hal_plugin_event_t *start, hal_plugin_event_t *end, int64_t *out_nanoseconds) {
  *out_nanoseconds = 0;
  return use(start) ? HAL_INTERNAL : use(end);
}
hal_status_t hal_plugin_event_ipc_export(hal_plugin_event_t *event, uint32_t flags, void *handle, size_t room,
                                         size_t *out_size) {
  (void)flags, (void)handle, (void)room;
  *out_size = 0;
  return use(event);
}
hal_status_t hal_plugin_event_ipc_open(int32_t device, const void *handle, size_t handle_size, uint32_t flags,
                                       hal_plugin_event_t **out_event) {
  (void)device, (void)handle, (void)handle_size, (void)flags;
  MAKE(event_ipc_open, out_event);
}

hal_status_t hal_plugin_module_load(int32_t device, const hal_module_desc_t *desc, hal_plugin_module_t **out_module) {
  (void)device, (void)desc;
  MAKE(module_load, out_module);
}
hal_status_t hal_plugin_module_unload(hal_plugin_module_t *module) { return module ? HAL_OK : HAL_INTERNAL; }
hal_status_t hal_plugin_kernel_get(hal_plugin_module_t *module, const char *name, hal_plugin_kernel_t **out_kernel) {
  (void)module, (void)name;
  MAKE(kernel_get, out_kernel);
}
hal_status_t hal_plugin_kernel_launch(hal_plugin_kernel_t *kernel, hal_plugin_stream_t *stream,
                                      const hal_launch_t *launch) {
  (void)stream, (void)launch;
  return kernel ? HAL_OK : HAL_INTERNAL;
}
