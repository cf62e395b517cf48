/* stream.c: streams: immediate command lists. */
#define _POSIX_C_SOURCE 200809L
#include <hal/plugin_worker.h>
#include <stdio.h>
#include <string.h>

#include "npu.h"

/* The group has compute and copy engines, so it serves every class. */
static hal_status_t queue_of(npu_device_t *device, const hal_stream_desc_t *wanted, uint32_t *out_index) {
  if (!(wanted->flags & HAL_STREAM_QUEUE)) {
    *out_index = atomic_fetch_add(&device->next_queue, 1) % device->queue_count;
    return HAL_OK;
  }
  *out_index = wanted->queue;
  if (wanted->queue < device->queue_count) return HAL_OK;
  return npu_error(HAL_INVALID_ARGUMENT, 0, "npu: invalid queue %u of '%s': it has %u", (unsigned)wanted->queue,
                   device->facts.name, (unsigned)device->queue_count);
}

hal_status_t npu_stream_make(int32_t ordinal, const hal_stream_desc_t *wanted, hal_plugin_stream_t **out_stream) {
  npu_device_t *device = &npu.devices[ordinal];
  const int32_t priority = wanted->priority;
  uint32_t index = 0;
  const hal_status_t status = queue_of(device, wanted, &index);
  if (status) return status;
  const ze_command_queue_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC,
                                        .ordinal = device->queue_group,
                                        .index = index,
                                        .mode = ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS,
                                        .priority = priority < 0   ? ZE_COMMAND_QUEUE_PRIORITY_PRIORITY_HIGH
                                                    : priority > 0 ? ZE_COMMAND_QUEUE_PRIORITY_PRIORITY_LOW
                                                                   : ZE_COMMAND_QUEUE_PRIORITY_NORMAL};
  hal_plugin_stream_t *stream = hal_host->mem_alloc(sizeof *stream, alignof(hal_plugin_stream_t));
  if (!stream)
    return npu_error(HAL_RESOURCE_EXHAUSTED, 0, "npu: no host memory for a stream of device %d; free some memory",
                     (int)ordinal);
  memset(stream, 0, sizeof *stream);
  stream->device = ordinal;
  ze_result_t code = ze.zeCommandListCreateImmediate(npu.context, device->handle, &desc, &stream->list);
  if (!code && !stream->list) code = ZE_RESULT_ERROR_UNKNOWN;
  if (code) {
    hal_host->mem_free(stream);
    npu_device_noticed(ordinal, code);
    return npu_driver_error(code, "npu: cannot create a command list of '%s'", device->facts.name);
  }
  pthread_mutex_init(&stream->lock, NULL);
  *out_stream = stream;
  return HAL_OK;
}

void npu_stream_unmake(hal_plugin_stream_t *stream) {
  hal_worker_stop(stream->host);
  ze.zeCommandListDestroy(stream->list);
  pthread_mutex_destroy(&stream->lock);
  hal_host->mem_free(stream->ring);
  hal_host->mem_free(stream);
}

hal_status_t hal_plugin_stream_create(int32_t ordinal, const hal_stream_desc_t *desc,
                                      hal_plugin_stream_t **out_stream) {
  hal_plugin_stream_t *stream = NULL;
  hal_status_t status = npu_check_alive(ordinal);
  if (!status) status = hal_stream_desc_check("npu: stream_create", desc, HAL_STREAM_QUEUE);
  if (!status) status = npu_stream_make(ordinal, desc, &stream);
  if (status) return status;
  npu_device_t *device = &npu.devices[ordinal];
  pthread_mutex_lock(&device->lock);
  stream->next = device->streams;
  if (device->streams) device->streams->previous = stream;
  device->streams = stream;
  pthread_mutex_unlock(&device->lock);
  *out_stream = stream;
  return HAL_OK;
}

static void unlink_stream(hal_plugin_stream_t *stream) {
  npu_device_t *device = &npu.devices[stream->device];
  pthread_mutex_lock(&device->lock);
  if (stream->previous)
    stream->previous->next = stream->next;
  else
    device->streams = stream->next;
  if (stream->next) stream->next->previous = stream->previous;
  pthread_mutex_unlock(&device->lock);
}

hal_status_t hal_plugin_stream_destroy(hal_plugin_stream_t *stream) {
  if (!stream) return HAL_OK;
  const hal_status_t status = npu_check_device(stream->device);
  if (status) return status;
  npu_work_mark(stream); /* if that fails, the driver ends the user's commands with the list */
  npu_work_drain(stream);
  if (stream->failure.status)
    hal_host->log(HAL_LOG_ERROR, "npu: a stream was destroyed with an unreported failure; synchronize it first");
  unlink_stream(stream);
  npu_stream_unmake(stream);
  return HAL_OK;
}

static const char *tell_why(const npu_failure_t *failure, char *text, size_t room) {
  if (failure->why) return failure->why;
  snprintf(text, room, "the driver returned %s (0x%x)", npu_error_name(failure->code), (unsigned)failure->code);
  return text;
}

/* Reports the stream's failure, if there is one, and clears it; a lost device remains lost. */
static hal_status_t take_failure(hal_plugin_stream_t *stream) {
  char why[128];
  pthread_mutex_lock(&stream->lock);
  const npu_failure_t failure = stream->failure;
  if (failure.status) stream->told = failure;
  stream->failure.status = HAL_OK;
  pthread_mutex_unlock(&stream->lock);
  if (NPU_LIKELY(!failure.status)) return npu_check_alive(stream->device);
  return npu_error(failure.status, (int64_t)failure.code,
                   "npu: %s%s%s failed on device %d (%s): %s; its results are undefined", failure.op,
                   failure.kernel[0] ? " of " : "", failure.kernel, (int)stream->device,
                   npu.devices[stream->device].facts.name, tell_why(&failure, why, sizeof why));
}

