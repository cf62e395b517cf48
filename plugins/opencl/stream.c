/* stream.c: streams: in-order queues of the driver. */
#define _POSIX_C_SOURCE 200809L
#include <hal/plugin_worker.h>
#include <stdio.h>
#include <string.h>

#include "capture.h"

hal_status_t hal_plugin_stream_create(int32_t ordinal, const hal_stream_desc_t *desc,
                                      hal_plugin_stream_t **out_stream) {
  hal_status_t status = ocl_check_device(ordinal);
  if (!status) status = hal_stream_desc_check("opencl: stream_create", desc, 0);
  if (status) return status;
  ocl_device_t *device = &ocl.devices[ordinal];
  hal_plugin_stream_t *stream = hal_host->mem_alloc(sizeof *stream, alignof(hal_plugin_stream_t));
  if (!stream)
    return ocl_error(HAL_RESOURCE_EXHAUSTED, 0, "opencl: no host memory for a stream of device %d; free some memory",
                     (int)ordinal);
  memset(stream, 0, sizeof *stream);
  stream->device = ordinal;
  status = ocl_queue_create(device, desc->priority, &stream->queue);
  if (status) {
    hal_host->mem_free(stream);
    return status;
  }
  pthread_mutex_init(&stream->lock, NULL);
  pthread_mutex_lock(&device->lock);
  stream->next = device->streams;
  if (device->streams) device->streams->previous = stream;
  device->streams = stream;
  pthread_mutex_unlock(&device->lock);
  *out_stream = stream;
  return HAL_OK;
}

static void unlink_stream(hal_plugin_stream_t *stream) {
  ocl_device_t *device = &ocl.devices[stream->device];
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
  const hal_status_t status = ocl_check_device(stream->device);
  if (status) return status;
  ocl_capture_leave(stream);
  if (ocl_work_mark(stream)) icd.clFinish(stream->queue);
  ocl_work_drain(stream);
  if (stream->failure.status)
    hal_host->log(HAL_LOG_ERROR, "opencl: a stream was destroyed with an unreported failure; synchronize it first");
  unlink_stream(stream);
  hal_worker_stop(stream->host);
  ocl_work_discard(stream);
  icd.clReleaseCommandQueue(stream->queue);
  pthread_mutex_destroy(&stream->lock);
  hal_host->mem_free(stream->ring);
  hal_host->mem_free(stream);
  return HAL_OK;
}

/* Reports the stream's failure, if there is one, and clears it. */
static hal_status_t take_failure(hal_plugin_stream_t *stream) {
  pthread_mutex_lock(&stream->lock);
  const ocl_failure_t failure = stream->failure;
  if (failure.status) stream->told = failure;
  stream->failure.status = HAL_OK;
  pthread_mutex_unlock(&stream->lock);
  if (OCL_LIKELY(!failure.status)) return HAL_OK;
  return ocl_error(failure.status, failure.code,
                   "opencl: %s%s%s failed on device %d (%s): the driver returned %s (%d); its results are undefined",
                   failure.op, failure.kernel[0] ? " of " : "", failure.kernel, (int)stream->device,
                   ocl.devices[stream->device].name, ocl_error_name(failure.code), (int)failure.code);
}

hal_status_t hal_plugin_stream_synchronize(hal_plugin_stream_t *stream) {
  if (!stream) return HAL_OK;
  hal_status_t status = ocl_check_device(stream->device);
  if (!status) status = ocl_capture_forbid(stream, "stream_synchronize");
  if (!status) status = ocl_work_mark(stream);
  if (status) return status;
  ocl_work_drain(stream);
  return take_failure(stream);
}

/* Returns whether work remains, according to the ring. */
static int is_busy(hal_plugin_stream_t *stream) {
  pthread_mutex_lock(&stream->lock);
  ocl_work_reap(stream, UINT32_MAX);
  const int busy = stream->count != 0;
  if (busy) ocl_work_flush(stream); /* otherwise repeated queries would never end */
  pthread_mutex_unlock(&stream->lock);
  return busy;
}

/* A user may have commands on the queue; a marker represents them. */
static hal_status_t query_marker(hal_plugin_stream_t *stream) {
  const hal_status_t status = ocl_work_mark(stream);
  return status ? status : hal_marker_query(&stream->patience, is_busy, stream);
}

