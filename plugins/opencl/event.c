/* event.c: events. A record is the driver's event of the last command of the stream. An event with HAL_EVENT_TIMING has
 * its own marker, whose end is the time. */
#include <string.h>

#include "capture.h"

struct hal_plugin_event_s {
  int32_t device;
  uint32_t flags;
  pthread_mutex_t lock; /* guards the members below */
  cl_event handle;      /* NULL: nothing to wait for */
  cl_command_queue queue;
  int recorded;
  ocl_mark_t mark; /* the position in a capture at which it was recorded */
};

hal_status_t hal_plugin_event_create(int32_t device, uint32_t flags, hal_plugin_event_t **out_event) {
  const hal_status_t status = ocl_check_device(device);
  if (status) return status;
  if (flags & ~(uint32_t)(HAL_EVENT_TIMING | HAL_EVENT_BLOCKING))
    return ocl_error(HAL_UNIMPLEMENTED, 0, "opencl: events with flags 0x%x are unsupported (only timing and blocking)",
                     (unsigned)flags);
  hal_plugin_event_t *event = hal_host->mem_alloc(sizeof *event, alignof(hal_plugin_event_t));
  if (!event) return ocl_error(HAL_RESOURCE_EXHAUSTED, 0, "opencl: no host memory for an event; free some memory");
  *event = (hal_plugin_event_t){.device = device, .flags = flags};
  pthread_mutex_init(&event->lock, NULL);
  *out_event = event;
  return HAL_OK;
}

hal_status_t hal_plugin_event_destroy(hal_plugin_event_t *event) {
  if (!event) return HAL_OK;
  const hal_status_t status = ocl_check_device(event->device);
  if (status) return status;
  if (event->handle) icd.clReleaseEvent(event->handle);
  pthread_mutex_destroy(&event->lock);
  hal_host->mem_free(event);
  return HAL_OK;
}

/* Replaces the record, by one in a capture if `mark` is given; takes ownership of the reference to `handle`. */
static void set_record(hal_plugin_event_t *event, cl_event handle, cl_command_queue queue, const ocl_mark_t *mark) {
  pthread_mutex_lock(&event->lock);
  const cl_event old = event->handle;
  event->handle = handle;
  event->queue = queue;
  event->recorded = 1;
  event->mark = mark ? *mark : (ocl_mark_t){0};
  pthread_mutex_unlock(&event->lock);
  if (old) icd.clReleaseEvent(old);
}

/* Returns the handle with a reference, or NULL. */
static cl_event take_handle(hal_plugin_event_t *event, cl_command_queue *out_queue, int *out_recorded) {
  pthread_mutex_lock(&event->lock);
  const cl_event handle = event->handle;
  if (handle) icd.clRetainEvent(handle);
  if (out_queue) *out_queue = event->queue;
  if (out_recorded) *out_recorded = event->recorded;
  pthread_mutex_unlock(&event->lock);
  return handle;
}

/* The queue is in order: when its last command is done, all are. */
static hal_status_t record_last(hal_plugin_event_t *event, hal_plugin_stream_t *stream) {
  const hal_status_t status = ocl_work_mark(stream);
  if (status) return status;
  pthread_mutex_lock(&stream->lock);
  ocl_work_reap(stream, UINT32_MAX);
  set_record(event, ocl_work_last(stream), stream->queue, NULL); /* flushed, because another queue may wait for it */
  pthread_mutex_unlock(&stream->lock);
  return HAL_OK;
}

/* Queues nothing; streams that wait for it are captured, too. */
static hal_status_t record_captured(hal_plugin_event_t *event, hal_plugin_stream_t *stream) {
  const ocl_mark_t mark = ocl_capture_mark(stream);
  set_record(event, NULL, NULL, &mark);
  return HAL_OK;
}

static ocl_mark_t mark_of(hal_plugin_event_t *event) {
  pthread_mutex_lock(&event->lock);
  const ocl_mark_t mark = event->mark;
  pthread_mutex_unlock(&event->lock);
  return mark;
}

/* A record in a capture never completes. */
static hal_status_t refuse_captured(hal_plugin_event_t *event, const char *op) {
  const ocl_mark_t mark = mark_of(event);
  if (OCL_LIKELY(!ocl_capture_is_on(&mark))) return HAL_OK;
  return ocl_error(HAL_FAILED_PRECONDITION, 0,
                   "opencl: %s of an event that was recorded on a captured stream; only streams may wait for it", op);
}

