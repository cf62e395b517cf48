/* rogue.c: a plugin with every group of functions that follows the contract, except for the rule that the
 * environment variable ROGUE names. Each name is a possible error of an author that the validate layer must report.
 * Work runs inline. */
#define _POSIX_C_SOURCE 200809L
#include <hal/plugin.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEVICES = 2, ALIGNMENT = 256, RESERVED_BYTES = 1 << 16 };

struct hal_plugin_stream_s {
  int32_t device;
  uint64_t capture;
};
struct hal_plugin_event_s {
  int64_t ns;
};
struct hal_plugin_kernel_s {
  int unused;
};
struct hal_plugin_module_s {
  hal_plugin_kernel_t kernel;
};
struct hal_plugin_graph_s {
  int unused;
};
struct hal_plugin_graph_exec_s {
  int unused;
};
struct hal_plugin_physical_s {
  size_t size;
};

/* The arguments of the last launch, for the tests: a plugin that keeps them (ROGUE=keeps_launch) reads them later. */
static const hal_launch_t *kept_launch;
static int64_t clock_ns;
static uint64_t captures;
static int initialised;

static int is(const char *mistake) {
  const char *const wanted = getenv("ROGUE");
  return wanted && strcmp(wanted, mistake) == 0;
}

static hal_status_t fail(hal_status_t code) { return hal_host->error_set(code, 0, "rogue: failed; try again"); }

static hal_status_t make(size_t size, void **out) {
  void *const made = hal_host->mem_alloc(size, ALIGNMENT);
  if (!made) return fail(HAL_RESOURCE_EXHAUSTED);
  memset(made, 0, size);
  *out = made;
  return HAL_OK;
}

static hal_status_t give_back(void *made) {
  hal_host->mem_free(made);
  return HAL_OK;
}

/* ---- plugin and devices ---- */

hal_status_t hal_plugin_info(hal_plugin_info_t *out_info) {
  out_info->name = "rogue";
  out_info->vendor = "tests";
  out_info->version = "1";
  return HAL_OK;
}

hal_status_t hal_plugin_init(const char *options) {
  (void)options;
  initialised = 1;
  return HAL_OK;
}

hal_status_t hal_plugin_device_count(int32_t *out_count) {
  *out_count = is("count_changes") && initialised ? DEVICES + 1 : DEVICES;
  return HAL_OK;
}

hal_status_t hal_plugin_device_info(int32_t device, hal_device_info_t *out_info) {
  (void)device;
  snprintf(out_info->name, sizeof out_info->name, "rogue");
  if (is("name_without_end")) memset(out_info->name, 'x', sizeof out_info->name);
  out_info->base_alignment = is("odd_alignment") ? 48 : ALIGNMENT;
  if (is("version_without_end")) memset(out_info->driver_version, 'x', sizeof out_info->driver_version);
  if (is("architecture_without_end")) memset(out_info->architecture, 'x', sizeof out_info->architecture);
  if (is("info_too_long")) memset((char *)out_info + out_info->struct_size, 0, 8);
  return HAL_OK;
}

hal_status_t hal_plugin_device_synchronize(int32_t device) {
  (void)device;
  return is("strange_code")    ? 99
         : is("reserved_code") ? 4
         : is("not_ready")     ? HAL_NOT_READY
         : is("no_message")    ? HAL_DATA_LOSS
                               : HAL_OK;
}

hal_status_t hal_plugin_device_reset(int32_t device, uint32_t flags) { return (void)device, (void)flags, HAL_OK; }

hal_status_t hal_plugin_device_peer_query(int32_t device, int32_t peer, int32_t *out_accessible) {
  (void)device, (void)peer;
  *out_accessible = is("peer_answer") ? 7 : 0;
  return HAL_OK;
}

/* ---- memory ---- */

hal_status_t hal_plugin_memory_alloc(int32_t device, size_t size, uint32_t flags, void **out_ptr) {
  static char *last;
  char *memory = NULL;
  (void)device, (void)flags;
  if (is("alloc_untouched")) return HAL_OK;
  if (is("alloc_null")) return *out_ptr = NULL, HAL_OK;
  if (is("alloc_wrote_and_failed")) return *out_ptr = &last, fail(HAL_RESOURCE_EXHAUSTED);
  if (is("alloc_overlaps") && last) return *out_ptr = last, HAL_OK;
  if (posix_memalign((void **)&memory, ALIGNMENT, size + ALIGNMENT)) return fail(HAL_RESOURCE_EXHAUSTED);
  last = memory;
  *out_ptr = is("alloc_misaligned") ? memory + 8 : memory;
  return HAL_OK;
}

hal_status_t hal_plugin_memory_free(int32_t device, void *ptr) {
  (void)device;
  if (is("free_fails")) return fail(HAL_INTERNAL);
  free(ptr);
  return HAL_OK;
}

hal_status_t hal_plugin_memory_copy(hal_plugin_stream_t *stream, void *dst, int32_t dst_device, const void *src,
                                    int32_t src_device, size_t size) {
  (void)stream, (void)dst_device, (void)src_device;
  if (size) memcpy(dst, src, size);
  return HAL_OK;
}

