/* tally.c: a plugin with streams, events and modules that counts existing objects and checks handles. A foreign or
 * stale handle is INTERNAL, and objects not released by shutdown are logged as an error. Work runs inline. Its
 * module dialect "tally" has the kernels
 *   store(int32_t *target, int32_t value)  writes one number
 *   hold(int32_t n)                        the stream's next n queries return NOT_READY
 *   fail()                                 the stream fails, reported at its next synchronization or query */
#define _POSIX_C_SOURCE 200809L
#include <hal/plugin.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifndef TALLY_NAME
#define TALLY_NAME "tally"
#endif

enum { DEVICES = 2, STREAM_MAGIC = 0x57e4, EVENT_MAGIC = 0xe7e7, MODULE_MAGIC = 0x30d1 };
enum { KERNEL_STORE, KERNEL_HOLD, KERNEL_FAIL, KERNEL_COUNT };

struct hal_plugin_stream_s {
  uint32_t magic;
  int32_t device;
  atomic_int held, failed;
};
struct hal_plugin_event_s {
  uint32_t magic;
  uint32_t flags;
  atomic_int recorded;
  atomic_llong ns;
};
struct hal_plugin_kernel_s {
  int number;
};
struct hal_plugin_module_s {
  uint32_t magic;
  hal_plugin_kernel_t kernels[KERNEL_COUNT];
};

static atomic_int segments, streams, events, modules;

static hal_status_t foreign(const char *what) { return hal_host->error_set(HAL_INTERNAL, 0, what); }

static hal_status_t check_stream(const hal_plugin_stream_t *stream) {
  return !stream || stream->magic == STREAM_MAGIC ? HAL_OK : foreign("a stream that is not this plugin's");
}

static hal_status_t check_event(const hal_plugin_event_t *event) {
  return event && event->magic == EVENT_MAGIC ? HAL_OK : foreign("an event that is not this plugin's");
}

static void *make(size_t size, atomic_int *count) {
  void *made = hal_host->mem_alloc(size, 16);
  if (!made) {
    hal_host->error_set(HAL_RESOURCE_EXHAUSTED, 0, "out of host memory");
    return NULL;
  }
  memset(made, 0, size);
  atomic_fetch_add(count, 1);
  return made;
}

hal_status_t hal_plugin_info(hal_plugin_info_t *out_info) {
  out_info->name = TALLY_NAME;
  out_info->vendor = "tests";
  out_info->version = "1";
  return HAL_OK;
}

hal_status_t hal_plugin_shutdown(uint32_t flags) {
  (void)flags;
  const int left[] = {atomic_load(&segments), atomic_load(&streams), atomic_load(&events), atomic_load(&modules)};
  static const char *const names[] = {"segments", "streams", "events", "modules"};
  for (size_t i = 0; i < sizeof left / sizeof left[0]; i++) {
    if (!left[i]) continue;
    char text[96];
    snprintf(text, sizeof text, "tally: %d %s were not released", left[i], names[i]);
    hal_host->log(HAL_LOG_ERROR, text);
  }
  return HAL_OK;
}

hal_status_t hal_plugin_device_count(int32_t *out_count) {
  *out_count = DEVICES;
  return HAL_OK;
}

hal_status_t hal_plugin_device_info(int32_t device, hal_device_info_t *out_info) {
  if (out_info->struct_size < HAL_STRUCT_SIZE(hal_device_info_t, base_alignment)) return HAL_INVALID_ARGUMENT;
  snprintf(out_info->name, sizeof out_info->name, TALLY_NAME " %d", (int)device);
  snprintf(out_info->dialects, sizeof out_info->dialects, "tally");
  out_info->flags = HAL_DEVICE_HOST_VISIBLE | HAL_DEVICE_FP64;
  out_info->base_alignment = 256;
  return HAL_OK;
}

hal_status_t hal_plugin_device_synchronize(int32_t device) { return device < DEVICES ? HAL_OK : HAL_OUT_OF_RANGE; }

hal_status_t hal_plugin_device_peer_query(int32_t device, int32_t peer, int32_t *out_accessible) {
  *out_accessible = device < peer;
  return HAL_OK;
}

hal_status_t hal_plugin_memory_alloc(int32_t device, size_t size, uint32_t flags, void **out_ptr) {
  (void)device, (void)flags;
  void *ptr = NULL;
  if (posix_memalign(&ptr, 256, size)) return hal_host->error_set(HAL_RESOURCE_EXHAUSTED, 0, "out of memory");
  atomic_fetch_add(&segments, 1);
  *out_ptr = ptr;
  return HAL_OK;
}

hal_status_t hal_plugin_memory_free(int32_t device, void *ptr) {
  (void)device;
  if (ptr) atomic_fetch_sub(&segments, 1);
  free(ptr);
  return HAL_OK;
}

hal_status_t hal_plugin_memory_copy(hal_plugin_stream_t *stream, void *dst, int32_t dst_device, const void *src,
                                    int32_t src_device, size_t size) {
  (void)dst_device, (void)src_device;
  const hal_status_t status = check_stream(stream);
  if (!status && size) memcpy(dst, src, size);
  return status;
}

hal_status_t hal_plugin_stream_create(int32_t device, const hal_stream_desc_t *desc, hal_plugin_stream_t **out_stream) {
  (void)desc;
  hal_plugin_stream_t *stream = make(sizeof *stream, &streams);
  if (!stream) return HAL_RESOURCE_EXHAUSTED;
  stream->magic = STREAM_MAGIC;
  stream->device = device;
  *out_stream = stream;
  return HAL_OK;
}

