/* host_kernel.c: kernels that the host computes for a device, with records in the profile. */
#define _POSIX_C_SOURCE 200809L /* hal_clock_ns */
#include <stdio.h>

#include "base/clock.h"
#include "base/host_malloc.h"
#include "base/status_internal.h"
#include "device/profile_internal.h"
#include "hal/stream.h"
#include "queue/queue.h"

/* A call while a profile runs; it frees itself. */
typedef struct timed_call_s {
  hal_host_fn_t fn;
  void *user_data;
  uint64_t launch;
  int64_t stream;
  int32_t device;
  char name[96];
} timed_call_t;

static void run(void *data) {
  timed_call_t *const call = data;
  hal_profile_activity_t activity = {
      .name = call->name, .kind = HAL_PROFILE_KERNEL, .stream = call->stream, .device = call->device};
  activity.start_ns = hal_clock_ns();
  call->fn(call->user_data);
  activity.end_ns = hal_clock_ns();
  hal_profile_add_timed(&activity, call->launch);
  hal_free(call);
}

/* Queues a call with a record. HAL_NOT_READY: the stream is captured. */
static hal_status_t queue_timed(hal_stream_t *stream, const char *name, hal_host_fn_t fn, void *user_data) {
  timed_call_t *const call = hal_malloc(sizeof *call);
  if (!call)
    return hal_error_set(HAL_RESOURCE_EXHAUSTED,
                         "no host memory for the profile's record of kernel '%s'; stop the profile", name);
  *call = (timed_call_t){
      .fn = fn, .user_data = user_data, .stream = hal_stream_id(stream), .device = hal_stream_device(stream)};
  snprintf(call->name, sizeof call->name, "%s", name);
  hal_queue_t *const queue = hal_stream_queue(stream);
  hal_profile_begin_call();
  call->launch = hal_profile_correlation();
  const hal_status_t status = queue->calls->host_call_once(queue, run, call);
  hal_profile_end_call();
  if (status) hal_free(call);
  return status;
}

hal_status_t hal_stream_host_kernel(hal_stream_t *stream, const char *name, hal_host_fn_t fn, void *user_data) {
  if (!name || !fn)
    return hal_error_set(HAL_INVALID_ARGUMENT, "hal_stream_host_kernel: missing %s; pass it",
                         name ? "function" : "name of the kernel");
  if (!hal_profile_is_on()) return hal_stream_host_call(stream, fn, user_data);
  if (!stream) HAL_RETURN_IF_ERROR(hal_stream_current(hal_thread.device, &stream));
  HAL_RETURN_IF_ERROR(hal_device_check_alive(stream->device));
  const hal_status_t status = queue_timed(stream, name, fn, user_data);
  return status == HAL_NOT_READY ? hal_stream_host_call(stream, fn, user_data) : status;
}