hal_status_t hal_plugin_memory_info(int32_t device, size_t *out_free, size_t *out_total) {
  (void)device;
  *out_total = 1 << 20;
  if (!is("info_one_of_two")) *out_free = is("more_free_than_total") ? 1 << 21 : 1 << 19;
  return HAL_OK;
}

hal_status_t hal_plugin_host_alloc(int32_t device, size_t size, uint32_t flags, void **out_ptr) {
  (void)device, (void)size, (void)flags;
  return make(64, out_ptr);
}
hal_status_t hal_plugin_host_free(int32_t device, void *ptr) {
  (void)device;
  return give_back(ptr);
}

hal_status_t hal_plugin_virtual_reserve(int32_t device, size_t size, void **out_ptr) {
  (void)device, (void)size;
  return make(RESERVED_BYTES, out_ptr);
}
hal_status_t hal_plugin_virtual_unreserve(int32_t device, void *ptr, size_t size) {
  (void)device, (void)size;
  return give_back(ptr);
}
hal_status_t hal_plugin_virtual_create(int32_t device, size_t size, uint32_t handle_kinds,
                                       hal_plugin_physical_t **out_memory) {
  (void)device, (void)size, (void)handle_kinds;
  return make(sizeof **out_memory, (void **)out_memory);
}
hal_status_t hal_plugin_virtual_release(int32_t device, hal_plugin_physical_t *memory) {
  (void)device;
  return give_back(memory);
}
hal_status_t hal_plugin_virtual_map(int32_t device, void *ptr, size_t size, hal_plugin_physical_t *memory) {
  (void)device, (void)ptr, (void)size, (void)memory;
  return HAL_OK;
}
hal_status_t hal_plugin_virtual_unmap(int32_t device, void *ptr, size_t size) {
  (void)device, (void)ptr, (void)size;
  return HAL_OK;
}

hal_status_t hal_plugin_virtual_access(int32_t device, void *ptr, size_t size, int32_t peer, uint32_t access) {
  (void)device, (void)ptr, (void)size, (void)peer, (void)access;
  return HAL_OK;
}
hal_status_t hal_plugin_virtual_export(int32_t device, hal_plugin_physical_t *memory, uint32_t kind,
                                       hal_memory_handle_t *out_handle) {
  (void)device, (void)memory;
  *out_handle = (hal_memory_handle_t){.kind = is("another_handle") ? HAL_HANDLE_NONE : kind, .file = -1};
  return HAL_OK;
}
hal_status_t hal_plugin_virtual_import(int32_t device, const hal_memory_handle_t *handle, size_t size,
                                       hal_plugin_physical_t **out_memory) {
  return handle->kind ? hal_plugin_virtual_create(device, size, handle->kind, out_memory) : fail(HAL_INVALID_ARGUMENT);
}

/* ---- streams and events ---- */

hal_status_t hal_plugin_stream_create(int32_t device, const hal_stream_desc_t *desc, hal_plugin_stream_t **out_stream) {
  (void)desc;
  const hal_status_t status = make(sizeof **out_stream, (void **)out_stream);
  if (!status) (*out_stream)->device = device;
  return status;
}
hal_status_t hal_plugin_stream_destroy(hal_plugin_stream_t *stream) { return give_back(stream); }

hal_status_t hal_plugin_stream_synchronize(hal_plugin_stream_t *stream) {
  (void)stream;
  if (is("keeps_launch") && kept_launch) {
    char text[64];
    snprintf(text, sizeof text, "rogue: the grid was %u", (unsigned)kept_launch->grid[0]);
    hal_host->log(HAL_LOG_ERROR, text);
  }
  if (is("writes_late") && kept_launch) memset((void *)(uintptr_t)kept_launch, 0, 4);
  return HAL_OK;
}

hal_status_t hal_plugin_stream_error(hal_plugin_stream_t *stream, hal_stream_error_t *out_error) {
  (void)stream;
  HAL_SET_FIELD(out_error, status, is("error_is_ok") ? HAL_OK : HAL_DATA_LOSS);
  if (is("error_without_end")) memset(out_error->message, 'x', sizeof out_error->message);
  return HAL_OK;
}

hal_status_t hal_plugin_event_create(int32_t device, uint32_t flags, hal_plugin_event_t **out_event) {
  static hal_plugin_event_t only;
  (void)device, (void)flags;
  if (is("one_event_for_all")) return *out_event = &only, HAL_OK;
  return make(sizeof **out_event, (void **)out_event);
}
hal_status_t hal_plugin_event_destroy(hal_plugin_event_t *event) {
  return is("one_event_for_all") ? HAL_OK : give_back(event);
}
hal_status_t hal_plugin_event_record(hal_plugin_event_t *event, hal_plugin_stream_t *stream) {
  (void)stream;
  event->ns = clock_ns += is("clock_goes_back") ? -1000 : 1000;
  return HAL_OK;
}
hal_status_t hal_plugin_event_synchronize(hal_plugin_event_t *event) {
  (void)event;
  return HAL_OK;
}
hal_status_t hal_plugin_event_elapsed(hal_plugin_event_t *start, hal_plugin_event_t *end, int64_t *out_nanoseconds) {
  *out_nanoseconds = end->ns - start->ns;
  return HAL_OK;
}

