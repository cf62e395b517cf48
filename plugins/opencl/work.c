/* work.c: commands between their submission and their end. Each command stores its event in the ring of its stream. The
 * ring is used to detect failures, to query whether a stream is done, and to record profiles. */
#include <stdio.h>
#include <string.h>

#include "opencl.h"

/* The number of commands per clFlush, while the device has other work. */
enum { FLUSH_EVERY = 16, FIRST_ROOM = 64 };

cl_int ocl_event_status(cl_event event) {
  cl_int status = CL_COMPLETE;
  const cl_int code = icd.clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL);
  return code ? code : status;
}

cl_int ocl_event_wait(cl_event event, cl_command_queue queue) {
  cl_int code = icd.clWaitForEvents(1, &event);
  if (ocl_event_status(event) <= CL_COMPLETE)
    return CL_SUCCESS;                         /* a failure of the command is the event's own status */
  const cl_int finished = icd.clFinish(queue); /* the driver could not wait: tries another way */
  if (ocl_event_status(event) <= CL_COMPLETE) return CL_SUCCESS;
  if (!code) code = finished;
  return code ? code : CL_INVALID_EVENT;
}

static void keep_failure(hal_plugin_stream_t *stream, const ocl_work_t *work, cl_int code) {
  if (stream->failure.status) return; /* the first is the cause of the others */
  ocl_failure_t *failure = &stream->failure;
  failure->code = code;
  failure->status = code == CL_DEVICE_NOT_AVAILABLE ? HAL_UNAVAILABLE : HAL_INTERNAL;
  snprintf(failure->op, sizeof failure->op, "%s", work->op);
  snprintf(failure->kernel, sizeof failure->kernel, "%s", work->kernel ? work->kernel : "");
}

void ocl_work_reap(hal_plugin_stream_t *stream, uint32_t most) {
  while (stream->count && most--) {
    ocl_work_t *work = &stream->ring[stream->first];
    const cl_int status = ocl_event_status(work->event);
    if (status > CL_COMPLETE) return;
    if (OCL_UNLIKELY(status < 0)) keep_failure(stream, work, status);
    if (OCL_UNLIKELY(work->noted)) ocl_profile_append(stream->device, stream, work);
    icd.clReleaseEvent(work->event);
    stream->first = (stream->first + 1) & (stream->room - 1);
    stream->count--;
  }
}

/* Flushes the commands to the device. The caller holds the lock. The stream stores an error of the driver, because the
 * commands may never run. */
static void flush(hal_plugin_stream_t *stream, const ocl_work_t *last) {
  stream->unflushed = 0;
  const cl_int code = icd.clFlush(stream->queue);
  if (OCL_UNLIKELY(code)) keep_failure(stream, last, code);
}

static ocl_work_t *last_of(hal_plugin_stream_t *stream) {
  return &stream->ring[(stream->first + stream->count - 1) & (stream->room - 1)];
}

cl_event ocl_work_last(hal_plugin_stream_t *stream) {
  if (!stream->count) return NULL;
  ocl_work_t *last = last_of(stream);
  icd.clRetainEvent(last->event);
  flush(stream, last);
  return last->event;
}

void ocl_work_flush(hal_plugin_stream_t *stream) {
  if (stream->count && stream->unflushed) flush(stream, last_of(stream));
}

static int grow(hal_plugin_stream_t *stream) {
  const uint32_t room = stream->room ? 2 * stream->room : FIRST_ROOM;
  ocl_work_t *ring = hal_host->mem_alloc(room * sizeof *ring, alignof(ocl_work_t));
  if (!ring) return 0;
  for (uint32_t i = 0; i < stream->count; i++) ring[i] = stream->ring[(stream->first + i) & (stream->room - 1)];
  hal_host->mem_free(stream->ring);
  stream->ring = ring;
  stream->first = 0;
  stream->room = room;
  return 1;
}