/* A lost device accepts no marker, and its queued work has ended. */
static hal_status_t mark(hal_plugin_stream_t *stream) {
  return npu_check_alive(stream->device) ? HAL_OK : npu_work_mark(stream);
}

hal_status_t hal_plugin_stream_synchronize(hal_plugin_stream_t *stream) {
  if (!stream) return HAL_OK;
  hal_status_t status = npu_check_device(stream->device);
  if (!status) status = mark(stream);
  if (status) return status;
  npu_work_drain(stream);
  return take_failure(stream);
}

/* Returns whether work remains, according to the ring. */
static int is_busy(hal_plugin_stream_t *stream) {
  pthread_mutex_lock(&stream->lock);
  npu_work_reap(stream, UINT32_MAX);
  const int busy = stream->count != 0;
  pthread_mutex_unlock(&stream->lock);
  return busy;
}

/* A user may have commands on the list; a marker represents them. */
static hal_status_t query_marker(hal_plugin_stream_t *stream) {
  const hal_status_t status = mark(stream);
  return status ? status : hal_marker_query(&stream->patience, is_busy, stream);
}

hal_status_t hal_plugin_stream_query(hal_plugin_stream_t *stream) {
  if (!stream) return HAL_OK;
  hal_status_t status = npu_check_device(stream->device);
  if (status) return status;
  if (is_busy(stream)) return HAL_NOT_READY;
  if (NPU_UNLIKELY(atomic_load_explicit(&stream->lent, memory_order_relaxed))) status = query_marker(stream);
  return status ? status : take_failure(stream);
}

hal_status_t hal_plugin_stream_error(hal_plugin_stream_t *stream, hal_stream_error_t *out_error) {
  if (!stream || npu_check_device(stream->device)) return HAL_NOT_FOUND;
  pthread_mutex_lock(&stream->lock);
  const npu_failure_t told = stream->told;
  pthread_mutex_unlock(&stream->lock);
  if (!told.status) return HAL_NOT_FOUND;
  hal_stream_error_t error = {
      .struct_size = out_error->struct_size, .status = told.status, .native_code = (int64_t)told.code};
  memcpy(error.op, told.op, sizeof error.op);
  memcpy(error.kernel, told.kernel, sizeof error.kernel);
  char why[128];
  snprintf(error.message, sizeof error.message, "%s", tell_why(&told, why, sizeof why));
  memcpy(out_error, &error, error.struct_size < sizeof error ? error.struct_size : sizeof error);
  return HAL_OK;
}

/* The marker's barriers separate queued work from the first command of the list's user. */
hal_status_t hal_plugin_stream_native(hal_plugin_stream_t *stream, void **out_native) {
  if (stream) {
    hal_status_t status = npu_check_alive(stream->device);
    atomic_store(&stream->lent, 1);
    if (!status) status = npu_work_mark(stream);
    if (status) return status;
  }
  *out_native = stream ? stream->list : NULL;
  return HAL_OK;
}

/* Collects the events of the last commands of a device's streams, with references. The caller holds the device's lock.
 * Returns their number, -1 if there was not enough memory; sets `*out_status` if a marker could not be queued. */
static int32_t note_lasts(const npu_device_t *device, npu_event_t ***out_events, hal_status_t *out_status) {
  size_t streams = 0;
  int32_t count = 0;
  for (const hal_plugin_stream_t *stream = device->streams; stream; stream = stream->next) streams++;
  if (!streams) return 0;
  npu_event_t **const events = hal_host->mem_alloc(streams * sizeof *events, alignof(npu_event_t *));
  if (!events) return -1;
  for (hal_plugin_stream_t *stream = device->streams; stream; stream = stream->next) {
    const hal_status_t marked = mark(stream);
    if (marked) *out_status = marked;
    pthread_mutex_lock(&stream->lock);
    npu_event_t *const last = npu_work_last(stream);
    pthread_mutex_unlock(&stream->lock);
    if (last) events[count++] = last;
  }
  *out_events = events;
  return count;
}

/* Waits without a lock, because a queued host function may create or destroy streams. */
hal_status_t hal_plugin_device_synchronize(int32_t ordinal) {
  npu_event_t **events = NULL;
  hal_status_t status = npu_check_device(ordinal);
  if (status) return status;
  npu_device_t *device = &npu.devices[ordinal];
  pthread_mutex_lock(&device->lock);
  const int32_t count = note_lasts(device, &events, &status);
  pthread_mutex_unlock(&device->lock);
  if (count < 0)
    return npu_error(HAL_RESOURCE_EXHAUSTED, 0, "npu: no host memory to wait for a device; free some memory");
  for (int32_t i = 0; i < count; i++) {
    ze.zeEventHostSynchronize(events[i]->handle, UINT64_MAX); /* npu_work_reap_all detects failures */
    npu_event_release(events[i]);
  }
  hal_host->mem_free(events);
  npu_work_reap_all(ordinal);
  pthread_mutex_lock(&device->lock);
  for (hal_plugin_stream_t *stream = device->streams; stream && !status; stream = stream->next)
    /* one failure is reported; the others belong to their own streams */
    if (stream->failure.status) status = take_failure(stream);
  pthread_mutex_unlock(&device->lock);
  return status ? status : npu_check_alive(ordinal);
}
