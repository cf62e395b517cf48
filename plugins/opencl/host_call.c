/* host_call.c: host functions. A thread of the stream waits for a marker, calls the function, and completes a user event that the
 * stream's next commands wait for. No function is called on a thread of the driver, which may hold its locks, or on the caller's. */
#define _POSIX_C_SOURCE 200809L
#include <string.h>
#include <time.h>

#include "opencl.h"

typedef struct host_call_s {
  struct host_call_s *next;
  cl_event ready, done; /* a marker; a user event */
  hal_host_fn_t fn;
  void *user_data;
} host_call_t;

typedef struct ocl_host_thread_s {
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t wake;
  host_call_t *first, **last;
  int stop;
} ocl_host_thread_t;

static host_call_t *next_call(ocl_host_thread_t *host) {
  pthread_mutex_lock(&host->lock);
  while (!host->first && !host->stop) pthread_cond_wait(&host->wake, &host->lock);
  host_call_t *call = host->first;
  if (call) {
    host->first = call->next;
    if (!host->first) host->last = &host->first;
  }
  pthread_mutex_unlock(&host->lock);
  return call;
}

/* Failed work before the call is no reason to leave the caller waiting; work that still runs, though the driver cannot wait for it, is. */
static void wait_ready(cl_event ready) {
  const struct timespec pause = {.tv_nsec = 1000000};
  while (icd.clWaitForEvents(1, &ready) && ocl_event_status(ready) > CL_COMPLETE) nanosleep(&pause, NULL);
}

static void *run(void *argument) {
  for (host_call_t *call; (call = next_call(argument));) {
    wait_ready(call->ready);
    call->fn(call->user_data);
    icd.clSetUserEventStatus(call->done, CL_COMPLETE);
    icd.clReleaseEvent(call->done);
    icd.clReleaseEvent(call->ready);
    hal_host->mem_free(call);
  }
  return NULL;
}

static void push(ocl_host_thread_t *host, host_call_t *call) {
  pthread_mutex_lock(&host->lock);
  *host->last = call;
  host->last = &call->next;
  pthread_cond_signal(&host->wake);
  pthread_mutex_unlock(&host->lock);
}

/* The stream's lock is held. */
static hal_status_t ensure_thread(hal_plugin_stream_t *stream) {
  if (stream->host) return HAL_OK;
  ocl_host_thread_t *host = hal_host->mem_alloc(sizeof *host, alignof(ocl_host_thread_t));
  if (!host) return ocl_error(HAL_RESOURCE_EXHAUSTED, 0, "opencl: no host memory for the thread of host functions");
  memset(host, 0, sizeof *host);
  host->last = &host->first;
  pthread_mutex_init(&host->lock, NULL);
  pthread_cond_init(&host->wake, NULL);
  const int code = pthread_create(&host->thread, NULL, run, host);
  if (code) {
    hal_host->mem_free(host);
    return ocl_error(HAL_RESOURCE_EXHAUSTED, code, "opencl: no thread to call host functions; end some threads");
  }
  stream->host = host;
  return HAL_OK;
}

void ocl_host_stop(hal_plugin_stream_t *stream) {
  ocl_host_thread_t *host = stream->host;
  if (!host) return;
  pthread_mutex_lock(&host->lock);
  host->stop = 1;
  pthread_cond_signal(&host->wake);
  pthread_mutex_unlock(&host->lock);
  pthread_join(host->thread, NULL);
  pthread_cond_destroy(&host->wake);
  pthread_mutex_destroy(&host->lock);
  hal_host->mem_free(host);
  stream->host = NULL;
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
  if (!stream || ocl.devices[stream->device].user_events_hang) {
    if (stream) ocl_work_drain(stream);
    fn(user_data);
    return HAL_OK;
  }
  host_call_t *call = hal_host->mem_alloc(sizeof *call, alignof(host_call_t));
  if (!call)
    return ocl_error(HAL_RESOURCE_EXHAUSTED, 0, "opencl: no host memory for a host function; free some memory");
  *call = (host_call_t){.fn = fn, .user_data = user_data};
  ocl_submit_t submit;
  status = ocl_submit_begin(&submit, stream, stream->device, "stream_host_call");
  if (status) {
    hal_host->mem_free(call);
    return status;
  }
  submit.work.noted = 0;
  submit.flush = 1;
  status = ensure_thread(stream);
  if (status) {
    pthread_mutex_unlock(&stream->lock);
    hal_host->mem_free(call);
    return status;
  }
  const cl_int code = enqueue(&submit, call);
  if (code)
    hal_host->mem_free(call);
  else
    push(stream->host, call);
  return ocl_submit_end(&submit, code);
}