hal_status_t hal_plugin_stream_destroy(hal_plugin_stream_t *stream) {
  const hal_status_t status = check_stream(stream);
  if (status || !stream) return status;
  stream->magic = 0;
  atomic_fetch_sub(&streams, 1);
  hal_host->mem_free(stream);
  return HAL_OK;
}

static hal_status_t surface(hal_plugin_stream_t *stream) {
  if (stream && atomic_exchange(&stream->failed, 0))
    return hal_host->error_set(HAL_DATA_LOSS, 7, "a kernel failed: fail");
  return HAL_OK;
}

hal_status_t hal_plugin_stream_synchronize(hal_plugin_stream_t *stream) {
  const hal_status_t status = check_stream(stream);
  if (status) return status;
  if (stream) atomic_store(&stream->held, 0);
  return surface(stream);
}

hal_status_t hal_plugin_stream_query(hal_plugin_stream_t *stream) {
  const hal_status_t status = check_stream(stream);
  if (status) return status;
  if (stream && atomic_load(&stream->held) > 0) {
    atomic_fetch_sub(&stream->held, 1);
    return HAL_NOT_READY;
  }
  return surface(stream);
}

hal_status_t hal_plugin_stream_native(hal_plugin_stream_t *stream, void **out_native) {
  *out_native = stream;
  return check_stream(stream);
}

hal_status_t hal_plugin_stream_wait_event(hal_plugin_stream_t *stream, hal_plugin_event_t *event) {
  const hal_status_t status = check_stream(stream);
  return status ? status : check_event(event);
}

hal_status_t hal_plugin_event_create(int32_t device, uint32_t flags, hal_plugin_event_t **out_event) {
  (void)device;
  hal_plugin_event_t *event = make(sizeof *event, &events);
  if (!event) return HAL_RESOURCE_EXHAUSTED;
  event->magic = EVENT_MAGIC;
  event->flags = flags;
  *out_event = event;
  return HAL_OK;
}

hal_status_t hal_plugin_event_destroy(hal_plugin_event_t *event) {
  if (!event) return HAL_OK;
  const hal_status_t status = check_event(event);
  if (status) return status;
  event->magic = 0;
  atomic_fetch_sub(&events, 1);
  hal_host->mem_free(event);
  return HAL_OK;
}

hal_status_t hal_plugin_event_record(hal_plugin_event_t *event, hal_plugin_stream_t *stream) {
  hal_status_t status = check_event(event);
  if (!status) status = check_stream(stream);
  if (status) return status;
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  atomic_store(&event->ns, (long long)now.tv_sec * 1000000000 + now.tv_nsec);
  atomic_store(&event->recorded, 1);
  return HAL_OK;
}

hal_status_t hal_plugin_event_synchronize(hal_plugin_event_t *event) { return check_event(event); }

hal_status_t hal_plugin_event_elapsed(hal_plugin_event_t *start, hal_plugin_event_t *end, int64_t *out_nanoseconds) {
  hal_status_t status = check_event(start);
  if (!status) status = check_event(end);
  if (!status) *out_nanoseconds = atomic_load(&end->ns) - atomic_load(&start->ns);
  return status;
}

hal_status_t hal_plugin_module_load(int32_t device, const hal_module_desc_t *desc, hal_plugin_module_t **out_module) {
  (void)device;
  if (strcmp(desc->dialect, "tally")) return HAL_UNIMPLEMENTED; /* without a message, which is allowed */
  hal_plugin_module_t *module = make(sizeof *module, &modules);
  if (!module) return HAL_RESOURCE_EXHAUSTED;
  module->magic = MODULE_MAGIC;
  for (int i = 0; i < KERNEL_COUNT; i++) module->kernels[i].number = i;
  *out_module = module;
  return HAL_OK;
}

hal_status_t hal_plugin_module_unload(hal_plugin_module_t *module) {
  if (module->magic != MODULE_MAGIC) return foreign("a module that is not this plugin's");
  module->magic = 0;
  atomic_fetch_sub(&modules, 1);
  hal_host->mem_free(module);
  return HAL_OK;
}

hal_status_t hal_plugin_kernel_get(hal_plugin_module_t *module, const char *name, hal_plugin_kernel_t **out_kernel) {
  static const char *const names[KERNEL_COUNT] = {"store", "hold", "fail"};
  for (int i = 0; i < KERNEL_COUNT; i++)
    if (strcmp(name, names[i]) == 0) {
      *out_kernel = &module->kernels[i];
      return HAL_OK;
    }
  return hal_host->error_set(HAL_NOT_FOUND, 0, "the module has store, hold and fail");
}

hal_status_t hal_plugin_kernel_launch(hal_plugin_kernel_t *kernel, hal_plugin_stream_t *stream,
                                      const hal_launch_t *launch) {
  const hal_status_t status = check_stream(stream);
  if (status) return status;
  switch (kernel->number) {
    case KERNEL_STORE: {
      int32_t *target;
      memcpy(&target, launch->args[0].value, sizeof target);
      memcpy(target, launch->args[1].value, sizeof *target);
      return HAL_OK;
    }
    case KERNEL_HOLD: {
      int32_t queries;
      memcpy(&queries, launch->args[0].value, sizeof queries);
      atomic_store(&stream->held, queries);
      return HAL_OK;
    }
    default:
      atomic_store(&stream->failed, 1);
      return HAL_OK;
  }
}