/* ---- modules ---- */

hal_status_t hal_plugin_module_load(int32_t device, const hal_module_desc_t *desc, hal_plugin_module_t **out_module) {
  (void)device, (void)desc;
  return make(sizeof **out_module, (void **)out_module);
}
hal_status_t hal_plugin_module_unload(hal_plugin_module_t *module) { return give_back(module); }
hal_status_t hal_plugin_kernel_get(hal_plugin_module_t *module, const char *name, hal_plugin_kernel_t **out_kernel) {
  (void)name;
  *out_kernel = &module->kernel;
  return HAL_OK;
}
hal_status_t hal_plugin_kernel_launch(hal_plugin_kernel_t *kernel, hal_plugin_stream_t *stream,
                                      const hal_launch_t *launch) {
  (void)kernel, (void)stream;
  kept_launch = launch;
  if (is("writes_launch")) ((hal_launch_t *)(uintptr_t)launch)->grid[0] = 77;
  return HAL_OK;
}

hal_status_t hal_plugin_kernel_info(hal_plugin_kernel_t *kernel, uint32_t block_threads, uint32_t shared_bytes,
                                    hal_kernel_info_t *out_info) {
  (void)kernel, (void)shared_bytes;
  HAL_SET_FIELD(out_info, max_block_threads, 1024);
  HAL_SET_FIELD(out_info, blocks_per_unit, 2048 / block_threads);
  return HAL_OK;
}
hal_status_t hal_plugin_module_export(hal_plugin_module_t *module, void *data, size_t room, size_t *out_size) {
  (void)module;
  *out_size = is("empty_module") ? 0 : 4;
  if (room >= 4) memcpy(data, "code", 4);
  return HAL_OK;
}

static hal_status_t run_op(void *state, const hal_op_call_t *call) {
  (void)state, (void)call;
  return is("op_fails_silently") ? HAL_INTERNAL : is("breaks_its_word") ? HAL_UNIMPLEMENTED : HAL_OK;
}
static hal_status_t query_op(void *state, const hal_op_call_t *call) {
  (void)state;
  return is("query_fails") ? fail(HAL_INTERNAL) : call->stream || call->host ? fail(HAL_INVALID_ARGUMENT) : HAL_OK;
}
hal_status_t hal_plugin_op_find(int32_t device, const char *name, hal_op_own_t *out_op) {
  (void)device; /* no state, which is allowed */
  if (strcmp(name, "add.Tensor")) return HAL_NOT_FOUND;
  out_op->fn = run_op;
  out_op->query = query_op;
  out_op->dtypes = HAL_ALL_DTYPES;
  out_op->layouts = HAL_TAKES_ALL;
  return HAL_OK;
}

/* ---- graphs ---- */

hal_status_t hal_plugin_capture_begin(hal_plugin_stream_t *stream, uint32_t mode, uint64_t pool) {
  (void)mode, (void)pool;
  if (stream) stream->capture = ++captures;
  return HAL_OK;
}
hal_status_t hal_plugin_capture_status(hal_plugin_stream_t *stream, uint32_t *out_status, uint64_t *out_id) {
  const uint64_t id = stream && !is("forgets_capture") ? stream->capture : 0;
  *out_status = is("capture_answer") ? 9 : id ? HAL_CAPTURE_ACTIVE : HAL_CAPTURE_NONE;
  *out_id = id;
  return HAL_OK;
}
hal_status_t hal_plugin_capture_end(hal_plugin_stream_t *stream, hal_plugin_graph_t **out_graph) {
  if (stream) stream->capture = 0;
  if (is("invalid_capture")) return hal_host->error_set(HAL_ABORTED, 0, "the capture became invalid");
  return make(sizeof **out_graph, (void **)out_graph);
}
hal_status_t hal_plugin_graph_instantiate(hal_plugin_graph_t *graph, hal_plugin_graph_exec_t **out_exec) {
  (void)graph;
  return make(sizeof **out_exec, (void **)out_exec);
}
hal_status_t hal_plugin_graph_update(hal_plugin_graph_exec_t *exec, hal_plugin_graph_t *graph) {
  (void)exec, (void)graph;
  return HAL_OK;
}
hal_status_t hal_plugin_graph_launch(hal_plugin_graph_exec_t *exec, hal_plugin_stream_t *stream) {
  (void)exec, (void)stream;
  return HAL_OK;
}
hal_status_t hal_plugin_graph_exec_destroy(hal_plugin_graph_exec_t *exec) { return give_back(exec); }
hal_status_t hal_plugin_graph_destroy(hal_plugin_graph_t *graph) { return give_back(graph); }

hal_status_t hal_plugin_device_sensor(int32_t device, uint32_t sensor, int64_t *out_value) {
  (void)device, (void)sensor;
  *out_value = is("sensor_of_101") ? 101 : is("sensor_below_0") ? -5 : 7;
  return HAL_OK;
}