hal_status_t hal_plugin_event_record(hal_plugin_event_t *event, hal_plugin_stream_t *stream) {
  ocl_submit_t submit;
  hal_status_t status = ocl_check_device(event->device);
  if (status) return status;
  if (ocl_is_captured(stream)) return record_captured(event, stream);
  if (stream && !(event->flags & HAL_EVENT_TIMING)) return record_last(event, stream);
  status = ocl_submit_begin(&submit, stream, event->device, "event_record");
  if (status) return status;
  submit.work.noted = 0;
  submit.flush = 1;
  const cl_int code = icd.clEnqueueMarkerWithWaitList(submit.queue, 0, NULL, &submit.work.event);
  if (!code && submit.work.event) {
    icd.clRetainEvent(submit.work.event);
    set_record(event, submit.work.event, submit.queue, NULL);
  }
  return ocl_submit_end(&submit, code);
}

/* Failed work is done, too; its stream reports the failure. */
hal_status_t hal_plugin_event_query(hal_plugin_event_t *event) {
  hal_status_t status = ocl_check_device(event->device);
  if (!status) status = refuse_captured(event, "event_query");
  if (status) return status;
  const cl_event handle = take_handle(event, NULL, NULL);
  if (!handle) return HAL_OK;
  const cl_int state = ocl_event_status(handle);
  icd.clReleaseEvent(handle);
  return state > CL_COMPLETE ? HAL_NOT_READY : HAL_OK;
}

hal_status_t hal_plugin_event_synchronize(hal_plugin_event_t *event) {
  hal_status_t status = ocl_check_device(event->device);
  if (!status) status = refuse_captured(event, "event_synchronize");
  if (status) return status;
  cl_command_queue queue = NULL;
  const cl_event handle = take_handle(event, &queue, NULL);
  if (!handle) return HAL_OK;
  const cl_int code = ocl_event_wait(handle, queue);
  icd.clReleaseEvent(handle);
  return code ? ocl_driver_error(code, "opencl: the driver cannot wait for an event") : HAL_OK;
}

static hal_status_t time_of(hal_plugin_event_t *event, cl_ulong *out_ns) {
  int recorded = 0;
  cl_int code = CL_SUCCESS, state = CL_COMPLETE;
  const cl_event handle = take_handle(event, NULL, &recorded);
  if (!recorded || !handle)
    return ocl_error(HAL_FAILED_PRECONDITION, 0,
                     "opencl: elapsed time of an event that was never recorded; record both");
  state = ocl_event_status(handle);
  if (state <= CL_COMPLETE)
    code = icd.clGetEventProfilingInfo(handle, CL_PROFILING_COMMAND_END, sizeof *out_ns, out_ns, NULL);
  icd.clReleaseEvent(handle);
  if (state > CL_COMPLETE) return HAL_NOT_READY;
  if (code) return ocl_driver_error(code, "opencl: an event has no time");
  return HAL_OK;
}

hal_status_t hal_plugin_event_elapsed(hal_plugin_event_t *start, hal_plugin_event_t *end, int64_t *out_nanoseconds) {
  cl_ulong from = 0, to = 0;
  hal_status_t status = ocl_check_device(start->device);
  if (status) return status;
  if (!(start->flags & end->flags & HAL_EVENT_TIMING))
    return ocl_error(
        HAL_FAILED_PRECONDITION, 0,
        "opencl: elapsed time of events created without HAL_EVENT_TIMING; create both with timing enabled");
  if (start->device != end->device)
    return ocl_error(HAL_INVALID_ARGUMENT, 0,
                     "opencl: elapsed time between events of device %d and device %d; use events of one device",
                     (int)start->device, (int)end->device);
  status = time_of(start, &from);
  if (!status) status = time_of(end, &to);
  if (!status) *out_nanoseconds = (int64_t)(to - from);
  return status;
}

hal_status_t hal_plugin_stream_wait_event(hal_plugin_stream_t *stream, hal_plugin_event_t *event) {
  if (!stream) return hal_plugin_event_synchronize(event);
  hal_status_t status = ocl_check_device(stream->device);
  if (status) return status;
  cl_command_queue queue = NULL;
  const ocl_mark_t mark = mark_of(event);
  const cl_event handle = take_handle(event, &queue, NULL);
  if (OCL_UNLIKELY(ocl_is_captured(stream) || mark.capture)) {
    status = ocl_capture_wait(stream, &mark, !handle || ocl_event_status(handle) <= CL_COMPLETE);
    if (handle) icd.clReleaseEvent(handle);
    return status;
  }
  if (!handle) return HAL_OK;
  /* A queue is in order, so it need not wait for its own events. A destroyed queue has left only complete events. */
  if (queue != stream->queue && ocl_event_status(handle) > CL_COMPLETE) {
    ocl_submit_t submit;
    status = ocl_submit_begin(&submit, stream, stream->device, "stream_wait_event");
    if (!status) {
      submit.work.noted = 0;
      status = ocl_submit_end(&submit, icd.clEnqueueBarrierWithWaitList(submit.queue, 1, &handle, &submit.work.event));
    }
  }
  icd.clReleaseEvent(handle);
  return status;
}