hal_status_t ocl_submit_begin(ocl_submit_t *submit, hal_plugin_stream_t *stream, int32_t device, const char *op) {
  submit->stream = stream;
  submit->device = stream ? stream->device : device;
  submit->flush = 0;
  submit->work = (ocl_work_t){.op = op};
  submit->work.noted = hal_records_note(&ocl.devices[submit->device].profile, &submit->work.correlation);
  if (!stream) {
    submit->queue = ocl.devices[device].queue;
    return HAL_OK;
  }
  submit->queue = stream->queue;
  pthread_mutex_lock(&stream->lock);
  ocl_work_reap(stream, 2); /* removes entries twice as fast as they are added */
  if (OCL_LIKELY(stream->count < stream->room) || grow(stream)) return HAL_OK;
  pthread_mutex_unlock(&stream->lock);
  return ocl_error(HAL_RESOURCE_EXHAUSTED, 0,
                   "opencl: no host memory to track %u queued commands; synchronize the stream",
                   (unsigned)stream->count);
}

static hal_status_t wait_for(int32_t device, const ocl_work_t *work) {
  const cl_int code = ocl_event_wait(work->event, ocl.devices[device].queue), status = ocl_event_status(work->event);
  if (OCL_UNLIKELY(work->noted)) ocl_profile_append(device, NULL, work);
  icd.clReleaseEvent(work->event);
  if (OCL_LIKELY(!code && status == CL_COMPLETE)) return HAL_OK;
  return ocl_driver_error(status < 0 ? status : code, "opencl: %s%s%s failed on the device", work->op,
                          work->kernel ? " of " : "", work->kernel ? work->kernel : "");
}

hal_status_t ocl_submit_end(ocl_submit_t *submit, cl_int code) {
  hal_plugin_stream_t *stream = submit->stream;
  const ocl_work_t *work = &submit->work;
  if (OCL_UNLIKELY(!code && !work->event)) code = CL_INVALID_EVENT; /* queued, but waiting for it failed */
  if (!stream && OCL_LIKELY(!code)) return wait_for(submit->device, work);
  if (OCL_LIKELY(!code)) {
    const int idle = !stream->count;
    stream->ring[(stream->first + stream->count++) & (stream->room - 1)] = *work;
    if (idle || submit->flush || ++stream->unflushed >= FLUSH_EVERY) flush(stream, work);
  }
  if (stream) pthread_mutex_unlock(&stream->lock);
  if (OCL_LIKELY(!code)) return HAL_OK;
  return ocl_driver_error(code, "opencl: %s%s%s was refused", work->op, work->kernel ? " of " : "",
                          work->kernel ? work->kernel : "");
}

void ocl_work_waited(hal_plugin_stream_t *stream, cl_int code) {
  static const ocl_work_t wait = {.op = "stream_synchronize"};
  pthread_mutex_lock(&stream->lock);
  if (OCL_UNLIKELY(code)) keep_failure(stream, &wait, code);
  ocl_work_reap(stream, UINT32_MAX);
  pthread_mutex_unlock(&stream->lock);
}

hal_status_t ocl_work_mark(hal_plugin_stream_t *stream) {
  ocl_submit_t submit;
  if (OCL_LIKELY(!atomic_load_explicit(&stream->lent, memory_order_relaxed))) return HAL_OK;
  const hal_status_t status = ocl_submit_begin(&submit, stream, stream->device, "stream_native");
  if (status) return status;
  submit.work.noted = 0;
  submit.flush = 1;
  return ocl_submit_end(&submit, icd.clEnqueueMarkerWithWaitList(submit.queue, 0, NULL, &submit.work.event));
}

void ocl_work_drain(hal_plugin_stream_t *stream) {
  pthread_mutex_lock(&stream->lock);
  const cl_event last = ocl_work_last(stream);
  pthread_mutex_unlock(&stream->lock);
  if (!last) return;
  const cl_int code = ocl_event_wait(last, stream->queue);
  icd.clReleaseEvent(last);
  ocl_work_waited(stream, code);
}

void ocl_work_discard(hal_plugin_stream_t *stream) {
  for (; stream->count; stream->count--) {
    icd.clReleaseEvent(stream->ring[stream->first].event);
    stream->first = (stream->first + 1) & (stream->room - 1);
  }
}

void ocl_work_reap_all(int32_t ordinal) {
  ocl_device_t *device = &ocl.devices[ordinal];
  pthread_mutex_lock(&device->lock);
  for (hal_plugin_stream_t *stream = device->streams; stream; stream = stream->next) {
    pthread_mutex_lock(&stream->lock);
    ocl_work_reap(stream, UINT32_MAX);
    pthread_mutex_unlock(&stream->lock);
  }
  pthread_mutex_unlock(&device->lock);
}
