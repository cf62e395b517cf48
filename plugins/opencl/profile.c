/* profile.c: records of kernels, copies and fills, from the driver's profiling of their events. A command is marked
 * when it is queued while a profile collects, and recorded when its stream sees that it is complete. */
#define _POSIX_C_SOURCE 200809L
#include <time.h>

#include "opencl.h"

static int64_t host_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

void ocl_profile_append(int32_t device, hal_plugin_stream_t *stream, const ocl_work_t *work) {
  cl_ulong start = 0, end = 0;
  if (icd.clGetEventProfilingInfo(work->event, CL_PROFILING_COMMAND_START, sizeof start, &start, NULL) ||
      icd.clGetEventProfilingInfo(work->event, CL_PROFILING_COMMAND_END, sizeof end, &end, NULL) || !end)
    return; /* it failed */
  const hal_profile_record_t record = {.struct_size = sizeof record,
                                       .name = work->kernel ? work->kernel : work->op,
                                       .start_ns = (int64_t)(start > end ? end : start),
                                       .end_ns = (int64_t)end,
                                       .correlation = work->correlation,
                                       .bytes = work->bytes,
                                       .stream = stream,
                                       .kind = work->kind,
                                       .direction = work->direction};
  hal_records_append(&ocl.devices[device].profile, work->noted, &record);
}

hal_status_t hal_plugin_profile_enable(int32_t device, int32_t on) {
  const hal_status_t status = ocl_check_device(device);
  if (status) return status;
  if (on)
    atomic_store(&ocl.keep_names, 1);
  else
    ocl_work_reap_all(device);
  hal_records_enable(&ocl.devices[device].profile, on);
  return HAL_OK;
}

hal_status_t hal_plugin_profile_read(int32_t device, hal_profile_sink_t sink, void *user_data) {
  const hal_status_t status = ocl_check_device(device);
  if (status) return status;
  ocl_work_reap_all(device);
  hal_records_read(&ocl.devices[device].profile, sink, user_data);
  return HAL_OK;
}

/* The end of a marker is the current time of the device's clock; the host's clock is read before and after it. Each
 * device has its own clock. */
hal_status_t hal_plugin_profile_timestamp(int32_t device, int64_t *out_device_ns, int64_t *out_host_ns) {
  const hal_status_t status = ocl_check_device(device);
  if (status) return status;
  int64_t best = INT64_MAX;
  for (int i = 0; i < 5; i++) { /* the shortest of several measurements is the most exact */
    cl_event marker = NULL;
    cl_ulong end = 0;
    const int64_t before = host_now();
    cl_int code = icd.clEnqueueMarkerWithWaitList(ocl.devices[device].queue, 0, NULL, &marker);
    if (!code && !marker) code = CL_INVALID_EVENT;
    if (code) return ocl_driver_error(code, "opencl: cannot read the device's clock");
    code = icd.clWaitForEvents(1, &marker);
    const int64_t after = host_now();
    if (!code) code = icd.clGetEventProfilingInfo(marker, CL_PROFILING_COMMAND_END, sizeof end, &end, NULL);
    icd.clReleaseEvent(marker);
    if (code) return ocl_driver_error(code, "opencl: cannot read the device's clock");
    if (after - before >= best) continue;
    best = after - before;
    *out_device_ns = (int64_t)end;
    *out_host_ns = before + best / 2;
  }
  return HAL_OK;
}
