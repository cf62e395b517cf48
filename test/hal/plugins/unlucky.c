/* unlucky.c: a plugin with streams whose work fails asynchronously: a copy of UNLUCKY_SIZE bytes fails, and after
 * one of UNLUCKY_LOST bytes the device is lost. Written against the installed header only. With UNLUCKY_EVENTS it
 * also has events; UNLUCKY_FLAGS are added to the device's flags. */
#include <hal/plugin.h>
#include <stdlib.h>
#include <string.h>

enum { UNLUCKY_SIZE = 13, UNLUCKY_LOST = 14, STREAMS = 256 };

struct hal_plugin_stream_s {
  int used;
  hal_status_t failure; /* not yet reported */
};

static hal_plugin_stream_t streams[STREAMS];
static int lost;

hal_status_t hal_plugin_info(hal_plugin_info_t *out_info) {
  out_info->name = UNLUCKY_NAME, out_info->vendor = "tests", out_info->version = "1";
  return HAL_OK;
}

hal_status_t hal_plugin_device_count(int32_t *out_count) {
  *out_count = 1;
  return HAL_OK;
}

hal_status_t hal_plugin_device_info(int32_t device, hal_device_info_t *out_info) {
  (void)device;
  out_info->flags = HAL_DEVICE_ASYNC | HAL_DEVICE_HOST_VISIBLE | UNLUCKY_FLAGS;
  return HAL_OK;
}

hal_status_t hal_plugin_memory_alloc(int32_t device, size_t size, uint32_t flags, void **out_ptr) {
  (void)device, (void)flags;
  void *const ptr = aligned_alloc(512, (size + 511) / 512 * 512);
  if (!ptr) return hal_host->error_set(HAL_RESOURCE_EXHAUSTED, 0, "unlucky: no memory");
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
  (void)dst_device, (void)src_device;
  memcpy(dst, src, size);
  if (stream && size == UNLUCKY_SIZE) stream->failure = HAL_DATA_LOSS;
  if (stream && size == UNLUCKY_LOST) lost = 1;
  return HAL_OK;
}

hal_status_t hal_plugin_stream_create(int32_t device, const hal_stream_desc_t *desc, hal_plugin_stream_t **out_stream) {
  (void)device, (void)desc;
  for (int i = 0; i < STREAMS; i++)
    if (!streams[i].used) {
      streams[i].used = 1;
      *out_stream = &streams[i];
      return HAL_OK;
    }
  return hal_host->error_set(HAL_RESOURCE_EXHAUSTED, 0, "unlucky: no stream is left");
}

hal_status_t hal_plugin_stream_destroy(hal_plugin_stream_t *stream) {
  if (stream) *stream = (hal_plugin_stream_t){0};
  return HAL_OK;
}

hal_status_t hal_plugin_stream_synchronize(hal_plugin_stream_t *stream) {
  if (lost) return hal_host->error_set(HAL_UNAVAILABLE, 79, "unlucky: the device fell off the bus");
  const hal_status_t failure = stream ? stream->failure : HAL_OK;
  if (!failure) return HAL_OK;
  stream->failure = HAL_OK;
  return hal_host->error_set(failure, 4711, "unlucky: the copy failed on purpose");
}

hal_status_t hal_plugin_stream_query(hal_plugin_stream_t *stream) { return hal_plugin_stream_synchronize(stream); }

hal_status_t hal_plugin_device_synchronize(int32_t device) {
  (void)device;
  for (int i = 0; i < STREAMS; i++)
    if (streams[i].failure || lost) return hal_plugin_stream_synchronize(&streams[i]);
  return HAL_OK;
}

#ifdef UNLUCKY_EVENTS
struct hal_plugin_event_s {
  int recorded;
};

hal_status_t hal_plugin_event_create(int32_t device, uint32_t flags, hal_plugin_event_t **out_event) {
  (void)device, (void)flags;
  hal_plugin_event_t *const event = calloc(1, sizeof *event);
  if (!event) return hal_host->error_set(HAL_RESOURCE_EXHAUSTED, 0, "unlucky: no memory");
  *out_event = event;
  return HAL_OK;
}

hal_status_t hal_plugin_event_destroy(hal_plugin_event_t *event) {
  free(event);
  return HAL_OK;
}

hal_status_t hal_plugin_event_record(hal_plugin_event_t *event, hal_plugin_stream_t *stream) {
  (void)stream;
  event->recorded = 1;
  return HAL_OK;
}

hal_status_t hal_plugin_event_query(hal_plugin_event_t *event) {
  (void)event;
  return HAL_OK;
}

hal_status_t hal_plugin_event_synchronize(hal_plugin_event_t *event) {
  (void)event;
  return HAL_OK;
}

hal_status_t hal_plugin_event_elapsed(hal_plugin_event_t *start, hal_plugin_event_t *end, int64_t *out_nanoseconds) {
  (void)start, (void)end;
  *out_nanoseconds = 0;
  return HAL_OK;
}
#endif
