/* slots.c: a plugin whose streams, events, modules, operators, graphs, handles and virtual memory return the fuzzer's
 * numbers (../slots.c). What it returns as memory and as handles is real: each handle is a byte. */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include <sys/mman.h>

#include "bytes.h"

/* Writes a new handle; rarely none, with any status. */
static hal_status_t make(void *out_handle) {
  const hal_status_t status = take_status();
  void *const handle = status ? NULL : malloc(1);
  memcpy(out_handle, &handle, sizeof handle);
  if (!status && take_byte() == 255) {
    free(handle);
    memset(out_handle, 0, sizeof handle);
  }
  return status;
}

static hal_status_t destroy(void *handle) {
  free(handle);
  return take_status();
}

/* Fills a struct after its size. */
static void take_struct(void *out_struct, size_t size) {
  if (take_byte() > 100) take((char *)out_struct + sizeof(size_t), size - sizeof(size_t));
}

/* Writes bytes of an exported object, or claims to. */
static hal_status_t export_bytes(void *data, size_t room, size_t *out_size) {
  uint32_t claimed = 0;
  const uint8_t kind = take_byte();
  const size_t size = kind % 64;
  if (size <= room && data) take(data, size);
  *out_size = size;
  if (kind > 250) take(&claimed, sizeof claimed), *out_size = claimed;
  return take_status();
}

hal_status_t hal_plugin_info(hal_plugin_info_t *out_info) {
  find_bytes();
  out_info->name = "slots";
  return HAL_OK;
}

hal_status_t hal_plugin_device_count(int32_t *out_count) {
  *out_count = 2;
  return HAL_OK;
}

hal_status_t hal_plugin_device_info(int32_t device, hal_device_info_t *out_info) {
  (void)device;
  const uint8_t kind = take_byte();
  snprintf(out_info->name, sizeof out_info->name, "slots");
  snprintf(out_info->dialects, sizeof out_info->dialects, "%s", kind & 1 ? "opencl-c" : "cuda-c");
  out_info->flags = HAL_DEVICE_HOST_VISIBLE;
  if (kind & 2) take(&out_info->flags, sizeof out_info->flags);
  if (kind & 4) out_info->virtual_granularity = (uint64_t)1 << 16;
  if (kind & 8) take(out_info->max_grid, sizeof out_info->max_grid);
  if (kind & 16) take(&out_info->max_binding, sizeof out_info->max_binding);
  return HAL_OK;
}

/* ---- memory ---- */

hal_status_t hal_plugin_memory_alloc(int32_t device, size_t size, uint32_t flags, void **out_ptr) {
  (void)device, (void)flags;
  if (size > (size_t)64 << 20 || posix_memalign(out_ptr, 4096, size + 1)) return HAL_RESOURCE_EXHAUSTED;
  return HAL_OK; /* not cleared, which would take most of an input's time */
}

hal_status_t hal_plugin_memory_free(int32_t device, void *ptr) {
  (void)device;
  free(ptr);
  return HAL_OK;
}

hal_status_t hal_plugin_memory_copy(hal_plugin_stream_t *stream, void *dst, int32_t dst_device, const void *src,
                                    int32_t src_device, size_t size) {
  (void)stream, (void)dst_device, (void)src_device;
  memmove(dst, src, size);
  return take_status();
}

hal_status_t hal_plugin_ipc_export(int32_t device, void *ptr, uint32_t flags, void *handle, size_t room,
                                   size_t *out_size) {
  (void)device, (void)ptr, (void)flags;
  return export_bytes(handle, room, out_size);
}

hal_status_t hal_plugin_ipc_open(int32_t device, const void *handle, size_t handle_size, uint32_t flags,
                                 void **out_ptr) {
  (void)handle, (void)handle_size;
  return hal_plugin_memory_alloc(device, 4096, flags, out_ptr);
}

hal_status_t hal_plugin_ipc_close(int32_t device, void *ptr) { return hal_plugin_memory_free(device, ptr); }

hal_status_t hal_plugin_virtual_reserve(int32_t device, size_t size, void **out_ptr) {
  (void)device;
  const hal_status_t status = take_status();
  if (status) return status;
  *out_ptr = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return *out_ptr == MAP_FAILED ? HAL_RESOURCE_EXHAUSTED : HAL_OK;
}

