/* host_call.c: host functions. A thread of the stream waits for a marker, calls the function, and completes a user
 * event that the stream's next commands wait for. Functions are not called on a thread of the driver, which may hold
 * its locks, nor on the caller's. */
#define _POSIX_C_SOURCE 200809L
#include <hal/plugin_worker.h>
#include <time.h>

#include "capture.h"

typedef struct host_call_s {
  hal_worker_item_t item;
  cl_event ready, done; /* a marker; a user event */
  hal_host_fn_t fn;
  void *user_data;
} host_call_t;

/* Failed work before the call must not block the caller. Work that still runs, although the driver cannot wait for it,
 * must be waited for. */
static void wait_ready(cl_event ready) {
  const struct timespec pause = {.tv_nsec = 1000000};
  while (icd.clWaitForEvents(1, &ready) && ocl_event_status(ready) > CL_COMPLETE) nanosleep(&pause, NULL);
}

static void run(hal_worker_item_t *item) {
  host_call_t *const call = (host_call_t *)item;
  wait_ready(call->ready);
  call->fn(call->user_data);
  icd.clSetUserEventStatus(call->done, CL_COMPLETE);
  icd.clReleaseEvent(call->done);
  icd.clReleaseEvent(call->ready);
  hal_host->mem_free(call);
}

/* Queues marker and barrier. */
static cl_int enqueue(ocl_submit_t *submit, host_call_t *call) {
  cl_int code = CL_SUCCESS;
  call->done = icd.clCreateUserEvent(ocl.context, &code);
  if (!code && !call->done) code = CL_INVALID_EVENT;
  if (code) return code;
  code = icd.clEnqueueMarkerWithWaitList(submit->queue, 0, NULL, &call->ready);
  if (!code && !call->ready) code = CL_INVALID_EVENT;
  if (!code) code = icd.clEnqueueBarrierWithWaitList(submit->queue, 1, &call->done, &submit->work.event);
  if (!code) return CL_SUCCESS;
  icd.clSetUserEventStatus(call->done, CL_COMPLETE);
  icd.clReleaseEvent(call->done);
  if (call->ready) icd.clReleaseEvent(call->ready);
  return code;
}

hal_status_t hal_plugin_stream_host_call(hal_plugin_stream_t *stream, hal_host_fn_t fn, void *user_data) {
  if (!fn) return ocl_error(HAL_INVALID_ARGUMENT, 0, "opencl: stream_host_call without a function");
  hal_status_t status = stream ? ocl_check_device(stream->device) : HAL_OK;
  if (status) return status;
  if (ocl_is_captured(stream)) return ocl_capture_refuse(stream, "stream_host_call");
  if (!stream || ocl.devices[stream->device].user_events_hang) {
    if (stream) ocl_work_drain(stream);
    fn(user_data);
    return HAL_OK;
  }
  host_call_t *call = hal_host->mem_alloc(sizeof *call, alignof(host_call_t));
  if (!call)
    return ocl_error(HAL_RESOURCE_EXHAUSTED, 0, "opencl: no host memory for a host function; free some memory");
  *call = (host_call_t){.item.run = run, .fn = fn, .user_data = user_data};
  ocl_submit_t submit;
  status = ocl_submit_begin(&submit, stream, stream->device, "stream_host_call");
  if (status) {
    hal_host->mem_free(call);
    return status;
  }
  submit.work.noted = 0;
  submit.flush = 1;
  if (!stream->host) status = hal_worker_start(&stream->host);
  if (status) {
    pthread_mutex_unlock(&stream->lock);
    hal_host->mem_free(call);
    return status;
  }
  const cl_int code = enqueue(&submit, call);
  if (code)
    hal_host->mem_free(call);
  else
    hal_worker_push(stream->host, &call->item);
  return ocl_submit_end(&submit, code);
}