hal_status_t hal_plugin_stream_query(hal_plugin_stream_t *stream) {
  if (!stream) return HAL_OK;
  hal_status_t status = ocl_check_device(stream->device);
  if (!status) status = ocl_capture_forbid(stream, "stream_query");
  if (status) return status;
  if (is_busy(stream)) return HAL_NOT_READY;
  if (OCL_UNLIKELY(atomic_load_explicit(&stream->lent, memory_order_relaxed))) status = query_marker(stream);
  return status ? status : take_failure(stream);
}

hal_status_t hal_plugin_stream_error(hal_plugin_stream_t *stream, hal_stream_error_t *out_error) {
  if (!stream || ocl_check_device(stream->device)) return HAL_NOT_FOUND;
  pthread_mutex_lock(&stream->lock);
  const ocl_failure_t told = stream->told;
  pthread_mutex_unlock(&stream->lock);
  if (!told.status) return HAL_NOT_FOUND;
  hal_stream_error_t error = {.struct_size = out_error->struct_size, .status = told.status, .native_code = told.code};
  memcpy(error.op, told.op, sizeof error.op);
  memcpy(error.kernel, told.kernel, sizeof error.kernel);
  snprintf(error.message, sizeof error.message, "the driver returned %s", ocl_error_name(told.code));
  memcpy(out_error, &error, error.struct_size < sizeof error ? error.struct_size : sizeof error);
  return HAL_OK;
}

hal_status_t hal_plugin_stream_native(hal_plugin_stream_t *stream, void **out_native) {
  if (stream) atomic_store(&stream->lent, 1);
  *out_native = stream ? stream->queue : NULL;
  return HAL_OK;
}

/* The last commands of a device's streams. */
typedef struct lasts_s {
  cl_event *events;
  cl_command_queue *queues;
  size_t count;
  hal_status_t status; /* of a marker that could not be queued */
} lasts_t;

/* Collects them, with references. The caller holds the device's lock. Returns whether there was enough memory. */
static int note_lasts(const ocl_device_t *device, lasts_t *lasts) {
  size_t streams = 0;
  *lasts = (lasts_t){.count = 0};
  for (const hal_plugin_stream_t *stream = device->streams; stream; stream = stream->next) streams++;
  if (!streams) return 1;
  lasts->events = hal_host->mem_alloc(streams * (sizeof *lasts->events + sizeof *lasts->queues), alignof(cl_event));
  if (!lasts->events) return 0;
  lasts->queues = (cl_command_queue *)(lasts->events + streams);
  for (hal_plugin_stream_t *stream = device->streams; stream; stream = stream->next) {
    lasts->status = ocl_work_mark(stream);
    if (lasts->status) break;
    pthread_mutex_lock(&stream->lock);
    const cl_event last = ocl_work_last(stream);
    pthread_mutex_unlock(&stream->lock);
    if (!last) continue;
    lasts->queues[lasts->count] = stream->queue;
    lasts->events[lasts->count++] = last;
  }
  return 1;
}

/* Waits for them without a lock, because a queued host function may create or destroy streams. */
static cl_int wait_lasts(lasts_t *lasts) {
  cl_int code = CL_SUCCESS;
  for (size_t i = 0; i < lasts->count; i++) {
    const cl_int waited = ocl_event_wait(lasts->events[i], lasts->queues[i]);
    if (!code) code = waited;
    icd.clReleaseEvent(lasts->events[i]);
  }
  hal_host->mem_free(lasts->events);
  return code;
}

hal_status_t hal_plugin_device_synchronize(int32_t ordinal) {
  lasts_t lasts;
  hal_status_t status = ocl_check_device(ordinal);
  if (!status) status = ocl_capture_forbid(NULL, "device_synchronize");
  if (status) return status;
  ocl_device_t *device = &ocl.devices[ordinal];
  pthread_mutex_lock(&device->lock);
  const int noted = note_lasts(device, &lasts);
  pthread_mutex_unlock(&device->lock);
  if (!noted)
    return ocl_error(HAL_RESOURCE_EXHAUSTED, 0, "opencl: no host memory to wait for a device; free some memory");
  status = lasts.status;
  const cl_int code = wait_lasts(&lasts);
  pthread_mutex_lock(&device->lock);
  for (hal_plugin_stream_t *stream = device->streams; stream; stream = stream->next) {
    ocl_work_waited(stream, CL_SUCCESS);
    if (!status) status = take_failure(stream); /* one failure is reported; the others belong to their own streams */
  }
  pthread_mutex_unlock(&device->lock);
  if (code && !status) status = ocl_driver_error(code, "opencl: the driver cannot wait for device %d", (int)ordinal);
  return status;
}