hal_status_t hal_plugin_virtual_unreserve(int32_t device, void *ptr, size_t size) {
  (void)device;
  munmap(ptr, size);
  return take_status();
}

hal_status_t hal_plugin_virtual_create(int32_t device, size_t size, uint32_t kinds,
                                       hal_plugin_physical_t **out_memory) {
  (void)device, (void)size, (void)kinds;
  return make(out_memory);
}

hal_status_t hal_plugin_virtual_release(int32_t device, hal_plugin_physical_t *memory) {
  (void)device;
  return destroy(memory);
}

hal_status_t hal_plugin_virtual_map(int32_t device, void *ptr, size_t size, hal_plugin_physical_t *memory) {
  (void)device, (void)ptr, (void)size, (void)memory;
  return take_status();
}

hal_status_t hal_plugin_virtual_unmap(int32_t device, void *ptr, size_t size) {
  (void)device, (void)ptr, (void)size;
  return take_status();
}

/* ---- streams and events ---- */

hal_status_t hal_plugin_stream_create(int32_t device, const hal_stream_desc_t *desc, hal_plugin_stream_t **out_stream) {
  (void)device, (void)desc;
  return make(out_stream);
}

hal_status_t hal_plugin_stream_destroy(hal_plugin_stream_t *stream) { return destroy(stream); }

hal_status_t hal_plugin_stream_synchronize(hal_plugin_stream_t *stream) {
  (void)stream;
  return take_status();
}

hal_status_t hal_plugin_device_synchronize(int32_t device) {
  (void)device;
  return take_status();
}

/* HAL_NOT_READY for ever would be a device that hangs. */
hal_status_t hal_plugin_stream_query(hal_plugin_stream_t *stream) {
  (void)stream;
  return has_bytes() ? take_status() : HAL_OK;
}

hal_status_t hal_plugin_stream_wait_event(hal_plugin_stream_t *stream, hal_plugin_event_t *event) {
  (void)stream, (void)event;
  return take_status();
}

hal_status_t hal_plugin_stream_error(hal_plugin_stream_t *stream, hal_stream_error_t *out_error) {
  (void)stream;
  take_struct(out_error, out_error->struct_size);
  return take_status();
}

hal_status_t hal_plugin_event_create(int32_t device, uint32_t flags, hal_plugin_event_t **out_event) {
  (void)device, (void)flags;
  return make(out_event);
}

hal_status_t hal_plugin_event_destroy(hal_plugin_event_t *event) { return destroy(event); }

hal_status_t hal_plugin_event_record(hal_plugin_event_t *event, hal_plugin_stream_t *stream) {
  (void)event, (void)stream;
  return take_status();
}

hal_status_t hal_plugin_event_query(hal_plugin_event_t *event) {
  (void)event;
  return has_bytes() ? take_status() : HAL_OK;
}

hal_status_t hal_plugin_event_synchronize(hal_plugin_event_t *event) {
  (void)event;
  return take_status();
}

hal_status_t hal_plugin_event_elapsed(hal_plugin_event_t *start, hal_plugin_event_t *end, int64_t *out_nanoseconds) {
  (void)start, (void)end;
  take(out_nanoseconds, sizeof *out_nanoseconds);
  return take_status();
}

hal_status_t hal_plugin_event_ipc_export(hal_plugin_event_t *event, uint32_t flags, void *handle, size_t room,
                                         size_t *out_size) {
  (void)event, (void)flags;
  return export_bytes(handle, room, out_size);
}

hal_status_t hal_plugin_event_ipc_open(int32_t device, const void *handle, size_t handle_size, uint32_t flags,
                                       hal_plugin_event_t **out_event) {
  (void)device, (void)handle, (void)handle_size, (void)flags;
  return make(out_event);
}

/* ---- kernels and operators ---- */

hal_status_t hal_plugin_module_load(int32_t device, const hal_module_desc_t *desc, hal_plugin_module_t **out_module) {
  (void)device, (void)desc;
  return make(out_module);
}

hal_status_t hal_plugin_module_unload(hal_plugin_module_t *module) { return destroy(module); }

hal_status_t hal_plugin_module_export(hal_plugin_module_t *module, void *data, size_t room, size_t *out_size) {
  (void)module;
  return export_bytes(data, room, out_size);
}

