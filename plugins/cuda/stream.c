/* stream.c: streams of the driver. They are created non-blocking: they are not synchronized with the driver's default
 * stream, which other users of CUDA may use. */
#include <stdio.h>
#include <string.h>

#include "cuda_plugin.h"

/* The driver's range of priorities, most urgent first, is greatest .. least, for example -5 .. 0. */
static int priority_of(const cuda_device_t *device, int32_t wanted) {
  return wanted < device->greatest ? device->greatest : wanted > device->least ? device->least : wanted;
}

hal_status_t cuda_stream_make(int32_t ordinal, int32_t priority, hal_plugin_stream_t **out_stream) {
  const cuda_device_t *const device = &cuda.devices[ordinal];
  hal_plugin_stream_t *const stream = hal_host->mem_alloc(sizeof *stream, alignof(hal_plugin_stream_t));
  if (!stream)
    return cuda_error(HAL_RESOURCE_EXHAUSTED, 0, "cuda: no host memory for a stream of device %d; free some memory",
                      (int)ordinal);
  memset(stream, 0, sizeof *stream);
  stream->device = ordinal;
  CUresult code =
      drv.cuStreamCreateWithPriority(&stream->handle, CU_STREAM_NON_BLOCKING, priority_of(device, priority));
  if (!code && !stream->handle) code = CUDA_ERROR_UNKNOWN;
  if (code) {
    hal_host->mem_free(stream);
    cuda_device_noticed(ordinal, code);
    return cuda_driver_error(code, "cuda: cannot create a stream of '%s'", device->name);
  }
  pthread_mutex_init(&stream->lock, NULL);
  *out_stream = stream;
  return HAL_OK;
}

void cuda_stream_unmake(hal_plugin_stream_t *stream) {
  cuda_spans_release(stream);
  drv.cuStreamDestroy(stream->handle);
  pthread_mutex_destroy(&stream->lock);
  hal_host->mem_free(stream);
}

hal_status_t hal_plugin_stream_create(int32_t ordinal, const hal_stream_desc_t *desc,
                                      hal_plugin_stream_t **out_stream) {
  hal_plugin_stream_t *stream = NULL;
  cuda_scope_t scope;
  hal_status_t status = cuda_check_alive(ordinal);
  if (!status) status = hal_stream_desc_check("cuda: stream_create", desc, 0);
  if (!status) status = cuda_enter(ordinal, &scope);
  if (status) return status;
  status = cuda_stream_make(ordinal, desc->priority, &stream);
  cuda_leave(&scope);
  if (status) return status;
  cuda_device_t *const device = &cuda.devices[ordinal];
  pthread_mutex_lock(&device->lock);
  stream->next = device->streams;
  if (device->streams) device->streams->previous = stream;
  device->streams = stream;
  pthread_mutex_unlock(&device->lock);
  *out_stream = stream;
  return HAL_OK;
}

static void unlink_stream(hal_plugin_stream_t *stream) {
  cuda_device_t *const device = &cuda.devices[stream->device];
  pthread_mutex_lock(&device->lock);
  if (stream->previous)
    stream->previous->next = stream->next;
  else
    device->streams = stream->next;
  if (stream->next) stream->next->previous = stream->previous;
  pthread_mutex_unlock(&device->lock);
}

hal_status_t hal_plugin_stream_destroy(hal_plugin_stream_t *stream) {
  cuda_scope_t scope;
  if (!stream) return HAL_OK;
  const hal_status_t status = cuda_enter(stream->device, &scope);
  if (status) return status;
  const CUresult code = drv.cuStreamSynchronize(stream->handle);
  cuda_device_noticed(stream->device, code);
  if (code && atomic_load(&stream->op))
    hal_host->log(HAL_LOG_ERROR, "cuda: a stream was destroyed with an unreported failure; synchronize it first");
  cuda_spans_reap(stream);
  unlink_stream(stream);
  cuda_stream_unmake(stream);
  cuda_leave(&scope);
  return HAL_OK;
}

void cuda_streams_forget(int32_t ordinal, const char *kernel) {
  cuda_device_t *const device = &cuda.devices[ordinal];
  pthread_mutex_lock(&device->lock);
  for (hal_plugin_stream_t *stream = device->streams; stream; stream = stream->next) {
    const char *expected = kernel;
    atomic_compare_exchange_strong(&stream->kernel, &expected, NULL);
  }
  pthread_mutex_unlock(&device->lock);
}