hal_status_t hal_plugin_kernel_get(hal_plugin_module_t *module, const char *name, hal_plugin_kernel_t **out_kernel) {
  const hal_status_t status = take_status();
  (void)name;
  *out_kernel = status || take_byte() == 255 ? NULL : (hal_plugin_kernel_t *)module; /* it is valid as long */
  return status;
}

hal_status_t hal_plugin_kernel_launch(hal_plugin_kernel_t *kernel, hal_plugin_stream_t *stream,
                                      const hal_launch_t *launch) {
  (void)kernel, (void)stream, (void)launch;
  return take_status();
}

hal_status_t hal_plugin_kernel_info(hal_plugin_kernel_t *kernel, uint32_t block_threads, uint32_t shared_bytes,
                                    hal_kernel_info_t *out_info) {
  (void)kernel, (void)block_threads, (void)shared_bytes;
  take_struct(out_info, out_info->struct_size);
  return take_status();
}

static hal_status_t compute(void *state, const hal_op_call_t *call) {
  (void)state, (void)call;
  return take_status();
}

hal_status_t hal_plugin_op_find(int32_t device, const char *name, hal_op_own_t *out_op) {
  (void)device, (void)name;
  const uint8_t kind = take_byte();
  if (kind < 64) return HAL_NOT_FOUND;
  out_op->dtypes = HAL_ALL_DTYPES, out_op->layouts = HAL_TAKES_CONTIGUOUS;
  if (kind > 200) take_struct(out_op, out_op->struct_size);
  out_op->fn = kind & 1 ? compute : NULL;
  out_op->query = kind & 2 ? compute : NULL;
  return take_status();
}

/* ---- graphs, profile, sensors ---- */

hal_status_t hal_plugin_capture_begin(hal_plugin_stream_t *stream, uint32_t mode, uint64_t pool) {
  (void)stream, (void)mode, (void)pool;
  return take_status();
}

hal_status_t hal_plugin_capture_end(hal_plugin_stream_t *stream, hal_plugin_graph_t **out_graph) {
  (void)stream;
  return make(out_graph);
}

hal_status_t hal_plugin_capture_status(hal_plugin_stream_t *stream, uint32_t *out_status, uint64_t *out_id) {
  (void)stream;
  take(out_status, sizeof *out_status);
  take(out_id, sizeof *out_id);
  return take_status();
}

hal_status_t hal_plugin_graph_instantiate(hal_plugin_graph_t *graph, hal_plugin_graph_exec_t **out_exec) {
  (void)graph;
  return make(out_exec);
}

hal_status_t hal_plugin_graph_launch(hal_plugin_graph_exec_t *exec, hal_plugin_stream_t *stream) {
  (void)exec, (void)stream;
  return take_status();
}

hal_status_t hal_plugin_graph_destroy(hal_plugin_graph_t *graph) { return destroy(graph); }

hal_status_t hal_plugin_graph_exec_destroy(hal_plugin_graph_exec_t *exec) { return destroy(exec); }

hal_status_t hal_plugin_profile_timestamp(int32_t device, int64_t *out_device_ns, int64_t *out_host_ns) {
  (void)device;
  take(out_device_ns, sizeof *out_device_ns);
  take(out_host_ns, sizeof *out_host_ns);
  return take_status();
}

hal_status_t hal_plugin_profile_enable(int32_t device, int32_t on) {
  (void)device, (void)on;
  return take_status();
}

hal_status_t hal_plugin_profile_read(int32_t device, hal_profile_sink_t sink, void *user_data) {
  (void)device;
  for (int i = take_byte() % 4; i > 0; i--) {
    hal_profile_record_t record = {.struct_size = sizeof record};
    take_struct(&record, sizeof record);
    record.name = take_byte() & 1 ? "a kernel" : NULL;
    record.stream = NULL;
    sink(user_data, &record);
  }
  return take_status();
}

hal_status_t hal_plugin_device_sensor(int32_t device, uint32_t sensor, int64_t *out_value) {
  (void)device, (void)sensor;
  take(out_value, sizeof *out_value);
  return take_status();
}

hal_status_t hal_plugin_device_processes(int32_t device, hal_process_sink_t sink, void *user_data) {
  (void)device;
  hal_device_process_t process = {.struct_size = sizeof process};
  take_struct(&process, sizeof process);
  if (take_byte() & 1) sink(user_data, &process);
  return take_status();
}