/* ---- waiting ---------------------------------------------------------------------------------------------------- */

/* `function` is cuStreamSynchronize or cuStreamQuery. */
static hal_status_t check_stream(hal_plugin_stream_t *stream, CUresult (*function)(CUstream)) {
  cuda_scope_t scope;
  if (!stream) return HAL_OK;
  const hal_status_t status = cuda_enter(stream->device, &scope);
  if (status) return status;
  const char *const last = atomic_load_explicit(&stream->op, memory_order_relaxed);
  const CUresult code = function(stream->handle);
  cuda_leave(&scope);
  if (code == CUDA_ERROR_NOT_READY) return HAL_NOT_READY;
  if (CUDA_UNLIKELY(stream->count)) cuda_spans_reap(stream);
  if (CUDA_UNLIKELY(code)) return cuda_work_failed(stream, code);
  if (CUDA_UNLIKELY(atomic_load_explicit(&stream->aborted, memory_order_relaxed)) &&
      atomic_exchange(&stream->aborted, 0))
    return cuda_error(HAL_ABORTED, 0,
                      "cuda: a collective on this stream of device %d was aborted; its results are undefined",
                      (int)stream->device);
  const char *expected = last; /* work queued meanwhile has not been waited for */
  if (last) atomic_compare_exchange_strong(&stream->op, &expected, NULL);
  return HAL_OK;
}

hal_status_t hal_plugin_stream_synchronize(hal_plugin_stream_t *stream) {
  return check_stream(stream, drv.cuStreamSynchronize);
}
hal_status_t hal_plugin_stream_query(hal_plugin_stream_t *stream) { return check_stream(stream, drv.cuStreamQuery); }

/* Runs without a lock, because a queued host function may create or destroy streams. A failure ends the whole context.
 * It is reported with the last command of a stream that has one; the other streams report theirs when they are queried.
 * */
hal_status_t hal_plugin_device_synchronize(int32_t ordinal) {
  cuda_scope_t scope;
  hal_status_t status = cuda_check_device(ordinal);
  if (status) return status;
  cuda_device_t *const device = &cuda.devices[ordinal];
  if (!atomic_load(&device->context)) return HAL_OK; /* nothing was ever queued */
  status = cuda_enter(ordinal, &scope);
  if (status) return status;
  const CUresult code = drv.cuCtxSynchronize();
  cuda_leave(&scope);
  cuda_device_noticed(ordinal, code);
  pthread_mutex_lock(&device->lock);
  for (hal_plugin_stream_t *stream = device->streams; stream; stream = stream->next) {
    cuda_spans_reap(stream);
    if (code && !status && atomic_load(&stream->op)) status = cuda_work_failed(stream, code);
  }
  pthread_mutex_unlock(&device->lock);
  if (status || !code) return status;
  return cuda_error_is_fatal(code)
             ? cuda_check_alive(ordinal)
             : cuda_driver_error(code, "cuda: the driver cannot wait for device %d", (int)ordinal);
}

/* ---- error reports ---------------------------------------------------------------------------------------------- */

hal_status_t hal_plugin_stream_error(hal_plugin_stream_t *stream, hal_stream_error_t *out_error) {
  if (!stream || cuda_check_device(stream->device)) return HAL_NOT_FOUND;
  pthread_mutex_lock(&stream->lock);
  const cuda_failure_t told = stream->told;
  pthread_mutex_unlock(&stream->lock);
  if (!told.status) return HAL_NOT_FOUND;
  hal_stream_error_t error = {
      .struct_size = out_error->struct_size, .status = told.status, .native_code = (int64_t)told.code};
  memcpy(error.op, told.op, sizeof error.op);
  memcpy(error.kernel, told.kernel, sizeof error.kernel);
  snprintf(error.message, sizeof error.message, "the driver returned %s", cuda_error_name(told.code));
  memcpy(out_error, &error, error.struct_size < sizeof error ? error.struct_size : sizeof error);
  return HAL_OK;
}

hal_status_t hal_plugin_stream_native(hal_plugin_stream_t *stream, void **out_native) {
  *out_native = stream ? stream->handle : NULL;
  return HAL_OK;
}
